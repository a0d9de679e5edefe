"""Averaging of checkpoints' parameters into a new model directory.

Translation models are evaluated with the average of their last checkpoints
(Vaswani et al. 2017, section 6.1; VECO, section 6.1: the last 10). The average
of several runs that started from the same parameters merges them, as in the
decay phases of mmBERT (which elects signs by TIES, where this module computes
the mean).
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
_GROUP_SIZE = 2**27  # Parameters read at a time: 0.5 GB of each checkpoint.


@validation.validate_call
def last_steps(
  model_dir: str | pathlib.Path, count: validation.PositiveInt
) -> list[int]:
  """Returns the steps of the newest checkpoints, in ascending order.

  Args:
    model_dir: Model directory of the run.
    count: Number of checkpoints to select.

  Raises:
    CheckpointError: If the run has fewer than `count` checkpoints.
  """
  bucket_access.check_readable(paths.to_path(model_dir))
  steps = checkpoint_reader.finished_steps(model_dir)
  if not steps:
    raise checkpoint_reader.no_checkpoint_error(
      'The run does not have a finished checkpoint', model_dir
    )
  if len(steps) < count:
    raise errors.CheckpointError(
      'The run has too few checkpoints to compute their average. At least '
      f'{count} finished checkpoints are required',
      got=steps,
      where=str(model_dir),
      fix='Average fewer checkpoints, or train with a larger '
      'CheckpointOptions.max_to_keep.',
    )
  return steps[-count:]


def average_checkpoints(
  chosen: Mapping[str | pathlib.Path, Sequence[int]], output: str | pathlib.Path
) -> pathlib.Path:
  """Writes a model directory with the mean of several checkpoints' parameters.

  Parameters, including heads, are averaged in float64. If EMA is enabled, the
  raw parameters are averaged. The directory contains one checkpoint, with the
  largest step. On disk, the directory becomes visible only when it is complete.

  Args:
    chosen: Mapping from model directories to the steps of the checkpoints to
      average. The model configuration is taken from the first run.
    output: Model directory to write.

  Returns:
    The absolute path of the output.

  Raises:
    RunDirectoryError: If a run is not a model directory, the output exists, or
      a bucket cannot be used.
    VocabularyError: If the vocabularies of the runs differ.
    CheckpointError: If a checkpoint is missing or has different parameters than
      the others.
  """
  output = paths.to_absolute_path(output)
  runs = [
    (saved_run.load_run(directory), sorted(set(steps)))
    for directory, steps in chosen.items()
  ]
  for run, steps in runs:
    _check_steps(run, steps)
    _check_same_model(run, runs[0][0])
  checkpoints = [
    checkpoint_reader.checkpoint_path(run.directory, step)
    for run, steps in runs
    for step in steps
  ]
  bucket_access.check_usable(output)
  with paths.new_directory(output, where='--output') as temporary_dir:
    _write(runs, mean_params(checkpoints), temporary_dir)
  for run, steps in runs:
    logging.info('Averaged steps %s of %s in %s.', steps, run.directory, output)
  return output


def mean_params(paths: Sequence[pathlib.Path]) -> dict[str, Any]:
  """Computes the mean of several checkpoints' parameters.

  Args:
    paths: Directories of the checkpoints to average.

  Returns:
    The parameters in float32 on the host.

  Raises:
    CheckpointError: If checkpoints have different parameters, one is damaged,
      or a value is not finite.
  """
  for path in paths:
    checkpoint_reader.verify_checkpoint(path, 'params')
  shapes = checkpoint_reader.saved_shapes(paths[0])
  for path in paths[1:]:
    if checkpoint_reader.saved_shapes(path) != shapes:
      raise _make_difference_error(path, paths[0])
  means: dict[str, np.ndarray] = {}
  for names in _group_names(shapes):
    means |= _compute_mean(paths, {name: shapes[name] for name in names})
  return param_tree.unflatten_params(means)


def _compute_mean(paths, shapes) -> dict[str, np.ndarray]:
  """Computes the means of a group of parameters over all checkpoints."""
  sums = {name: np.zeros(shape) for name, shape in shapes.items()}
  item = param_tree.unflatten_params(
    {
      name: np.broadcast_to(np.float32(0), shape)
      for name, shape in shapes.items()
    }
  )
  for path in paths:
    params = param_tree.flatten_params(
      checkpoint_reader.restore_subtree(path, 'params', item)
    )
    for name, total in sums.items():
      nonfinite_checks.check_finite(name, np.asarray(params[name]), where=path)
      total += params[name]
  return {
    name: (total / len(paths)).astype(np.float32)
    for name, total in sums.items()
  }


def _group_names(shapes) -> Iterator[list[str]]:
  """Yields names of parameters in groups of at most `_GROUP_SIZE` values."""
  group: list[str] = []
  num_values = 0
  for name, shape in shapes.items():
    size = int(np.prod(shape))
    if group and num_values + size > _GROUP_SIZE:
      yield group
      group, num_values = [], 0
    group.append(name)
    num_values += size
  yield group


def _write(
  runs: Sequence[tuple[saved_run.SavedRun, list[int]]],
  params,
  directory: pathlib.Path,
) -> None:
  """Writes the files of the model directory."""
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


def _check_same_model(
  run: saved_run.SavedRun, first: saved_run.SavedRun
) -> None:
  """Raises an error if two runs have different models or vocabularies."""
  if run.model != first.model:
    raise _make_difference_error(run.directory, first.directory)
  data_fingerprint.check_vocabulary(
    first.vocabulary, run.directory, where=first.directory
  )


def _make_difference_error(path, first) -> errors.CheckpointError:
  return errors.CheckpointError(
    'Only checkpoints of the same model can be averaged. Every checkpoint '
    f'must contain the same model as {first}',
    got=str(path),
  )


def _check_steps(run: saved_run.SavedRun, steps: Iterable[int]) -> None:
  """Raises an error if checkpoints are missing or none are given."""
  missing = sorted(set(steps) - set(run.steps))
  if missing or not steps:
    raise errors.CheckpointError(
      'Some of the checkpoints to average do not exist'
      if missing
      else 'At least one checkpoint is required to compute an average',
      got=missing or None,
      expected=run.steps,
      where=str(run.directory),
    )
