"""Tests of logged metrics and speed, and of the summary of a run."""

import json
import types

import numpy as np
import pytest

from tests.errors import assert_mentions
from tests.training import fake_run
from xlflax.objectives import objective_base
from xlflax.training import metric_accumulator, train_loop
from xlflax.training.hooks import (
  hook_base,
  metrics_logging,
  progress_logging,
  step_time_logging,
)


class _Clock:
  """Clock that advances by one second at each call."""

  def __init__(self):
    self._now = 0.0

  def __call__(self):
    self._now += 1
    return self._now


@pytest.fixture
def run(tmp_path, monkeypatch):
  """A run on an accelerator of 100 FLOP/s."""
  monkeypatch.setattr(
    progress_logging.run_header, 'log_run_header', lambda *_, **__: None
  )
  monkeypatch.setattr(
    progress_logging.device_rates, 'peak_flops', lambda _: 100.0
  )
  monkeypatch.setattr(
    progress_logging.progress_lines.time, 'perf_counter', _Clock()
  )
  training_run = fake_run.make_run(
    monkeypatch,
    tmp_path,
    [1.0] * 24,
    steps=20,
    last_step=20,
    objectives=types.SimpleNamespace(
      objectives=(),
      entries=(),
      metric_prefixes=(),
      groups=((0,), (1,)),
      active=lambda step: (int(step % 4 == 3),),
      dataset_step=lambda name, step: step,
    ),
    optimizer=types.SimpleNamespace(rate_at=lambda step: step / 100),
    partitioner=types.SimpleNamespace(
      mesh=types.SimpleNamespace(size=2), batch_sharding=None
    ),
  )
  training_run.setup.flops = lambda active: 40 if active == (0,) else 80
  lines = progress_logging.ProgressHook()
  hook = metrics_logging.MetricsHook(
    lines, step_time_logging.StepTimeHook(training_run.clock)
  )
  monkeypatch.setattr(hook, 'before_training', lambda run: None)
  training_run.hooks = [lines, hook]
  training_run.before_training()
  yield training_run
  training_run.close()


class _Plateaus:
  """Plateau detector that counts calls."""

  def __init__(self):
    self.num_logged = 0

  def result(self):
    return {'mlm': {'reached': 5, 'left': None}}

  def log_advice(self):
    self.num_logged += 1


@pytest.mark.parametrize(
  'last_step, error, num_logged',
  [(20, None, 1), (10, None, 0), (10, RuntimeError, 0), (20, RuntimeError, 0)],
)
def test_plateau_advice_is_logged_only_after_training_has_finished(
  run, monkeypatch, last_step, error, num_logged
):
  """For example, not after another process of the job was killed."""
  plateaus = _Plateaus()
  hook = run.hooks[1]
  monkeypatch.setattr(hook, '_plateaus', plateaus)
  run.step = last_step
  try:
    if error:
      raise error
    hook.after_training(run)
  except RuntimeError:
    hook.after_training(run)  # As in the `finally` clause of the training loop.
  assert plateaus.num_logged == num_logged
  assert 'mlm' in run.results['plateau']


