"""Tests of the seconds of a run by activity, and of its goodput."""

import pytest

from xlflax.training.distributed import goodput

Activity = goodput.Activity


class _Clock:
  now = 100.0

  def __call__(self):
    return self.now


@pytest.fixture
def clock():
  return _Clock()


def _spend(run, clock, activity, seconds):
  run.start(activity)
  clock.now += seconds


def test_goodput_is_the_fraction_of_time_in_steps(clock):
  run = goodput.Activities(clock=clock)
  clock.now += 4  # time before the first activity
  _spend(run, clock, Activity.COMPILATION, 2)
  for _ in range(2):
    _spend(run, clock, Activity.BATCH, 1)
    _spend(run, clock, Activity.STEP, 5)
  _spend(run, clock, Activity.SAVE, 2)
  assert run.seconds() == {
    'start': 4,
    'compilation': 2,
    'batch': 2,
    'step': 10,
    'save': 2,
    'evaluation': 0,
    'lost': 0,
  }
  assert run.goodput() == pytest.approx(10 / 20)
  assert goodput.format_goodput(run.seconds()).startswith(
    'goodput 50.0 %: start 4'
  )


def test_resumed_run_adds_the_time_of_earlier_processes(clock):
  first = goodput.Activities(clock=clock)
  _spend(first, clock, Activity.STEP, 6)
  saved = first.seconds()
  again = goodput.Activities(clock=clock)
  again.add_earlier_processes(saved, written=9)
  _spend(again, clock, Activity.STEP, 1)
  assert again.seconds()['step'] == 7
  assert again.goodput() == pytest.approx(7 / 10)
