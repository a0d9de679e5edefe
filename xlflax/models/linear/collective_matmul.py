"""Products on TPUs whose weights are split over devices along their width.

Weights are gathered before the product. After it, devices exchange parts of
their gradients and each sums its own. The partitioner alone makes loops of
partial sums of both; XLA:TPU makes a reduce-scatter of a width like 768 / 8
an all-reduce of all weights.
"""

import functools
import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from xlflax.models import compile_targets

_WIDTH = 'embed'


def is_split() -> bool:
  """Returns whether products are for several TPUs."""
  mesh = jax.sharding.get_abstract_mesh()
  return compile_targets.current_target().platform == 'tpu' and (
    not mesh.empty and mesh.size > 1
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def collective_matmul(
  inputs: jax.Array, weights: jax.Array, axes: tuple[str, ...], contracted: int
) -> jax.Array:
  """[rows.., *contracted] x [*contracted, *features] -> [rows.., *features].

  Args:
    inputs: whose first axis is the batch's.
    weights: in the dtype of the product.
    axes: logical axes of the weights; 'embed' is the width.
    contracted: how many of them are summed over.
  """
  return jnp.tensordot(inputs, _gathered(weights, axes), axes=contracted)


def _forward(inputs, weights, axes, contracted):
  weights = _gathered(weights, axes)
  outputs = jnp.tensordot(inputs, weights, axes=contracted)
  return outputs, (inputs, weights)


def _backward(axes, contracted, saved, gradient):
  inputs, weights = saved
  features = weights.ndim - contracted
  of_gradient = tuple(range(gradient.ndim - features, gradient.ndim))
  of_weights = tuple(range(contracted, weights.ndim))
  d_inputs = jnp.tensordot(gradient, weights, axes=(of_gradient, of_weights))
  rows = inputs.ndim - contracted
  return d_inputs, sum_of_rows(inputs, gradient, axes, rows=rows)


collective_matmul.defvjp(_forward, _backward)


def _gathered(weights, axes):
  axes = (None if axis == _WIDTH else axis for axis in axes)
  return nn.with_logical_constraint(weights, tuple(axes))


def sum_of_rows(
  left: jax.Array, right: jax.Array, axes: tuple[str, ...], *, rows: int
) -> jax.Array:
  """The gradient of weights: [rows.., *c] x [rows.., *f] -> [*c, *f].

  Args:
    left: whose first axis is the batch's.
    right: likewise.
    axes: logical axes of the result, which is split like weights with these.
    rows: number of axes that are summed over.

  Returns:
    The sum in the dtype of `left`, in which the parts travel; they are added
    in float32.
  """
  summed = tuple(range(rows))

  def product(left, right):
    return jax.lax.dot_general(
      left,
      right,
      ((summed, summed), ((), ())),
      preferred_element_type=left.dtype,
    )

  split = _split(axes, left, right, rows) if is_split() else None
  if split is None:
    return nn.with_logical_constraint(product(left, right), axes)

  def of_device(left, right):
    partial_sum = product(left, right)
    axis, shape = axes.index(_WIDTH), partial_sum.shape
    parts = partial_sum.reshape(
      *shape[:axis], split.parts, shape[axis] // split.parts, *shape[axis + 1 :]
    )
    parts = jax.lax.all_to_all(parts, split.width, axis, axis)
    total = jnp.sum(parts, axis, dtype=jnp.float32)
    if split.replicas:
      total = jax.lax.psum(total, split.replicas)
    return total.astype(left.dtype)

  return jax.shard_map(
    of_device,
    in_specs=(split.left, split.right),
    out_specs=split.result,
    check_vma=False,
  )(left, right)


class _Split(NamedTuple):
  """How a sum over rows is split.

  Attributes:
    left: of its left factor.
    right: of its right factor.
    result: of the sum.
    width: mesh axes that split the result's width.
    parts: into how many.
    replicas: those that split rows besides.
  """

  left: PartitionSpec
  right: PartitionSpec
  result: PartitionSpec
  width: tuple[str, ...]
  parts: int
  replicas: tuple[str, ...]


def _split(axes, left, right, rows: int) -> _Split | None:
  """Returns the split, or None where it does not divide the arrays."""
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  batch, width = _mesh_axes('batch'), _mesh_axes(_WIDTH)
  parts = [() if axis == _WIDTH else _mesh_axes(axis) for axis in axes]
  used = {name for part in parts for name in part}
  if (
    _WIDTH not in axes
    or not width
    or not set(width) <= set(batch)
    or used & set(batch)
  ):
    return None
  shape = (*left.shape[rows:], *right.shape[rows:])
  result = [
    width if axis == _WIDTH else part
    for axis, part in zip(axes, parts, strict=True)
  ]
  dimensions = zip((left.shape[0], *shape), (batch, *result), strict=True)
  if any(n % math.prod(sizes[a] for a in names) for n, names in dimensions):
    return None
  inner = [None] * (rows - 1)
  count = left.ndim - rows
  return _Split(
    PartitionSpec(batch, *inner, *_entries(parts[:count])),
    PartitionSpec(batch, *inner, *_entries(parts[count:])),
    PartitionSpec(*_entries(result)),
    width,
    math.prod(sizes[name] for name in width),
    tuple(name for name in batch if name not in width),
  )


def _entries(parts):
  return [part or None for part in parts]


def _mesh_axes(axis: str) -> tuple[str, ...]:
  """The mesh axes of a logical axis, those of several devices only."""
  (entry,) = nn.logical_to_mesh_axes((axis,)) or (None,)
  if entry is None:
    return ()
  names = (entry,) if isinstance(entry, str) else tuple(entry)
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  return tuple(name for name in names if sizes[name] > 1)
