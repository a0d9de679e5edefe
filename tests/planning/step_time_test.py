"""Tests of estimated times, compared with values computed by hand."""

import collections
import dataclasses

import pytest

from tests.training import tiny, training_setup_test
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.planning import (
  compilers,
  recommendations,
  step_costs,
  step_time,
  traceable_attention,
)
from xlflax.planning.collectives import Collective
from xlflax.planning.step_costs import Kind, Operation
from xlflax.training import training_setup
from xlflax.training.devices import machine_topology, partitioning

_H200 = machine_topology.parse_topology('gpu:H200:1')
_NONE: collections.Counter[Collective] = collections.Counter()


def _operation(kind, **fields):
  return Operation(kind, 'x', 'head and loss', 'forward', **fields)


def _time(*operations, machine=_H200, counts=_NONE, **options):
  costs = step_costs.StepCosts(operations, 0.0)
  return step_time.estimate_time(costs, machine, counts, **options)


def test_estimate_equals_a_value_computed_by_hand():
  """XLM-R base, 64 x 512 tokens, V = 250,002, bfloat16, on one H200.

  The FLOPs and bytes of the compiled step: layers 16.70 TFLOP, head 5.68
  TFLOP, attention 2.78 TFLOP, 68.3 GB of other traffic and 939 kernels.

    layers      16.70e12 / 719e12            23.2 ms
    head         5.68e12 / 719e12             7.9 ms (21.4 ms at 0.37)
    attention    2.78e12 / 719e12 x 2.2       8.5 ms
    others       68.3e9 / 3.5e12             19.5 ms
    launches     939 x 1.5 us                 1.4 ms
    sum                                      60.6 ms (74.0 ms)

  The measured step took 75.2 ms. Its attention kernels had a factor of 2.5.
  """
  layers = _operation(Kind.MATMUL, flops=16.70e12)
  head = _operation(Kind.MATMUL, flops=5.68e12)
  attention = _operation(Kind.ATTENTION, flops=2.78e12)
  other_operations = _operation(Kind.MEMORY, bytes=68.3e9 / 936, count=936)
  time = _time(layers, head, attention, other_operations)
  assert time.matmuls == pytest.approx(23.23e-3 + 7.90e-3, abs=2e-5)
  assert time.attention == pytest.approx(8.51e-3, abs=1e-5)
  assert time.memory == pytest.approx(19.51e-3, abs=1e-5)
  assert time.launches == pytest.approx(939 * 1.5e-6)
  assert time.total == pytest.approx(60.56e-3, abs=5e-5)
  misaligned = dataclasses.replace(head, misaligned=('bfloat16[4928, 250002]',))
  old = _time(layers, misaligned, attention, other_operations)
  assert old.misaligned == pytest.approx(7.90e-3 / 0.37 - 7.90e-3, abs=2e-5)
  assert old.total == pytest.approx(74.01e-3, abs=5e-5)


def test_kernel_time_is_the_maximum_of_compute_and_memory_time():
  slow_memory = _operation(Kind.MATMUL, flops=719e9, bytes=7e12)
  assert _time(slow_memory).matmuls == pytest.approx(2.0)


def test_alignment_is_ignored_on_tpus():
  matmul = _operation(Kind.MATMUL, flops=1e12, misaligned=('x',))
  time = _time(matmul, machine=machine_topology.parse_topology('tpu:v6e:1'))
  assert time.misaligned == 0


def test_replicated_update_is_not_divided_by_the_number_of_devices():
  work = _operation(Kind.MEMORY, bytes=3.5e12)
  update = dataclasses.replace(work, phase='update')
  eight = machine_topology.parse_topology('gpu:H200:8')
  assert _time(work, machine=eight).memory == pytest.approx(1 / 8)
  assert _time(update, machine=eight).memory == pytest.approx(1)
  sharded = _time(update, machine=eight, update_fraction=1 / 8)
  assert sharded.memory == pytest.approx(1 / 8)


def test_communication_longer_than_computation_is_exposed():
  """At 80 % of 450 GB/s, 0.36e9 bytes take 1 ms."""
  counts = collections.Counter(
    {Collective('collective-permute', 8, 1, 'f32', (), 0.36e9): 3}
  )
  eight = machine_topology.parse_topology('gpu:H200:8')
  work = _operation(Kind.MEMORY, bytes=8 * 3.5e9)
  time = _time(work, machine=eight, counts=counts)
  assert time.communication == pytest.approx(3e-3)
  assert time.exposed == pytest.approx(3e-3 - 1e-3 - 1.5e-6)
  assert time.limit == 'communication'


def _trace(vocabulary_size, **fields):
  """Returns the setup and the costs of a step with a wide head on an H200."""
  sizes = dict(hidden_dim=256, num_heads=4, mlp_dim=512, num_layers=1)
  model = tiny.make_model(
    **(dict(dtype='bfloat16', vocab_size=None) | sizes | fields)
  )
  settings = training_setup_test.make_settings(
    partitioner=partitioning.Partitioner(),
    model=model,
    vocabulary=vocabulary_spec.make_dummy_spec(
      vocabulary_size, num_languages=2
    ),
  ).on(_H200)
  settings = traceable_attention.with_traceable_attention(settings, _H200)
  setup = training_setup.Setup(settings)
  active = settings.objectives.active(0)
  with (
    compilers.trace_for_machine(_H200, by='cpu'),
    settings.partitioner.scope(),
  ):
    traced = setup.jitted_step(active).trace(
      setup.factory.abstract_sharded, setup.abstract_batches(active)
    )
  return setup, step_costs.count_costs(traced.jaxpr.jaxpr)


@pytest.fixture
def check_all_matmuls(monkeypatch):
  monkeypatch.setattr(step_costs, '_MIN_CHECKED_FLOPS', 0)
  monkeypatch.setattr(recommendations, '_MIN_REPORTED_FRACTION', 0.0)


@pytest.mark.usefixtures('check_all_matmuls')
def test_misaligned_vocabulary_is_reported_with_a_fix():
  """The logits are misaligned in all three matmuls of the head."""
  setup, costs = _trace(10_002, pad_vocab_size_multiple=1)
  (warning,) = recommendations.describe_misalignment(setup, _H200, costs)
  assert '10002' in warning and 'pad_vocab_size_multiple = 128' in warning
  assert sum(o.count for o in costs.operations if o.misaligned) == 3


@pytest.mark.usefixtures('check_all_matmuls')
@pytest.mark.parametrize('vocabulary_size', [119_547, 250_002])
def test_padded_vocabularies_are_aligned(vocabulary_size):
  setup, costs = _trace(vocabulary_size, pad_vocab_size_multiple=128)
  assert recommendations.describe_misalignment(setup, _H200, costs) == []
  assert not [o for o in costs.operations if o.misaligned]


@pytest.mark.usefixtures('check_all_matmuls')
def test_misaligned_widths_are_reported():
  setup, costs = _trace(10_112, mlp_dim=510)
  (warning, *_) = recommendations.describe_misalignment(setup, _H200, costs)
  assert '510' in warning and 'mlp_dim' in warning


def test_misaligned_shapes_of_negligible_cost_are_not_reported(monkeypatch):
  """The kernel launches of a step of 8 x 12 tokens take most of the time."""
  monkeypatch.setattr(step_costs, '_MIN_CHECKED_FLOPS', 0)
  setup, costs = _trace(10_002, pad_vocab_size_multiple=1)
  assert [o for o in costs.operations if o.misaligned]
  assert recommendations.describe_misalignment(setup, _H200, costs) == []
