"""Tests of plans for described machines."""

import dataclasses
import functools
import io
import pathlib
import re
import types

import jax
import pytest
import rich.console

from tests.training import tiny, training_setup_test
from xlflax.planning import (
  compiled_plan,
  dry_run,
  memory,
  plan_report,
  recommendations,
  step_time,
)
from xlflax.training import train_state, training_setup
from xlflax.training.devices import accelerators, machine_topology, partitioning
from xlflax.training.optimization import optimizers
from xlflax.utils import errors


def _settings(devices: str, **fields):
  return training_setup_test.make_settings(
    **({'partitioner': partitioning.Partitioner()} | fields)
  ).on(machine_topology.parse_topology(devices))


@pytest.fixture(scope='module')
def h200_plan():
  """A plan for 8 H200 in two nodes with a vocabulary specification."""
  return dry_run.make_plan(_settings('gpu:H200:8/4'), by=dry_run.By.ESTIMATE)


@pytest.mark.slow
def test_plan_for_a_described_machine(h200_plan):
  assert h200_plan['machine'] == {
    'devices': '8 x H200 in 2 nodes',
    'count': 8,
    'nodes': 2,
    'per_node': 4,
    'usable_memory': pytest.approx(0.9 * 141e9),
  }
  assert h200_plan['mesh'] == {'data': 2, 'fsdp': 4, 'tensor': 1}
  assert h200_plan['datasets'] == {}
  assert (
    h200_plan['basis'].startswith('an estimate') and not h200_plan['compiled']
  )
  used = h200_plan['memory']
  assert used['parameters'] > 0 and used['temporary'] > 0
  assert used['total'] == sum(v for k, v in used.items() if k != 'total')


@pytest.mark.slow
def test_plan_contains_collectives(h200_plan):
  """The weights of each layer are gathered within nodes in both passes.

  Only the embedding table is sharded over all nodes.
  """
  gathered = h200_plan['collectives']['all-gather']
  assert gathered['count'] >= 2 * 2 * 6  # passes, layers, kernels
  config = tiny.make_model().config
  table = 4 * config.table_size * config.hidden_dim
  assert 0 < gathered['sent_outside'] <= table / 2
  assert gathered['sent'] < gathered['bytes']
  crossing = sum(
    kind['sent_outside'] for kind in h200_plan['collectives'].values()
  )
  assert 0 < crossing < h200_plan['memory']['parameters'] * 2
  (step,) = h200_plan['steps']
  assert (step['fraction'], step['tokens']) == (1.0, 8 * 12)


def test_parts_add_up_to_the_step(h200_plan):
  """A row contains the costs of both layers."""
  (step,) = h200_plan['steps']
  parts = {(row['part'], row['phase']): row for row in step['parts']}
  assert len(parts) == len(step['parts'])
  assert {'attention', 'MLP', 'norms', 'optimizer'} <= {p for p, _ in parts}
  assert sum(r['flops'] for r in step['parts']) == step['program_flops']
  time = h200_plan['estimate']['parts']
  assert sum(r['seconds'] for r in step['parts']) == pytest.approx(
    time['matmuls'] + time['misaligned'] + time['attention'] + time['memory']
  )
  printed = io.StringIO()
  plan_report.print_plan(
    h200_plan, rich.console.Console(file=printed, width=160)
  )
  assert 'optimizer' in printed.getvalue()


def test_plan_contains_speed_and_mfu(h200_plan):
  estimate = h200_plan['estimate']
  assert h200_plan['seconds_per_step'] == estimate['seconds_per_step']
  assert estimate['tokens_per_second'] == pytest.approx(
    96 / estimate['seconds_per_step']
  )
  assert estimate['mfu'] == pytest.approx(
    h200_plan['flops_per_step'] / estimate['seconds_per_step'] / (8 * 989e12)
  )
  assert h200_plan['seconds_per_step_basis'] == step_time.BASIS


@pytest.mark.slow
def test_cpu_plan_has_memory_and_no_estimate():
  plan = dry_run.make_plan(_settings('cpu:2'))
  used = plan['memory']
  assert plan['estimate'] is None
  assert 'just measured' in plan['seconds_per_step_basis']
  assert used['total'] == (
    used['parameters']
    + used['optimizer']
    + used['other_state']
    + used['batch']
    + used['temporary']
  )


def _setup(devices, **fields):
  return training_setup.Setup(_settings(devices, **fields))


