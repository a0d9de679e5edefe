"""Gradient of layer norm on NVIDIA GPUs, as one Pallas (Triton) kernel.

XLA:GPU computes the gradient of layer norm in several kernels: one for the
statistics of the rows, one for the sums over columns (the gradients of scale
and bias), and one for the gradient of the hidden states. These kernels read the
hidden states three times and the gradient twice. The kernel in this module
reads both arrays once.

Each program processes every n-th block of rows, where n is the number of
programs, and sums the gradients of scale and bias over its rows. XLA adds the
sums of all programs.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import PartitionSpec

# Columns that a warp processes at once. Triton requires a power of two.
_COLUMNS = 256
# Wider rows would not fit into the registers.
_MAX_WIDTH = 1024
# Rows per block. Each warp processes one row.
_ROWS = 4
# Programs per device. About three programs run at once on each of the 132
# multiprocessors of an H100 or H200.
_MAX_PROGRAMS = 384
# Indices in the kernel have 32 bits.
_MAX_SIZE = 2**31


def supports(states: jax.Array) -> bool:
  """Returns whether the kernel supports hidden states of shape [..., H]."""
  width = states.shape[-1]
  return (
    width % _COLUMNS == 0
    and width <= _MAX_WIDTH
    and 0 < states.size < _MAX_SIZE
    and _batch_axes(states.shape) is not None
  )


def layer_norm_gradient(
  states: jax.Array,
  scale: jax.Array,
  gradient: jax.Array,
  *,
  epsilon: float,
  interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Computes the gradients of layer norm.

  With u = (x - mean) / deviation and g = scale * dy, the gradients are

      dx = (g - mean(g) - u mean(g u)) / deviation
      dscale = sum(dy u)
      dbias = sum(dy)

  Args:
    states: Inputs x of layer norm, of a shape [..., H] that `supports` accepts.
    scale: Scale of layer norm, float32 of shape [H].
    gradient: Gradient dy with respect to the result, of shape [..., H].
    epsilon: Number that is added to the variance.
    interpret: Whether to run the kernel in interpret mode, which works on any
      device.

  Returns:
    The gradients of the states (with their shape and dtype), of the scale and
    of the bias (float32 of shape [H]).
  """
  run = functools.partial(_run_on_shard, epsilon, interpret)
  batch = _batch_axes(states.shape)
  if batch is not None and _num_devices() > 1:
    rows = PartitionSpec(batch or None, *(None,) * (states.ndim - 1))
    sums = PartitionSpec(batch or None, None)
    run = jax.shard_map(
      run,
      in_specs=(rows, PartitionSpec(), rows),
      out_specs=(rows, sums, sums),
      check_vma=False,
    )
  states_gradient, scale_sums, bias_sums = run(states, scale, gradient)
  return states_gradient, scale_sums.sum(0), bias_sums.sum(0)


def _num_devices() -> int:
  """Returns the number of devices in the current mesh."""
  mesh = jax.sharding.get_abstract_mesh()
  return 1 if mesh.empty else math.prod(mesh.shape.values())


def _batch_axes(shape: tuple[int, ...]) -> tuple[str, ...] | None:
  """Returns the mesh axes that shard the first dimension of hidden states.

  Returns:
    The mesh axes. They are empty if the states are on one device. None if the
    states may also be sharded along other dimensions, or if the batch size is
    not a multiple of the number of shards.
  """
  if _num_devices() == 1:
    return ()
  if len(shape) != 3:
    return None
  sizes = dict(jax.sharding.get_abstract_mesh().shape)
  axes = nn.logical_to_mesh_axes(('batch', 'length', 'embed'))
  if axes is None:
    return None
  batch, *others = (
    tuple(axis for axis in _as_tuple(entry) if sizes[axis] > 1)
    for entry in axes
  )
  num_shards = math.prod(sizes[axis] for axis in batch)
  if any(others) or shape[0] % num_shards:
    return None
  return batch


def _as_tuple(axes) -> tuple[str, ...]:
  """Returns an entry of a partition spec as a tuple of mesh axes."""
  if axes is None:
    return ()
  return (axes,) if isinstance(axes, str) else tuple(axes)


