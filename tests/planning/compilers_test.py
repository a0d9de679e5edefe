"""Tests of compiling for devices that are not available."""

import importlib.metadata
import importlib.util

import pytest

from benchmarks.compiled.programs import collectives, execution, hlo, kernels
from tests.benchmarks.compiled.recorded import record
from tests.training import tiny, training_setup_test
from xlflax.planning import compilers, dry_run
from xlflax.training.devices import machine_topology, partitioning
from xlflax.utils import errors


def _without_packages(monkeypatch):
  original_find_spec = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name, *a: (
      None
      if name == 'libtpu' or '_plugin' in name
      else original_find_spec(name, *a)
    ),
  )


@pytest.mark.parametrize(
  ('devices', 'reason'),
  [
    ('gpu:H200:8', 'jax_cuda12_plugin is not installed (extra plan-gpu)'),
    ('tpu:v6e:8', 'libtpu is not installed (extra plan-tpu)'),
    ('cpu:8', 'the properties of CPUs are not in the table'),
  ],
)
def test_unavailable_compilers_are_reported_with_a_reason(
  monkeypatch, devices, reason
):
  _without_packages(monkeypatch)
  machine = machine_topology.parse_topology(devices)
  assert compilers.unavailable_reason(machine) == reason
  if machine.accelerator:
    with pytest.raises(errors.ConfigError, match='--cost_model=estimate'):
      dry_run.check_compiler(machine)


def test_plugins_of_both_cuda_versions_are_accepted(monkeypatch):
  original_find_spec = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name, *a: (
      name == 'jax_cuda13_plugin'
      if '_plugin' in name
      else original_find_spec(name, *a)
    ),
  )
  monkeypatch.setattr(importlib.metadata, 'version', {}.get)
  machine = machine_topology.parse_topology('gpu:H200:8')
  assert not compilers.unavailable_reason(machine)
  assert compilers.compiler_version(machine).startswith('jax-cuda13-plugin ')


def test_rocm_plugin_is_not_used_for_nvidia_gpus(monkeypatch):
  original_find_spec = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name, *a: (
      'rocm' in name if '_plugin' in name else original_find_spec(name, *a)
    ),
  )
  assert 'is not installed' in compilers.unavailable_reason(
    machine_topology.parse_topology('gpu:H200:8')
  )


def test_unsupported_devices_are_reported(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: object())
  assert 'V100' in compilers.unavailable_reason(
    machine_topology.parse_topology('gpu:V100:8')
  )
  assert 'power of two' in compilers.unavailable_reason(
    machine_topology.parse_topology('tpu:v6e:12')
  )
  assert (
    compilers.unavailable_reason(machine_topology.parse_topology('gpu:B200:8'))
    == ''
  )


@pytest.mark.parametrize(
  ('devices', 'name', 'more'),
  [
    ('tpu:v6e:1', 'v6e:1x1', {'chips_per_host_bounds': (1, 1, 1)}),
    ('tpu:v6e:4', 'v6e:2x2', {}),
    ('tpu:v5e:8', 'v5e:2x4', {}),
    ('tpu:v6e:16/8', 'v6e:2x4', {'num_slices': 2}),
    ('tpu:v5p:2', 'v5p:2x1x1', {'chips_per_host_bounds': (2, 1, 1)}),
    ('tpu:v5p:8', 'v5p:2x2x2', {}),
    ('tpu:v5p:128', 'v5p:8x4x4', {}),
    ('tpu:v7:8', 'tpu7x:2x2x1', {}),
    ('tpu:v7:2', 'tpu7x:1x1x1', {'chips_per_host_bounds': (1, 1, 1)}),
  ],
)
def test_topology_names_of_tpu_slices(devices, name, more):
  topology = compilers.topology_name(machine_topology.parse_topology(devices))
  assert topology == {'topology_name': name, **more}


def _runs(devices):
  machine = machine_topology.parse_topology(devices)
  compiled = record.compiled(devices)
  run = execution.Execution(
    hlo.parse_module(compiled.text),
    kernels.make_reader(machine.platform, {}),
    collectives.Placement(machine.count, machine.per_node),
    machine.accelerator,
  ).run()
  weights = record.LAYERS * record.WIDTH**2 * 4 // machine.count
  rows = record.ROWS * record.WIDTH * 2 // machine.count
  assert compiled.memory.arguments == weights + rows
  assert (
    compiled.memory.peak >= compiled.memory.arguments + compiled.memory.outputs
  )
  flops = sum(k.flops * n for k, n in run.kernels.items())
  expected = 3 * record.LAYERS * 2 * record.ROWS * record.WIDTH**2
  assert flops == expected / machine.count
  assert sum(run.exchanged.values()) >= 3 * record.LAYERS


@pytest.mark.skipif(
  importlib.util.find_spec('libtpu') is None, reason='needs libtpu'
)
def test_step_is_compiled_for_tpus():
  _runs('tpu:v6e:4')


@pytest.mark.skipif(
  importlib.util.find_spec('libtpu') is None, reason='needs libtpu'
)
def test_plan_uses_the_compiled_step():
  """Memory, kernels and times are taken from the compiled step."""
  machine = machine_topology.parse_topology('tpu:v6e:8')
  settings = training_setup_test.make_settings(
    partitioner=partitioning.Partitioner()
  )
  plan = dry_run.make_plan(settings.on(machine), by=dry_run.By.COMPILER)
  assert plan['compiled'] and 'XLA:TPU' in plan['basis']
  (step,) = plan['steps']
  assert plan['memory']['temporary'] == step['memory']['temporary'] > 0
  assert plan['memory']['total'] == step['memory']['total']
  # Most FLOPs of the step are matmuls of the model.
  assert 1 <= step['program_flops'] / step['flops'] < 1.5
  assert plan['seconds_per_step'] == plan['estimate']['seconds_per_step']


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('jax_cuda12_plugin') is None,
  reason='needs jax[cuda12]',
)
@pytest.mark.parametrize('name', ['H200', 'A100-80GB', 'L40S', 'B200'])
def test_step_is_compiled_for_gpus(name):
  _runs(f'gpu:{name}:4')


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('jax_cuda12_plugin') is None,
  reason='needs jax[cuda12]',
)
def test_cudnn_attention_is_compiled_for_a_described_gpu():
  machine = machine_topology.parse_topology('gpu:H200:1')
  settings = training_setup_test.make_settings(
    model=tiny.make_model(dtype='bfloat16', attention_backend='cudnn'),
    partitioner=partitioning.Partitioner(),
  )
  plan = dry_run.make_plan(settings.on(machine), by=dry_run.By.COMPILER)
  parts = {row['part']: row['flops'] for row in plan['steps'][0]['parts']}
  assert parts['attention'] > 0


def test_compiler_version(monkeypatch):
  monkeypatch.setattr(importlib.metadata, 'version', lambda name: '0.0.42.1')
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: name)
  machine = machine_topology.parse_topology('tpu:v6e:1')
  assert compilers.compiler_version(machine) == 'libtpu 0.0.42.1'
