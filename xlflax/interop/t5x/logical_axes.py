"""Logical axes of parameters, as T5X's partitioner wants them. Needs T5X."""

from collections.abc import Sequence
from typing import Any

from flax.linen import partitioning as flax_partitioning

from xlflax.training import param_tree
from xlflax.training.devices import partitioning

# What T5X's standard rules have no axis for; none is sharded.
_ADDITIONAL = ('position', 'language', 'type', 'norm')


def additional_rules() -> Sequence[tuple[str, str | None]]:
  """Rules for `t5x.partitioning.standard_logical_axis_rules`."""
  assert set(_ADDITIONAL) <= {name for name, _ in partitioning.DEFAULT_RULES}
  return tuple((name, None) for name in _ADDITIONAL)


def params_axes(boxed) -> dict[str, Any]:
  """The collection 'params_axes' of a tree of boxed parameters.

  Columns of tables are split as widths of other weights ('embed').

  Before: `{'a': {'kernel': box(w, names=('embed', 'mlp'))}}`; after:
  `{'a': {'kernel_axes': AxisMetadata(('embed', 'mlp'))}}`. A parameter that
  is not boxed has no named axis.

  Args:
    boxed: parameters or their shapes, boxed with logical axes.
  """
  named = param_tree.flatten_params(_unwrapped(boxed))
  return param_tree.unflatten_params(
    {
      f'{name}_axes': flax_partitioning.AxisMetadata(names=axes.names)
      for name, axes in named.items()
    }
  )


class _Axes:
  """A leaf, unlike a tuple."""

  def __init__(self, names: tuple):
    self.names = names


def _unwrapped(tree):
  if isinstance(tree, dict):
    return {key: _unwrapped(value) for key, value in tree.items()}
  names = getattr(tree, 'names', None)
  names = names or (None,) * tree.ndim
  return _Axes(tuple('embed' if n == 'columns' else n for n in names))
