"""Tests of simulated execution of recorded and hand-written programs."""

import pathlib

import pytest

from benchmarks.compiled.programs import collectives, execution, hlo, kernels
from tests.benchmarks.compiled.recorded import record
from xlflax.training.devices import accelerators, machine_topology

_HERE = pathlib.Path(__file__).parent / 'recorded'
Collective = collectives.Collective


def _run(devices: str) -> tuple[execution.Run, machine_topology.DeviceTopology]:
  machine = machine_topology.parse_topology(devices)
  path = _HERE / (devices.replace(':', '_').lower() + '.hlo')
  return execution.Execution(
    hlo.parse_module(path.read_text()),
    kernels.make_reader(machine.platform, {}),
    collectives.Placement(machine.count, machine.per_node),
    machine.accelerator,
  ).run(), machine


@pytest.fixture(scope='module', params=['gpu:H200:2', 'tpu:v6e:2'])
def recorded(request):
  return _run(request.param)


def test_flops_of_recorded_programs(recorded):
  """Expects three matmuls of [256, 256] x [256, 256] for each of three layers."""
  run, _ = recorded
  rows = record.ROWS // 2
  flops = sum(k.flops * n for k, n in run.kernels.items())
  assert flops == 3 * record.LAYERS * 2 * rows * record.WIDTH**2
  kinds = {k.kind for k in run.kernels if k.flops}
  assert kinds == {kernels.KernelKind.PRODUCT}
  assert run.unknown_loops == 0 and not run.windowed


def test_collectives_of_recorded_programs(recorded):
  """Expects two all-gathers and one reduce-scatter of weights per layer.

  On TPUs, the reduce-scatter is an all-reduce in a fusion that keeps a slice.
  """
  run, machine = recorded
  by_kind: dict[str, float] = {}
  for collective, n in run.exchanged.items():
    assert collective.size == 2 and collective.nodes == 1
    by_kind[collective.kind] = (
      by_kind.get(collective.kind, 0) + n * collective.bytes
    )
  layer = record.WIDTH**2 * 2
  assert by_kind == {
    'all-gather': 2 * record.LAYERS * layer,
    'reduce-scatter': record.LAYERS * layer,
  }
  started = sum(run.asynchronous.values())
  assert started == (3 * record.LAYERS if machine.platform == 'gpu' else 0)


def test_times_of_recorded_programs(recorded):
  run, machine = recorded
  accelerator = machine.accelerator
  assert run.busy == pytest.approx(
    sum(
      n * k.seconds(accelerator)
      for k, n in run.kernels.items()
      if not k.name.startswith('copy-start')  # runs in parallel
    )
  )
  everything = sum(n * c.seconds(accelerator) for c, n in run.exchanged.items())
  waited = sum(run.exposed.values())
  if machine.platform == 'tpu':  # all collectives are synchronous
    assert waited == pytest.approx(everything)
  else:
    assert 0 < waited < everything
  assert run.seconds == run.busy + run.waited + waited


def test_kernels_have_phases_and_modules(recorded):
  run, _ = recorded
  assert {k.phase for k in run.kernels if k.flops} == {'forward', 'backward'}
  assert {k.module for k in run.kernels if k.flops} == {'layers (scan)'}


_DEVICE = accelerators.Accelerator(
  platform='gpu',
  name='x',
  kinds=(),
  flops=1.0,
  memory=1.0,
  bandwidth=400.0,
  inside=100.0,
  outside=1.0,
)
# The all-gather of 400 bytes sends 200 bytes per device, which takes 2 s. Each
# negation moves 400 bytes, which takes 1 s.
_OVERLAP = """
ENTRY %m (p: f32[50], q: f32[50]) -> f32[100] {
  %p = f32[50]{0} parameter(0)
  %q = f32[50]{0} parameter(1)
  %start = (f32[50]{0}, f32[100]{0}) all-gather-start(%p), replica_groups={{0,1}}, dimensions={0}
BETWEEN  %done = f32[100]{0} all-gather-done(%start)
  ROOT %copy = f32[100]{0} add-dependency(%done)
}
"""


@pytest.mark.parametrize(
  ('negations', 'busy', 'exposed'), [(0, 0, 2), (1, 1, 1), (3, 3, 0)]
)
def test_exposed_time_of_asynchronous_collectives(negations, busy, exposed):
  between = ''.join(
    f'  %n.{i} = f32[50]{{0}} negate(%q)\n' for i in range(negations)
  )
  run = execution.Execution(
    hlo.parse_module(_OVERLAP.replace('BETWEEN', between)),
    kernels.make_reader('gpu', {}),
    collectives.Placement(2, 2),
    _DEVICE,
  ).run()
  gather = Collective('all-gather', 2, 1, 'f32', (100,), 400)
  assert run.busy == busy
  assert run.exposed[gather] == exposed
  assert run.asynchronous[gather] == run.exchanged[gather] == 1
  assert run.seconds == busy + exposed


def test_add_multiplies_runs():
  single_run = execution.Run(busy=1.0, unknown_loops=1)
  single_run.windowed['w'] = 2
  total = execution.Run(busy=0.5)
  total.add(single_run, 3)
  assert (total.busy, total.unknown_loops, total.windowed['w']) == (3.5, 3, 6)
