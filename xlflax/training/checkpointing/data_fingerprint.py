"""What a run reads: the identity of its data, kept with every checkpoint.

A run that is continued on other data would be another run. So a checkpoint
says which vocabulary and which tokens it was trained on, and a run that reads
others is refused, or accepted explicitly and recorded.
"""

import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from xlflax.data import dataset_config, loader_base
from xlflax.data.tokenizers import base_vocabulary
from xlflax.storage import manifests
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

FILE = 'inputs.json'


def describe_inputs(
  vocabulary_hash: str, loaders: Mapping[str, loader_base.Loader]
) -> dict[str, Any]:
  """The identity of vocabulary and streams, as plain JSON.

  Args:
    vocabulary_hash: of the vocabulary's content.
    loaders: stream -> its loader.

  Returns:
    {'vocabulary': hash, 'streams': {name: digest}}.
  """
  return {
    'vocabulary': vocabulary_hash,
    'streams': {
      name: loader.identity for name, loader in sorted(loaders.items())
    },
  }


def check_inputs(
  saved: Mapping[str, Any], now: Mapping[str, Any], *, where: pathlib.Path
) -> None:
  """Refuses other inputs than those that a checkpoint was trained on.

  Args:
    saved: what `describe_inputs` returned for the checkpoint.
    now: what it returns now.
    where: the checkpoint.

  Raises:
    RunDirectoryError: they differ; it is said in what.
  """
  changed = input_differences(saved, now)
  if changed:
    raise errors.RunDirectoryError(
      'The run is continued on other data than it was trained on',
      got='; '.join(changed),
      expected='the tokens and the vocabulary that the checkpoint names',
      where=str(where),
      fix='give the text or cache and the vocabulary that the run was started '
      'with, or go on with the new ones by --on_config_mismatch=continue; the state of a '
      'cache before text was added is Trainer.cache_generation '
      '(docs/trouble.md#refused)',
    )


def input_differences(
  saved: Mapping[str, Any], now: Mapping[str, Any]
) -> list[str]:
  """What differs, a phrase each."""
  differences = []
  if saved['vocabulary'] != now['vocabulary']:
    differences.append('the vocabulary is another')
  for name in sorted(saved['streams'].keys() & now['streams'].keys()):
    if saved['streams'][name] != now['streams'][name]:
      differences.append(f'the examples of stream {name} are others')
  return differences


def verified_signatures(model_dir: pathlib.Path) -> frozenset[str]:
  """Signatures of the caches that the run has compared with their digests."""
  return frozenset((_read(model_dir) or {}).get('verified', ()))


def record_inputs(
  model_dir: pathlib.Path,
  described: Mapping[str, Any],
  loaders: Mapping[str, loader_base.Loader],
) -> None:
  """Writes what the run reads now, for `verified_signatures` and for people."""
  signatures = sorted({loader.signature for loader in loaders.values()} - {''})
  content = {
    **described,
    'verified': signatures,
    'written': sorted(_written(loaders)),
  }
  run_directory.write_part(model_dir, FILE, content)


def recorded_languages(model_dir: pathlib.Path) -> frozenset[str] | None:
  """Languages that the run's translations were in, as it was trained last.

  None where no stream of translations, or nothing at all, is recorded: a
  model that was imported, for example.

  Raises:
    RunDirectoryError: the record is damaged, or was deleted.
  """
  if not (model_dir / FILE).exists():
    manifests.check_file(model_dir, FILE)
    return None
  record = run_directory.read_part(model_dir, FILE)
  return frozenset(record.get('written', ())) or None


def own_vocabulary(model_dir: pathlib.Path) -> base_vocabulary.Vocabulary:
  """The vocabulary beside a model, which is the one that it was trained with.

  Raises:
    VocabularyError: it is missing, damaged, or another one.
  """
  directory = model_dir / run_directory.VOCABULARY
  vocabulary = base_vocabulary.Vocabulary.load(directory)
  check_vocabulary(vocabulary, model_dir, where=directory)
  return vocabulary


def check_vocabulary(
  vocabulary: base_vocabulary.Vocabulary,
  model_dir: pathlib.Path,
  *,
  where: str | pathlib.Path,
  fix: str = 'copy the vocabulary of the run there again, whole',
) -> None:
  """Refuses a vocabulary that is not the one that a run was trained with.

  Args:
    vocabulary: what is to be used with the run's parameters.
    model_dir: the run's directory.
    where: the vocabulary lies, for the message.
    fix: what to do about it.

  Raises:
    VocabularyError: its content is another.
  """
  run_identity = run_directory.vocabulary_of(model_dir)
  given_identity = run_directory.VocabularyIdentity(
    vocabulary.spec.size, vocabulary.hash
  )
  if run_identity is not None and given_identity != run_identity:
    raise errors.VocabularyError(
      'The vocabulary is not the one that the model was trained with',
      got=str(given_identity),
      expected=f'{run_identity}, as {model_dir / run_directory.MODEL} says',
      where=str(where),
      fix=fix,
    )


def _read(model_dir: pathlib.Path) -> dict[str, Any] | None:
  """What `record_inputs` wrote; None, with a warning, where that cannot be used."""
  if not (model_dir / FILE).exists():
    return None
  try:
    return run_directory.read_part(model_dir, FILE)
  except errors.RunDirectoryError as error:
    logging.warning('%s is not used. %s', FILE, error)
    return None


def _written(loaders: Mapping[str, loader_base.Loader]) -> set[str]:
  """The languages of the second sides of streams of pairs, as they are read."""
  languages: set[str] = set()
  for loader in loaders.values():
    stream: Any = loader.stream
    if getattr(stream, 'layout', None) is not dataset_config.Layout.SIDES:
      continue
    order = stream.pairs.order
    for task in loader.statistics():
      if len(task.languages) == 2:
        first, second = task.languages
        as_is = order is not dataset_config.SideOrder.REVERSED
        languages |= {second} if as_is else {first}
        if order is dataset_config.SideOrder.RANDOM:
          languages |= {first, second}
  return languages
