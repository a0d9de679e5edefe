"""The average of some checkpoints' parameters, as a model directory.

Averages of the last checkpoints are what translation models are evaluated
with (Vaswani et al. 2017, section 6.1; VECO, section 6.1: the last 10).
Averages of several runs merge what each has learned from one beginning, as the
decay phases of mmBERT (which elects signs, by TIES, where this takes the mean).
"""

import json
import logging
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.storage import bucket_access, manifests, paths
from xlflax.training import nonfinite_checks, param_tree
from xlflax.training.checkpointing import (
  checkpoint_reader,
  checkpoints,
  data_fingerprint,
  objective_config,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, validation

RECORD = 'averaged.json'
_GROUP_VALUES = 2**27  # parameters read at a time: 0.5 GB of each checkpoint


@validation.validate_call
def last_steps(
  model_dir: str | pathlib.Path, count: validation.PositiveInt
) -> list[int]:
  """The steps of the newest checkpoints, rising.

  Raises:
    CheckpointError: there are not so many.
  """
  bucket_access.check_readable(paths.to_path(model_dir))
  steps = checkpoint_reader.finished_steps(model_dir)
  if len(steps) < count:
    raise errors.CheckpointError(
      'There are too few checkpoints to average',
      got=f'{len(steps)}: {steps}',
      expected=f'{count}',
      where=str(model_dir),
      fix='average fewer, or train with a larger CheckpointOptions.keep_last',
    )
  return steps[-count:]


def average_checkpoints(
  chosen: Mapping[str | pathlib.Path, Sequence[int]], output: str | pathlib.Path
) -> pathlib.Path:
  """Writes a model directory with the mean of checkpoints' parameters.

  Each parameter is the mean in float64, heads included. (Of a run with
  `ema_decay`, the parameters are averaged, not their running averages.) It
  has one checkpoint, of the largest step, and appears, on disk, when it is
  complete.

  Args:
    chosen: run -> which of its checkpoints; the first run's model is written.
    output: directory to make.

  Raises:
    RunDirectoryError: a run is none, there is an output already, or a bucket
      cannot be used.
    VocabularyError: the runs have different vocabularies.
    CheckpointError: a checkpoint is missing or unlike the others.
  """
  output = paths.to_absolute_path(output)
  runs = [(saved_run.open_run(d), sorted(set(s))) for d, s in chosen.items()]
  for run, steps in runs:
    _check_steps(run, steps)
    _check_same(run, runs[0][0])
  checkpoints = [
    checkpoint_reader.checkpoint_path(run.directory, step)
    for run, steps in runs
    for step in steps
  ]
  bucket_access.check_usable(output)
  with paths.new_directory(output, where='--output') as temporary_dir:
    _write(runs, mean_params(checkpoints), temporary_dir)
  for run, steps in runs:
    logging.info('Steps %s of %s are in %s.', steps, run.directory, output)
  return output


def mean_params(paths: Sequence[pathlib.Path]) -> dict[str, Any]:
  """The mean of the parameters of some checkpoints, float32 on the host.

  Raises:
    CheckpointError: they have not the same parameters, one is damaged, or a
      value is not finite.
  """
  for path in paths:
    checkpoint_reader.verify_checkpoint(path, 'params')
  shapes = checkpoint_reader.saved_shapes(paths[0])
  for path in paths[1:]:
    if checkpoint_reader.saved_shapes(path) != shapes:
      raise _different(path, paths[0])
  means: dict[str, np.ndarray] = {}
  for names in _groups(shapes):
    means |= _mean(paths, {name: shapes[name] for name in names})
  return param_tree.unflatten_params(means)


def _mean(paths, shapes) -> dict[str, np.ndarray]:
  """Name -> mean over the checkpoints."""
  sums = {name: np.zeros(shape) for name, shape in shapes.items()}
  item = param_tree.unflatten_params(
    {
      name: np.broadcast_to(np.float32(0), shape)
      for name, shape in shapes.items()
    }
  )
  for path in paths:
    part = param_tree.flatten_params(
      checkpoint_reader.restore_subtree(path, 'params', item)
    )
    for name, total in sums.items():
      nonfinite_checks.check_finite(name, np.asarray(part[name]), where=path)
      total += part[name]
  return {
    name: (total / len(paths)).astype(np.float32)
    for name, total in sums.items()
  }


def _groups(shapes) -> Iterator[list[str]]:
  """Names in groups of so many values that few are held at a time."""
  group: list[str] = []
  values = 0
  for name, shape in shapes.items():
    size = int(np.prod(shape))
    if group and values + size > _GROUP_VALUES:
      yield group
      group, values = [], 0
    group.append(name)
    values += size
  yield group


def _write(
  runs: Sequence[tuple[saved_run.SavedRun, list[int]]],
  params,
  directory: pathlib.Path,
) -> None:
  run, _ = runs[0]
  run_directory.write_model(directory, run.model, vocabulary=run.vocabulary)
  objective_config.write_objectives(
    directory, run.objectives.values(), run.inputs
  )
  run_directory.copy_vocabulary(
    run.directory / run_directory.VOCABULARY, directory
  )
  run_directory.copy_origin(
    [source_run.directory for source_run, _ in runs], directory
  )
  if trainer := run_directory.read_trainer(run.directory):
    run_directory.write_run_file(directory, run_directory.AVERAGED, trainer)
  record = {str(source_run.directory): steps for source_run, steps in runs}
  last = max(steps[-1] for _, steps in runs)
  text = json.dumps(record, indent=2) + '\n'
  manifests.write_files(directory, manifests.Kind.RUN, {RECORD: text})
  params = jax.tree.map(jnp.asarray, params)
  meta = {'averaged': record}
  checkpoints.write_parameters(directory, params, step=last, meta=meta)


def _check_same(run: saved_run.SavedRun, first: saved_run.SavedRun) -> None:
  """Refuses a run of another model or vocabulary."""
  if run.model != first.model:
    raise _different(run.directory, first.directory)
  data_fingerprint.check_vocabulary(
    first.vocabulary, run.directory, where=first.directory
  )


def _different(path, first) -> errors.CheckpointError:
  return errors.CheckpointError(
    'Checkpoints of different models cannot be averaged',
    got=str(path),
    expected=f'the model of {first}',
  )


def _check_steps(run: saved_run.SavedRun, steps: Iterable[int]) -> None:
  missing = sorted(set(steps) - set(run.steps))
  if missing or not steps:
    raise errors.CheckpointError(
      'Checkpoints to average are missing',
      got=f'steps {missing}' if missing else 'no step',
      expected=f'some of {run.steps}',
      where=str(run.directory),
    )
