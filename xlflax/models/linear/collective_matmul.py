"""TPU matmuls with weights that are sharded along the model width.

Weights are gathered before the matmul. After the matmul in the backward pass,
the devices exchange parts of the weight gradient, and each device sums one
part. Without this module, the partitioner would create loops of partial sums
for both operations. XLA:TPU would also replace a reduce-scatter of a width such
as 768 / 8 by an all-reduce of all weights.
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


def on_several_tpus() -> bool:
  """Returns whether the current program runs on several TPUs."""
  mesh = jax.sharding.get_abstract_mesh()
  return compile_targets.current_target().platform == 'tpu' and (
    not mesh.empty and mesh.size > 1
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def collective_matmul(
  inputs: jax.Array, weights: jax.Array, axes: tuple[str, ...], contracted: int
) -> jax.Array:
  """Contracts the last axes of inputs with the first axes of weights.

  Computes [rows.., *contracted] x [*contracted, *features] ->
  [rows.., *features].

  Args:
    inputs: Array of inputs, whose first axis is the batch.
    weights: Array of weights, of the same dtype as the inputs.
    axes: Names of the logical axes of the weights. The axis 'embed' is the
      model width.
    contracted: Number of leading axes of the weights to contract with the last
      axes of the inputs.
  """
  return jnp.tensordot(inputs, _gather_width(weights, axes), axes=contracted)


def _forward(inputs, weights, axes, contracted):
  weights = _gather_width(weights, axes)
  outputs = jnp.tensordot(inputs, weights, axes=contracted)
  return outputs, (inputs, weights)


def _backward(axes, contracted, residuals, gradient):
  inputs, weights = residuals
  num_features = weights.ndim - contracted
  gradient_axes = tuple(range(gradient.ndim - num_features, gradient.ndim))
  weight_axes = tuple(range(contracted, weights.ndim))
  d_inputs = jnp.tensordot(gradient, weights, axes=(gradient_axes, weight_axes))
  rows = inputs.ndim - contracted
  return d_inputs, sum_over_rows(inputs, gradient, axes, rows=rows)


collective_matmul.defvjp(_forward, _backward)


def _gather_width(weights, axes):
  """Returns the weights with the width gathered on all devices."""
  axes = (None if axis == _WIDTH else axis for axis in axes)
  return nn.with_logical_constraint(weights, tuple(axes))


def sum_over_rows(
  lhs: jax.Array, rhs: jax.Array, axes: tuple[str, ...], *, rows: int
) -> jax.Array:
  """Contracts two arrays over their leading axes, as in a weight gradient.

  Computes [rows.., *c] x [rows.., *f] -> [*c, *f].

  Args:
    lhs: Left operand of the contraction, whose first axis is the batch.
    rhs: Right operand of the contraction, whose first axis is the batch.
    axes: Names of the logical axes of the result. The result is sharded like
      weights with these axes.
    rows: Number of leading axes to sum over in both operands.

  Returns:
    The sum in the dtype of `lhs`. Devices exchange partial sums in this dtype
    and add them in float32.
  """
  row_axes = tuple(range(rows))

  def multiply(lhs, rhs):
    return jax.lax.dot_general(
      lhs,
      rhs,
      ((row_axes, row_axes), ((), ())),
      preferred_element_type=lhs.dtype,
    )

  sharding = (
    _choose_sharding(axes, lhs, rhs, rows) if on_several_tpus() else None
  )
  if sharding is None:
    return nn.with_logical_constraint(multiply(lhs, rhs), axes)

  def sum_on_device(lhs, rhs):
    partial_sum = multiply(lhs, rhs)
    axis, shape = axes.index(_WIDTH), partial_sum.shape
    chunks = partial_sum.reshape(
      *shape[:axis],
      sharding.num_chunks,
      shape[axis] // sharding.num_chunks,
      *shape[axis + 1 :],
    )
    chunks = jax.lax.all_to_all(chunks, sharding.width, axis, axis)
    total = jnp.sum(chunks, axis, dtype=jnp.float32)
    if sharding.replicas:
      total = jax.lax.psum(total, sharding.replicas)
    return total.astype(lhs.dtype)

  return jax.shard_map(
    sum_on_device,
    in_specs=(sharding.lhs, sharding.rhs),
    out_specs=sharding.result,
    check_vma=False,
  )(lhs, rhs)


class _Sharding(NamedTuple):
  """Sharding of a sum over rows.

  Attributes:
    lhs: Partition spec of the left operand of the matmul.
    rhs: Partition spec of the right operand of the matmul.
    result: Partition spec of the result of the contraction.
    width: Mesh axes that shard the width of the result, which is the logical
      axis 'embed'.
    num_chunks: Number of shards along the width axis.
    replicas: Mesh axes that shard the rows but not the width axis.
  """

  lhs: PartitionSpec
  rhs: PartitionSpec
  result: PartitionSpec
  width: tuple[str, ...]
  num_chunks: int
  replicas: tuple[str, ...]


def _choose_sharding(axes, lhs, rhs, rows: int) -> _Sharding | None:
  """Returns the sharding, or None if it does not divide the arrays."""
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  batch, width = _mesh_axes('batch'), _mesh_axes(_WIDTH)
  factor_axes = [() if axis == _WIDTH else _mesh_axes(axis) for axis in axes]
  other_axes = {name for names in factor_axes for name in names}
  if (
    _WIDTH not in axes
    or not width
    or not set(width) <= set(batch)
    or other_axes & set(batch)
  ):
    return None

  shape = (*lhs.shape[rows:], *rhs.shape[rows:])
  result_axes = [
    width if axis == _WIDTH else names
    for axis, names in zip(axes, factor_axes, strict=True)
  ]
  dimensions = zip((lhs.shape[0], *shape), (batch, *result_axes), strict=True)
  if any(
    size % math.prod(sizes[name] for name in names)
    for size, names in dimensions
  ):
    return None

  inner_rows = [None] * (rows - 1)
  num_lhs_axes = lhs.ndim - rows
  return _Sharding(
    lhs=PartitionSpec(
      batch, *inner_rows, *_spec_entries(factor_axes[:num_lhs_axes])
    ),
    rhs=PartitionSpec(
      batch, *inner_rows, *_spec_entries(factor_axes[num_lhs_axes:])
    ),
    result=PartitionSpec(*_spec_entries(result_axes)),
    width=width,
    num_chunks=math.prod(sizes[name] for name in width),
    replicas=tuple(name for name in batch if name not in width),
  )


def _spec_entries(mesh_axes):
  """Returns entries of a partition spec, with None for empty tuples."""
  return [names or None for names in mesh_axes]


def _mesh_axes(axis: str) -> tuple[str, ...]:
  """Returns the mesh axes of a logical axis that have several devices."""
  (entry,) = nn.logical_to_mesh_axes((axis,)) or (None,)
  if entry is None:
    return ()
  names = (entry,) if isinstance(entry, str) else tuple(entry)
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  return tuple(name for name in names if sizes[name] > 1)