def test_replay_requires_memory_for_a_second_state():
  """XLA's checker is accepted for described TPUs and rejected for GPUs."""
  setup = _setup('tpu:v5e:4', sdc_check_every=100, xla_sdc_check=True)
  step = types.SimpleNamespace(peak=1000, batch=10, memory={'temporary': 100})
  used = compiled_plan.memory_per_device(setup, [step])
  state = memory.bytes_per_device(setup.factory.abstract_sharded)
  assert used['replay'] == state and used['total'] == 1000 + state
  with pytest.raises(errors.ConfigError, match='Got: gpu'):
    _setup('gpu:H100:2', sdc_check_every=100, xla_sdc_check=True)


def test_sharded_state_is_divided_by_the_number_of_devices():
  def split(count):
    return memory.sharded_state_bytes(
      _setup(f'gpu:H200:{count}').factory.abstract_sharded
    )

  alone = split(1)
  assert alone['split'] == 0
  for count in (2, 4, 8):
    split_parts = split(count)
    assert split_parts['split'] * count == split_parts['whole'] > 0
    assert split_parts['whole'] + split_parts['not_split'] == alone['not_split']
    assert split_parts['not_split'] < split_parts['whole'] / 4


def test_layers_are_not_sharded_over_the_data_axis(h200_plan):
  config = tiny.make_model().config
  # Parameters and two moments of AdamW in float32.
  table = 3 * 4 * config.table_size * config.hidden_dim
  sizes = h200_plan['sharding']
  assert sizes['whole'] >= table
  assert sizes['split'] == sizes['whole'] // 8
  state = sum(
    h200_plan['memory'][name]
    for name in ('parameters', 'optimizer', 'other_state')
  )
  assert sizes['split'] + sizes['not_split'] == state
  assert sizes['not_split'] > sizes['split']


def _boxed(setup):
  return jax.eval_shape(
    functools.partial(
      train_state.init_params, setup.model, setup.settings.objectives
    ),
    jax.random.key(0),
  )


def _warnings(monkeypatch, *, big=1, **fields):
  monkeypatch.setattr(recommendations, 'MIN_WARNED_BYTES', big)
  setup = _setup('gpu:H200:8', **fields)
  return recommendations.describe_sharding(setup, _boxed(setup))


def test_indivisible_dimensions_are_reported(monkeypatch):
  """Covers width 12 over fsdp = 8, and 2 heads over tensor = 8."""
  model = tiny.make_model(hidden_dim=12, num_heads=2, mlp_dim=32)
  warnings = _warnings(monkeypatch, model=model)
  (text,) = (w for w in warnings if 'mlp/wi/kernel' in w)
  assert '[2, 12, 32]: dimension 1 (embed) of 12' in text
  assert 'not divisible by fsdp = 8' in text
  assert 'fsdp = 4' in text and 'tensor = 2' in text
  tensor = partitioning.Partitioner(fsdp=1, tensor=8)
  (text,) = (
    w for w in _warnings(monkeypatch, partitioner=tensor) if 'query/kernel' in w
  )
  assert 'tensor = 2.' in text
  (text,) = (
    w
    for w in _warnings(
      monkeypatch,
      model=tiny.make_model(vocab_size=None),
      partitioner=partitioning.Partitioner(fsdp=1, tensor=8),
      vocabulary=dataclasses.replace(tiny.SPEC, size=65),
    )
    if 'embeddings/token' in w
  )
  assert 'pad_vocab_size_multiple = 8' in text


def test_large_replicated_arrays_are_reported(monkeypatch):
  """No rule shards norms. Small arrays are not reported."""
  warnings = _warnings(monkeypatch)
  assert any(
    w.startswith('model/layers/mlp_norm/scale [2, 16]') and '(0.0 MiB)' in w
    for w in warnings
  )
  assert any(w.startswith('optimizer/') for w in warnings)
  assert _warnings(monkeypatch, big=2**20) == []


def test_fully_replicated_state_is_reported(monkeypatch):
  setup = _setup('gpu:H200:8', partitioner=partitioning.Partitioner(data=-1))
  boxed = _boxed(setup)
  assert recommendations.describe_sharding(setup, boxed) == []
  monkeypatch.setattr(memory, 'bytes_per_device', lambda tree: 3 * 2**30)
  (text,) = recommendations.describe_sharding(setup, boxed)
  assert '3.0 GiB' in text and 'Partitioner.fsdp' in text


