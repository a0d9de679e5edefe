"""Roofline arithmetic by hand."""

import collections
import dataclasses

import pytest

from xlflax.planning import collectives, kernels, roofline
from xlflax.training import accelerators, machines

MACHINE = machines.Machine(
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


def test_times():
  """1e12 FLOPs at 100e12/s: 10 ms. 8 gathers of 0.8 GB in a node of 8: each
  0.7 GB at 200 GB/s. A reduction of 1 GB over two nodes, all 16: each node
  sends half of it twice, over 8 links."""
  work = collections.Counter({kernels.PRODUCTS: 1e12, kernels.SECONDS: 0.03})
  exchanged = collections.Counter(
    {
      Collective('all-gather', 8, 1, 'bf16', (), 0.8e9): 8,
      Collective('all-reduce', 16, 2, 'f32', (), 1e9): 1,
    }
  )
  times = roofline.times(MACHINE, work, exchanged)
  assert times.products == pytest.approx(0.01)
  assert times.device == 0.03
  assert times.inside == pytest.approx(8 * 0.7 / 200)
  assert times.outside == pytest.approx(
    max(2 * 15 / 16 / 200, 2 * 0.5 / 8 / 25)
  )
  assert times.bound == pytest.approx(times.inside + times.outside)
  assert times.expected == pytest.approx(times.bound / 0.7)
  assert times.limit == 'links within nodes'


def _times(*values):
  return roofline.Times(*values)


def test_what_limits():
  assert _times(3, 4, 1, 1).limit == 'arithmetic'
  assert _times(1, 4, 1, 1).limit == 'memory bandwidth'
  assert _times(1, 4, 1, 5).limit == 'links between nodes'
  assert _times(1, 4, 1, 1).bound == 4


def test_mean_of_kinds_of_step():
  first, second = _times(1, 2, 3, 4), _times(5, 6, 7, 8)
  assert first.mean_with([(0.25, second)]) == _times(2, 3, 4, 5)
  assert first.mean_with([]) == first


def test_figures():
  """16 devices of 100 TFLOP/s; 0.5 s at the bound for 4e14 model FLOPs."""
  made = roofline.figures(
    MACHINE, _times(0.3, 0.5, 0.1, 0.0), flops=4e14, tokens=1e6
  )
  assert made['bound'] == {
    'seconds_per_step': 0.5,
    'tokens_per_second': 2e6,
    'mfu': pytest.approx(0.5),
  }
  assert made['expected']['mfu'] == pytest.approx(0.35)
  assert made['seconds'] == dataclasses.asdict(_times(0.3, 0.5, 0.1, 0.0))
