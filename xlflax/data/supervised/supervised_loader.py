"""The loader of labelled examples: rows in memory, any step at once.

All rows of the source are made when the loader opens. As with a token cache,
row n of a part (its n-th use since step 0) is row n mod R of its epoch n div
R, and an epoch is a permutation keyed by (seed, part, epoch): the global batch
of a step is a pure function of the examples, the seed and the step.

With a cache directory the rows are kept in a file there, which a machine
without the examples, or without what reads them, can train from.
"""

import dataclasses
import hashlib
import itertools
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from xlflax.data import batch_keys, loader_base
from xlflax.data.sampling import hashing, permutation, sampling_order
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import feature_cache, featurizer
from xlflax.storage import checksums, manifests, paths
from xlflax.utils import errors

_BLOCK = 1024
FOLDER = 'labelled'
_SUFFIX = '.npz'


class LabelledLoader:
  """See `loader_base.Loader`."""

  signature = ''

  def __init__(
    self,
    stream: supervised_dataset.LabelledStream,
    *,
    vocabulary,
    seed: int,
    cache_dir=None,
  ):
    """Opens the stream.

    Raises:
      CorpusError: the source lacks a part, or no row is left of one.
      CacheError: the cached rows are damaged.
    """
    self.stream = stream
    featurizer.warn_of_frame(stream.rows, vocabulary)
    self._fields = stream.rows.fields(stream.length, vocabulary.spec)
    self._spec = stream.batch_spec(vocabulary.spec)
    self._tables = _tables(stream, vocabulary, cache_dir)
    self.identity = checksums.digest_json(
      {part: table.digest() for part, table in self._tables.items()}
    )
    group = stream.group_size
    sizes = {
      part: table.num_rows // group for part, table in self._tables.items()
    }
    for part, size in sizes.items():
      if not size:
        raise _unusable(stream, part, self._tables[part].counts['examples'])
      table, cut = self._tables[part], self._cut(part)
      tokens_per_row = table.num_tokens(batch_keys.TOKEN_IDS) / table.num_rows
      logging.log(
        logging.WARNING if cut else logging.INFO,
        'Stream %s: text of %s takes %.0f of the %d tokens of a row%s.',
        *(stream.name, part, tokens_per_row, stream.length),
        f'; {cut} of {table.num_rows} are full: what is longer is cut'
        if cut
        else '',
      )
    of_groups: Any = dataclasses.replace(
      stream, batch_size=stream.batch_size // group, group_size=1
    )
    self._schedule = sampling_order.RowSchedule(
      of_groups,
      seed=seed,
      sizes=sizes,
      rates={part: float(size) for part, size in sizes.items()},
    )

  @property
  def spec(self):
    """Shapes and types of the global batch, by key."""
    return self._spec

  @property
  def num_rows(self) -> int:
    """Rows of all parts together: those of an epoch."""
    return int(self._schedule.sizes.sum()) * self.stream.group_size

  def rows(self, step: int, start: int, stop: int) -> batch_keys.Batch:
    """See `loader_base.Loader.rows`."""
    loader_base.check_range(self.stream, step, start, stop)
    group = self.stream.group_size
    parts, uses = (
      np.repeat(of_groups, group)[start:stop]
      for of_groups in self._schedule.slots(step)
    )
    sizes = self._schedule.sizes[parts]
    epoch, index = np.divmod(uses, sizes)
    if self.stream.shuffle:
      keys = hashing.draw_words(self._schedule.order_keys[parts], epoch)
      index = permutation.permute_index(index, sizes, keys)
    index = index * group + np.arange(start, stop) % group
    names = self._schedule.tasks
    return featurizer.stack_features(
      [
        self._tables[names[part]].row(row_index)
        for part, row_index in zip(parts.tolist(), index.tolist(), strict=True)
      ],
      self._fields,
    )

  def statistics(self) -> list[loader_base.TaskStatistics]:
    """Sizes and rates, for each part."""
    return [
      loader_base.TaskStatistics(
        task=part,
        languages=tuple(part.split('-')),
        examples=table.counts['examples'],
        rate=float(rate),
        rows=table.num_rows,
        dropped=table.counts['unused'],
        truncated=self._cut(part),
        tokens=table.num_tokens(batch_keys.TOKEN_IDS),
      )
      for (part, table), rate in zip(
        sorted(self._tables.items()), self._schedule.rates(), strict=True
      )
    ]

  def _cut(self, part: str) -> int:
    """Rows that are full, where text that does not fit is left out."""
    full = self._tables[part].num_full(batch_keys.TOKEN_IDS, self.stream.length)
    return full if self.stream.rows.cuts else 0

  def close(self) -> None:
    """Lets go of the rows."""
    self._tables = {}


def _unusable(stream, part: str, number: int) -> errors.CorpusError:
  """The error for a part without a row: a blind one, or one too long."""
  is_blind = all(example.is_blind for example in stream.source.load(part))
  return errors.CorpusError(
    'No labelled example of a language can be used',
    got=f'{number} examples, '
    + (
      'which have no gold labels: a blind test set'
      if is_blind
      else f'none of which fits into {stream.length} tokens with its label'
    ),
    where=f'stream {stream.name!r}, part {part}',
    fix='give files with labels'
    if is_blind
    else 'raise the length, or leave the part out',
  )