def _lines(directory):
  lines = (directory / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def _report(run, step, **fields):
  run.step = step
  sums = metric_accumulator.Sums(
    **{'steps': 5, 'loss': 2.0, 'grad_norm': 0.5, 'tokens': 50.0} | fields
  )
  run.hooks[1].report(run, sums)


def _resume(run):
  """Replaces the hook, as if another process continued the run."""
  hook = metrics_logging.MetricsHook(
    run.hooks[0], step_time_logging.StepTimeHook(run.clock)
  )
  hook.after_rewind(run, run.step)
  run.hooks[1] = hook


def test_resumed_run_records_only_a_changed_environment(
  run, tmp_path, monkeypatch
):
  _report(run, 5)
  for step in (10, 15):
    _resume(run)
    _report(run, step)
  monkeypatch.setenv('OMP_NUM_THREADS', '7')
  _resume(run)
  _report(run, 20)
  environments = [record.get('environment') for record in _lines(tmp_path)]
  assert environments[1:3] == [None, None]
  assert environments[3] == environments[0] | {'OMP_NUM_THREADS': '7'}


def test_report_contains_environment_metrics_and_counts(run, tmp_path):
  metrics = {'mlm/loss': (np.array(6.0), np.array(4.0))}
  _report(run, 5, skipped=1, spikes=2, metrics=metrics)
  run.write_metrics(5, eval={'f1': 0.25})
  _report(run, 10)
  report, evaluation, later = _lines(tmp_path)
  assert report['environment']['device'] == 'cpu'
  assert report['environment'].keys() >= {'python', 'jax', 'devices'}
  assert report['environment']['JAX_PLATFORMS'] == 'cpu'
  assert 'environment' not in later
  assert report['train'] == {
    'loss': 2.0,
    'grad_norm': 0.5,
    'learning_rate': 0.04,  # the fifth step (index 4)
    'mlm/loss': 1.5,
    'skipped_steps': 1,
    'skipped_spikes': 2,
  }
  assert evaluation == {'step': 5, 'eval': {'f1': 0.25}}


def test_report_callback_receives_the_lines_of_the_file(run, tmp_path):
  calls = []
  run._writer.close()
  run._report = lambda step, metrics: calls.append((step, metrics))
  run._open_metrics(first_time=False)
  metrics = {'mlm/loss': (np.array(6.0), np.array(4.0))}
  _report(run, 5, metrics=metrics)
  run.write_metrics(5, eval={'f1': 0.25})
  (first, second) = calls
  assert first[0] == 5 and first[1]['train'] == _lines(tmp_path)[0]['train']
  assert second == (5, {'eval': {'f1': 0.25}})


def test_mfu_uses_mean_flops_over_the_objective_schedule(run, tmp_path):
  """Three of four steps have 40 FLOPs, and one has 80 FLOPs."""
  _report(run, 5)
  [report] = _lines(tmp_path)
  speed = report['speed']
  seconds = speed['seconds_per_step']
  assert speed['tokens_per_second'] == pytest.approx(10 / seconds)
  assert speed['mfu'] == pytest.approx(50 / seconds / 200)
  spent = [v for k, v in speed.items() if k.startswith('run_seconds/')]
  assert speed['run_seconds'] == sum(spent) > 0


@pytest.mark.parametrize('step', [10, 20])
def test_summary_of_a_run(run, tmp_path, step):
  _report(run, step, loss=float('nan'))
  run.state = fake_run.State(np.int32(step), np.zeros([]))
  result = run.summary()
  assert result.pop('seconds').keys() >= {'start', 'step', 'save'}
  assert result == {
    'step': step,
    'first_step': 0,
    'checkpoint': None,
    'loss': None,
    'model_dir': str(tmp_path),
    'finished': step == 20,
    'interrupted': False,
    'has_untrained_mlm_head': False,
    'earlier_seconds': 0.0,
  }


def test_summary_contains_the_loss_of_the_last_report(tmp_path, monkeypatch):
  saved = fake_run.Checkpoints()

  def train(last_step):
    run = fake_run.make_run(
      monkeypatch,
      tmp_path,
      [float(loss) for loss in range(1, 17)],
      saved=saved,
      log_metrics_every=4,
      last_step=last_step,
    )
    return train_loop.run_steps(run)

  # No step, the mean of all steps, of a resumed run, of the last report.
  assert train(0)['loss'] is None
  assert train(2)['loss'] == (1 + 2) / 2
  assert train(3)['loss'] == (1 + 2 + 3) / 3
  assert train(5)['loss'] == (1 + 2 + 3 + 4) / 4
  # The report was written before the run was resumed.
  assert train(7)['loss'] == (1 + 2 + 3 + 4) / 4
  assert train(16)['loss'] == (13 + 14 + 15 + 16) / 4
  result = train(16)
  assert result['first_step'] == 16
  assert result['loss'] == (13 + 14 + 15 + 16) / 4


def test_time_of_earlier_processes_is_reported_separately(
  tmp_path, monkeypatch, caplog
):
  caplog.set_level('INFO')
  saved = fake_run.Checkpoints()
  for last_step in (4, 8):
    run = fake_run.make_run(
      monkeypatch, tmp_path, [1.0] * 16, saved=saved, last_step=last_step
    )
    run.activities.since -= 100
    caplog.clear()
    result = train_loop.run_steps(run)
    [line] = [text for text in caplog.messages if 'goodput' in text]
    is_resumed = last_step == 8
    assert ('all starts' in line) == is_resumed
    if is_resumed:
      assert result['earlier_seconds'] == pytest.approx(100, abs=20)
      assert sum(result['seconds'].values()) == pytest.approx(200, abs=40)
    else:
      assert result['earlier_seconds'] == 0


def test_only_the_lead_process_writes_metrics(tmp_path, monkeypatch):
  class _Writes(hook_base.Hook):
    def after_step(self, run, step, output):
      run.write_metrics(step, mine={'one': 1.0})

  run = fake_run.make_run(monkeypatch, tmp_path, [1.0] * 24, hooks=[_Writes()])
  for module in (
    fake_run.training_run.distributed_job,
    metrics_logging.distributed_job,
  ):
    monkeypatch.setattr(module, 'is_lead', lambda: False)
  train_loop.run_steps(run)
  assert not (tmp_path / 'metrics.jsonl').exists()


def test_last_loss_of_a_short_run_is_compared_with_the_first(
  tmp_path, monkeypatch, caplog
):
  run = fake_run.make_run(monkeypatch, tmp_path, [])
  [hook] = [
    hook for hook in run.hooks if isinstance(hook, metrics_logging.MetricsHook)
  ]
  loss = objective_base.WeightedMean(np.array(7.0), np.array(1.0))
  run.step = 1
  hook.after_step(
    run, 0, fake_run.output(7.0)._replace(metrics={'mlm/loss': loss})
  )
  run.step = 16
  hook.report(
    run,
    metric_accumulator.Sums(
      steps=15, loss=100.0, metrics={'mlm/loss': (loss.total + 93, loss.weight)}
    ),
  )
  hook.after_training(run)
  [record] = caplog.records
  assert_mentions(record.getMessage(), 'mlm', '100.00')


@pytest.mark.parametrize(
  'fields, has_warning',
  [
    ({'grad_norm': 0.0}, True),
    ({'grad_norm': 1e-30}, False),
    ({'grad_norm': 0.0, 'loss': 0.0}, False),
    ({'grad_norm': float('nan'), 'loss': float('nan')}, False),
  ],
)
def test_zero_gradient_causes_one_warning(run, caplog, fields, has_warning):
  caplog.set_level('WARNING')
  for step in (5, 10):
    _report(run, step, **fields)
  assert len(caplog.records) == has_warning
  if has_warning:
    assert_mentions(caplog.records[0].getMessage(), 'gradient', 'stop_gradient')


def test_zero_gradient_after_the_first_report_causes_no_warning(run, caplog):
  caplog.set_level('WARNING')
  _report(run, 5)
  _report(run, 10, grad_norm=0.0)
  assert not caplog.records


def test_each_non_finite_metric_causes_one_warning(run, caplog):
  caplog.set_level('WARNING')
  weight, nan = np.float64(1), np.float64('nan')
  by_language = np.array([1.0, np.inf])
  metrics = {'good': (weight, weight), 'empty': (0 * weight, 0 * weight)}
  _report(run, 5, metrics=metrics)
  assert not caplog.records
  _report(run, 10, metrics=metrics | {'bad': (nan, weight)})
  _report(
    run, 15, metrics=metrics | {'bad': (nan, weight), 'weight': (weight, nan)}
  )
  assert len(caplog.records) == 2
  first, second = (record.getMessage() for record in caplog.records)
  assert_mentions(first, 'bad', 'step 10')
  assert_mentions(second, 'weight', 'step 15')
  assert 'bad' not in second and 'good' not in first
  _report(run, 20, metrics={'parts': (by_language, np.ones(2))})
  assert_mentions(caplog.records[-1].getMessage(), 'parts')


def test_non_finite_metrics_with_a_non_finite_loss_cause_no_warning(
  run, caplog
):
  caplog.set_level('WARNING')
  nan = np.float64('nan')
  _report(run, 5, loss=nan, grad_norm=nan, metrics={'bad': (nan, nan)})
  assert not caplog.records
