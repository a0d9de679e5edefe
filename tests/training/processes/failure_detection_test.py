"""The thread that ends a process after another one failed."""

import json
import threading

import pytest

from xlflax.foundation import errors
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
  monkeypatch.setattr(failure_detection, '_LEAVE', 0.02)
  monkeypatch.setattr(failure_detection.jax, 'process_count', lambda: 2)


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
  told = json.loads(watches[0].client.values['xlflax/failure'])
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


def test_what_hangs_stays_until_the_others_have_shown_theirs(processes):
  """Its end would cut the connections at which they wait."""
  watches, ends, ended = processes
  watches[1].fail('no step', errors.ExitStatus.FAILURE, stacks=True)
  assert 'xlflax/failed/0' in watches[1].client.values
  assert ended[0].wait(5)


def test_a_cut_connection_ends_as_the_process_that_failed(processes):
  watches, ends, _ = processes
  for watch in watches:
    watch.stop()  # no thread is faster
  watches[0].follow(0)
  assert not ends
  watches[1].fail('a typo', errors.ExitStatus.MISTAKE)
  watches[0].follow(1)
  watches[1].follow(1)  # its own
  assert list(ends) == [0] and ends[0][1] is errors.ExitStatus.MISTAKE


@pytest.mark.parametrize(
  'text, is_one',
  [
    (
      'UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/'
      'pair.cc:547] Connection closed by peer [127.0.0.1]:9614',
      True,
    ),
    ('NCCL operation failed: remote process exited or there was a', True),
    ('DEADLINE_EXCEEDED: Barrier timed out. Id: x', True),
    ("Batching rule for 'optimization_barrier' not implemented", False),
    ('INTERNAL: during context opt-barrier.3', False),
    ('INTERNAL: NCCL operation failed: invalid usage', False),
    ('RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes', False),
  ],
)
def test_what_says_that_a_process_is_gone(text, is_one):
  assert failure_detection.is_lost_peer(RuntimeError(text)) == is_one
  told = errors.CheckpointError('Not written', got=text, where='/heartbeat')
  assert failure_detection.is_lost_peer(told) == is_one
