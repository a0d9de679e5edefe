"""Kernel for the gradient of layer norm."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training import tiny
from xlflax.models import compile_targets, layers, norm_kernels
from xlflax.planning import compilers
from xlflax.training.devices import accelerators, machine_topology, partitioning

_EPSILON = 1e-5
_HOPPER = compile_targets.Target('gpu', (9, 0))


def _make_arrays(shape, dtype=jnp.float32):
  """Returns states with a mean of 3, a scale and a gradient."""
  keys = jax.random.split(jax.random.key(0), 3)
  states = 3 + jax.random.normal(keys[0], shape)
  scale = 1 + 0.1 * jax.random.normal(keys[1], shape[-1:])
  gradient = jax.random.normal(keys[2], shape)
  return states.astype(dtype), scale, gradient.astype(dtype)


def _expected_gradients(states, scale, gradient):
  """Returns the gradients by the formula, in float64."""
  x, scale, dy = (np.asarray(a, np.float64) for a in (states, scale, gradient))
  deviation = np.sqrt(x.var(-1, keepdims=True) + _EPSILON)
  unit = (x - x.mean(-1, keepdims=True)) / deviation
  g = scale * dy
  parallel = (g * unit).mean(-1, keepdims=True)
  rows = tuple(range(x.ndim - 1))
  return (
    (g - g.mean(-1, keepdims=True) - unit * parallel) / deviation,
    (dy * unit).sum(rows),
    dy.sum(rows),
  )


@pytest.mark.parametrize(
  'shape',
  [
    pytest.param((2, 4, 256), marks=pytest.mark.slow),
    (3, 7, 768),  # The last block is not complete.
    (390, 4, 256),  # Some programs process a second block.
  ],
)
def test_gradients_equal_the_formula(shape):
  arrays = _make_arrays(shape)
  assert norm_kernels.supports(arrays[0])
  gradients = norm_kernels.layer_norm_gradient(
    *arrays, epsilon=_EPSILON, interpret=True
  )
  for gradient, expected in zip(
    gradients, _expected_gradients(*arrays), strict=True
  ):
    bound = 2e-6 * max(1, np.abs(expected).max())
    np.testing.assert_allclose(gradient, expected, atol=bound)


def test_gradients_of_bfloat16_states_are_rounded_once():
  arrays = _make_arrays((2, 4, 256), jnp.bfloat16)
  states_gradient, scale_gradient, _ = norm_kernels.layer_norm_gradient(
    *arrays, epsilon=_EPSILON, interpret=True
  )
  assert states_gradient.dtype == jnp.bfloat16
  assert scale_gradient.dtype == jnp.float32
  expected, expected_scale, _ = _expected_gradients(*arrays)
  np.testing.assert_allclose(
    states_gradient.astype(jnp.float32), expected, rtol=2**-8, atol=1e-5
  )
  np.testing.assert_allclose(scale_gradient, expected_scale, atol=1e-4)


def test_eight_devices_compute_the_same_gradients_as_one():
  partitioner = partitioning.Partitioner(data=4, fsdp=2)
  states, scale, gradient = _make_arrays((8, 3, 256))

  def run(states, scale, gradient):
    assert norm_kernels.supports(states)
    return norm_kernels.layer_norm_gradient(
      states, scale, gradient, epsilon=_EPSILON, interpret=True
    )

  with partitioner.scope():
    sharded_arrays = jax.device_put(
      (states, gradient), partitioner.batch_sharding
    )
    gradients = jax.jit(run)(sharded_arrays[0], scale, sharded_arrays[1])
  assert len(gradients[0].sharding.device_set) == 8
  assert not gradients[0].sharding.is_fully_replicated
  for got, expected in zip(
    gradients, _expected_gradients(states, scale, gradient), strict=True
  ):
    bound = 2e-6 * max(1, np.abs(expected).max())
    np.testing.assert_allclose(got, expected, atol=bound)


def test_states_that_are_sharded_unequally_are_not_supported():
  with partitioning.Partitioner(data=4, fsdp=2).scope():
    assert norm_kernels.supports(jnp.zeros((8, 3, 256)))
    assert not norm_kernels.supports(jnp.zeros((7, 3, 256)))
    assert not norm_kernels.supports(jnp.zeros((24, 256)))


def _count_kernels(target, width):
  """Returns the number of Pallas kernels in the gradient of a layer norm."""
  norm = layers.LayerNorm(tiny.make_model(hidden_dim=width).config)
  params = {'params': {'scale': jnp.ones(width), 'bias': jnp.zeros(width)}}

  def loss(params, states):
    return norm.apply(params, states).sum()

  with compile_targets.compiling_for(target):
    # A new function, so that JAX does not reuse the trace of another target.
    jaxpr = jax.make_jaxpr(jax.grad(lambda *a: loss(*a)))(
      params, jnp.zeros((2, 3, width))
    )
  return str(jaxpr).count('pallas_call[')


@pytest.mark.parametrize(
  'target, width, expected',
  [
    (_HOPPER, 768, 1),
    (_HOPPER, 320, 0),
    (_HOPPER, 2048, 0),
    (_HOPPER._replace(has_kernels=False), 768, 0),
    (compile_targets.Target('gpu', (7, 5)), 768, 0),
    (compile_targets.Target('gpu'), 768, 0),
    (compile_targets.Target('tpu'), 768, 0),
    (compile_targets.Target('cpu'), 768, 0),
  ],
)
def test_targets_and_widths_with_a_kernel(target, width, expected):
  assert _count_kernels(target, width) == expected


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('jax_cuda12_plugin') is None,
  reason='needs jax[cuda12]',
)
@pytest.mark.parametrize(
  'devices', [f'gpu:{a.name}:1' for a in accelerators.TABLE if a.chip]
)
@pytest.mark.parametrize('width', [256, 768, 1024])
def test_kernel_compiles_for_gpus(devices, width):
  machine = machine_topology.parse_topology(devices)
  (device,) = compilers.topology_devices(machine)
  device_sharding = jax.sharding.SingleDeviceSharding(device)
  states = jax.ShapeDtypeStruct(
    (4, 33, width), jnp.bfloat16, sharding=device_sharding
  )
  scale = jax.ShapeDtypeStruct((width,), jnp.float32, sharding=device_sharding)

  def run(states, scale):
    return norm_kernels.layer_norm_gradient(
      states, scale, states, epsilon=_EPSILON
    )

  with compilers.trace_for_machine(machine):
    compiled_step = compilers.compile_step(machine, jax.jit(run), states, scale)
  assert compiled_step.text.count('__gpu$xla.gpu.triton"') == 1