def _run_on_shard(epsilon: float, interpret: bool, states, scale, gradient):
  """Runs the kernel on one device's rows.

  Returns:
    The gradient of the states, and each program's sums for the gradients of
    scale and bias, float32 of shape [programs, H].
  """
  width = states.shape[-1]
  rows = states.size // width
  programs = min(_MAX_PROGRAMS, pl.cdiv(rows, _ROWS))
  turns = pl.cdiv(rows, _ROWS * programs)
  sums = jax.ShapeDtypeStruct((programs, width), jnp.float32)
  sums_spec = pl.BlockSpec((None, width), lambda i: (i, 0))
  array_spec = pl.BlockSpec((rows, width), lambda i: (0, 0))
  states_gradient, scale_sums, bias_sums = pl.pallas_call(
    functools.partial(
      _kernel,
      epsilon=epsilon,
      rows=rows,
      width=width,
      programs=programs,
      turns=turns,
    ),
    grid=(programs,),
    in_specs=[array_spec, pl.BlockSpec((width,), lambda i: (0,)), array_spec],
    out_specs=[array_spec, sums_spec, sums_spec],
    out_shape=[jax.ShapeDtypeStruct((rows, width), states.dtype), sums, sums],
    name='layer_norm_gradient',
    interpret=interpret,
    compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
  )(states.reshape(rows, width), scale, gradient.reshape(rows, width))
  return states_gradient.reshape(states.shape), scale_sums, bias_sums


def _kernel(
  states,
  scale,
  gradient,
  states_gradient,
  scale_sums,
  bias_sums,
  *,
  epsilon: float,
  rows: int,
  width: int,
  programs: int,
  turns: int,
) -> None:
  """Computes the gradients for the blocks of rows of one program."""
  slices = [pl.ds(first, _COLUMNS) for first in range(0, width, _COLUMNS)]
  scales = [scale[columns][None, :] for columns in slices]
  program = pl.program_id(0)

  def mean(parts):
    """Returns the mean over all columns, of shape [rows, 1]."""
    return functools.reduce(jnp.add, parts).sum(1)[:, None] / width

  def body(turn, sums):
    first = (program + turn * programs) * _ROWS
    at = pl.ds(first, _ROWS)
    mask = None
    if turns * programs * _ROWS > rows:
      mask = (first + jnp.arange(_ROWS) < rows)[:, None]
      mask = jnp.broadcast_to(mask, (_ROWS, _COLUMNS))

    def load(array):
      other = None if mask is None else 0.0
      return [
        plgpu.load(array.at[at, columns], mask=mask, other=other).astype(
          jnp.float32
        )
        for columns in slices
      ]

    x, dy = load(states), load(gradient)
    center = mean(x)
    x = [part - center for part in x]
    inverse_deviation = jax.lax.rsqrt(mean([p * p for p in x]) + epsilon)
    unit = [part * inverse_deviation for part in x]
    g = [part * factor for part, factor in zip(dy, scales, strict=True)]
    g_mean = mean(g)
    parallel = mean([a * b for a, b in zip(g, unit, strict=True)])
    for columns, part, unit_part in zip(slices, g, unit, strict=True):
      dx = inverse_deviation * (part - g_mean - unit_part * parallel)
      plgpu.store(
        states_gradient.at[at, columns],
        dx.astype(states_gradient.dtype),
        mask=mask,
      )
    scale_parts, bias_parts = sums
    return (
      [s + a * b for s, a, b in zip(scale_parts, dy, unit, strict=True)],
      [s + a for s, a in zip(bias_parts, dy, strict=True)],
    )

  zeros = [jnp.zeros((_ROWS, _COLUMNS), jnp.float32) for _ in slices]
  scale_parts, bias_parts = jax.lax.fori_loop(0, turns, body, (zeros, zeros))
  for columns, scale_part, bias_part in zip(
    slices, scale_parts, bias_parts, strict=True
  ):
    scale_sums[columns] = scale_part.sum(0)
    bias_sums[columns] = bias_part.sum(0)