def test_memory_shortage_is_reported(monkeypatch):
  """On GPUs, only a fraction of the memory is available."""
  machine = machine_topology.parse_topology('gpu:V100:8')
  for name in ('XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION'):
    monkeypatch.delenv(name, raising=False)
  (text,) = recommendations.describe_memory_shortage(
    machine, 30e9, accumulation=2
  )
  assert '27.9 GiB' in text
  assert (
    '26.8 GiB of the 29.8 GiB of a V100 (90%, XLA_CLIENT_MEM_FRACTION)' in text
  )
  assert 'accumulation (now 2)' in text
  assert (
    recommendations.describe_memory_shortage(machine, 28e9, accumulation=1)
    == []
  )
  monkeypatch.setenv('XLA_CLIENT_MEM_FRACTION', '.75')
  (text,) = recommendations.describe_memory_shortage(
    machine, 28e9, accumulation=1
  )
  assert '22.4 GiB of the 29.8 GiB' in text
  assert (
    recommendations.describe_memory_shortage(
      machine_topology.parse_topology('tpu:v6e:8'), 28e9, accumulation=1
    )
    == []
  )
  assert (
    recommendations.describe_memory_shortage(
      machine_topology.parse_topology('cpu:8'), 1e15, accumulation=1
    )
    == []
  )


def test_unsupported_dtype_is_reported():
  half = tiny.make_model(dtype='bfloat16')

  def describe(devices, **fields):
    settings = _settings(devices, **fields)
    return ' '.join(
      recommendations.describe_dtype_support(
        settings.partitioner.topology, settings
      )
    )

  assert 'V100 has no bfloat16' in describe('gpu:V100:8', model=half)
  assert describe('gpu:H200:8') == describe('tpu:v5p:8') == ''


def test_bfloat16_is_recommended_on_gpus():
  def recommend(devices, **fields):
    settings = _settings(devices, **fields)
    return recommendations.recommend_bfloat16(
      settings.partitioner.topology, settings
    )

  half = tiny.make_model(dtype='bfloat16')
  assert len(recommend('gpu:H200:8')) == 1
  assert recommend('gpu:H200:8', model=half) == recommend('tpu:v5p:8') == []


def test_replicated_optimizer_states_are_reported(monkeypatch):
  """The factored moments of Adafactor are replicated."""
  monkeypatch.setattr(recommendations, 'MIN_WARNED_BYTES', 128)
  setup = _setup(
    'gpu:H200:8',
    optimizer=optimizers.Adafactor(learning_rate=0.1, min_dim_size_to_factor=8),
  )
  assert any(
    w.startswith('optimizer/') and 'v_row' in w
    for w in recommendations.describe_sharding(setup, _boxed(setup))
  )


def test_topologies_of_all_accelerators_are_parsed():
  for accelerator in accelerators.TABLE:
    machine = machine_topology.parse_topology(
      f'{accelerator.platform}:{accelerator.name}:8'
    )
    assert machine.accelerator is accelerator
    assert machine.per_node == min(8, accelerator.per_node)


_ROOT = pathlib.Path(__file__).parents[2]
# Matches `--target_topology=gpu:H200:64` and `gpu:A100-80GB:8` in documentation.
_DOCUMENTED = re.compile(r'\b((?:gpu|tpu):[\w-]+):\d+')


def _documented() -> list[str]:
  pages = [*(_ROOT / 'docs').glob('*.md'), *_ROOT.glob('*.md')]
  pages += [*(_ROOT / 'launch').glob('*.md'), *_ROOT.glob('benchmarks/*.md')]
  pages += (_ROOT / 'xlflax' / 'cli').rglob('*.py')
  documented = [m for p in pages for m in _DOCUMENTED.findall(p.read_text())]
  return sorted({*documented, 'tpu:v5p', 'tpu:v6e', 'tpu:v7', 'gpu:B300'})


def test_documented_devices_are_known():
  for kind in _documented():
    assert machine_topology.parse_topology(f'{kind}:1').accelerator


@pytest.mark.parametrize('devices', ['gpu:H200:1', 'tpu:v6e:1'])
def test_estimated_plan_for_one_device(devices):
  plan = dry_run.make_plan(_settings(devices), by=dry_run.By.ESTIMATE)
  assert plan['basis'].startswith('an estimate')
  assert plan['memory']['total'] > 0 and plan['collectives'] == {}
  assert plan['estimate']['seconds_per_step'] > 0
