"""Compilation of the kernels for all accelerators with a compiler."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from xlflax.models.attention import attention_backends, masks
from xlflax.models.encoder_config import AttentionBackend
from xlflax.planning import compilers
from xlflax.training.devices import accelerators, machine_topology, partitioning

_TPUS = ('v5e', 'v5p', 'v6e')
_DEVICES = [f'gpu:{a.name}:1' for a in accelerators.TABLE if a.chip]
_DEVICES += [f'tpu:{name}:1' for name in _TPUS]
_PACKAGES = {'gpu': 'jax_cuda12_plugin', 'tpu': 'libtpu'}
_KERNELS = {'gpu': '__gpu$xla.gpu.triton"', 'tpu': '"tpu_custom_call"'}


@pytest.mark.slow
@pytest.mark.parametrize('devices', _DEVICES)
@pytest.mark.parametrize('head_dim, biased', [(64, False), (128, True)])
def test_forward_and_gradients_compile(devices, head_dim, biased):
  """Compiles sequences of length 512 with segments and dropout."""
  platform = devices.split(':')[0]
  if importlib.util.find_spec(_PACKAGES[platform]) is None:
    pytest.skip(f'needs {_PACKAGES[platform]}')
  machine = machine_topology.parse_topology(devices)
  mesh = partitioning.Partitioner(
    topology=machine, devices=compilers.topology_devices(machine)
  ).mesh
  replicated = NamedSharding(mesh, PartitionSpec())

  def shaped(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=replicated)

  def loss(inputs, bias, segments):
    output = attention_backends.dot_product_attention(
      *inputs,
      masks.make_self_attention_mask(segments, causal=biased),
      backend=AttentionBackend.FUSED,
      bias=bias,
      dropout_rate=0.1,
      dropout_key=jax.random.key(0),
    )
    return output.astype(jnp.float32).sum()

  with compilers.trace_for_machine(machine):
    compiled_step = compilers.compile_step(
      machine,
      jax.jit(jax.grad(loss, argnums=(0, 1) if biased else 0)),
      [shaped(4, 512, 2, head_dim)] * 3,
      shaped(1, 2, 512, 512, dtype=jnp.float32) if biased else None,
      shaped(4, 512, dtype=jnp.int32),
    )
  # TPUs compute all gradients in one kernel.
  expected = 2 if platform == 'tpu' else 3 + biased
  assert compiled_step.text.count(_KERNELS[platform]) == expected
