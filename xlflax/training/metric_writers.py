"""Where metrics go: `metrics.jsonl` and TensorBoard event files.

TensorBoard's records are written through its own protocol buffers, because
its writer classes import TensorFlow where that is installed.
"""

import itertools
import json
import logging
import math
import os
import pathlib
import shutil
import socket
import tempfile
import threading
import time

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import record_writer

from xlflax import digests, paths
from xlflax.training import run_directory

# Seconds between copies to a bucket, which takes one change of an object per
# second.
_COPY_EVERY = 30.0
# Two event files of a process may begin in the same second.
_files = itertools.count()


class MetricsWriter:
  """Appends one line of JSON a report, and the same scalars to TensorBoard.

  A line is `{"step": s, "train": {...}}` or `{"step": s, "eval": {...}}`;
  numbers that are not finite are written as null. Objects in a bucket cannot
  be appended to: there, files on disk are copied every half a minute.
  """

  def __init__(self, model_dir: pathlib.Path):
    self._mirror = None
    folder = model_dir
    if paths.is_bucket(model_dir):
      folder = pathlib.Path(tempfile.mkdtemp(prefix='xlflax-metrics-'))
      self._mirror = _mirror_of(folder, model_dir)
    folder.mkdir(parents=True, exist_ok=True)
    self._folder = folder
    self._lines = open(folder / run_directory.METRICS, 'a', encoding='utf-8')
    self._events = _EventFile(folder / run_directory.TENSORBOARD)
    self._path = folder / run_directory.METRICS

  def write(self, step: int, **kinds: dict[str, float]) -> None:
    """Writes scalars by kind ('train', 'eval', 'speed') at a step."""
    line = {
      kind: {k: json_number(v) for k, v in metrics.items()}
      for kind, metrics in kinds.items()
    }
    self._lines.write(json.dumps({'step': step} | line) + '\n')
    self._lines.flush()
    self._events.write(
      step,
      {
        f'{kind}/{k}': v
        for kind, metrics in kinds.items()
        for k, v in metrics.items()
      },
    )

  def digest(self) -> str:
    """The digest of all lines so far."""
    return digests.of_file(self._path)

  def hasten(self) -> None:
    """Has what was written so far copied soon, where it is in a bucket."""
    if self._mirror:
      self._mirror.hasten()

  def close(self) -> None:
    self._lines.close()
    self._events.close()
    if self._mirror:
      self._mirror.close()
      shutil.rmtree(self._folder)


class Mirror:
  """A thread that copies a directory's files, whenever they have grown.

  A copy that fails is tried again with the next; training goes on.

  Args:
    source: directory on disk.
    target: directory in a bucket.
    every: seconds between copies.
  """

  def __init__(
    self,
    source: pathlib.Path,
    target: pathlib.Path,
    *,
    every: float = _COPY_EVERY,
  ):
    self._source, self._target, self._every = source, target, every
    self._copied: dict[pathlib.Path, int] = {}
    self._wake = threading.Event()
    self._closed = False
    self._thread = threading.Thread(
      target=self._run, name='xlflax mirror', daemon=True
    )
    self._thread.start()

  def hasten(self) -> None:
    """Copies now, in the background."""
    self._wake.set()

  def close(self) -> None:
    """Copies what is left and ends the thread."""
    self._closed = True
    self._wake.set()
    self._thread.join()

  def _run(self) -> None:
    while True:
      self._wake.wait(self._every)
      self._wake.clear()
      last = self._closed
      self._copy()
      if last:
        return

  def _copy(self) -> None:
    for path in sorted(self._source.rglob('*')):
      if not path.is_file() or path.stat().st_size == self._copied.get(path):
        continue
      target = self._target.joinpath(*path.relative_to(self._source).parts)
      try:
        content = path.read_bytes()
        target.write_bytes(content)
      except Exception as error:
        logging.warning(
          '%s could not be written (%s: %s).',
          target,
          type(error).__name__,
          error,
        )
        continue
      self._copied[path] = len(content)


def _mirror_of(folder: pathlib.Path, model_dir: pathlib.Path) -> Mirror:
  """Copies of the metrics in `folder`, which starts from what is there."""
  known = model_dir / run_directory.METRICS
  if known.exists():
    (folder / run_directory.METRICS).write_bytes(known.read_bytes())
  return Mirror(folder, model_dir)


class _EventFile:
  """One TensorBoard event file of scalars."""

  def __init__(self, directory: pathlib.Path):
    directory.mkdir(parents=True, exist_ok=True)
    name = (
      f'events.out.tfevents.{int(time.time())}.{socket.gethostname()}.'
      f'{os.getpid()}.{next(_files)}'
    )
    self._file = open(directory / name, 'ab')
    self._records = record_writer.RecordWriter(self._file)
    self._add(
      event_pb2.Event(wall_time=time.time(), file_version='brain.Event:2')
    )

  def write(self, step, scalars) -> None:
    values = [
      summary_pb2.Summary.Value(tag=tag, simple_value=float(value))
      for tag, value in scalars.items()
    ]
    self._add(
      event_pb2.Event(
        wall_time=time.time(),
        step=step,
        summary=summary_pb2.Summary(value=values),
      )
    )

  def _add(self, event) -> None:
    self._records.write(event.SerializeToString())
    self._file.flush()

  def close(self) -> None:
    self._file.close()


def json_number(value: float | None) -> float | None:
  """The number, or None for one that JSON does not have."""
  return None if value is None or not math.isfinite(value) else float(value)
