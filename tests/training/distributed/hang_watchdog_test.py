"""Tests of the watchdog, which exits a run without progress."""

import threading

import pytest

from xlflax.training.distributed import goodput, hang_watchdog

BATCH, STEP = goodput.Activity.BATCH, goodput.Activity.STEP
SAVE, EVALUATION = goodput.Activity.SAVE, goodput.Activity.EVALUATION


class _Clock:
  now = 0.0

  def __call__(self):
    return self.now


@pytest.fixture
def clock():
  return _Clock()


@pytest.fixture
def watchdog(clock):
  return hang_watchdog.Watchdog(goodput.Activities(clock=clock), 100)


def _after(watchdog, clock, seconds):
  clock.now += seconds
  return watchdog.problem()


def test_problem_describes_the_activity(watchdog, clock):
  watchdog.activities.start(BATCH, "of dataset 'mono'")
  assert _after(watchdog, clock, 100) is None
  assert (
    _after(watchdog, clock, 1)
    == "waiting for a batch of dataset 'mono' for 101 s"
  )


def test_new_activities_reset_the_timeout(watchdog, clock):
  for i in range(5):
    watchdog.activities.start(BATCH)
    assert _after(watchdog, clock, 90) is None
    watchdog.activities.start(SAVE, f'of step {i}')
    assert _after(watchdog, clock, 90) is None


@pytest.mark.parametrize(
  'activity', [goodput.Activity.START, goodput.Activity.COMPILATION, EVALUATION]
)
def test_restore_compilation_and_evaluation_have_longer_timeouts(
  watchdog, clock, activity
):
  watchdog.activities.start(activity)
  assert _after(watchdog, clock, 400) is None
  assert _after(watchdog, clock, 1)


def test_timeout_of_steps_is_ten_times_the_longest_step(watchdog, clock):
  watchdog.activities.start(STEP)
  clock.now += 50
  watchdog.activities.start(STEP)
  assert _after(watchdog, clock, 499) is None
  assert _after(watchdog, clock, 2)


def test_concurrent_writes_are_watched(watchdog, clock):
  for _ in range(3):
    watchdog.background_write(lambda: True)
    watchdog.activities.start(BATCH)
    clock.now += 40
  assert watchdog.problem() == 'writing a checkpoint for 120 s'
  watchdog.background_write(lambda: False)
  assert watchdog.problem() is None


def test_finished_write_is_not_reported_for_a_hanging_step(watchdog, clock):
  writes = [True]
  watchdog.background_write(lambda: writes[0])
  clock.now += 50
  watchdog.activities.start(STEP, '(step 7)')
  writes[0] = False
  assert _after(watchdog, clock, 60) is None
  assert _after(watchdog, clock, 41) == 'training (step 7) for 101 s'


def test_stop_request_shortens_the_timeout(watchdog, clock):
  watchdog.activities.start(BATCH)
  watchdog.stopping()
  assert _after(watchdog, clock, 60) is None
  assert _after(watchdog, clock, 1)
  watchdog.activities.start(SAVE)
  assert _after(watchdog, clock, 100) is None


def test_finished_steps_reset_the_timeout(watchdog, clock):
  """A requested checkpoint waits for the steps in flight."""
  watchdog.activities.start(STEP, '(step 7)')
  watchdog.stopping()
  for _ in range(5):
    assert _after(watchdog, clock, 50) is None
    watchdog.activities.progress()
  watchdog.activities.start(BATCH)
  assert _after(watchdog, clock, 499) is None  # ten times the longest step
  watchdog.activities.progress()  # The longest step does not apply to batches.
  assert _after(watchdog, clock, 2)


def test_compilation_time_limits_the_first_steps(watchdog, clock):
  """In the second step, no better estimate of a step's duration exists."""
  watchdog.activities.start(goodput.Activity.COMPILATION, '(step 1)')
  clock.now += 90
  watchdog.activities.start(STEP, '(step 2)')
  watchdog.stopping()
  assert _after(watchdog, clock, 89) is None
  assert _after(watchdog, clock, 2)


def test_watchdog_exits_the_process_once():
  ends, ended = [], threading.Event()

  def end(message):
    ends.append(message)
    ended.set()

  with hang_watchdog.Watchdog(goodput.Activities(), 0.05, end=end) as watchdog:
    watchdog.activities.start(BATCH, "of dataset 'mono'")
    assert ended.wait(10)
  assert len(ends) == 1 and "a batch of dataset 'mono'" in ends[0]


def test_without_a_timeout_only_stops_are_watched(clock):
  watchdog = hang_watchdog.Watchdog(goodput.Activities(clock=clock), 0)
  watchdog.activities.start(STEP, '(step 7)')
  assert _after(watchdog, clock, 10**6) is None
  watchdog.stopping()
  assert _after(watchdog, clock, 60) is None
  assert 'training (step 7) for' in _after(watchdog, clock, 1)


def test_stop_request_during_startup_has_a_longer_timeout(watchdog, clock):
  watchdog.activities.start(goodput.Activity.START)
  assert _after(watchdog, clock, 150) is None
  watchdog.stopping()
  assert _after(watchdog, clock, 239) is None
  assert _after(watchdog, clock, 2)
