"""Tests of metric writers in a background thread."""

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


def test_reports_are_written_in_order_without_waiting():
  writer = _Writer()
  writer_thread = background_writer.Background(writer, 'it')
  start = time.monotonic()
  for step in range(5):
    writer_thread.write(step, {})
  assert time.monotonic() - start < 1 and not writer.seen
  writer.go_on.set()
  writer_thread.close()
  assert writer.seen == [(i, {}) for i in range(5)] + ['closed']


def test_write_failures_are_logged_once_and_counted(caplog):
  writer_thread = background_writer.Background(
    _Writer(OSError('no route')), 'it'
  )
  for step in range(3):
    writer_thread.write(step, {})
  writer_thread.close()
  assert caplog.text.count('OSError: no route') == 1
  assert_mentions(caplog.text, 3)


def test_hanging_writer_does_not_block_close(caplog):
  writer = _Writer()
  writer_thread = background_writer.Background(writer, 'it', close_within=0.1)
  writer_thread.write(1, {})
  writer_thread.close()
  assert caplog.records
  writer.go_on.set()


def test_full_queue_does_not_block_close(monkeypatch, caplog):
  monkeypatch.setattr(background_writer, '_MAX_PENDING_REPORTS', 1)
  writer = _Writer()
  writer_thread = background_writer.Background(writer, 'it', close_within=0.1)
  for step in range(4):
    writer_thread.write(step, {})
  writer_thread.close()
  assert caplog.records
  writer.go_on.set()
