"""Verification of evaluation results and their predictions."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from xlflax.evaluation import result_store
from xlflax.integrity.artifact_types import (
  ArtifactFiles,
  ArtifactType,
  Requirement,
)
from xlflax.integrity.verification_report import Finding
from xlflax.storage import checksums, manifests
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

_FIX = 'Run the evaluation again. The result is not used.'
_DAMAGE_ERRORS = (OSError, ValueError, KeyError, TypeError, RecursionError)

FILES = (
  ArtifactFiles(
    patterns=('eval/*/*-*/*.json',),
    requirement=Requirement.OPTIONAL,
    consequence='the result is ignored with a message; a missing result is '
    'reported if its predictions exist',
    detection='own digest, task, settings, run and checkpoint',
    recovery='`xlflax evaluate`',
  ),
  ArtifactFiles(
    patterns=('eval/*/*-*/*/*',),
    consequence='comparisons with other models lack the predictions',
    detection='digest in the result',
    recovery='`xlflax evaluate`, after the result is deleted',
  ),
  ArtifactFiles(
    patterns=('eval/*',),
    requirement=Requirement.NOT_READ,
    consequence='its information is lost',
    detection='-',
    recovery='`xlflax evaluate`',
  ),
)


def verify_results(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies the evaluation results of a model directory.

  Yields:
    One finding for each damaged result, and one that summarizes all valid
    results.
  """
  paths = sorted(directory.glob(f'{run_directory.EVALUATION}/*/*/*.json'))
  num_valid = 0
  for path in paths:
    problems = tuple(_find_problems(directory, path))
    num_valid += not problems
    if problems:
      name = path.relative_to(directory).as_posix()
      yield Finding(name, problems, fix=_FIX)
  yield from _verify_predictions_have_results(directory)
  if num_valid:
    yield Finding('results', details=f'{num_valid} valid')


def _find_problems(
  directory: pathlib.Path, path: pathlib.Path
) -> Iterator[str]:
  """Yields a description of each problem with a result."""
  try:
    record = checksums.verify_digest(
      json.loads(path.read_text(encoding='utf-8'))
    )
    expected_path = result_store.result_path(
      directory, record['settings'], path.stem
    )
    step, names = str(record['step']), dict(record['files'])
  except _DAMAGE_ERRORS as error:
    yield f'the file is not a result, or was modified ({error})'
    return
  if expected_path != path or step != path.stem:
    yield f'the result belongs to {expected_path.parent.name}, step {step}'
  elif not _belongs_to_run(directory, record):
    yield 'the result belongs to a different run or a different checkpoint'
  predictions = path.with_suffix('')
  for problem in checksums.find_changes(predictions, names).values():
    yield f'{predictions.name}/{problem}'


def _belongs_to_run(directory: pathlib.Path, record: dict[str, Any]) -> bool:
  """Returns whether a result was computed from a current checkpoint of the run.

  The checkpoint is only compared if it still exists.
  """
  try:
    run = run_directory.run_id(directory)
  except errors.RunDirectoryError:
    return True  # The verification of the run reports this error.
  if run and record['run'] and record['run'] != run:
    return False
  checkpoint = result_store.checkpoint_identity(directory, record['step'])
  recorded_checkpoint = record['settings'].get('checkpoint', '')
  return (
    not checkpoint
    or not recorded_checkpoint
    or recorded_checkpoint == checkpoint
  )


def _verify_predictions_have_results(
  directory: pathlib.Path,
) -> Iterator[Finding]:
  """Yields a finding for each predictions directory that has no result file."""
  for predictions in sorted(
    directory.glob(f'{run_directory.EVALUATION}/*/*/*')
  ):
    result = predictions.with_name(f'{predictions.name}.json')
    if predictions.is_dir() and not result.exists():
      yield Finding(
        predictions.relative_to(directory).as_posix(),
        (f'the predictions exist, but {result.name} is missing',),
        fix=_FIX,
      )


EVALUATION = ArtifactType(
  kind=manifests.Kind.EVALUATION,
  markers=('eval/*/*-*',),
  files=FILES,
  verify=verify_results,
)
