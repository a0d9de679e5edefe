"""Fused attention with arrays that are sharded over several devices.

XLA cannot partition a kernel. `shard_map` therefore runs the kernels of each
device on its sequences and heads, along the mesh axes of the logical axes
'batch' and 'heads'. The custom gradient encloses both passes, so that the
residuals of the forward pass are ordinary arrays.
"""

import functools
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from xlflax.models import compile_targets, custom_vjp
from xlflax.models.attention import masks
from xlflax.models.attention.fused import attention_vjp, kernel_spec


def sharded_attention(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  mask: masks.Mask | None,
  *,
  bias: jax.Array | None,
  scale: float,
  dropout_rate: float,
  dropout_key: jax.Array | None,
) -> jax.Array:
  """Computes softmax(scale q kᵀ + bias + mask) v without storing scores.

  Args:
    query: Queries of shape [B, T, N, D], where D is 16, 32, 64 or 128.
    key: Keys of shape [B, S, K, D], where K divides N.
    value: Values of shape [B, S, K, D].
    mask: Attention mask. If None, every query attends to every key.
    bias: Bias added to the attention scores, float32 of shape [1, N, T, S], or
      None.
    scale: Factor that scales the attention scores.
    dropout_rate: Dropout rate for the attention probabilities. The dropped
      elements are those that `dropout.drop_weights` drops from an array of
      shape [B, N, T, S].
    dropout_key: Random key for dropout. If None, dropout is not applied.

  Returns:
    An array of shape [B, T, N, D] and the dtype of `query`. A query that
    attends to no key yields zeros.
  """
  mask = mask or masks.Mask()
  length, memory_length = query.shape[1], key.shape[1]
  platform = compile_targets.current_target().platform
  options = kernel_spec.Options(
    scale=scale,
    rate=0.0 if dropout_key is None else dropout_rate,
    causal=mask.causal,
    heads=query.shape[2],
    length=length,
    memory_length=memory_length,
    block=attention_vjp.block_sizes(length, memory_length, platform),
    interpret=platform == 'cpu',
    platform='tpu' if platform == 'tpu' else 'gpu',
  )

  key_words = None
  if dropout_key is not None and options.rate:
    key_words = jax.random.bits(dropout_key, (2,), jnp.uint32)
  window = None
  if mask.window is not None:
    window = jnp.asarray(mask.window, jnp.int32).reshape(1)

  arrays = kernel_spec.Arrays(
    query=query,
    key=key,
    value=value,
    bias=None if bias is None else bias[0],
    query_segments=mask.query_segments,
    key_segments=mask.key_segments,
    key_words=key_words,
    window=window,
  )
  return _attend(options, arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
  options: kernel_spec.Options, arrays: kernel_spec.Arrays
) -> jax.Array:
  """Computes fused attention with a custom gradient."""
  return _forward(options, arrays)[0]


def _forward(options, arrays):
  sharding = _choose_sharding(arrays)
  out_specs = (
    sharding.queries,
    PartitionSpec(sharding.batch, sharding.heads, None),
  )

  def run(arrays):
    return attention_vjp.attention_forward(
      options, sharding.add_dropout_bits(options, arrays)
    )

  outputs = sharding.map_shards(run, (arrays,), out_specs)
  output, normalizer = (custom_vjp.checkpoint_name(x) for x in outputs)
  return output, (arrays, output, normalizer)


def _backward(options, residuals, gradient):
  arrays, output, normalizer = residuals
  sharding = _choose_sharding(arrays)

  def run(arrays, *outputs):
    *gradients, d_bias = attention_vjp.attention_backward(
      options, sharding.add_dropout_bits(options, arrays), *outputs
    )
    if d_bias is not None and sharding.batch:
      d_bias = jax.lax.psum(d_bias, sharding.batch)
    return *gradients, d_bias

  d_query, d_key, d_value, d_bias = sharding.map_shards(
    run,
    (arrays, output, normalizer, gradient),
    (
      sharding.queries,
      sharding.keys,
      sharding.keys,
      None if arrays.bias is None else sharding.bias,
    ),
  )
  gradients = jax.tree.map(lambda _: None, arrays)
  gradients = gradients._replace(
    query=d_query, key=d_key, value=d_value, bias=d_bias
  )
  return (gradients,)


