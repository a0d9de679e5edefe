"""The state of an optimizer that a further phase of one training takes over."""

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
  """A checkpoint's state of the optimizer, in which schedules begin anew.

  Args:
    checkpoint: a finished checkpoint's directory.
    fresh: the state of this run's optimizer at its start.
    factory: has the shardings.

  Raises:
    CheckpointError: the optimizers differ, or a value is not finite.
  """
  checkpoint_reader.verify_checkpoint(checkpoint, 'train')
  saved = checkpoint_reader.saved_shapes(checkpoint, 'train')
  saved_param_shapes = {
    name.removeprefix(f'{_ITEM}/'): shape
    for name, shape in saved.items()
    if name.startswith(f'{_ITEM}/')
  }
  check_optimizer_state(fresh, saved_param_shapes, checkpoint)
  part = {_ITEM: factory.abstract_sharded.opt_state}
  saved_state = checkpoint_reader.restore_subtree(checkpoint, 'train', part)
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
  wanted: Any, saved: Mapping[str, tuple[int, ...]], where: pathlib.Path
) -> None:
  """Raises CheckpointError unless a saved state is of the same optimizer.

  Args:
    wanted: the state of this run's optimizer.
    saved: name -> shape of the other one's arrays.
    where: of the other run.
  """
  own_shapes = param_tree.param_shapes(wanted)
  differ = [
    n for n in {**own_shapes, **saved} if own_shapes.get(n) != saved.get(n)
  ]
  if differ:
    raise errors.CheckpointError(
      'The state of the optimizer does not fit',
      got='; '.join(
        f'{n} is {own_shapes.get(n, "not")} here, {saved.get(n, "not")} there'
        for n in differ[:20]
      ),
      expected='the same optimizer over the same parameters',
      where=str(where),
      fix='leave InitFrom.optimizer_state out to begin with fresh moments',
    )


def _is_schedule(node: Any) -> bool:
  return isinstance(node, optax.ScaleByScheduleState)
