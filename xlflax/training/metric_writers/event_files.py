"""Metric writer for TensorBoard event files.

The records are written with TensorBoard's protocol buffers, because its writer
classes import TensorFlow if it is installed.
"""

import itertools
import os
import pathlib
import socket
import time

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import record_writer

from xlflax.training.metric_writers import metric_writer
from xlflax.utils import errors

# Makes the names of event files unique that a process opens in one second.
_file_numbers = itertools.count()


class EventFile:
  """A TensorBoard event file that contains scalars.

  Args:
    directory: Directory of the file, which is created if necessary.
  """

  def __init__(self, directory: pathlib.Path):
    directory.mkdir(parents=True, exist_ok=True)
    name = (
      f'events.out.tfevents.{int(time.time())}.{socket.gethostname()}.'
      f'{os.getpid()}.{next(_file_numbers)}'
    )
    self._file = open(directory / name, 'ab')
    self._records = record_writer.RecordWriter(self._file)
    self._add(
      event_pb2.Event(wall_time=time.time(), file_version='brain.Event:2')
    )

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Writes scalars, each with a tag of the form 'kind/name'."""
    values = [
      summary_pb2.Summary.Value(tag=tag, simple_value=float(value))
      for tag, value in metric_writer.flatten_metrics(metrics).items()
    ]
    self._add(
      event_pb2.Event(
        wall_time=time.time(),
        step=step,
        summary=summary_pb2.Summary(value=values),
      )
    )

  def _add(self, event) -> None:
    with errors.add_path_to_errors(self._file.name):
      self._records.write(event.SerializeToString())
      self._file.flush()

  def close(self) -> None:
    """Closes the event file."""
    with errors.add_path_to_errors(self._file.name):
      self._file.close()
