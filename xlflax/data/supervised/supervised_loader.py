"""Loader that creates the batch for any training step from labeled examples.

All sequences of the source are created when the loader opens, and they are held
in memory. As with a token cache, the n-th sequence that is drawn from a
language split with R sequences since step 0 is sequence n mod R of its epoch n
div R. An epoch is a permutation with the key (seed, language split, epoch). The
global batch of a step is therefore a pure function of the examples, the seed
and the step.

If a cache directory is set, the sequences are saved to files in it. A machine
that has neither the examples nor the packages that read them can train from
these files.
"""

import dataclasses
import hashlib
import itertools
import logging
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from xlflax.data import batch_keys, loader_base
from xlflax.data.sampling import hashing, permutation, sampling_order
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import feature_cache, featurizer
from xlflax.storage import checksums, manifests, paths
from xlflax.utils import errors, user_modules

_LOG = logging.getLogger(__name__)
_BLOCK = 1024  # Number of examples that are featurized together.
FOLDER = 'labeled'
_SUFFIX = '.npz'


class LabeledLoader:
  """Loader for a labeled dataset; see `loader_base.Loader`."""

  signature = ''
  num_batches = None

  def __init__(
    self,
    dataset: supervised_dataset.LabeledDatasetConfig,
    *,
    vocabulary,
    seed: int,
    cache_dir=None,
  ):
    """Opens the dataset.

    Args:
      dataset: Configuration of the labeled dataset.
      vocabulary: Vocabulary that encodes the examples.
      seed: Random seed that determines the order of the sequences.
      cache_dir: Directory in which the encoded sequences are cached. If None,
        they are not cached.

    Raises:
      CorpusError: If the source lacks a language split, or if a split has no
        sequences.
      CacheError: If the cached sequences are damaged.
    """
    self.dataset = dataset
    featurizer.warn_of_template_mismatch(dataset.featurizer, vocabulary)
    self._fields = dataset.featurizer.fields(dataset.length, vocabulary.spec)
    self._spec = dataset.batch_spec(vocabulary.spec)
    self._tables = _load_or_create_tables(dataset, vocabulary, cache_dir)
    self.identity = checksums.digest_json(
      {part: table.digest() for part, table in self._tables.items()}
    )
    group_size = dataset.group_size
    sizes = {
      part: table.num_rows // group_size for part, table in self._tables.items()
    }
    for part, size in sizes.items():
      if not size:
        raise _unusable_part_error(
          dataset, part, self._tables[part].counts['examples']
        )
    # The schedule samples groups instead of single sequences.
    group_config: Any = dataclasses.replace(
      dataset, batch_size=dataset.batch_size // group_size, group_size=1
    )
    self._schedule = sampling_order.RowSchedule(
      group_config,
      seed=seed,
      sizes=sizes,
      rates={part: float(size) for part, size in sizes.items()},
    )

  @property
  def spec(self):
    """Shape and type of each array in the global batch, by batch key."""
    return self._spec

  @property
  def num_rows(self) -> int:
    """Total number of sequences in all language splits (one epoch)."""
    return int(self._schedule.sizes.sum()) * self.dataset.group_size

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """Returns a slice of the global batch; see `loader_base.Loader.rows`."""
    loader_base.check_range(self.dataset, step, start, stop)
    group_size = self.dataset.group_size
    parts, uses = (
      np.repeat(group_values, group_size)[start:stop]
      for group_values in self._schedule.slots(step)
    )
    sizes = self._schedule.sizes[parts]
    epoch, index = np.divmod(uses, sizes)
    if self.dataset.shuffle:
      keys = hashing.draw_words(self._schedule.order_keys[parts], epoch)
      index = permutation.permute_index(index, sizes, keys)
    index = index * group_size + np.arange(start, stop) % group_size
    names = self._schedule.tasks
    return featurizer.stack_features(
      [
        self._tables[names[part]].row(row_index)
        for part, row_index in zip(parts.tolist(), index.tolist(), strict=True)
      ],
      self._fields,
    )

  def statistics(self) -> list[loader_base.TaskStatistics]:
    """Returns the size and sampling rate of each language split."""
    return [
      loader_base.TaskStatistics(
        task=part,
        languages=tuple(part.split('-')),
        examples=table.counts['examples'],
        rate=float(rate),
        rows=table.num_rows,
        dropped=table.counts['unused'],
        truncated=self._count_truncated(part),
        tokens=table.num_tokens(batch_keys.TOKEN_IDS),
      )
      for (part, table), rate in zip(
        sorted(self._tables.items()), self._schedule.rates(), strict=True
      )
    ]

  def log_lengths(self) -> None:
    """Logs the lengths of the sequences, and warns if texts are truncated."""
    for part, table in self._tables.items():
      num_truncated = self._count_truncated(part)
      tokens_per_row = table.num_tokens(batch_keys.TOKEN_IDS) / table.num_rows
      _LOG.log(
        logging.WARNING if num_truncated else logging.INFO,
        'Dataset %s: Sequences in %s have an average length of %.0f tokens, '
        'with a maximum of %d.%s',
        self.dataset.name,
        part,
        tokens_per_row,
        self.dataset.length,
        f' {num_truncated} of {table.num_rows} sequences have the maximum '
        'length. Longer text is truncated.'
        if num_truncated
        else '',
      )

  def _count_truncated(self, part: str) -> int:
    """Returns the number of sequences that may have been truncated.

    If the featurizer truncates texts, these are the sequences that have the
    maximum length.
    """
    if not self.dataset.featurizer.cuts:
      return 0
    return self._tables[part].num_full(
      batch_keys.TOKEN_IDS, self.dataset.length
    )

  def close(self) -> None:
    """Releases the memory that holds the sequences."""
    self._tables = {}


