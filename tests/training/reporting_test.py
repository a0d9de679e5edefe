"""What a run tells: metrics and speed on disk, FLOPs, its result."""

import json
import types

import numpy as np
import pytest

from tests.training import tiny
from xlflax.training import metric_accumulator, reporting
from xlflax.training.checkpointing import checkpoints
from xlflax.training.processes import activities, step_times


class _Clock:
  """Seconds that rise by one each time that they are read."""

  def __init__(self):
    self._now = 0.0

  def __call__(self):
    self._now += 1
    return self._now


@pytest.fixture
def opened(tmp_path, monkeypatch):
  """A reporter of a run on an accelerator of 100 FLOP/s."""
  monkeypatch.setattr(reporting.announcement, 'announce', lambda *_, **__: None)
  monkeypatch.setattr(reporting.devices, 'peak_flops', lambda _: 100.0)
  monkeypatch.setattr(reporting.progress_lib.time, 'perf_counter', _Clock())
  settings = types.SimpleNamespace(
    steps=20,
    last_step=20,
    log_to=(),
    objectives=types.SimpleNamespace(
      groups=((0,), (1,)), active=lambda step: (int(step % 4 == 3),)
    ),
    optimizer=types.SimpleNamespace(rate_at=lambda step: step / 100),
    partitioner=types.SimpleNamespace(mesh=types.SimpleNamespace(size=2)),
  )
  setup = types.SimpleNamespace(
    settings=settings,
    model_dir=tmp_path,
    description={},
    spec=tiny.SPEC,
    flops=lambda active: 40 if active == (0,) else 80,
  )
  reporter = reporting.Reporter(
    setup, activities.Activities(_Clock()), step_times.StepTimes(_Clock())
  )
  reporter.open_metrics(first_time=True)
  reporter.open_progress({}, 0)
  yield reporter
  reporter.close()


def _lines(directory):
  lines = (directory / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def _sums(**fields):
  return metric_accumulator.Sums(
    **{'steps': 5, 'loss': 2.0, 'grad_norm': 0.5, 'tokens': 50.0} | fields
  )


def test_a_report(opened, tmp_path):
  metrics = {'mlm/loss': (np.array(6.0), np.array(4.0))}
  opened.report(5, _sums(skipped=1, spikes=2, metrics=metrics))
  opened.report_evaluation(5, {'f1': 0.25})
  opened.report(10, _sums())
  report, evaluation, later = _lines(tmp_path)
  assert report['environment']['device'] == 'cpu'
  assert report['environment'].keys() >= {'python', 'jax', 'devices'}
  assert 'environment' not in later
  assert report['train'] == {
    'loss': 2.0,
    'grad_norm': 0.5,
    'learning_rate': 0.04,  # that of the fifth step, which is number 4
    'mlm/loss': 1.5,
    'skipped_steps': 1,
    'skipped_spikes': 2,
  }
  assert evaluation == {'step': 5, 'eval': {'f1': 0.25}}


def test_a_callback_gets_what_the_file_gets(opened, tmp_path):
  told = []
  opened.close()
  opened._report = lambda step, metrics: told.append((step, metrics))
  opened.open_metrics(first_time=False)
  metrics = {'mlm/loss': (np.array(6.0), np.array(4.0))}
  opened.report(5, _sums(metrics=metrics))
  opened.report_evaluation(5, {'f1': 0.25})
  (first, second) = told
  assert first[0] == 5 and first[1]['train'] == _lines(tmp_path)[0]['train']
  assert second == (5, {'eval': {'f1': 0.25}})


def test_flops_are_the_mean_over_the_kinds_of_steps(opened, tmp_path):
  """Of four steps three take 40 and one takes 80; five take a second here."""
  opened.report(5, _sums())
  [report] = _lines(tmp_path)
  assert report['speed']['seconds_per_step'] == pytest.approx(1 / 5)
  assert report['speed']['tokens_per_second'] == pytest.approx(50)
  assert report['speed']['mfu'] == pytest.approx(5 * 50 / 200)
  spent = [
    v for k, v in report['speed'].items() if k.startswith('run_seconds/')
  ]
  assert report['speed']['run_seconds'] == sum(spent) > 0


def test_going_back_drops_what_came_after_a_checkpoint(opened, tmp_path):
  opened.report(5, _sums())
  meta = {'metrics_file': opened.digest()}
  opened.report(10, _sums())
  opened.go_back(checkpoints.Restored(5, None, meta))
  opened.report(15, _sums())
  assert [line['step'] for line in _lines(tmp_path)] == [5, 15]
  opened.go_back(None)
  assert _lines(tmp_path) == []


@pytest.mark.parametrize('step', [10, 20])
def test_the_result(opened, tmp_path, step):
  opened.report(step, _sums(loss=float('nan')))
  found = opened.result(
    step, last='The last checkpoint is c.', interrupted=step < 20
  )
  assert found.pop('seconds')['start'] > 0
  assert found == {
    'step': step,
    'loss': None,
    'model_dir': str(tmp_path),
    'finished': step == 20,
    'interrupted': step == 10,
  }


def test_other_processes_write_nothing(opened, tmp_path, monkeypatch):
  monkeypatch.setattr(reporting.distributed, 'is_lead', lambda: False)
  other = reporting.Reporter(opened._setup, activities.Activities(), None)
  other.open_metrics(first_time=True)
  other.report_evaluation(5, {'f1': 0.25})
  other.drop_after(None)
  other.hasten()
  assert other.digest() == '' and _lines(tmp_path) == []
