"""Logical axes of parameters for T5X's partitioner. Requires T5X."""

from collections.abc import Sequence
from typing import Any

from flax.linen import partitioning as flax_partitioning

from xlflax.training import param_tree
from xlflax.training.devices import partitioning

# Logical axes that are not in the standard rules of T5X. They are not sharded.
_ADDITIONAL = ('position', 'language', 'type', 'norm')


def additional_rules() -> Sequence[tuple[str, str | None]]:
  """Returns additional rules for T5X's `standard_logical_axis_rules`."""
  assert set(_ADDITIONAL) <= {name for name, _ in partitioning.DEFAULT_RULES}
  return tuple((name, None) for name in _ADDITIONAL)


def params_axes(boxed) -> dict[str, Any]:
  """Returns the collection 'params_axes' for a tree of boxed parameters.

  The columns of embedding tables are sharded like the 'embed' axis of other
  weights.

  For example, `{'a': {'kernel': box(w, names=('embed', 'mlp'))}}` becomes
  `{'a': {'kernel_axes': AxisMetadata(('embed', 'mlp'))}}`. A parameter that is
  not boxed has no named axis.

  Args:
    boxed: Tree of parameters or their shapes, boxed with their logical axes.
  """
  axes_by_name = param_tree.flatten_params(_unwrap(boxed))
  return param_tree.unflatten_params(
    {
      f'{name}_axes': flax_partitioning.AxisMetadata(names=axes.names)
      for name, axes in axes_by_name.items()
    }
  )


class _Axes:
  """Axis names of a parameter. Unlike a tuple, it is a leaf of a tree."""

  def __init__(self, names: tuple):
    self.names = names


def _unwrap(tree):
  """Replaces the parameters of a tree by their axis names."""
  if isinstance(tree, dict):
    return {key: _unwrap(value) for key, value in tree.items()}
  names = getattr(tree, 'names', None)
  names = names or (None,) * tree.ndim
  return _Axes(tuple('embed' if name == 'columns' else name for name in names))
