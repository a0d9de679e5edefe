"""Finished checkpoints: which there are, whether whole and fitting; reading."""

import os
import pathlib
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from xlflax.storage import paths, tensorstore_specs
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import checkpoint_items, run_directory
from xlflax.utils import errors

DIRECTORY = 'checkpoints'


def finished_steps(model_dir: str | pathlib.Path) -> list[int]:
  """Steps of the finished checkpoints of a model directory, rising."""
  directory = paths.to_path(model_dir) / DIRECTORY
  return sorted(
    int(p.name)
    for p in paths.list_directory(directory)
    if p.name.isdigit() and _is_finished(p)
  )


def _is_finished(checkpoint: pathlib.Path) -> bool:
  """On disk a checkpoint gets its name at the end, in a bucket a mark."""
  if paths.is_bucket(checkpoint):
    return ocp.utils.is_checkpoint_finalized(checkpoint)
  return (checkpoint / 'params').is_dir()


def path_of(model_dir: str | pathlib.Path, step: int) -> pathlib.Path:
  """The directory of a checkpoint.

  Raises:
    CheckpointError: there is none.
    RunDirectoryError: it is where checkpoints cannot be read.
  """
  checkpoint = paths.to_absolute_path(model_dir) / DIRECTORY / str(step)
  tensorstore_specs.kvstore_spec(os.fspath(checkpoint))
  if not checkpoint.is_dir():
    raise errors.CheckpointError(
      'There is no such checkpoint',
      got=step,
      expected=f'one of {finished_steps(model_dir)}',
      where=str(model_dir),
    )
  return checkpoint


def verify_checkpoint(checkpoint: pathlib.Path, *items: str) -> None:
  """Refuses items that are not as they were written, on all processes alike.

  Each process reads its share of the files.

  Args:
    checkpoint: a finished checkpoint's directory.
    *items: 'params', 'train', 'meta'.

  Raises:
    CheckpointError: a file has changed or is missing.
  """
  error = None
  try:
    checkpoint_items.verify_items(
      checkpoint,
      *items,
      run=run_directory.run_id(checkpoint.parent.parent),
      share=(jax.process_index(), jax.process_count()),
    )
  except errors.CheckpointError as found:
    error = found
  if jax.process_count() > 1 and _any(error is not None) and error is None:
    error = errors.CheckpointError(
      'A checkpoint is damaged',
      got='files that another process has read',
      where=str(checkpoint),
    )
  if error:
    raise error


def run_of_last(model_dir: pathlib.Path) -> str:
  """The run that the newest whole checkpoint is of; '' without any."""
  for step in reversed(finished_steps(model_dir)):
    about = checkpoint_items.read_seal_metadata(path_of(model_dir, step))
    if about:
      return about.get('run', '')
  return ''


def _any(here: bool) -> bool:
  """Whether something is so on any process."""
  from jax.experimental import multihost_utils

  return bool(multihost_utils.process_allgather(np.array(here)).any())


def saved_shapes(
  checkpoint: pathlib.Path, item: str = 'params'
) -> dict[str, Any]:
  """Name -> shape of the arrays in a checkpoint, read from its metadata.

  Args:
    checkpoint: a finished checkpoint's directory.
    item: 'params' or 'train'.

  Raises:
    CheckpointError: the metadata cannot be read, or has been changed.
  """
  checkpoint_items.verify_description(checkpoint, item)
  try:
    metadata = ocp.StandardCheckpointHandler().metadata(
      paths.to_absolute_path(checkpoint) / item
    )
    tree = getattr(metadata, 'tree', metadata)
    return param_tree.param_shapes(tree)
  except Exception as error:
    raise errors.CheckpointError(
      'A checkpoint has no readable metadata',
      got=first_line(error),
      where=str(checkpoint),
    ) from error


def check_fit(checkpoint: pathlib.Path, state: train_state.TrainState) -> None:
  """Raises CheckpointError if a state of other shapes was saved."""
  check_shapes(checkpoint, state.params)
  problems = _differences(checkpoint, train_item(state), 'train')
  if problems:
    raise errors.CheckpointError(
      'The checkpoint does not fit the optimizer and what else is kept',
      got=_some(problems),
      where=str(checkpoint),
      expected='the state of the same optimizer, frozen parameters, '
      'ema_decay and objectives',
      fix='use the settings that the run was started with, or another model '
      'directory with init_from',
    )


