"""The thread that ends a process after another one failed."""

import json
import threading

import pytest

from xlflax import errors
from xlflax.training.processes import failure_detection


class _Store:
  """The part of JAX's coordination client that is used."""

  def __init__(self):
    self.values = {}

  def key_value_set(self, key, value):
    if key in self.values:
      raise RuntimeError('ALREADY_EXISTS')
    self.values[key] = value

  def key_value_try_get(self, key):
    if key not in self.values:
      raise RuntimeError('NOT_FOUND')
    return self.values[key]


@pytest.fixture
def quick(monkeypatch):
  monkeypatch.setattr(failure_detection, '_EVERY', 0.02)
  monkeypatch.setattr(failure_detection, '_OWN_MESSAGE', 0.02)


@pytest.fixture
def processes(quick):
  """Two processes with one store, and how each ended."""
  store, ends = _Store(), {}
  ended = [threading.Event(), threading.Event()]

  def end(i):
    def note(*message):
      ends[i] = message
      ended[i].set()

    return note

  watches = [
    failure_detection.FailureDetector(i, store, end(i)) for i in range(2)
  ]
  yield watches, ends, ended
  for watch in watches:
    watch.stop()


def test_failure_ends_the_other(processes):
  watches, ends, ended = processes
  watches[1].fail('no disk', errors.ExitStatus.FAILURE)
  assert ended[0].wait(5)
  assert ends == {
    0: (
      'xlflax: process 1 failed: no disk\nxlflax: process 0 ends with it.',
      errors.ExitStatus.FAILURE,
    )
  }


def test_last_words_name_where_to_go_on(processes):
  watches, ends, ended = processes
  watches[0].last_words = lambda: 'The last checkpoint is runs/a/20.'
  watches[1].fail('no disk', errors.ExitStatus.FAILURE)
  assert ended[0].wait(5)
  assert ends[0][0].endswith(' ends with it. The last checkpoint is runs/a/20.')


def test_last_words_that_fail_are_left_out(processes):
  watches, ends, ended = processes
  watches[0].last_words = lambda: 1 / 0
  watches[1].fail('no disk', errors.ExitStatus.FAILURE)
  assert ended[0].wait(5) and ends[0][0].endswith(' ends with it.')


def test_first_failure_is_the_one_told(processes):
  watches, ends, ended = processes
  watches[1].fail('first', errors.ExitStatus.FAILURE)
  watches[0].fail('second', errors.ExitStatus.FAILURE)
  assert not ends
  told = json.loads(watches[0]._client.values['xlflax/failure'])
  assert told['message'].endswith('first')


def test_nothing_happens_without_a_failure(processes):
  watches, ends, ended = processes
  assert not ended[0].wait(0.2)
  for watch in watches:
    watch.stop()
    assert not watch._thread.is_alive()
  assert not ends


def test_lost_store_is_no_failure_of_its_own(quick):
  class Lost:
    def key_value_try_get(self, key):
      raise RuntimeError('UNAVAILABLE')

  ends = []
  watch = failure_detection.FailureDetector(
    1, Lost(), lambda *message: ends.append(message)
  )
  watch.stop()
  assert not ends


def test_the_others_end_with_the_status_of_the_first(processes):
  watches, ends, ended = processes
  watches[1].fail('a typo', errors.ExitStatus.MISTAKE)
  assert ended[0].wait(5)
  assert ends[0][1] is errors.ExitStatus.MISTAKE


def test_a_hang_shows_the_stacks_of_the_others(processes, capfd):
  watches, ends, ended = processes
  watches[1].fail('no step', errors.ExitStatus.FAILURE, stacks=True)
  assert ended[0].wait(5)
  assert 'test_a_hang_shows_the_stacks' in capfd.readouterr().err
