"""Speed of JAX's splash attention compared with xlflax's TPU kernels.

  python -m benchmarks.baselines.splash_attention tpu:v6e:1

Splash attention supports segments, but neither dropout nor biases. As in
xlflax, blocks have 512 rows, and one kernel computes all gradients. The
benchmark prints the time of each kernel for the 12 layers of XLM-R base with 64
x 512 tokens. The times are computed from the number of instruction bundles.
"""

import sys

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_kernel as kernel,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_mask as splash_masks,
)

from benchmarks.compiled import bundles
from benchmarks.compiled.programs import pallas
from xlflax.models import compile_targets
from xlflax.models.attention import fused, masks
from xlflax.models.attention.fused import kernel_spec, sharded_attention
from xlflax.planning import compilers
from xlflax.training.devices import machine_topology

_BLOCK = 512
_LAYERS, _SHAPE = 12, (64, 512, 12, 64)


def compute_attention(
  query, key, value, mask, *, bias, scale, dropout_rate, dropout_key
) -> jax.Array:
  """Computes attention with JAX's splash attention kernel.

  The arguments are those of `fused.attend`. Dropout, biases and windows are not
  supported.

  Returns:
    The output of shape [batch, length, heads, width].

  Raises:
    ValueError: If dropout or biases are requested.
  """
  if dropout_key is not None and dropout_rate or bias is not None:
    raise ValueError('Splash attention does not support dropout or biases.')
  segments = mask.query_segments, mask.key_segments
  arrays = kernel_spec.Arrays(
    query * scale, key, value, None, *segments, None, None
  )
  sharding = sharded_attention._choose_sharding(arrays)
  return sharding.map_shards(_attend_on_device, (arrays,), sharding.queries)


def _attend_on_device(arrays: kernel_spec.Arrays) -> jax.Array:
  """Computes attention for one device's shard."""
  length, heads = arrays.query.shape[1:3]
  block = min(_BLOCK, length)
  names = ['block_q', 'block_kv', 'block_q_dkv', 'block_kv_dkv']
  with jax.ensure_compile_time_eval():
    run = kernel.make_splash_mha_single_device(
      splash_masks.MultiHeadMask(
        [splash_masks.FullMask((length, arrays.key.shape[1]))] * heads
      ),
      block_sizes=kernel.BlockSizes(
        **dict.fromkeys(names, block), use_fused_bwd_kernel=True
      ),
      interpret=compile_targets.current_target().platform == 'cpu',
    )
  query, key, value = (x.swapaxes(1, 2) for x in arrays[:3])
  segments = kernel.SegmentIds(arrays.query_segments, arrays.key_segments)
  return jax.vmap(run)(query, key, value, segments).swapaxes(1, 2)


def measure_kernels(
  machine: machine_topology.DeviceTopology, function, rate: float
) -> dict:
  """Returns each kernel's time in milliseconds, summed over all layers.

  Times are computed from the number of instruction bundles in the compiled
  kernels.

  Args:
    machine: Topology of the TPUs.
    function: Attention function to compile, with the signature of
      `compute_attention`.
    rate: Dropout rate.
  """
  assert machine.accelerator is not None
  states = jax.ShapeDtypeStruct(_SHAPE, jnp.bfloat16)

  def loss(query, key, value, segments):
    mask = masks.Mask(segments, segments, sees_itself=True)
    options = dict(bias=None, scale=_SHAPE[-1] ** -0.5, dropout_rate=rate)
    dropout_key = jax.random.key(0) if rate else None
    output = function(
      query, key, value, mask, dropout_key=dropout_key, **options
    )
    return output.astype(jnp.float32).sum()

  with compile_targets.compiling_for(compilers.target_of(machine)):
    jaxpr = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1, 2)))(
      *[states] * 3, jax.ShapeDtypeStruct(_SHAPE[:2], jnp.int32)
    ).jaxpr
  cycles = bundles.count_kernel_cycles(machine, jaxpr)
  names = {
    pallas.result_types(equation): equation.params['name']
    for equation in pallas.iterate_pallas_calls(jaxpr)
  }
  cycles_per_millisecond = machine.accelerator.clock * 1e6
  return {
    str(names[types]): round(_LAYERS * count / cycles_per_millisecond, 2)
    for types, count in cycles.items()
  }


def main() -> None:
  """Prints the kernel times of each implementation."""
  machine = machine_topology.parse_topology(sys.argv[1])
  compilers.topology_devices(machine)
  for name, function, rate in (
    ('splash', compute_attention, 0.0),
    ('ours', fused.sharded_attention, 0.0),
    ('ours, dropout', fused.sharded_attention, 0.1),
  ):
    print(name, measure_kernels(machine, function, rate), flush=True)


if __name__ == '__main__':
  main()
