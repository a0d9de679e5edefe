"""Functions that find, verify and read finished checkpoints."""

import os
import pathlib
import re
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from xlflax.storage import paths, tensorstore_specs
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import checkpoint_items, run_directory
from xlflax.utils import errors

DIRECTORY = 'checkpoints'
NO_CHECKPOINT_HINT = (
  'Run the `xlflax train` command of this run again, and wait until it has '
  'written a checkpoint.'
)


def finished_steps(model_dir: str | pathlib.Path) -> list[int]:
  """Returns the steps of the finished checkpoints, in ascending order.

  Args:
    model_dir: Model directory, on disk or in a bucket.
  """
  directory = paths.to_path(model_dir) / DIRECTORY
  return sorted(
    int(p.name)
    for p in paths.list_directory(directory)
    if is_step_name(p.name) and _is_finished(p)
  )


def is_step_name(name: str) -> bool:
  """Returns whether the name of a directory is the step of a checkpoint.

  A copy such as `060` is not a checkpoint of the run, because the checkpoint of
  step 60 is `60`.
  """
  return re.fullmatch('0|[1-9][0-9]*', name) is not None


def _is_finished(checkpoint: pathlib.Path) -> bool:
  """Returns whether a checkpoint is finished.

  On disk, a checkpoint gets its final name when it is finished. In a bucket,
  Orbax writes a marker file.
  """
  if paths.is_bucket(checkpoint):
    return ocp.utils.is_checkpoint_finalized(checkpoint)
  return (checkpoint / 'params').is_dir()


def checkpoint_path(model_dir: str | pathlib.Path, step: int) -> pathlib.Path:
  """Returns the directory in which a checkpoint is stored.

  Args:
    model_dir: Model directory, on disk or in a bucket.
    step: Step of the checkpoint.

  Raises:
    CheckpointError: If the checkpoint does not exist.
    RunDirectoryError: If the file system does not support reading checkpoints.
  """
  checkpoint = paths.to_absolute_path(model_dir) / DIRECTORY / str(step)
  tensorstore_specs.kvstore_spec(os.fspath(checkpoint))
  if not checkpoint.is_dir():
    steps = finished_steps(model_dir)
    if not steps:
      raise no_checkpoint_error(
        'The run does not have a finished checkpoint', model_dir
      )
    raise errors.CheckpointError(
      'The run does not have a finished checkpoint of the requested step',
      got=step,
      expected=f'one of the steps {", ".join(map(str, steps))}',
      where=str(model_dir),
    )
  return checkpoint


def no_checkpoint_error(
  message: str, model_dir: str | pathlib.Path, *, initializes: bool = False
) -> errors.CheckpointError:
  """Returns the error for a directory without finished checkpoints.

  Args:
    message: Message for a model directory. A different message is used if the
      directory does not contain a model.
    model_dir: Existing directory without finished checkpoints.
    initializes: Whether the directory is the run from which a new run is
      initialized.
  """
  directory = paths.to_path(model_dir)
  if not (directory / run_directory.MODEL).exists():
    hint = run_directory.suggest_model_directory(
      directory, initializes=initializes
    )
    if hint:
      return errors.CheckpointError(
        'The directory is not a model directory. A model directory contains '
        f'{run_directory.MODEL} and checkpoints, which `xlflax train` or '
        '`xlflax convert` writes',
        where=str(model_dir),
        fix=hint,
      )
  return errors.CheckpointError(
    message, where=str(model_dir), fix=NO_CHECKPOINT_HINT
  )


def verify_checkpoint(checkpoint: pathlib.Path, *items: str) -> None:
  """Verifies a checkpoint's items and raises the same error in all processes.

  Each process reads its shard of the files.

  Args:
    checkpoint: Directory of a finished checkpoint.
    *items: Names of the items, a subset of 'params', 'train' and 'meta'.

  Raises:
    CheckpointError: If a file has changed or is missing.
  """
  error = None
  try:
    checkpoint_items.verify_items(
      checkpoint,
      *items,
      run=run_directory.run_id(checkpoint.parent.parent),
      share=(jax.process_index(), jax.process_count()),
    )
  except errors.CheckpointError as local_error:
    error = local_error

  if jax.process_count() > 1:
    any_failed = _is_true_anywhere(error is not None)
    if any_failed and error is None:
      error = errors.CheckpointError(
        'The checkpoint is damaged. Another process found damaged files in its '
        'shard of the checkpoint',
        where=str(checkpoint),
      )
  if error:
    raise error


