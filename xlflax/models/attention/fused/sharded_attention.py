"""Attention over several devices: the kernels of each on its rows and heads.

XLA cannot split a kernel, so `shard_map` does, along the mesh axes of the
logical axes 'batch' and 'heads'. The gradient is a rule around both passes,
so that what the forward pass keeps are ordinary arrays.
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
  """softmax(scale q kᵀ + bias + mask) v, without scores in memory.

  Args:
    query: [B, T, N, D], D one of 16, 32, 64, 128.
    key: [B, S, K, D]; K divides N.
    value: [B, S, K, D].
    mask: None if everything is seen.
    bias: float32 [1, N, T, S], or None.
    scale: of the products.
    dropout_rate: on probabilities; drops what `dropout.apply_dropout` drops from an
      array [B, N, T, S].
    dropout_key: None without dropout.

  Returns:
    [B, T, N, D] in the dtype of `query`; zeros where nothing is seen.
  """
  mask = mask or masks.Mask()
  length, memory_length = query.shape[1], key.shape[1]
  platform = compile_targets.current_target().platform
  window = mask.window
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
  arrays = kernel_spec.Arrays(
    query,
    key,
    value,
    None if bias is None else bias[0],
    mask.query_segments,
    mask.key_segments,
    None
    if dropout_key is None or not options.rate
    else jax.random.bits(dropout_key, (2,), jnp.uint32),
    None if window is None else jnp.asarray(window, jnp.int32).reshape(1),
  )
  return _attend(options, arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
  options: kernel_spec.Options, arrays: kernel_spec.Arrays
) -> jax.Array:
  return _forward(options, arrays)[0]


def _forward(options, arrays):
  split = _split(arrays)
  out = (split.queries, PartitionSpec(split.batch, split.heads, None))

  def run(arrays):
    return attention_vjp.attention_forward(
      options, split.placed(options, arrays)
    )

  output, normaliser = (
    custom_vjp.checkpoint_name(x) for x in split.map(run, (arrays,), out)
  )
  return output, (arrays, output, normaliser)


def _backward(options, saved, gradient):
  arrays, output, normaliser = saved
  split = _split(arrays)
  specs = (split.queries, split.keys, split.keys)

  def run(arrays, *more):
    *gradients, d_bias = attention_vjp.attention_backward(
      options, split.placed(options, arrays), *more
    )
    if d_bias is not None and split.batch:
      d_bias = jax.lax.psum(d_bias, split.batch)
    return *gradients, d_bias

  d_query, d_key, d_value, d_bias = split.map(
    run,
    (arrays, output, normaliser, gradient),
    (*specs, None if arrays.bias is None else split.bias),
  )
  none = jax.tree.map(lambda _: None, arrays)
  return (none._replace(query=d_query, key=d_key, value=d_value, bias=d_bias),)


_attend.defvjp(_forward, _backward)


class _Split(NamedTuple):
  """The mesh axes that arrays are split over.

  Attributes:
    batch: along the batch; () where it is whole.
    heads: along the heads, likewise.
    sharded: whether there are several devices.
  """

  batch: tuple[str, ...]
  heads: tuple[str, ...]
  sharded: bool

  @property
  def queries(self) -> PartitionSpec:
    return PartitionSpec(self.batch or None, None, self.heads or None, None)

  @property
  def keys(self) -> PartitionSpec:
    return self.queries

  @property
  def bias(self) -> PartitionSpec:
    return PartitionSpec(self.heads or None, None, None)

  def placed(self, options, arrays: kernel_spec.Arrays) -> kernel_spec.Arrays:
    """Adds dropout's bits, by the row and head that a part begins with."""
    first = (
      jax.lax.axis_index(axes).astype(jnp.uint32) * np.uint32(size)
      if axes
      else np.uint32(0)
      for axes, size in (
        (self.batch, arrays.query.shape[0]),
        (self.heads, arrays.query.shape[2]),
      )
    )
    return kernel_spec.with_bits(options, arrays, *first)

  def map(self, function, arguments, out_specs):
    """Calls `function` on each device's part of the arguments."""
    if not self.sharded:
      return function(*arguments)
    rows = PartitionSpec(self.batch or None, None)
    specs = {
      'query': self.queries,
      'key': self.keys,
      'value': self.keys,
      'bias': self.bias,
      'query_segments': rows,
      'key_segments': rows,
      'words': PartitionSpec(),
      'window': PartitionSpec(),
    }
    arrays, *more = arguments
    of_arrays: Any = {
      name: None if getattr(arrays, name) is None else spec
      for name, spec in specs.items()
    }
    of_more = (
      self.queries,
      PartitionSpec(self.batch or None, self.heads or None, None),
      self.queries,
    )
    return jax.shard_map(
      function,
      in_specs=(kernel_spec.Arrays(**of_arrays), *of_more[: len(more)]),
      out_specs=out_specs,
      check_vma=False,
    )(*arguments)


def _split(arrays: kernel_spec.Arrays) -> _Split:
  """Chooses the mesh axes: those of the logical axes, where they divide."""
  mesh = jax.sharding.get_abstract_mesh()
  sizes = dict(mesh.shape) if not mesh.empty else {}
  if math.prod(sizes.values()) == 1:
    return _Split((), (), False)
  axes = nn.logical_to_mesh_axes(('batch', 'heads')) or (None, None)
  batch, heads = (_as_tuple(axis) for axis in axes)
  groups = arrays.key.shape[2]
  if arrays.query.shape[0] % math.prod(sizes[axis] for axis in batch):
    batch = ()
  if groups % math.prod(sizes[axis] for axis in heads):
    heads = ()
  return _Split(batch, heads, True)


def _as_tuple(axes) -> tuple[str, ...]:
  if axes is None:
    return ()
  return (axes,) if isinstance(axes, str) else tuple(axes)
