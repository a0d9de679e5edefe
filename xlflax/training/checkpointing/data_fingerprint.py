"""Fingerprint of a run's inputs, which is stored in every checkpoint.

A run that resumed on different data would be a different run. Each checkpoint
therefore records the vocabulary and the tokens on which it was trained. If a
run reads different data, it is rejected unless the user explicitly accepts the
change, which is then recorded.
"""

import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from xlflax.data import dataset_config, loader_base
from xlflax.data.tokenizers import base_vocabulary
from xlflax.storage import manifests
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, logs

FILE = 'inputs.json'


def describe_inputs(
  vocabulary_hash: str,
  loaders: Mapping[str, loader_base.Loader],
  code: Mapping[str, str] = {},
) -> dict[str, Any]:
  """Returns the hashes of the vocabulary, the datasets and the user's code.

  Args:
    vocabulary_hash: Hash of the vocabulary's content.
    loaders: Data loaders by dataset name.
    code: Hashes of the user's modules (`code_fingerprint.describe_code`).

  Returns:
    {'vocabulary': hash, 'datasets': {name: digest}}, with the hashes of the
    user's modules under the key 'code' if there are any. The values are plain
    JSON.
  """
  inputs: dict[str, Any] = {
    'vocabulary': vocabulary_hash,
    'datasets': {
      name: loader.identity for name, loader in sorted(loaders.items())
    },
  }
  if code:
    inputs['code'] = dict(code)
  return inputs


def check_inputs(
  saved: Mapping[str, Any], current: Mapping[str, Any], *, where: pathlib.Path
) -> None:
  """Checks that a run's data have not changed since a checkpoint was written.

  Args:
    saved: Hashes of the data in the checkpoint (see `describe_inputs`).
    current: Hashes of the current data (see `describe_inputs`).
    where: Directory of the checkpoint.

  Raises:
    RunDirectoryError: If the data differ. The message describes the
      differences.
  """
  differences = describe_differences(saved, current)
  if differences:
    raise errors.RunDirectoryError(
      'The training data differ from the data on which the run was trained. '
      'The tokens and the vocabulary must be those that are recorded in the '
      'checkpoint',
      got='; '.join(differences),
      where=str(where),
      fix='Pass the text or cache and the vocabulary with which the run was '
      'started, or pass --on_config_mismatch=continue to resume with the new '
      'data. To read a cache as it was before text was added, set '
      'Trainer.cache_generation (docs/trouble.md#rejected-input).',
    )


def describe_differences(
  saved: Mapping[str, Any], current: Mapping[str, Any]
) -> list[str]:
  """Describes each difference between the data fingerprints of two runs."""
  differences = []
  if saved['vocabulary'] != current['vocabulary']:
    differences.append('the vocabulary differs')
  for name in sorted(saved['datasets'].keys() & current['datasets'].keys()):
    if saved['datasets'][name] != current['datasets'][name]:
      differences.append(f'the examples of dataset {name} differ')
  return differences


def verified_signatures(model_dir: pathlib.Path) -> frozenset[str]:
  """Returns signatures of the token caches that a run has already verified."""
  return frozenset((_read(model_dir) or {}).get('verified', ()))


def recorded_code(model_dir: pathlib.Path) -> dict[str, str]:
  """Returns the hashes of the user's modules with which a run was last started.

  See `code_fingerprint.describe_code`. The result is empty without a usable
  record.
  """
  return (_read(model_dir) or {}).get('code', {})


def record_inputs(
  model_dir: pathlib.Path,
  described: Mapping[str, Any],
  loaders: Mapping[str, loader_base.Loader],
) -> None:
  """Writes the hashes of a run's data to its model directory.

  `verified_signatures`, `recorded_code` and `recorded_languages` read this
  record, and users can read it, too.

  Args:
    model_dir: Model directory of the run.
    described: Hashes of the vocabulary and the datasets (see
      `describe_inputs`).
    loaders: Data loaders by dataset name.
  """
  signatures = sorted({loader.signature for loader in loaders.values()} - {''})
  content = {
    **described,
    'verified': signatures,
    'written': sorted(_target_languages(loaders)),
  }
  run_directory.write_run_file(model_dir, FILE, content)