def read_last_run_id(model_dir: pathlib.Path) -> str:
  """Returns the identifier of the run that wrote the newest valid checkpoint.

  Returns '' if there is no valid checkpoint.
  """
  for step in reversed(finished_steps(model_dir)):
    about = checkpoint_items.read_seal_metadata(
      checkpoint_path(model_dir, step)
    )
    if about:
      return about.get('run', '')
  return ''


def _is_true_anywhere(value: bool) -> bool:
  """Returns whether a value is true in any process."""
  from jax.experimental import multihost_utils

  return bool(multihost_utils.process_allgather(np.array(value)).any())


def saved_shapes(
  checkpoint: pathlib.Path, item: str = 'params'
) -> dict[str, Any]:
  """Reads the shapes of a checkpoint's arrays from its metadata.

  Args:
    checkpoint: Directory of a finished checkpoint.
    item: Name of the item, 'params' or 'train'. The parameters of adapters,
      which are a separate item, are included in 'params'.

  Returns:
    Mapping from names to shapes.

  Raises:
    CheckpointError: If the metadata is unreadable or has changed.
  """
  shapes = _item_shapes(checkpoint, item)
  if item == checkpoint_items.PARAMS and checkpoint_items.has_adapters(
    checkpoint
  ):
    shapes |= _item_shapes(checkpoint, checkpoint_items.ADAPTERS)
  return shapes


def _item_shapes(checkpoint: pathlib.Path, item: str) -> dict[str, Any]:
  """Reads the shapes of the arrays of a single item from its metadata."""
  checkpoint_items.verify_description(checkpoint, item)
  try:
    metadata = ocp.StandardCheckpointHandler().metadata(
      paths.to_absolute_path(checkpoint) / item
    )
    tree = getattr(metadata, 'tree', metadata)
    return param_tree.param_shapes(tree)
  except Exception as error:
    raise errors.CheckpointError(
      'The metadata of the checkpoint cannot be read',
      got=summarize_error(error),
      where=str(checkpoint),
    ) from error


def check_fit(checkpoint: pathlib.Path, state: train_state.TrainState) -> None:
  """Checks that a checkpoint's array shapes match those of a train state.

  Args:
    checkpoint: Directory of a finished checkpoint.
    state: Abstract train state of the run.

  Raises:
    CheckpointError: If shapes in the checkpoint differ from those in the train
      state.
  """
  check_shapes(checkpoint, state.params)
  problems = _shape_differences(checkpoint, make_train_item(state), 'train')
  if problems:
    raise errors.CheckpointError(
      'The checkpoint does not match the train state of this run. The '
      'optimizer, the frozen parameters, `ema_decay` and the objectives must '
      'be the same as in the checkpoint',
      got=_join_first(problems),
      where=str(checkpoint),
      fix='Use the settings with which the run was started, or train in a '
      'different model directory with `init_from`.',
    )


def fits_last_checkpoint(
  model_dir: str | pathlib.Path, state: train_state.TrainState
) -> bool:
  """Returns whether the newest checkpoint's shapes match a train state.

  This function reads only metadata, and skips checkpoints whose metadata cannot
  be read. It returns True if there are no other checkpoints.

  Args:
    model_dir: Model directory, on disk or in a bucket.
    state: Abstract train state of the run.
  """
  for step in reversed(finished_steps(model_dir)):
    checkpoint = checkpoint_path(model_dir, step)
    try:
      saved_shapes(checkpoint, checkpoint_items.PARAMS)
    except errors.CheckpointError:
      continue
    try:
      check_fit(checkpoint, state)
    except errors.CheckpointError:
      return False
    return True
  return True


def check_shapes(checkpoint: pathlib.Path, abstract_params) -> None:
  """Checks that a checkpoint's array shapes match a model's parameters.

  Unreadable metadata is not reported here, because reading the checkpoint
  reports it.

  Args:
    checkpoint: Directory of a finished checkpoint.
    abstract_params: Abstract parameters of the model.

  Raises:
    CheckpointError: If the names or shapes of parameters differ between the
      checkpoint and the model. The message lists the differences.
  """
  problems = _shape_differences(checkpoint, abstract_params, 'params')
  if problems:
    raise errors.CheckpointError(
      'The checkpoint does not match the model. The parameters must have the '
      'same names and shapes as in the checkpoint. The first dimension of the '
      'embedding table is the vocabulary size',
      got=_join_first(problems),
      where=str(checkpoint),
      fix='Use the model and the vocabulary with which the run was started, or '
      'train in a different model directory.',
    )


