"""Some steps of a run beside their plan, with devices that are not there."""

import json
import logging
import threading
import types

import jax
import jax.numpy as jnp
import pytest

from tests.end_to_end.conftest import write_corpus
from tests.training import tiny
from xlflax import cli
from xlflax.planning import against, in_run
from xlflax.planning.programs import collectives, execution, kernels
from xlflax.training.devices import accelerators, gpu_state, machines

_H200 = accelerators.named('gpu', 'H200')
_FINE = {
  'step': 0.050,
  'planned': 0.048,
  'loading': 0.0,
  'clock': 1.0,
  'planned/attention': 0.020,
  'measured/attention': 0.021,
  'planned/MLP': 0.028,
  'measured/MLP': 0.029,
}


def _run():
  run = execution.Run()
  product = kernels.Kernel(
    'dot.1', kernels.Kind.PRODUCT, 'jit(s)/jvp(M)/layers/mlp/wi/d', 989e9, 0
  )
  run.kernels.update({product: 10})
  gather = collectives.Collective('all-gather', 8, 1, 'f32', (9,), 450e6)
  run.exchanged.update({gather: 5})
  run.busy = 0.01
  return run


def test_figures_are_of_one_step_by_parts_of_the_model():
  profile = {'dot.1': 0.02, 'all-gather-start.3': 0.005, 'memset': 0.001}
  found = in_run.figures(_run(), profile, _H200)
  assert found['planned'] == pytest.approx(0.002)
  assert found['planned/MLP'] == pytest.approx(0.002)
  assert found['measured/MLP'] == pytest.approx(0.004)
  assert found['planned/communication'] > 0
  assert found['measured/communication'] == pytest.approx(0.001)
  assert found['measured/not planned'] == pytest.approx(0.0002)


def test_graphs_of_kernels_are_one_part():
  """As an H200 names them: nothing is known of what is in a graph."""
  profile = {'command_buffer_1': 0.07, 'dot.1': 0.02, 'all-gather.3': 0.005}
  found = in_run.figures(_run(), profile, _H200)
  assert found[f'planned/{in_run.WHOLE}'] == pytest.approx(0.002)
  assert found[f'measured/{in_run.WHOLE}'] == pytest.approx(0.018)
  assert found['measured/communication'] == pytest.approx(0.001)
  assert not [name for name in found if name.endswith(('MLP', 'not planned'))]
  found |= {'step': 0.02, 'loading': 0.0, 'clock': 1.0}
  assert 'longer: kernels of all parts 16.0 ms' in in_run.sentence(found)


def test_a_step_as_planned_needs_no_reason():
  assert in_run.sentence(_FINE) == (
    'A step takes 50.0 ms, 1.04 times its plan (48.0 ms).'
  )


@pytest.mark.parametrize(
  'more, reason',
  [
    ({'loading': 0.025, 'step': 0.075}, 'waiting for batches 25.0 ms'),
    (
      {'measured/communication': 0.03, 'step': 0.08, 'planned': 0.05},
      'communication 30.0 ms',
    ),
    ({'step': 0.09}, 'between kernels 40.0 ms'),
    (
      {'measured/attention': 0.06, 'step': 0.089},
      'kernels of attention 40.0 ms, kernels of MLP 1.0 ms',
    ),
    (
      {'measured/attention': 0.04, 'measured/MLP': 0.056, 'step': 0.096}
      | {'clock': 0.5},
      'low clocks 48.0 ms',
    ),
  ],
)
def test_a_slow_step_is_explained(more, reason):
  said = in_run.sentence(_FINE | more)
  assert f'most of what it takes longer: {reason}' in said


