"""Verification of the model directories written by training."""

import json
import pathlib
from collections.abc import Iterator

from xlflax.integrity import repair, result_integrity
from xlflax.integrity.artifact_types import (
  ArtifactFiles,
  ArtifactType,
  Requirement,
)
from xlflax.integrity.verification_report import (
  Finding,
  verify_item,
  verify_manifest,
)
from xlflax.storage import checksums, manifests
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  data_fingerprint,
  run_directory,
)
from xlflax.utils import plurals

_FIX_BY_BACKUP = 'Restore the file from a backup.'
_FIX_BY_RESTART = (
  'Start the same training again. No checkpoint is lost, because none exists.'
)
_FIX_BY_OLDER_CHECKPOINT = (
  'Resume training, which uses the previous checkpoint, or copy this '
  'checkpoint again.'
)


def verify_run(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies all files of a model directory."""
  steps = checkpoint_reader.finished_steps(directory)
  yield from verify_manifest(
    directory,
    fix=lambda name: _FIX_BY_BACKUP if steps else _FIX_BY_RESTART,
    repair=lambda name: repair.make_file_repair(directory, name),
  )
  yield from _verify_unlisted_files(directory)
  yield verify_item(
    'configuration',
    lambda: type(run_directory.read_model(directory)).__name__,
    fix=_FIX_BY_BACKUP,
  )
  yield verify_item(
    'vocabulary',
    lambda: f'{data_fingerprint.load_vocabulary(directory).spec.size} tokens',
    fix='Copy the run vocabulary to the model directory again.',
  )
  yield from _verify_checkpoints(directory)
  yield _verify_metrics(directory)
  yield from result_integrity.verify_results(directory)


def _verify_unlisted_files(directory: pathlib.Path) -> Iterator[Finding]:
  """Finds missing files that a checkpoint contains but the manifest does not."""
  manifest_files = repair.read_manifest_files(directory)
  checkpoint_files = repair.read_checkpoint_files(directory)
  for name in sorted(checkpoint_files.keys() - manifest_files):
    if not (directory / name).exists():
      yield Finding(
        name,
        (f'{name} is missing',),
        fix=_FIX_BY_BACKUP,
        repair=repair.make_file_repair(directory, name),
      )


def _verify_checkpoints(directory: pathlib.Path) -> Iterator[Finding]:
  run = _read_run_id(directory)
  steps = checkpoint_reader.finished_steps(directory)
  for step in steps:
    checkpoint = checkpoint_reader.checkpoint_path(directory, step)
    yield verify_item(
      f'checkpoint {step}',
      lambda checkpoint=checkpoint: checkpoint_items.verify_items(  # type: ignore[misc]
        checkpoint, *checkpoint_items.NAMES, run=run
      ),
      fix=_FIX_BY_OLDER_CHECKPOINT,
    )
    problem = checkpoint_items.find_score_problem(checkpoint)
    if problem:
      yield Finding(
        f'checkpoint {step}',
        (problem,),
        repair=repair.make_score_repair(checkpoint),
      )
  yield from _find_unfinished_checkpoints(directory, steps)
  if not steps:
    yield Finding('checkpoints', details='none yet')


def _find_unfinished_checkpoints(
  directory: pathlib.Path, steps: list[int]
) -> Iterator[Finding]:
  """Finds directories that are named like checkpoints but lack parameters."""
  checkpoints = directory / checkpoint_reader.DIRECTORY
  for path in sorted(checkpoints.glob('[0-9]*')):
    if (
      checkpoint_reader.is_step_name(path.name) and int(path.name) not in steps
    ):
      yield Finding(
        f'checkpoint {path.name}',
        (
          f'{checkpoint_items.PARAMS} is missing, so that the checkpoint '
          'counts as unfinished',
        ),
        fix=_FIX_BY_OLDER_CHECKPOINT,
      )


def _read_run_id(directory: pathlib.Path) -> str:
  """Reads the identifier of a run. Returns '' if the file is damaged."""
  try:
    return run_directory.run_id(directory)
  except run_directory.errors.RunDirectoryError:
    return ''


def _verify_metrics(directory: pathlib.Path) -> Finding:
  """Verifies the metrics up to the last checkpoint and the lines after it."""
  return verify_item(
    run_directory.METRICS,
    lambda: _check_lines(directory),
    fix='If you need the file, restore it from a backup. Training does not '
    'depend on it.',
  )


def _check_lines(directory: pathlib.Path) -> str:
  """Checks the lines in the metrics file and returns their number.

  Raises:
    ValueError: If lines are missing or invalid.
  """
  digest = repair.read_metrics_digest(directory)
  path = directory / run_directory.METRICS
  if not digest and not path.exists():
    return 'none'
  content = path.read_bytes()
  size = checksums.parse_size(digest) if digest else 0
  if digest and checksums.digest_content(content[:size]) != digest:
    raise ValueError(
      'Metrics that were written before the last checkpoint were removed or '
      'changed'
    )
  for line in content[size:].splitlines(keepends=True):
    if line.endswith(b'\n') and 'step' not in json.loads(line):
      raise ValueError(
        f'A line does not contain a training step: {line[:60]!r}'
      )
  num_lines = content.count(b'\n')
  return plurals.format_count(num_lines, 'line')


_FROM_CHECKPOINT = '`--repair`, from the copy in a checkpoint'

RUN = ArtifactType(
  kind=manifests.Kind.RUN,
  markers=('model.json', 'trainer.json', 'checkpoints/*/params'),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='training rejects a damaged file and writes a missing one',
      detection='own digest',
      recovery='`--repair`, from a checkpoint',
    ),
    ArtifactFiles(
      patterns=('trainer.json',),
      consequence='training rejects the directory; reports lack the settings',
      detection='digest in the manifest; own digest',
      recovery=_FROM_CHECKPOINT,
    ),
    ArtifactFiles(
      patterns=('model.json',),
      consequence='every command rejects the run',
      detection='digest in the manifest; own digest',
      recovery=_FROM_CHECKPOINT,
    ),
    ArtifactFiles(
      patterns=('objectives.json',),
      consequence='commands that read a head reject the run; training writes '
      'the file again',
      detection='digest in the manifest; own digest',
      recovery=_FROM_CHECKPOINT,
    ),
    ArtifactFiles(
      patterns=('config.gin', 'model.gin'),
      consequence='a run that is started with the file is a different run; '
      'training writes the file again',
      detection='digest in the manifest',
      recovery=_FROM_CHECKPOINT,
    ),
    ArtifactFiles(
      patterns=(
        'inputs.json',
        'averaged.json',
        'adapters.json',
        't5x.json',
        'huggingface.json',
      ),
      consequence='the origin of the model is unknown',
      detection='digest in the manifest',
      recovery=_FROM_CHECKPOINT,
    ),
    ArtifactFiles(
      patterns=('sentence.json',),
      consequence="sentence embeddings are the mean of the last layer's hidden "
      'states',
      detection='digest in the manifest',
      recovery=_FROM_CHECKPOINT,
    ),
    ArtifactFiles(
      patterns=('finished.json',),
      consequence='`xlflax evaluate --continuous` waits for more checkpoints; '
      'training writes the file again',
      detection='digest in the manifest once the run is finished; own digest',
      recovery='`--repair`, from the last checkpoint',
    ),
    ArtifactFiles(
      patterns=('vocabulary/*',),
      consequence='every command rejects the run',
      detection='digest in the manifest; hash in `vocabulary.json`',
      recovery='`--repair`, from the vocabulary with which the run was started',
    ),
    ArtifactFiles(
      patterns=(
        'checkpoints/*/_CHECKPOINT_METADATA',
        'checkpoints/*commit_success.txt',
      ),
      requirement=Requirement.NOT_READ,
      consequence='none on disk; in a bucket, a checkpoint without its '
      '`commit_success.txt` counts as unfinished',
      detection='-',
      recovery='-',
    ),
    ArtifactFiles(
      patterns=('checkpoints/*/metrics/metrics',),
      consequence='training raises an error when it selects the best checkpoint',
      detection='the same numbers in the item `meta`',
      recovery='`--repair`, from the item `meta`',
    ),
    ArtifactFiles(
      patterns=('checkpoints/*',),
      consequence='training logs a warning and resumes from the previous '
      'checkpoint; other commands reject the checkpoint',
      detection='digests in each item, with step and run',
      recovery='resuming training from the previous checkpoint',
    ),
    ArtifactFiles(
      patterns=('metrics.jsonl',),
      consequence='a resumed run logs a warning and keeps the readable lines',
      detection='digest of the lines up to the last checkpoint, or of all '
      'lines of a finished run; later lines must be JSON',
      recovery='-',
    ),
    *result_integrity.FILES,
    ArtifactFiles(
      patterns=('tensorboard/*', 'report/*'),
      requirement=Requirement.NOT_READ,
      consequence='its information is lost',
      detection='-',
      recovery='training again',
    ),
    ArtifactFiles(
      patterns=('rejected_checkpoints/*', '.*'),
      requirement=Requirement.NOT_READ,
      consequence='none',
      detection='-',
      recovery='-',
    ),
  ),
  verify=verify_run,
)