def recorded_languages(model_dir: pathlib.Path) -> frozenset[str] | None:
  """Reads the target languages of a run's translation data from its record.

  Returns None if no dataset of translations is recorded, or if there is no
  record, for example of an imported model.

  Raises:
    RunDirectoryError: If the file that describes the run's data is damaged or
      was deleted.
  """
  if not (model_dir / FILE).exists():
    manifests.check_file(model_dir, FILE)
    return None
  record = run_directory.read_run_file(model_dir, FILE)
  return frozenset(record.get('written', ())) or None


def load_vocabulary(model_dir: pathlib.Path) -> base_vocabulary.Vocabulary:
  """Loads the vocabulary that is stored in a model directory.

  Raises:
    VocabularyError: If the vocabulary is missing, damaged, or not the one with
      which the model was trained.
  """
  directory = model_dir / run_directory.VOCABULARY
  vocabulary = base_vocabulary.Vocabulary.load(directory)
  check_vocabulary(vocabulary, model_dir, where=directory)
  return vocabulary


def read_vocabulary_languages(model_dir: pathlib.Path) -> tuple[str, ...]:
  """Returns the languages of the vocabulary in a model directory.

  The files of the tokenizer are not loaded. The result is empty if the model
  directory contains no vocabulary. If the description of the vocabulary is
  damaged, a warning is logged, and the result is empty.
  """
  directory = model_dir / run_directory.VOCABULARY
  if not (directory / base_vocabulary.DESCRIPTION_FILE).exists():
    return ()
  try:
    return tuple(base_vocabulary.read_description(directory)['languages'])
  except (errors.VocabularyError, LookupError, TypeError) as error:
    logging.warning(
      'The languages of the vocabulary %s are unknown. %s',
      directory,
      error,
      extra=logs.ONCE,
    )
    return ()


def check_vocabulary(
  vocabulary: base_vocabulary.Vocabulary,
  model_dir: pathlib.Path,
  *,
  where: str | pathlib.Path,
  requirement: str | None = None,
  fix: str = 'Copy all files of the run vocabulary again.',
) -> None:
  """Checks that a vocabulary is the one used to train a run.

  Args:
    vocabulary: Vocabulary to use with the parameters of the run.
    model_dir: Model directory of the run.
    where: Location of the vocabulary, for the error message.
    requirement: Sentence of the error message that states which vocabulary must
      equal the vocabulary of the run. If None, the sentence does not specify
      the purpose of `vocabulary`.
    fix: Hint for the error message that explains how to solve the problem.

  Raises:
    VocabularyError: If the content of the vocabulary differs.
  """
  run_identity = run_directory.read_vocabulary_identity(model_dir)
  given_identity = run_directory.VocabularyIdentity(
    vocabulary.spec.size, vocabulary.hash
  )
  if run_identity is not None and given_identity != run_identity:
    raise errors.VocabularyError(
      requirement
      or 'The vocabulary must be the vocabulary with which the model was '
      f'trained, which is recorded in {model_dir / run_directory.MODEL}',
      got=str(given_identity),
      expected=str(run_identity),
      where=str(where),
      fix=fix,
    )


def _read(model_dir: pathlib.Path) -> dict[str, Any] | None:
  """Reads the record written by `record_inputs`.

  Returns None if there is no record, or, with a warning, if it is unusable.
  """
  if not (model_dir / FILE).exists():
    return None
  try:
    return run_directory.read_run_file(model_dir, FILE)
  except errors.RunDirectoryError as error:
    logging.warning('Ignoring %s. %s', FILE, error, extra=logs.ONCE)
    return None


def _target_languages(loaders: Mapping[str, loader_base.Loader]) -> set[str]:
  """Returns the target languages in datasets with sentence pairs.

  The result depends on the order in which a dataset reads the two sentences of
  a pair.
  """
  languages: set[str] = set()
  for loader in loaders.values():
    dataset: Any = loader.dataset
    if (
      getattr(dataset, 'layout', None) is not dataset_config.ExampleLayout.DUAL
    ):
      continue
    order = dataset.pairs.order
    for task in loader.statistics():
      if len(task.languages) == 2:
        first, second = task.languages
        is_forward = order is not dataset_config.PairOrder.REVERSED
        languages |= {second} if is_forward else {first}
        if order is dataset_config.PairOrder.RANDOM:
          languages |= {first, second}
  return languages