def _compared(monkeypatch, events, steps=7):
  """What a run of a jitted function on an invented H200 is told."""
  monkeypatch.setattr(in_run, 'AFTER', 1)
  monkeypatch.setattr(in_run, 'PROFILED', 2)
  monkeypatch.setattr(against, 'read_traces', lambda folder: [])
  monkeypatch.setattr(against, 'seconds_of', lambda _: events)
  monkeypatch.setattr(against, 'planned_run', lambda machine, made: _run())
  monkeypatch.setattr(
    in_run.compilers, 'compile_step', lambda machine, step, *arguments: step
  )
  monkeypatch.setattr(gpu_state, 'clocks', lambda: [1.0, 0.9])
  calls = []
  monkeypatch.setattr(jax.profiler, 'start_trace', lambda f: calls.append('on'))
  monkeypatch.setattr(jax.profiler, 'stop_trace', lambda: calls.append('off'))
  settings = types.SimpleNamespace(partitioner=tiny.one_device())
  comparison = in_run.Comparison(
    settings,
    machines.parse('gpu:H200:1'),
    lambda step: (step % 2, 'step', ()),
    lambda: 0.0,
  )
  for step in range(20, 20 + steps):
    comparison.at(step, jnp.ones(1))
  for thread in threading.enumerate():
    if thread.name == 'against plan':
      thread.join()
  return calls, comparison


def test_steps_are_profiled_once_and_told_once(monkeypatch, caplog):
  caplog.set_level(logging.INFO)
  calls, comparison = _compared(monkeypatch, {'dot.1': 0.02})
  assert calls == ['on', 'off']
  found = comparison.take()
  assert found['clock'] == 0.9 and found['step'] > 0
  # Two kinds of steps, one of each.
  assert found['planned/MLP'] == pytest.approx(2 * 0.01 / 2)
  assert comparison.take() == {}
  assert 'times its plan' in caplog.text


def test_a_run_goes_on_without_a_profile(monkeypatch, caplog):
  calls, comparison = _compared(monkeypatch, {})
  assert calls == ['on', 'off'] and comparison.take() == {}
  assert 'NVreg_RestrictProfilingToAdminUsers' in caplog.text


def test_the_users_own_profile_goes_before(monkeypatch):
  calls, comparison = _compared(monkeypatch, {}, steps=1)
  assert calls == []

  def taken(folder):
    raise RuntimeError('Only one profile may be run at a time.')

  monkeypatch.setattr(jax.profiler, 'start_trace', taken)
  for step in range(21, 25):
    comparison.at(step, jnp.ones(1))
  assert calls == [] and comparison.take() == {}


def test_there_is_none_on_a_cpu():
  assert in_run.of_run(types.SimpleNamespace()) is None


def test_a_run_tells_what_was_found(tmp_path, monkeypatch):
  """The loop's own program and batches; only device, trace, plan are not."""
  write_corpus(tmp_path / 'corpus')
  corpus, vocabulary = (f'--corpus={tmp_path}/corpus', f'{tmp_path}/vocabulary')
  cli.main(['vocab', corpus, f'--output={vocabulary}', '--size=110'])
  monkeypatch.setattr(in_run, 'AFTER', 0)
  monkeypatch.setattr(in_run, 'PROFILED', 1)
  monkeypatch.setattr(against, 'read_traces', lambda folder: [])
  monkeypatch.setattr(against, 'seconds_of', lambda _: {'dot.1': 0.02})
  monkeypatch.setattr(
    against, 'planned_run', lambda machine, made: _run() if made.text else None
  )
  machine = machines.parse('gpu:H200:1')
  monkeypatch.setattr(
    in_run,
    'of_run',
    lambda settings: (
      lambda *given: in_run.Comparison(settings, machine, *given)
    ),
  )
  taken = in_run.Comparison.take

  def waits(self):
    for thread in threading.enumerate():
      if thread.name == 'against plan':
        thread.join()
    return taken(self)

  monkeypatch.setattr(in_run.Comparison, 'take', waits)
  status = cli.main(
    [
      *('train', '--gin_file=pretrain/mlm.gin', '--gin_file=models/tiny.gin'),
      *(corpus, f'--vocabulary={vocabulary}', f'--model_dir={tmp_path}/run'),
      *('--gin.TRAIN_STEPS=4', '--gin.BATCH_SIZE=8', '--gin.LENGTH=24'),
      *('--gin.WARMUP_STEPS=1', '--gin.trainer.Trainer.log_every_steps=1'),
    ]
  )
  assert status == 0
  lines = (tmp_path / 'run/metrics.jsonl').read_text().splitlines()
  (plan,) = [r['plan'] for r in map(json.loads, lines) if 'plan' in r]
  assert plan['step'] > 0 and plan['measured/MLP'] == 0.02
  assert plan['planned/MLP'] == pytest.approx(0.01)
