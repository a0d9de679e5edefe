"""Assignment of a checkpoint's arrays to a model's parameters.

Most arrays are used unchanged. Layers may be stacked ('layers', as in a scanned
model) or separate ('layers_0', …) in the checkpoint and in the model, and a
shallow stack may use some of the layers of a deep one.
"""

import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from xlflax.training import param_tree
from xlflax.training.checkpointing import checkpoint_reader

Shapes = Mapping[str, tuple[int, ...]]
# Function that maps the numbers of layers in the model and in the checkpoint to
# the indices of the layers to use.
LayerSelector = Callable[[int, int], tuple[int, ...]]

_LAYER = re.compile(r'((?:.*/)?layers)(?:_(\d+))?/(.+)')


class Source(NamedTuple):
  """Arrays in a checkpoint that are combined to initialize one parameter.

  Attributes:
    names: Names of the arrays in the checkpoint. Several arrays are stacked.
    rows: Indices of the layers of a stacked array to use, or the index of a
      single layer. If None, the array is not indexed.
    stacked: Whether to stack the arrays along a new first axis.
  """

  names: tuple[str, ...]
  rows: tuple[int, ...] | int | None = None
  stacked: bool = False

  @property
  def is_unchanged(self) -> bool:
    """True if the parameter equals a single array of the checkpoint."""
    return self.rows is None and not self.stacked

  def shape(self, saved: Shapes) -> tuple[int, ...]:
    """Returns the shape of the parameter computed from the checkpoint's arrays.

    Args:
      saved: Shapes of the arrays in the checkpoint by name.
    """
    first = tuple(saved[self.names[0]])
    if self.stacked:
      return (len(self.names), *first)
    if self.rows is None:
      return first
    return (
      first[1:] if isinstance(self.rows, int) else (len(self.rows), *first[1:])
    )

  def make(self, arrays: Mapping[str, jax.Array]) -> jax.Array:
    """Computes the parameter by stacking or indexing arrays of the checkpoint.

    Args:
      arrays: Arrays in the checkpoint by name.
    """
    if self.stacked:
      return jnp.stack([arrays[name] for name in self.names])
    array = arrays[self.names[0]]
    if self.rows is None:
      return array
    return array[jnp.asarray(self.rows)]


def stack_depths(shapes: Shapes) -> dict[str, int]:
  """Returns the number of layers in the stack of each layer parameter."""
  unrolled: dict[tuple[str, str], int] = {}
  matches = {name: _LAYER.fullmatch(name) for name in shapes}
  for match in matches.values():
    if match and match[2] is not None:
      key = (match[1], match[3])
      unrolled[key] = unrolled.get(key, 0) + 1
  return {
    name: (
      shapes[name][0] if match[2] is None else unrolled[match[1], match[3]]
    )
    for name, match in matches.items()
    if match
  }


def find_source(
  source_name: str,
  depth: int | None,
  saved: Shapes,
  select_layers: LayerSelector,
) -> Source | None:
  """Finds the arrays in the checkpoint that initialize a parameter.

  Args:
    source_name: Name of the parameter in the checkpoint.
    depth: Number of layers in the model's stack. If None, the parameter
      does not belong to a layer.
    saved: Shapes of the arrays in the checkpoint by name.
    select_layers: Function that selects the layers of the checkpoint to use.

  Returns:
    The source, or None if the checkpoint does not contain the parameter.
  """
  match = _LAYER.fullmatch(source_name)
  if match is None or depth is None:
    return Source((source_name,)) if source_name in saved else None
  stack, index, suffix = match.groups()
  scanned = f'{stack}/{suffix}'
  unrolled = [f'{stack}_{i}/{suffix}' for i in range(len(saved))]
  count = sum(name in saved for name in unrolled)
  available = saved[scanned][0] if scanned in saved else count
  # An unrolled model must not silently use some of the layers.
  has_other_depth = (
    index is not None
    and select_layers is select_all_layers
    and depth != available
  )
  if not available or has_other_depth:
    return None

  layers = select_layers(depth, available)
  if index is not None:
    if int(index) >= len(layers):
      return None
    layers = layers[int(index) : int(index) + 1]
  if scanned not in saved:
    return Source(tuple(unrolled[i] for i in layers), stacked=index is None)
  if index is not None:
    return Source((scanned,), rows=layers[0])
  return Source(
    (scanned,), rows=(None if layers == tuple(range(available)) else layers)
  )


def select_all_layers(depth: int, available: int) -> tuple[int, ...]:
  """Returns the indices of all layers in the checkpoint.

  The depth of the model is ignored.
  """
  del depth
  return tuple(range(available))


def read_sources(
  checkpoint: pathlib.Path,
  sources: Mapping[str, Source],
  targets: Mapping[str, tuple[Any, Any]],
  saved: Shapes,
) -> dict[str, jax.Array]:
  """Reads the checkpoint arrays that initialize parameters.

  Each array is read once, with the sharding of its parameter.

  Args:
    checkpoint: Directory of a finished checkpoint.
    sources: Mapping from parameter names to their sources.
    targets: Mapping from parameter names to pairs (array, sharding). The array
      has the rank and dtype of the parameter.
    saved: Shapes of the arrays in the checkpoint by name.

  Returns:
    Arrays by their name in the checkpoint.
  """
  abstract: dict[str, jax.ShapeDtypeStruct] = {}
  for name, source in sources.items():
    leaf, sharding = targets[name]
    for array_name in source.names:
      shape = saved[array_name]
      abstract[array_name] = jax.ShapeDtypeStruct(
        shape,
        leaf.dtype,
        sharding=_array_sharding(source, sharding, leaf.shape, shape),
      )
  # The arrays are listed in the order of the checkpoint.
  item = param_tree.unflatten_params(
    {name: abstract[name] for name in saved if name in abstract}
  )
  return param_tree.flatten_params(
    checkpoint_reader.restore_subtree(checkpoint, 'params', item)
  )


def _array_sharding(source: Source, sharding, shape, saved_shape):
  """Returns the sharding of an array of the checkpoint.

  On the axes that the array and the parameter share, it equals the sharding of
  the parameter.

  Args:
    source: Source from which the parameter is initialized and to which the
      array belongs.
    sharding: Sharding of the parameter in this run.
    shape: Shape of the parameter.
    saved_shape: Shape of the array in the checkpoint.
  """
  if not isinstance(sharding, NamedSharding):
    return sharding
  spec = [*sharding.spec, *[None] * (len(shape) - len(sharding.spec))]
  if source.stacked:
    spec = spec[1:]
  elif isinstance(source.rows, int):
    spec = [None, *spec]
  elif source.rows is not None:
    spec = [None, *spec[1:]]
  if not source.stacked and len(shape) == len(saved_shape):
    spec = [
      axis if a == b else None
      for axis, a, b in zip(spec, shape, saved_shape, strict=True)
    ]
  return NamedSharding(sharding.mesh, PartitionSpec(*spec))
