"""Tests of step times and the detection of stragglers."""

import numpy as np
import pytest

from xlflax.training.distributed import stragglers


class _Clock:
  now = 0.0

  def __call__(self):
    return self.now


def _times(own_seconds, loading=None, step=1.0):
  own_seconds = np.asarray(own_seconds, np.float32)
  return stragglers.Times(
    step=np.full(own_seconds.shape, step, np.float32),
    own=own_seconds,
    loading=own_seconds if loading is None else np.asarray(loading, np.float32),
  )


def test_own_time_excludes_waiting_for_other_processes():
  clock = _Clock()
  times = stragglers.StepTimes(clock)
  times.restart(3)
  for _ in range(4):
    with times.loading():
      clock.now += 1
    with times.waiting():
      clock.now += 4
    clock.now += 0.5
  report = times.take(7)
  assert (report.step[0], report.own[0], report.loading[0]) == (5.5, 1.5, 1.0)
  assert times.take(7) is None  # no step since the last call
  assert report.metrics() == {
    'step_seconds_median': 5.5,
    'step_seconds_slowest': 5.5,
    'own_seconds_median': 1.5,
    'own_seconds_slowest': 1.5,
    'loading_seconds_slowest': 1.0,
    'slowest_process': 0,
  }


def test_times_before_a_restart_are_excluded():
  clock = _Clock()
  times = stragglers.StepTimes(clock)
  with times.loading():
    clock.now += 100
  times.restart(1)
  clock.now += 2
  assert times.take(3).step[0] == 1.0


@pytest.mark.parametrize(
  ('own_seconds', 'stragglers'),
  [
    ([0.1], []),
    ([0.1, 0.1, 0.12, 0.1], []),
    ([0.1, 0.1, 0.5, 0.1], [2]),
    ([0.1, 0.9, 0.5, 0.1, 0.1], [1, 2]),
    ([0.001, 0.01, 0.001], []),  # small compared with a step of one second
    ([0.1, 0.9], [1]),
    ([0.009, 0.012], []),  # a third slower, but only by milliseconds
  ],
)
def test_stragglers_are_detected(own_seconds, stragglers):
  assert _times(own_seconds).stragglers() == stragglers


def test_small_absolute_delays_are_not_stragglers():
  assert _times([0.009, 0.014], step=0.02).stragglers() == []
  assert _times([0.009, 0.034], step=0.05).stragglers() == [1]


def test_single_slow_report_causes_no_warning(caplog, monkeypatch):
  """On a busy machine, the slowest process changes."""
  monkeypatch.setattr(stragglers, 'gather_host_names', lambda: ['a', 'b', 'c'])
  times = stragglers.StepTimes()
  for own_seconds in ([0.6, 0.1, 0.1], [0.1, 0.6, 0.1], [0.1, 0.1, 0.1]) * 3:
    times.report(_times(own_seconds))
  assert not caplog.text


def test_straggler_is_reported_once(caplog, monkeypatch):
  monkeypatch.setattr(stragglers, 'gather_host_names', lambda: ['a', 'b', 'c'])
  times = stragglers.StepTimes()
  for own_seconds in ([0.1, 0.1, 0.6], [0.1, 0.1, 0.6], [0.1, 0.1, 0.1]) * 3:
    times.report(_times(own_seconds, loading=[0, 0, 0.5]))
  assert caplog.text.count('Process 2 on c') == 1
  assert '0.600 s' in caplog.text
  assert '0.500 s' in caplog.text and '0.100 s' in caplog.text
  for own_seconds in ([0.1, 0.1, 0.1], [0.6, 0.1, 0.1], [0.6, 0.1, 0.1]):
    times.report(_times(own_seconds))
  assert 'Process 0 on a' in caplog.text
