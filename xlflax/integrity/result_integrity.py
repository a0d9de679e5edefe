"""Results of evaluations, with the predictions beside them."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from xlflax.evaluation import result_store
from xlflax.integrity.artifact_types import artifact_type
from xlflax.integrity.verification_report import Finding
from xlflax.storage import checksums, manifests
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

_FOLDER = run_directory.EVALUATION
_AGAIN = 'evaluate again: it is not used'
_DAMAGED = (OSError, ValueError, KeyError, TypeError, RecursionError)


def check_results(directory: pathlib.Path) -> Iterator[Finding]:
  """Results; those that are whole in one line."""
  files = sorted(directory.glob(f'{_FOLDER}/*/*/*.json'))
  num_valid = 0
  for file in files:
    problems = tuple(_problems(directory, file))
    num_valid += not problems
    if problems:
      name = file.relative_to(directory).as_posix()
      yield Finding(name, problems, fix=_AGAIN)
  yield from _left_alone(directory)
  if num_valid:
    yield Finding('results', about=f'{num_valid} are whole')


def _problems(directory: pathlib.Path, file: pathlib.Path) -> Iterator[str]:
  """What is wrong with a result, a sentence each."""
  try:
    record = checksums.verify_digest(
      json.loads(file.read_text(encoding='utf-8'))
    )
    expected_path = result_store.result_path(
      directory, record['settings'], file.stem
    )
    step, names = str(record['step']), dict(record['files'])
  except _DAMAGED as error:
    yield f'it is no result, or has been changed ({error})'
    return
  if expected_path != file or step != file.stem:
    yield f'it is the result of {expected_path.parent.name}, step {step}'
  elif not _is_of(directory, record):
    yield "it is another run's, or another checkpoint's"
  folder = file.with_suffix('')
  for problem in checksums.find_changes(folder, names).values():
    yield f'{folder.name}/{problem}'


def _is_of(directory: pathlib.Path, record: dict[str, Any]) -> bool:
  """Whether a result is of a run, and of a checkpoint if that is there."""
  try:
    run = run_directory.run_id(directory)
  except errors.RunDirectoryError:
    return True  # which is said of the run
  if run and record['run'] and record['run'] != run:
    return False
  checkpoint = result_store.checkpoint_identity(directory, record['step'])
  recorded_checkpoint = record['settings'].get('checkpoint', '')
  return (
    not checkpoint
    or not recorded_checkpoint
    or recorded_checkpoint == checkpoint
  )


def _left_alone(directory: pathlib.Path) -> Iterator[Finding]:
  """Predictions without the result that they belong to."""
  for folder in sorted(directory.glob(f'{_FOLDER}/*/*/*')):
    result = folder.with_name(f'{folder.name}.json')
    if folder.is_dir() and not result.exists():
      yield Finding(
        folder.relative_to(directory).as_posix(),
        (f'{result.name} is missing beside its predictions',),
        fix=_AGAIN,
      )


ARTEFACT = artifact_type(manifests.Kind.EVALUATION, check_results)