def _unusable_part_error(
  dataset, part: str, num_examples: int
) -> errors.CorpusError:
  """Returns the error for a language split without any sequences."""
  is_blind = all(example.is_blind for example in dataset.source.load(part))
  if is_blind:
    return errors.CorpusError(
      f'The {num_examples} examples of the language split {part!r} cannot be '
      f'used for training in the dataset {dataset.name!r}, because they have '
      'no gold labels (a blind test set)',
      fix='Use files with labels.',
    )
  return errors.CorpusError(
    f'The {num_examples} examples of the language split {part!r} cannot be '
    f'used for training in the dataset {dataset.name!r}, because they do not '
    f'fit into {dataset.length} tokens with their labels',
    fix='Increase the length, or remove the language split.',
  )


def _load_or_create_tables(
  dataset, vocabulary, cache_dir
) -> dict[str, feature_cache.FeatureTable]:
  """Returns each language split's sequences, from the cache if possible."""
  if cache_dir is None:
    return {
      part: _featurize_part(dataset, part, vocabulary)
      for part in dataset.chosen_parts()
    }

  folder = _cache_folder(dataset, vocabulary, cache_dir)
  fingerprint = _source_fingerprint(dataset)
  if _has_all_files(folder):
    cached_tables = _load_tables(folder)
    if all(
      fingerprint in ('', cached_fingerprint)
      for _, cached_fingerprint in cached_tables.values()
    ):
      return {part: table for part, (table, _) in cached_tables.items()}
    logging.info(
      'Dataset %s: The examples have changed. Regenerating the feature cache.',
      dataset.name,
    )

  manifests.forget_files(folder, _cached_file_names(folder))
  tables = {}
  parts = list(dataset.chosen_parts())
  for part in parts:
    tables[part] = _featurize_part(dataset, part, vocabulary)
    tables[part].save(
      folder / f'{part}{_SUFFIX}',
      f'{_describe_contents(folder, part, parts)} {fingerprint}',
    )
  names = [f'{part}{_SUFFIX}' for part in tables]
  manifests.record_files(folder, manifests.Kind.ROWS, names)
  return tables


def _cached_file_names(folder: pathlib.Path) -> list[str]:
  """Returns the names of the files in the manifest of a cache folder."""
  manifest = manifests.read_manifest(folder)
  return list(manifest.files) if manifest else []


def _has_all_files(folder: pathlib.Path) -> bool:
  """Returns whether a cache folder contains all files of its manifest."""
  names = _cached_file_names(folder)
  return bool(names) and all((folder / name).exists() for name in names)


def _load_tables(
  folder: pathlib.Path,
) -> dict[str, tuple[feature_cache.FeatureTable, str]]:
  """Loads each language split's cached sequences and fingerprint.

  Raises:
    CacheError: If a file is damaged, or if it was written for a different
      language split, vocabulary or settings.
  """
  problems = manifests.find_problems(folder)
  for name, problem in problems.items():
    raise errors.CacheError(
      'The feature cache file is damaged',
      got=problem,
      where=str(folder / name),
      fix='Delete the file to regenerate it from the examples.',
    )
  parts = [name.removesuffix(_SUFFIX) for name in _cached_file_names(folder)]
  return {part: _load_table(folder, part, parts) for part in parts}