def _tables(stream, vocabulary, cache_dir) -> dict[str, feature_cache.RowTable]:
  """Part -> its rows, from the cache if it has them."""
  if cache_dir is None:
    return {
      part: _read(stream, part, vocabulary) for part in stream.chosen_parts()
    }
  folder = _folder(stream, vocabulary, cache_dir)
  fingerprint = _fingerprint(stream)
  if _are_there(folder):
    loaded = _loaded(folder)
    if all(
      fingerprint in ('', table_fingerprint)
      for _, table_fingerprint in loaded.values()
    ):
      return {part: table for part, (table, _) in loaded.items()}
    logging.info(
      'Stream %s: the examples have changed; their cached rows are made anew.',
      stream.name,
    )
  manifests.forget_files(folder, _parts(folder))
  tables = {}
  parts = list(stream.chosen_parts())
  for part in parts:
    tables[part] = _read(stream, part, vocabulary)
    tables[part].save(
      folder / f'{part}{_SUFFIX}', f'{_of(folder, part, parts)} {fingerprint}'
    )
  names = [f'{part}{_SUFFIX}' for part in tables]
  manifests.record_files(folder, manifests.Kind.ROWS, names)
  return tables


def _parts(folder: pathlib.Path) -> list[str]:
  """The files of a folder of cached rows."""
  manifest = manifests.read_manifest(folder)
  return list(manifest.files) if manifest else []


def _are_there(folder: pathlib.Path) -> bool:
  """Whether rows were written, and none were deleted since."""
  names = _parts(folder)
  return bool(names) and all((folder / name).exists() for name in names)


def _loaded(
  folder: pathlib.Path,
) -> dict[str, tuple[feature_cache.RowTable, str]]:
  """Part -> its rows as they were written, and of which examples they are.

  Raises:
    CacheError: a file has changed, or is of another part, vocabulary or
      settings.
  """
  problems = manifests.find_problems(folder)
  for name, problem in problems.items():
    raise errors.CacheError(
      'A file of cached rows is damaged',
      got=problem,
      where=str(folder / name),
      fix='delete it; it is written again from the examples',
    )
  parts = [name.removesuffix(_SUFFIX) for name in _parts(folder)]
  return {part: _load(folder, part, parts) for part in parts}


def _load(
  folder: pathlib.Path, part: str, parts: Sequence[str]
) -> tuple[feature_cache.RowTable, str]:
  """A part's cached rows, and the fingerprint of their examples.

  Raises:
    CacheError: the file is of another part, vocabulary or settings.
  """
  path = folder / f'{part}{_SUFFIX}'
  table, stored_header = feature_cache.RowTable.load(path)
  of, _, fingerprint = stored_header.rpartition(' ')
  if of != _of(folder, part, parts):
    raise errors.CacheError(
      'A file of cached rows is of another part, vocabulary or settings',
      got=of,
      expected=_of(folder, part, parts),
      where=str(path),
      fix='delete its folder; it is written again from the examples',
    )
  return table, fingerprint


def _of(folder: pathlib.Path, part: str, parts: Sequence[str]) -> str:
  """What a file of cached rows is of: settings' hash, part, all parts."""
  return f'{folder.name.rpartition("-")[2]} {part} of {",".join(sorted(parts))}'


def _folder(stream, vocabulary, cache_dir) -> pathlib.Path:
  """Where rows of these settings lie; where the examples lie is no part."""
  settings = '\n'.join(
    map(
      str,
      (
        _settings(stream.source),
        stream.rows,
        stream.length,
        stream.parts,
        stream.max_examples,
        vocabulary.hash,
        *([stream.group_size] if stream.group_size > 1 else ()),
      ),
    )
  )
  name = hashlib.sha256(settings.encode('utf-8')).hexdigest()[:16]
  return (
    paths.to_local_path(cache_dir, where='cache_dir')
    / FOLDER
    / f'{stream.name}-{name}'
  )


def _settings(source) -> dict[str, str]:
  return {
    field.name: repr(getattr(source, field.name))
    for field in dataclasses.fields(source)
    if field.name not in ('files', 'directory')
  }


def _fingerprint(stream) -> str:
  """That of the examples; '' where they cannot be read here."""
  try:
    return stream.source.fingerprint()
  except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith('xlflax'):
      raise
    return ''
  except errors.CorpusError:
    return ''


def _read(stream, part: str, vocabulary) -> feature_cache.RowTable:
  """Makes all rows of a part."""
  examples = itertools.islice(stream.source.load(part), stream.max_examples)
  return feature_cache.RowTable.of(_made(stream, examples, vocabulary))


def _made(stream, examples, vocabulary) -> Iterator[list[featurizer.Row]]:
  """The rows of each example, with those of a group one after the other."""
  size = _BLOCK - _BLOCK % stream.group_size
  while block := list(itertools.islice(examples, size)):
    sequences = stream.rows.make(block, vocabulary, length=stream.length)
    if stream.group_size == 1:
      yield from sequences
    else:
      for start in range(0, len(sequences), stream.group_size):
        yield from _interleaved(
          sequences[start : start + stream.group_size], stream.group_size
        )


def _interleaved(
  made: list[list[featurizer.Row]], size: int
) -> list[list[featurizer.Row]]:
  """Rows of a group in turns, as many of each example.

  Before: `[[a, b], [c]]`; after: `[[a, c], [b, c]]`, which read in one is
  a c b c. An incomplete group, at the end, repeats its examples.
  """
  if not all(made):
    return [[] for _ in made]
  count = max(map(len, made))
  rows = [
    made[k % len(made)][j % len(made[k % len(made)])]
    for j in range(count)
    for k in range(size)
  ]
  share = -(-len(rows) // len(made))
  return [rows[i * share : (i + 1) * share] for i in range(len(made))]