def check_shapes(checkpoint: pathlib.Path, abstract_params) -> None:
  """Raises CheckpointError listing parameters that differ from the model's.

  Unreadable metadata is no mismatch: reading the checkpoint will say so.
  """
  problems = _differences(checkpoint, abstract_params, 'params')
  if problems:
    raise errors.CheckpointError(
      'The checkpoint does not fit the model',
      got=_some(problems),
      expected='the same parameters (the vocabulary size is the first '
      'dimension of the embedding table)',
      where=str(checkpoint),
      fix='use the model and vocabulary that the run was started with, or '
      'another model directory',
    )


def _differences(checkpoint, abstract, item: str) -> list[str]:
  """What the arrays of a saved item and of `abstract` differ in."""
  try:
    saved = saved_shapes(checkpoint, item)
  except errors.CheckpointError:
    return []
  model_shapes = param_tree.param_shapes(abstract)
  return sorted(
    [f'{n} only in the checkpoint' for n in saved.keys() - model_shapes]
    + [f'{n} only in the model' for n in model_shapes.keys() - saved]
    + [
      f'{n} is {saved[n]} in the checkpoint, {model_shapes[n]} in the model'
      for n in model_shapes.keys() & saved
      if saved[n] != model_shapes[n]
    ]
  )


def is_whole(checkpoint: pathlib.Path) -> bool:
  """Whether every file of a checkpoint is as it was written."""
  try:
    verify_checkpoint(checkpoint, *checkpoint_items.NAMES)
  except errors.CheckpointError:
    return False
  return True


def _some(problems: list[str], most: int = 20) -> str:
  more = [f'and {len(problems) - most} more'] if len(problems) > most else []
  return '; '.join(problems[:most] + more)


def restore_params(model_dir: str | pathlib.Path, step: int, abstract) -> Any:
  """The parameters of one checkpoint: their running average, if it has one.

  Args:
    model_dir: a run's directory.
    step: a finished checkpoint.
    abstract: ShapeDtypeStructs (with shardings, if wanted) of the parameters.

  Raises:
    CheckpointError: no such checkpoint, another shape, or unreadable.
  """
  checkpoint = path_of(model_dir, step)
  check_shapes(checkpoint, abstract)
  averaged = any(
    name.startswith('ema/') for name in saved_shapes(checkpoint, 'train')
  )
  verify_checkpoint(
    checkpoint, checkpoint_items.TRAIN if averaged else checkpoint_items.PARAMS
  )
  try:
    if averaged:
      return read_part(checkpoint, 'train', {'ema': abstract})['ema']
    return read_part(checkpoint, 'params', abstract)
  except Exception as error:
    raise errors.CheckpointError(
      'A checkpoint cannot be read',
      got=first_line(error),
      where=str(checkpoint),
      fix='use another step',
    ) from error


def read_part(checkpoint: pathlib.Path, item: str, part) -> Any:
  """Reads some arrays of an item, each straight into its sharding.

  The files are not checked: call `verify_checkpoint` once before.

  Args:
    checkpoint: a finished checkpoint's directory.
    item: 'params' or 'train'.
    part: ShapeDtypeStructs in a tree that is part of the item's.
  """
  with ocp.PyTreeCheckpointer() as checkpointer:
    return checkpointer.restore(
      paths.to_absolute_path(checkpoint) / item,
      args=ocp.args.PyTreeRestore(
        item=part,
        partial_restore=True,
        restore_args=ocp.checkpoint_utils.construct_restore_args(part),
      ),
    )


def train_item(state: train_state.TrainState) -> dict[str, Any]:
  """What the item `train` holds: all but the parameters."""
  return {
    'step': state.step,
    'opt_state': state.opt_state,
    'ema': state.ema,
    'objective_state': state.objective_state,
  }


def first_line(error: BaseException) -> str:
  """Of an error's text, and its kind."""
  text = str(error).strip().splitlines()
  return f'{type(error).__name__}: {text[0] if text else ""}'[:300]