_attend.defvjp(_forward, _backward)


class _Sharding(NamedTuple):
  """Mesh axes over which the arrays are sharded.

  Attributes:
    batch: Mesh axes that shard the batch. Empty if the batch is not sharded.
    heads: Mesh axes that shard the heads. Empty if the heads are not sharded.
    sharded: Whether the program runs on several devices.
  """

  batch: tuple[str, ...]
  heads: tuple[str, ...]
  sharded: bool

  @property
  def queries(self) -> PartitionSpec:
    """Partition spec of queries and outputs, arrays of shape [B, T, N, D]."""
    return PartitionSpec(self.batch or None, None, self.heads or None, None)

  @property
  def keys(self) -> PartitionSpec:
    """Partition spec of keys and values, arrays of shape [B, S, K, D]."""
    return self.queries

  @property
  def bias(self) -> PartitionSpec:
    """Partition spec of the attention bias, an array of shape [N, T, S]."""
    return PartitionSpec(self.heads or None, None, None)

  def add_dropout_bits(
    self, options, arrays: kernel_spec.Arrays
  ) -> kernel_spec.Arrays:
    """Adds random bits for attention dropout to the inputs of this device."""

    def first_index(axes, size):
      if not axes:
        return np.uint32(0)
      return jax.lax.axis_index(axes).astype(jnp.uint32) * np.uint32(size)

    return kernel_spec.add_dropout_bits(
      options,
      arrays,
      first_row=first_index(self.batch, arrays.query.shape[0]),
      first_head=first_index(self.heads, arrays.query.shape[2]),
    )

  def map_shards(self, function, arguments, out_specs):
    """Calls `function` on each device's shard of the arguments.

    Args:
      function: Function to call on each device. Its arguments are `Arrays` and,
        in the backward pass, also the output, the normalizer and the gradient.
      arguments: Global (unsharded) arguments of `function`.
      out_specs: Partition specs of the results.
    """
    if not self.sharded:
      return function(*arguments)
    segments = PartitionSpec(self.batch or None, None)
    specs = {
      'query': self.queries,
      'key': self.keys,
      'value': self.keys,
      'bias': self.bias,
      'query_segments': segments,
      'key_segments': segments,
      'key_words': PartitionSpec(),
      'window': PartitionSpec(),
    }
    arrays, *outputs = arguments
    array_specs: Any = {
      name: None if getattr(arrays, name) is None else spec
      for name, spec in specs.items()
    }
    # Output, normalizer and gradient.
    output_specs = (
      self.queries,
      PartitionSpec(self.batch or None, self.heads or None, None),
      self.queries,
    )
    return jax.shard_map(
      function,
      in_specs=(
        kernel_spec.Arrays(**array_specs),
        *output_specs[: len(outputs)],
      ),
      out_specs=out_specs,
      check_vma=False,
    )(*arguments)


def _choose_sharding(arrays: kernel_spec.Arrays) -> _Sharding:
  """Returns the mesh axes that shard the batch and the heads evenly."""
  mesh = jax.sharding.get_abstract_mesh()
  sizes = dict(mesh.shape) if not mesh.empty else {}
  if math.prod(sizes.values()) == 1:
    return _Sharding((), (), False)
  axes = nn.logical_to_mesh_axes(('batch', 'heads')) or (None, None)
  batch, heads = (_as_tuple(axis) for axis in axes)
  groups = arrays.key.shape[2]
  if arrays.query.shape[0] % math.prod(sizes[axis] for axis in batch):
    batch = ()
  if groups % math.prod(sizes[axis] for axis in heads):
    heads = ()
  return _Sharding(batch, heads, True)


def _as_tuple(axes) -> tuple[str, ...]:
  """Returns an entry of a partition spec as a tuple of mesh axes."""
  if axes is None:
    return ()
  return (axes,) if isinstance(axes, str) else tuple(axes)
