"""Writers behind a thread: what is slow or fails costs no training."""

import threading
import time

from tests.errors import assert_mentions
from xlflax.training.metric_writers import background_writer


class _Writer:
  def __init__(self, problem=None):
    self.problem, self.seen = problem, []
    self.go_on = threading.Event()

  def write(self, step, metrics):
    if self.problem:
      raise self.problem
    self.go_on.wait()
    self.seen.append((step, metrics))

  def close(self):
    self.seen.append('closed')


def test_everything_comes_in_order_and_nothing_waits():
  writer = _Writer()
  behind = background_writer.Background(writer, 'it')
  start = time.monotonic()
  for step in range(5):
    behind.write(step, {})
  assert time.monotonic() - start < 1 and not writer.seen
  writer.go_on.set()
  behind.close()
  assert writer.seen == [(i, {}) for i in range(5)] + ['closed']


def test_failure_is_logged_once_and_counted(caplog):
  behind = background_writer.Background(_Writer(OSError('no route')), 'it')
  for step in range(3):
    behind.write(step, {})
  behind.close()
  assert caplog.text.count('OSError: no route') == 1
  assert_mentions(caplog.text, 3)


def test_writer_that_hangs_does_not_block_close(caplog):
  writer = _Writer()
  behind = background_writer.Background(writer, 'it', close_within=0.1)
  behind.write(1, {})
  behind.close()
  assert caplog.records
  writer.go_on.set()


def test_a_full_queue_does_not_hold_the_end(monkeypatch, caplog):
  monkeypatch.setattr(background_writer, '_MAX_PENDING_REPORTS', 1)
  writer = _Writer()
  behind = background_writer.Background(writer, 'it', close_within=0.1)
  for step in range(4):
    behind.write(step, {})
  behind.close()
  assert caplog.records
  writer.go_on.set()
