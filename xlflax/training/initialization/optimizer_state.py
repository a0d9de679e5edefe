"""Transfer of the optimizer state to the next phase of a training run."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import optax

from xlflax.training import nonfinite_checks, param_tree
from xlflax.training.checkpointing import checkpoint_reader
from xlflax.utils import errors

_ITEM = 'opt_state'


def read_optimizer_state(checkpoint: pathlib.Path, fresh: Any, factory) -> Any:
  """Restores a saved optimizer state, but restarts the learning rate schedules.

  Args:
    checkpoint: Directory of a finished checkpoint.
    fresh: Initial state of this run's optimizer.
    factory: Factory that provides the shardings.

  Raises:
    CheckpointError: If the checkpoint's optimizer differs from this run's
      optimizer, or if a saved value is not finite.
  """
  checkpoint_reader.verify_checkpoint(checkpoint, 'train')
  saved = checkpoint_reader.saved_shapes(checkpoint, 'train')
  saved_param_shapes = {
    name.removeprefix(f'{_ITEM}/'): shape
    for name, shape in saved.items()
    if name.startswith(f'{_ITEM}/')
  }
  check_optimizer_state(fresh, saved_param_shapes, checkpoint)
  abstract = {_ITEM: factory.abstract_sharded.opt_state}
  saved_state = checkpoint_reader.restore_subtree(checkpoint, 'train', abstract)
  nonfinite_checks.check_arrays(
    param_tree.flatten_params(saved_state), where=checkpoint
  )
  loaded_state = jax.tree.unflatten(
    jax.tree.structure(fresh), jax.tree.leaves(saved_state)
  )
  return jax.tree.map(
    lambda new, old: new if _is_schedule(new) else old,
    fresh,
    loaded_state,
    is_leaf=_is_schedule,
  )


def check_optimizer_state(
  opt_state: Any, saved: Mapping[str, tuple[int, ...]], where: pathlib.Path
) -> None:
  """Checks that a saved optimizer state matches the optimizer of this run.

  Args:
    opt_state: State of this run's optimizer.
    saved: Shapes of the arrays in the saved state by name.
    where: Location of the saved state, for the error message.

  Raises:
    CheckpointError: If the two states have different structures or shapes.
  """
  shapes = param_tree.param_shapes(opt_state)
  different_names = [
    name for name in {**shapes, **saved} if shapes.get(name) != saved.get(name)
  ]
  if different_names:
    raise errors.CheckpointError(
      'The saved state of the optimizer does not match the optimizer of this '
      'run. The optimizer and the parameters must be the same as in the '
      'checkpoint',
      got='; '.join(
        f'{name} is {shapes.get(name, "missing")} in this run, '
        f'{saved.get(name, "missing")} in the checkpoint'
        for name in different_names[:20]
      ),
      where=str(where),
      fix='To start with new moments, do not set '
      'InitFromCheckpoint.optimizer_state.',
    )


def _is_schedule(node: Any) -> bool:
  return isinstance(node, optax.ScaleByScheduleState)
