"""How a model's parameters are made of the arrays of a checkpoint.

Mostly an array is taken as it is. Layers may be kept stacked ('layers', as a
scanned model has them) or one by one ('layers_0', …) on either side, and a
shallow stack may take some of the layers of a deep one.
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
# (layers of the model's stack, of the checkpoint's) -> which to take.
Choose = Callable[[int, int], tuple[int, ...]]

_LAYER = re.compile(r'((?:.*/)?layers)(?:_(\d+))?/(.+)')


class Source(NamedTuple):
  """Where a parameter comes from.

  Attributes:
    names: the checkpoint's arrays; several are stacked.
    rows: of a stack: which layers to take, or the one that is meant.
    stacked: whether `names` are stacked along a new first axis.
  """

  names: tuple[str, ...]
  rows: tuple[int, ...] | int | None = None
  stacked: bool = False

  @property
  def whole(self) -> bool:
    """Whether an array is taken as it is."""
    return self.rows is None and not self.stacked

  def shape(self, saved: Shapes) -> tuple[int, ...]:
    """The shape of what is made."""
    first = tuple(saved[self.names[0]])
    if self.stacked:
      return (len(self.names), *first)
    if self.rows is None:
      return first
    return (
      first[1:] if isinstance(self.rows, int) else (len(self.rows), *first[1:])
    )

  def make(self, arrays: Mapping[str, jax.Array]) -> jax.Array:
    """The parameter, of arrays by name."""
    if self.stacked:
      return jnp.stack([arrays[name] for name in self.names])
    array = arrays[self.names[0]]
    if self.rows is None:
      return array
    return array[jnp.asarray(self.rows)]


def stack_depths(shapes: Shapes) -> dict[str, int]:
  """Name -> number of layers of its stack, for parameters of layers."""
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
  source_name: str, depth: int | None, saved: Shapes, choose: Choose
) -> Source | None:
  """The source that a name stands for; None if the checkpoint lacks it.

  Args:
    source_name: the parameter's name, as the checkpoint calls it.
    depth: layers of the model's stack; None for what is in no layer.
    saved: name -> shape of the checkpoint's arrays.
    choose: which layers to take.
  """
  match = _LAYER.fullmatch(source_name)
  if match is None or depth is None:
    return Source((source_name,)) if source_name in saved else None
  stack, index, suffix = match.groups()
  scanned = f'{stack}/{suffix}'
  unrolled = [f'{stack}_{i}/{suffix}' for i in range(len(saved))]
  count = sum(name in saved for name in unrolled)
  available = saved[scanned][0] if scanned in saved else count
  refused = index is not None and choose is every_layer and depth != available
  if not available or refused:
    return None
  chosen = choose(depth, available)
  if index is not None:
    if int(index) >= len(chosen):
      return None
    chosen = chosen[int(index) : int(index) + 1]
  if scanned not in saved:
    return Source(tuple(unrolled[i] for i in chosen), stacked=index is None)
  if index is not None:
    return Source((scanned,), rows=chosen[0])
  return Source(
    (scanned,), rows=(None if chosen == tuple(range(available)) else chosen)
  )


def every_layer(depth: int, available: int) -> tuple[int, ...]:
  """All layers of the checkpoint, whatever the model has."""
  del depth
  return tuple(range(available))


def read_sources(
  checkpoint: pathlib.Path,
  sources: Mapping[str, Source],
  targets: Mapping[str, tuple[Any, Any]],
  saved: Shapes,
) -> dict[str, jax.Array]:
  """Reads the arrays of some sources, each once, sharded as they are used.

  Args:
    checkpoint: a finished checkpoint's directory.
    sources: parameter -> its source.
    targets: parameter -> (an array of its rank and type, sharding).
    saved: name -> shape.

  Returns:
    Name in the checkpoint -> array.
  """
  abstract_parts: dict[str, jax.ShapeDtypeStruct] = {}
  for name, source in sources.items():
    leaf, sharding = targets[name]
    for part in source.names:
      abstract_parts[part] = jax.ShapeDtypeStruct(
        saved[part],
        leaf.dtype,
        sharding=_sharding_of_part(source, sharding, leaf.shape, saved[part]),
      )
  item = param_tree.unflatten_params(
    {  # in the checkpoint's order
      part: abstract_parts[part] for part in saved if part in abstract_parts
    }
  )
  return param_tree.flatten_params(
    checkpoint_reader.restore_subtree(checkpoint, 'params', item)
  )


def _sharding_of_part(source: Source, sharding, shape, saved_shape):
  """The parameter's sharding on the axes that part and parameter share."""
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