def _load_table(
  folder: pathlib.Path, part: str, parts: Sequence[str]
) -> tuple[feature_cache.FeatureTable, str]:
  """Loads a language split's cached sequences and its examples' fingerprint.

  Raises:
    CacheError: If the file was written for a different language split,
      vocabulary or settings.
  """
  path = folder / f'{part}{_SUFFIX}'
  table, stored_header = feature_cache.FeatureTable.load(path)
  contents, _, fingerprint = stored_header.rpartition(' ')
  expected_contents = _describe_contents(folder, part, parts)
  if contents != expected_contents:
    raise errors.CacheError(
      'The feature cache file was created for a different language split, '
      'vocabulary or settings',
      got=contents,
      expected=expected_contents,
      where=str(path),
      fix='To regenerate the cache from the examples, delete the folder that '
      'contains the file.',
    )
  return table, fingerprint


def _describe_contents(
  folder: pathlib.Path, part: str, parts: Sequence[str]
) -> str:
  """Returns a text that identifies the content of a feature cache file."""
  return f'{folder.name.rpartition("-")[2]} {part} of {",".join(sorted(parts))}'


def _cache_folder(dataset, vocabulary, cache_dir) -> pathlib.Path:
  """Returns the folder for the sequences of a dataset.

  Its name contains a hash of the dataset's settings and of the source code of a
  user-defined featurizer, but not of the paths from which the examples are
  read.
  """
  settings: list[Any] = [
    _source_settings(dataset.source),
    dataset.featurizer,
    dataset.length,
    dataset.splits,
    dataset.max_examples,
    vocabulary.hash,
  ]
  if dataset.group_size > 1:
    settings.append(dataset.group_size)
  featurizer_class: type = type(dataset.featurizer)
  code = user_modules.digest_code(featurizer_class)
  if code:
    settings.append(code)
  text = '\n'.join(map(str, settings))
  settings_hash = hashlib.sha256(text.encode('utf-8')).hexdigest()[:16]
  return (
    paths.to_local_path(cache_dir, where='cache_dir')
    / FOLDER
    / f'{dataset.name}-{settings_hash}'
  )


def _source_settings(source) -> dict[str, str]:
  """Returns the settings of an example source, except for file paths."""
  return {
    field.name: repr(getattr(source, field.name))
    for field in dataclasses.fields(source)
    if field.name not in ('files', 'directory')
  }


def _source_fingerprint(dataset) -> str:
  """Returns the fingerprint of the examples, or '' if they cannot be read."""
  try:
    return dataset.source.fingerprint()
  except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith('xlflax'):
      raise
    return ''
  except errors.CorpusError:
    return ''


def _featurize_part(
  dataset, part: str, vocabulary
) -> feature_cache.FeatureTable:
  """Creates all sequences of a language split."""
  examples = itertools.islice(dataset.source.load(part), dataset.max_examples)
  return feature_cache.FeatureTable.of(
    _featurize(dataset, examples, vocabulary)
  )


def _featurize(dataset, examples, vocabulary) -> Iterator[list[featurizer.Row]]:
  """Featurizes examples, and keeps the sequences of each group together."""
  group_size = dataset.group_size
  block_size = _BLOCK - _BLOCK % group_size
  while block := list(itertools.islice(examples, block_size)):
    sequences = dataset.featurizer.make(
      block, vocabulary, length=dataset.length
    )
    if group_size == 1:
      yield from sequences
      continue
    for start in range(0, len(sequences), group_size):
      yield from _interleave(sequences[start : start + group_size], group_size)


def _interleave(
  sequences: list[list[featurizer.Row]], group_size: int
) -> list[list[featurizer.Row]]:
  """Interleaves a group's sequences, with the same number from each example.

  For example, `[[a, b], [c]]` becomes `[[a, c], [b, c]]`, which is a c b c when
  concatenated. The examples of an incomplete last group are repeated.
  """
  if not all(sequences):
    return [[] for _ in sequences]
  num_examples = len(sequences)
  max_rows = max(map(len, sequences))
  rows = []
  for row_index in range(max_rows):
    for group_index in range(group_size):
      example_rows = sequences[group_index % num_examples]
      rows.append(example_rows[row_index % len(example_rows)])
  rows_per_example = math.ceil(len(rows) / num_examples)
  return [
    rows[i * rows_per_example : (i + 1) * rows_per_example]
    for i in range(num_examples)
  ]
