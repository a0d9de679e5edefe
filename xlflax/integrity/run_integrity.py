"""Model directories: settings, vocabulary, checkpoints, metrics, results."""

import json
import pathlib
from collections.abc import Iterator

from xlflax.integrity import repair, result_integrity
from xlflax.integrity.artifact_types import artifact_type
from xlflax.integrity.verification_report import (
  Finding,
  finding_of_call,
  of_manifest,
)
from xlflax.storage import checksums, manifests
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  data_fingerprint,
  run_directory,
)

_COPY = 'restore it from a copy'
_BEGIN = 'start the same training again: nothing is lost'
_LATER = 'training goes on from the checkpoint before; or copy it again'


def check_run(directory: pathlib.Path) -> Iterator[Finding]:
  """Everything in a model directory."""
  steps = checkpoint_reader.finished_steps(directory)
  yield from of_manifest(
    directory,
    fix=lambda name: _COPY if steps else _BEGIN,
    mend=lambda name: repair.of_file(directory, name),
  )
  yield from _forgotten(directory)
  yield finding_of_call(
    'configuration',
    lambda: type(run_directory.read_model(directory)).__name__,
    fix=_COPY,
  )
  yield finding_of_call(
    'vocabulary',
    lambda: f'{data_fingerprint.own_vocabulary(directory).spec.size} entries',
    fix='copy the vocabulary of the run there again',
  )
  yield from _checkpoints(directory)
  yield _metrics(directory)
  yield from result_integrity.check_results(directory)


def _forgotten(directory: pathlib.Path) -> Iterator[Finding]:
  """Files that a checkpoint knows of, where no manifest does."""
  manifest_files = repair.known_files(directory)
  checkpoint_files = repair.kept_files(directory)
  for name in sorted(checkpoint_files.keys() - manifest_files):
    if not (directory / name).exists():
      yield Finding(
        name,
        (f'{name} is missing',),
        fix=_COPY,
        mend=repair.of_file(directory, name),
      )


def _checkpoints(directory: pathlib.Path) -> Iterator[Finding]:
  run = _run_id(directory)
  steps = checkpoint_reader.finished_steps(directory)
  for step in steps:
    checkpoint = checkpoint_reader.path_of(directory, step)
    yield finding_of_call(
      f'checkpoint {step}',
      lambda checkpoint=checkpoint: checkpoint_items.verify_items(  # type: ignore[misc]
        checkpoint, *checkpoint_items.NAMES, run=run
      ),
      fix=_LATER,
    )
    problem = checkpoint_items.score_problem(checkpoint)
    if problem:
      yield Finding(
        f'checkpoint {step}', (problem,), mend=repair.of_score(checkpoint)
      )
  yield from _unfinished(directory, steps)
  if not steps:
    yield Finding('checkpoints', about='none yet')


def _unfinished(directory: pathlib.Path, steps: list[int]) -> Iterator[Finding]:
  """Directories with a checkpoint's name that nothing takes for one."""
  folder = directory / checkpoint_reader.DIRECTORY
  for path in sorted(folder.glob('[0-9]*')):
    if path.name.isdigit() and int(path.name) not in steps:
      yield Finding(
        f'checkpoint {path.name}',
        (f'{checkpoint_items.PARAMS} is missing: it counts as unfinished',),
        fix=_LATER,
      )


def _run_id(directory: pathlib.Path) -> str:
  """What tells the run from others; '' where the file is damaged."""
  try:
    return run_directory.run_id(directory)
  except run_directory.errors.RunDirectoryError:
    return ''


def _metrics(directory: pathlib.Path) -> Finding:
  """The lines that the last checkpoint knows of, and those after it."""
  return finding_of_call(
    run_directory.METRICS,
    lambda: _lines(directory),
    fix='restore it from a copy, if it matters: nothing is trained on it',
  )


def _lines(directory: pathlib.Path) -> str:
  digest = repair.metrics_digest(directory)
  path = directory / run_directory.METRICS
  if not digest and not path.exists():
    return 'none'
  content = path.read_bytes()
  size = checksums.parse_size(digest) if digest else 0
  if digest and checksums.digest_content(content[:size]) != digest:
    raise ValueError('lines are missing or have changed')
  for line in content[size:].splitlines(keepends=True):
    if line.endswith(b'\n') and 'step' not in json.loads(line):
      raise ValueError(f'a line that is no line of metrics: {line[:60]!r}')
  return f'{content.count(10)} lines'


ARTEFACT = artifact_type(manifests.Kind.RUN, check_run)
