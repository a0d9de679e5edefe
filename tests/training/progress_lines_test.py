"""Tests of progress lines with a fake clock."""

import pytest

from tests.errors import assert_mentions
from xlflax.training import progress_lines


@pytest.fixture
def clock(monkeypatch):
  class Clock:
    now = 100.0

  monkeypatch.setattr(progress_lines.time, 'perf_counter', lambda: Clock.now)
  return Clock


def _progress(first_step=0, total_steps=1000, is_compiled_long=False, **fields):
  fields = dict(flops_per_step=None, peak_flops=None) | fields
  progress = progress_lines.Progress(
    first_step=first_step, total_steps=total_steps, **fields
  )
  if not is_compiled_long:
    progress._compilation_timer.cancel()
  return progress


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [
    (0, '00:00:00'),
    (59.9, '00:00:59'),
    (3661, '01:01:01'),
    (86399, '23:59:59'),
    (86400, '1 d 00:00:00'),
    (200000, '2 d 07:33:20'),
  ],
)
def test_duration_is_formatted(seconds, text):
  assert progress_lines.format_duration(seconds) == text


def test_speed_is_measured_since_the_last_report(clock):
  progress = _progress()
  clock.now += 20
  assert progress.report(10, 1.0, 50) == {
    'seconds_per_step': 2.0,
    'tokens_per_second': 25.0,
  }
  clock.now += 5
  assert progress.report(20, 1.0, 50) == {
    'seconds_per_step': 0.5,
    'tokens_per_second': 100.0,
  }


def test_mfu_is_the_fraction_of_peak_flops(clock):
  progress = _progress(flops_per_step=1e12, peak_flops=4e12)
  clock.now += 5
  assert progress.report(10, 1.0, 1)['mfu'] == pytest.approx(0.5)


def test_compilation_and_evaluation_are_excluded_from_the_speed(clock):
  """Step 1 is compiled, and an evaluation runs after step 6."""
  progress = _progress()
  clock.now += 60
  progress.restart(1)
  clock.now += 9
  assert progress.report(10, 1.0, 50) == {
    'seconds_per_step': 1.0,
    'tokens_per_second': 50.0,
  }
  clock.now += 500
  progress.restart(16)
  clock.now += 4
  assert progress.report(20, 1.0, 50) == {
    'seconds_per_step': 1.0,
    'tokens_per_second': 50.0,
  }


def test_report_directly_after_a_restart_is_empty(clock):
  progress = _progress()
  clock.now += 60
  progress.restart(1)
  assert progress.report(1, 1.0, 50) == {}


def test_progress_line(clock, caplog):
  caplog.set_level('INFO')
  progress = _progress(
    first_step=100, total_steps=5000, flops_per_step=1.0, peak_flops=2.0
  )
  progress.begin(101, 9.5, 12.34)
  clock.now += 49.5
  progress.report(200, 3.21449, 4096)
  assert [r.getMessage() for r in caplog.records] == [
    'step 101/5,000 | loss 9.5000 | first step: 12.3 s including compilation',
    'step 200/5,000 | loss 3.2145 | 8,192 tok/s | MFU 100.0 % | ETA 00:40:00',
  ]


def test_eta_includes_evaluations(clock, caplog):
  caplog.set_level('INFO')
  progress = _progress(total_steps=101)
  progress.begin(1, 9.0, 75)
  assert '00:01:15' in caplog.text
  clock.now += 10
  progress.restart(11)  # nine seconds of evaluation
  clock.now += 10
  progress.report(21, 1.0, 50)
  assert caplog.messages[-1].endswith('ETA 00:01:20')  # 80 steps of 1 s


def test_line_is_logged_within_a_long_interval(clock, caplog):
  caplog.set_level('INFO')
  progress = _progress(total_steps=100)
  progress.begin(1, 9.0, 1)
  for step in range(2, 7):
    clock.now += 8
    progress.advance(step)
  assert caplog.messages[1:] == ['step 5/100 | ETA 00:12:40']


def test_only_the_lead_process_logs(clock, caplog):
  caplog.set_level('INFO')
  progress = _progress(enabled=False)
  clock.now += 5
  assert progress.report(1, 1.0, 5) == {
    'seconds_per_step': 5.0,
    'tokens_per_second': 1.0,
  }
  assert not caplog.records


def test_long_compilation_is_logged(monkeypatch, caplog):
  caplog.set_level('INFO')
  monkeypatch.setattr(progress_lines, '_LONG_COMPILATION_SECONDS', 0.05)
  short, other, long = (
    _progress(is_compiled_long=True, enabled=enabled)
    for enabled in (True, False, True)
  )
  short.begin(1, 9.0, 1)
  caplog.clear()
  long._compilation_timer.join(5)
  [message] = caplog.messages
  assert_mentions(message, 'XLA')
  for duration in (short, other, long):
    duration.close()