def _shape_differences(checkpoint, abstract, item: str) -> list[str]:
  """Describes the differences between a saved item and abstract arrays."""
  try:
    saved = saved_shapes(checkpoint, item)
  except errors.CheckpointError:
    return []
  model_shapes = param_tree.param_shapes(abstract)
  return sorted(
    [
      f'{name} is only in the checkpoint'
      for name in saved.keys() - model_shapes
    ]
    + [f'{name} is only in the model' for name in model_shapes.keys() - saved]
    + [
      f'{name} is {saved[name]} in the checkpoint, {model_shapes[name]} in the '
      'model'
      for name in model_shapes.keys() & saved
      if saved[name] != model_shapes[name]
    ]
  )


def is_valid(checkpoint: pathlib.Path) -> bool:
  """Returns whether all files of a checkpoint match their digests."""
  try:
    verify_checkpoint(checkpoint, *checkpoint_items.NAMES)
  except errors.CheckpointError:
    return False
  return True


def _join_first(problems: list[str], max_problems: int = 20) -> str:
  """Joins the first problems and appends the number of remaining ones."""
  phrases = problems[:max_problems]
  num_omitted = len(problems) - len(phrases)
  if num_omitted:
    phrases.append(f'and {num_omitted} more')
  return '; '.join(phrases)


def restore_params(model_dir: str | pathlib.Path, step: int, abstract) -> Any:
  """Restores a checkpoint's parameters, or their EMA if one was saved.

  Args:
    model_dir: Model directory of a run.
    step: Step of a finished checkpoint.
    abstract: ShapeDtypeStructs of the parameters, with optional shardings.

  Raises:
    CheckpointError: If the checkpoint does not exist, has different shapes or
      is unreadable.
  """
  checkpoint = checkpoint_path(model_dir, step)
  check_shapes(checkpoint, abstract)
  has_ema = any(
    name.startswith('ema/') for name in saved_shapes(checkpoint, 'train')
  )
  verify_checkpoint(
    checkpoint, checkpoint_items.TRAIN if has_ema else checkpoint_items.PARAMS
  )
  try:
    if has_ema:
      return restore_subtree(checkpoint, 'train', {'ema': abstract})['ema']
    return restore_subtree(checkpoint, 'params', abstract)
  except Exception as error:
    raise errors.CheckpointError(
      'The checkpoint cannot be read',
      got=summarize_error(error),
      where=str(checkpoint),
      fix='Use the checkpoint of a different step.',
    ) from error


def restore_subtree(checkpoint: pathlib.Path, item: str, abstract) -> Any:
  """Restores a part of a checkpoint item. Each array is read with its sharding.

  This function does not verify the files. Call `verify_checkpoint` first.

  Args:
    checkpoint: Directory of a finished checkpoint.
    item: Name of the item, 'params' or 'train'. The parameters of adapters,
      which are a separate item, are included in 'params'.
    abstract: Tree of ShapeDtypeStructs that is a subtree of the item's tree.
  """
  if item == checkpoint_items.PARAMS and checkpoint_items.has_adapters(
    checkpoint
  ):
    parts = checkpoint_items.split_params(abstract)
    return checkpoint_items.join_params(
      *(
        _restore_item(checkpoint, part_item, part)
        for part_item, part in parts.items()
        if jax.tree.leaves(part)
      )
    )
  return _restore_item(checkpoint, item, abstract)


def _restore_item(checkpoint: pathlib.Path, item: str, abstract) -> Any:
  """Restores some arrays of a single item."""
  with ocp.PyTreeCheckpointer() as checkpointer:
    return checkpointer.restore(
      paths.to_absolute_path(checkpoint) / item,
      args=ocp.args.PyTreeRestore(
        item=abstract,
        partial_restore=True,
        restore_args=ocp.checkpoint_utils.construct_restore_args(abstract),
      ),
    )


def make_train_item(state: train_state.TrainState) -> dict[str, Any]:
  """Returns the content of the checkpoint item `train`."""
  return {
    'step': state.step,
    'opt_state': state.opt_state,
    'ema': state.ema,
    'objective_state': state.objective_state,
  }


def summarize_error(error: BaseException) -> str:
  """Formats an error as its type and the first line of its message."""
  lines = str(error).strip().splitlines()
  return f'{type(error).__name__}: {lines[0] if lines else ""}'[:300]
