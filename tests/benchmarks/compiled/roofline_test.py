"""Tests of the roofline model against hand-computed values."""

import dataclasses

import pytest

from benchmarks.compiled import roofline
from benchmarks.compiled.programs import collectives, execution, kernels
from xlflax.training.devices import accelerators, machine_topology

MACHINE = machine_topology.DeviceTopology(
  platform='gpu',
  count=16,
  per_node=8,
  accelerator=accelerators.Accelerator(
    platform='gpu',
    name='x',
    kinds=(),
    flops=100e12,
    memory=80e9,
    bandwidth=2e12,
    inside=200e9,
    outside=25e9,
  ),
)
Collective = collectives.Collective


def _kernel(name, flops, size):
  return kernels.Kernel(name, kernels.KernelKind.PRODUCT, '', flops, size)


def test_compute_times_matches_hand_computed_values():
  """Compares with times computed by hand.

  Three kernels of 1e12 FLOPs at 100e12/s take 10 ms each. Eight all-gathers of
  0.8 GB within a node of 8 receive 0.7 GB each at 200 GB/s. In an all-reduce of
  1 GB over two nodes (16 devices), each node sends half of it twice over 8
  links.
  """
  run = execution.Run(busy=0.05, waited=0.001)
  run.kernels.update({_kernel('a', 1e12, 1e9): 3, _kernel('b', 0, 2e9): 2})
  gathers = Collective('all-gather', 8, 1, 'bf16', (), 0.8e9)
  reduced = Collective('all-reduce', 16, 2, 'f32', (), 1e9)
  run.exchanged.update({gathers: 8, reduced: 1})
  run.exposed[gathers] = 0.004
  times = roofline.compute_times(MACHINE, run, compiled=True)
  assert times.products == pytest.approx(0.03)
  assert (times.device, times.waited) == (0.05, pytest.approx(0.005))
  assert times.memory == pytest.approx((3e9 + 4e9) / 2e12)
  assert times.inside == pytest.approx(8 * 0.7 / 200)
  assert times.outside == pytest.approx(
    max(2 * 15 / 16 / 200, 2 * 0.5 / 8 / 25)
  )
  assert times.bound == pytest.approx(0.055)
  expected_seconds = 3 * 0.01 / 0.8 + 2 * 0.001 / 0.9 + 5 * 2e-6 + 0.005 / 0.8
  assert times.likely == pytest.approx(expected_seconds)
  assert times.expected == pytest.approx(0.055)


def test_estimated_exposed_communication():
  """Communication is exposed if it exceeds the time of the kernels."""
  run = execution.Run(busy=0.02)
  run.exchanged[Collective('all-gather', 8, 1, 'bf16', (), 8e9)] = 1
  times = roofline.compute_times(MACHINE, run, compiled=False)
  assert times.waited == pytest.approx(0.035 - 0.02)
  assert times.bound == pytest.approx(0.035)


def _times(products, device, inside, outside, waited=0.0):
  return roofline.Times(products, device, 0.0, inside, outside, waited, 0.0)


def test_limiting_resource():
  assert _times(3, 4, 1, 1).limit == 'arithmetic'
  assert _times(1, 4, 1, 1).limit == 'memory bandwidth'
  assert _times(1, 4, 1, 9, 6).limit == 'links between nodes'
  assert _times(1, 4, 9, 1, 6).limit == 'links within nodes'
  assert roofline.Times(1, 2, 5, 0, 0, 1, 0).bound == 5


def test_average_times_is_weighted():
  first, second = _times(1, 2, 3, 4), _times(5, 6, 7, 8)
  assert roofline.average_times([(0.75, first), (0.25, second)]) == _times(
    2, 3, 4, 5
  )


def test_compute_rates_matches_hand_computed_values():
  """Expects 4e14 model FLOPs in 0.5 s on 16 devices of 100 TFLOP/s."""
  step = _times(0.3, 0.5, 0.1, 0.0)
  rates = roofline.compute_rates(MACHINE, step, flops=4e14, tokens=1e6)
  assert rates['bound'] == {
    'seconds_per_step': 0.5,
    'tokens_per_second': 2e6,
    'mfu': pytest.approx(0.5),
  }
  assert rates['expected']['mfu'] == pytest.approx(0.5)
  assert rates['seconds'] == dataclasses.asdict(step)
