"""Model directories: settings, vocabulary, checkpoints, metrics, results."""

import json
import pathlib
from collections.abc import Iterator

from xlflax.examination import evaluations, run_repair
from xlflax.examination.findings import Finding, asked, of_manifest
from xlflax.examination.kinds import Artefact, Files, Need
from xlflax.storage import digests, manifests
from xlflax.training.checkpointing import (
  checkpoint_items,
  inputs,
  run_directory,
  saved_checkpoints,
)

_COPY = 'restore it from a copy'
_BEGIN = 'start the same training again: nothing is lost'
_LATER = 'training goes on from the checkpoint before; or copy it again'


def look(directory: pathlib.Path) -> Iterator[Finding]:
  """Everything in a model directory."""
  steps = saved_checkpoints.finished_steps(directory)
  yield from of_manifest(
    directory,
    fix=lambda name: _COPY if steps else _BEGIN,
    mend=lambda name: run_repair.of_file(directory, name),
  )
  yield from _forgotten(directory)
  yield asked(
    'configuration',
    lambda: type(run_directory.read_model(directory)).__name__,
    fix=_COPY,
  )
  yield asked(
    'vocabulary',
    lambda: f'{inputs.own_vocabulary(directory).spec.size} entries',
    fix='copy the vocabulary of the run there again',
  )
  yield from _checkpoints(directory)
  yield _metrics(directory)
  yield from evaluations.look(directory)


def _forgotten(directory: pathlib.Path) -> Iterator[Finding]:
  """Files that a checkpoint knows of, where no manifest does."""
  known = run_repair.known_files(directory)
  kept = run_repair.kept_files(directory)
  for name in sorted(kept.keys() - known):
    if not (directory / name).exists():
      yield Finding(
        name,
        (f'{name} is missing',),
        fix=_COPY,
        mend=run_repair.of_file(directory, name),
      )


def _checkpoints(directory: pathlib.Path) -> Iterator[Finding]:
  run = _run_id(directory)
  steps = saved_checkpoints.finished_steps(directory)
  for step in steps:
    checkpoint = saved_checkpoints.path_of(directory, step)
    yield asked(
      f'checkpoint {step}',
      lambda checkpoint=checkpoint: checkpoint_items.verify(  # type: ignore[misc]
        checkpoint, *checkpoint_items.NAMES, run=run
      ),
      fix=_LATER,
    )
    problem = checkpoint_items.score_problem(checkpoint)
    if problem:
      yield Finding(
        f'checkpoint {step}', (problem,), mend=run_repair.of_score(checkpoint)
      )
  yield from _unfinished(directory, steps)
  if not steps:
    yield Finding('checkpoints', about='none yet')


def _unfinished(directory: pathlib.Path, steps: list[int]) -> Iterator[Finding]:
  """Directories with a checkpoint's name that nothing takes for one."""
  folder = directory / saved_checkpoints.DIRECTORY
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
  return asked(
    run_directory.METRICS,
    lambda: _lines(directory),
    fix='restore it from a copy, if it matters: nothing is trained on it',
  )


def _lines(directory: pathlib.Path) -> str:
  written = run_repair.metrics_digest(directory)
  path = directory / run_directory.METRICS
  if not written and not path.exists():
    return 'none'
  content = path.read_bytes()
  size = digests.size(written) if written else 0
  if written and digests.of_content(content[:size]) != written:
    raise ValueError('lines are missing or have changed')
  for line in content[size:].splitlines(keepends=True):
    if line.endswith(b'\n') and 'step' not in json.loads(line):
      raise ValueError(f'a line that is no line of metrics: {line[:60]!r}')
  return f'{content.count(10)} lines'


_FROM_CHECKPOINT = '`--repair`, from what a checkpoint keeps of it'
_DIGEST = 'digest in the manifest'
ARTEFACT = Artefact(
  manifests.Kind.RUN,
  (
    run_directory.MODEL,
    run_directory.TRAINER,
    f'{saved_checkpoints.DIRECTORY}/*/{checkpoint_items.PARAMS}',
  ),
  (
    Files(
      (manifests.FILE,),
      Need.REQUIRED,
      'training refuses a damaged one, and writes a missing one anew',
      'digest of its own',
      '`--repair`, from a checkpoint',
    ),
    Files(
      (run_directory.TRAINER,),
      Need.REQUIRED,
      'training refuses the directory; reports lack the settings',
      f'{_DIGEST}, and of its own',
      _FROM_CHECKPOINT,
    ),
    Files(
      (run_directory.MODEL,),
      Need.REQUIRED,
      'every command refuses the run',
      f'{_DIGEST}, and of its own',
      _FROM_CHECKPOINT,
    ),
    Files(
      (run_directory.OBJECTIVES,),
      Need.REQUIRED,
      'commands that read a head refuse the run; training writes it anew',
      f'{_DIGEST}, and of its own',
      _FROM_CHECKPOINT,
    ),
    Files(
      (run_directory.CONFIG, 'model.gin'),
      Need.REQUIRED,
      'who starts a run with it starts another one; training writes it anew',
      _DIGEST,
      _FROM_CHECKPOINT,
    ),
    Files(
      ('inputs.json', 'averaged.json', 't5x.json', run_directory.ORIGIN),
      Need.REQUIRED,
      'nobody knows any more what the model was made from',
      _DIGEST,
      _FROM_CHECKPOINT,
    ),
    Files(
      (run_directory.SENTENCE,),
      Need.REQUIRED,
      "sentence vectors are the mean of the last layer's states",
      _DIGEST,
      _FROM_CHECKPOINT,
    ),
    Files(
      ('finished.json',),
      Need.REQUIRED,
      '`xlflax evaluate --watch` waits for more checkpoints; training writes '
      'it anew',
      f'{_DIGEST} once the run is finished, and of its own',
      '`--repair`, from the last checkpoint',
    ),
    Files(
      (f'{run_directory.VOCABULARY}/*',),
      Need.REQUIRED,
      'every command refuses the run',
      f'{_DIGEST}, and the hash in `vocabulary.json`',
      '`--repair`, from the vocabulary that the run was started with',
    ),
    Files(
      ('checkpoints/*/_CHECKPOINT_METADATA', 'checkpoints/*commit_success.txt'),
      Need.UNREAD,
      'nothing changes on disks; in a bucket a checkpoint without its '
      '`commit_success.txt` counts as unfinished',
      '-',
      '-',
    ),
    Files(
      (f'checkpoints/*/{checkpoint_items.SCORE}',),
      Need.REQUIRED,
      'training refuses to choose the best checkpoint',
      'the same numbers in the item `meta`',
      '`--repair`, from the item `meta`',
    ),
    Files(
      ('checkpoints/*',),
      Need.REQUIRED,
      'training says so and goes on from the checkpoint before; other commands '
      'refuse it',
      'digests in each item, with step and run',
      'training on from the checkpoint before',
    ),
    Files(
      (run_directory.METRICS,),
      Need.REQUIRED,
      'a continued run warns, and keeps the lines that can be read',
      'up to the last checkpoint, and once the run is finished, by a digest; '
      'lines after it have to be JSON',
      'nothing',
    ),
    *evaluations.FILES,
    Files(
      (f'{run_directory.TENSORBOARD}/*', f'{run_directory.REPORT}/*'),
      Need.UNREAD,
      'people see less',
      '-',
      'training again',
    ),
    Files(
      ('rejected_checkpoints/*', '.*'), Need.UNREAD, 'nothing changes', '-', '-'
    ),
  ),
  look,
)
