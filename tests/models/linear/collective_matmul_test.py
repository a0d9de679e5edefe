"""Sharded matmuls for TPUs, run on eight CPU devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from xlflax.models import compile_targets
from xlflax.models.linear import collective_matmul, dense
from xlflax.training.devices import partitioning

_AXES = ('mlp', 'embed')


def _gradients(partitioner, kernel, inputs, axes, contracted):
  """Returns the lowered program and the gradients of a squared matmul."""

  def loss(kernel, inputs):
    out = dense.sharded_matmul(inputs, kernel, jnp.float32, axes, contracted)
    return jnp.square(out).sum()

  tpu = compile_targets.Target('tpu')
  with partitioner.scope(), compile_targets.compiling_for(tpu):
    lowered = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(kernel, inputs)
  return lowered.as_text(), lowered.compile()(kernel, inputs)


@pytest.mark.parametrize('mesh', [dict(fsdp=8), dict(data=2, fsdp=2, tensor=2)])
def test_gradients_use_all_to_all(mesh):
  partitioner = partitioning.Partitioner(**mesh)
  kernel = jax.random.normal(jax.random.key(0), (12, 16))
  inputs = jax.random.normal(jax.random.key(1), (8, 6, 12))
  tensor = 'tensor' if 'tensor' in mesh else None
  spec = NamedSharding(partitioner.mesh, PartitionSpec(tensor, 'fsdp'))
  split = jax.device_put(kernel, spec)
  rows = jax.device_put(inputs, partitioner.batch_sharding)
  text, gradients = _gradients(partitioner, split, rows, _AXES, 1)
  assert 'stablehlo.all_to_all' in text
  out = 2 * inputs @ kernel
  want = jnp.einsum('btm,bte->me', inputs, out), out @ kernel.T
  for got, expected_gradient in zip(gradients, want, strict=True):
    np.testing.assert_allclose(got, expected_gradient, rtol=1e-4, atol=1e-4)
  assert gradients[0].sharding.is_equivalent_to(spec, 2)


def test_kernels_with_several_output_axes():
  """The number of sequences is not divisible by the number of devices."""
  partitioner = partitioning.Partitioner(fsdp=8)
  kernel = jax.random.normal(jax.random.key(0), (16, 2, 3))
  inputs = jax.random.normal(jax.random.key(1), (3, 5, 16))
  axes = ('embed', 'heads', 'kv')
  _, gradients = _gradients(partitioner, kernel, inputs, axes, 1)
  out = 2 * jnp.einsum('bth,hnd->btnd', inputs, kernel)
  want = jnp.einsum('bth,btnd->hnd', inputs, out)
  np.testing.assert_allclose(gradients[0], want, rtol=1e-4, atol=1e-4)


def test_collective_matmul_requires_several_tpus():
  with compile_targets.compiling_for(compile_targets.Target('tpu')):
    assert not collective_matmul.on_several_tpus()
    with partitioning.Partitioner(fsdp=8).scope():
      assert collective_matmul.on_several_tpus()
  with partitioning.Partitioner(fsdp=8).scope():
    assert not collective_matmul.on_several_tpus()
