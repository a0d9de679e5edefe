"""Metrics of a run, written as JSON lines and to additional destinations."""

import json
import math
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.storage import checksums, paths
from xlflax.training.checkpointing import run_directory
from xlflax.training.metric_writers import (
  background_writer,
  bucket_mirror,
  event_files,
  metric_writer,
  terminal_writer,
  trackers,
)
from xlflax.utils import errors


class RunMetrics:
  """Metric writer that writes JSON lines and passes reports to other writers.

  Each report is one line, `{"step": s, "train": {...}}` or
  `{"step": s, "eval": {...}}`.
  Numbers that are not finite are written as null. If the run directory is in a
  bucket, whose objects cannot be appended to, the lines are written to local
  files, which are copied to the bucket every 30 seconds.

  Args:
    model_dir: Directory in which the run is stored.
    destinations: Destinations of metrics in addition to the JSON lines.
    description: Configuration of the run, for experiment trackers.
    first_time: Whether the run is started rather than resumed.
    report: Function called with the step and the metrics of each report. If
      None, nothing is called.
  """

  def __init__(
    self,
    model_dir: pathlib.Path,
    destinations: Sequence[metric_writer.Destination] = (
      metric_writer.Destination.TENSORBOARD,
    ),
    *,
    description: dict[str, Any] | None = None,
    first_time: bool = True,
    report: metric_writer.Report | None = None,
  ):
    self._report = report
    self._mirror = None
    folder = model_dir
    if paths.is_bucket(model_dir):
      folder = pathlib.Path(tempfile.mkdtemp(prefix='xlflax-metrics-'))
      self._mirror = _start_mirror(folder, model_dir)
    folder.mkdir(parents=True, exist_ok=True)
    self._folder = folder
    self._path = folder / run_directory.METRICS
    self._lines = open(self._path, 'a', encoding='utf-8')
    self._writers: list[metric_writer.MetricWriter] = []
    if metric_writer.Destination.TENSORBOARD in destinations:
      self._writers.append(
        event_files.EventFile(folder / run_directory.TENSORBOARD)
      )
    if metric_writer.Destination.TERMINAL in destinations:
      self._writers.append(terminal_writer.Terminal())
    subject = trackers.Subject(
      run_id=run_directory.run_id(model_dir),
      name=model_dir.name,
      description=description or {},
      folder=folder,
    )
    self._open_trackers(destinations, subject, first_time)

  def _open_trackers(self, destinations, subject, first_time) -> None:
    for destination in destinations:
      if destination not in trackers.KINDS:
        continue
      tracker = trackers.open_tracker(
        destination, subject, first_time=first_time
      )
      if tracker is not None:
        self._writers.append(
          background_writer.Background(tracker, destination.value)
        )

  def write(self, step: int, **metrics: Mapping[str, float | str]) -> None:
    """Writes a step's scalars to all destinations.

    Args:
      step: Number of completed steps.
      **metrics: Values by name for each kind ('train', 'eval', 'speed'). Text
        values, as in the kind 'restart', are written only to the JSON lines.
    """
    line: dict[str, Any] = {}
    numbers: dict[str, dict[str, float]] = {}
    for kind, values in metrics.items():
      numbers[kind] = {
        k: v for k, v in values.items() if not isinstance(v, str)
      }
      json_values = {k: json_number(v) for k, v in numbers[kind].items()}
      line[kind] = {**values, **json_values}
    with errors.add_path_to_errors(self._path):
      self._lines.write(json.dumps({'step': step} | line) + '\n')
      self._lines.flush()
    for writer in self._writers:
      writer.write(step, numbers)
    if self._report:
      self._report(step, numbers)

  def digest(self) -> str:
    """Returns the digest of all lines in the metrics file."""
    return checksums.digest_file(self._path)

  def hasten(self) -> None:
    """Starts copying the metrics to the bucket, if the run is in a bucket."""
    if self._mirror:
      self._mirror.hasten()

  def close(self) -> None:
    """Writes the remaining metrics and closes all writers."""
    with errors.add_path_to_errors(self._path):
      self._lines.close()
    for writer in self._writers:
      writer.close()
    if self._mirror:
      self._mirror.close()
      shutil.rmtree(self._folder)


def _start_mirror(
  folder: pathlib.Path, model_dir: pathlib.Path
) -> bucket_mirror.Mirror:
  """Copies the existing metrics to `folder`, and starts mirroring it."""
  metrics_path = model_dir / run_directory.METRICS
  if metrics_path.exists():
    (folder / run_directory.METRICS).write_bytes(metrics_path.read_bytes())
  return bucket_mirror.Mirror(folder, model_dir)


def json_number(value: float | None) -> float | None:
  """Converts a number for JSON: None, infinity and NaN become None.

  JSON cannot represent infinity and NaN.
  """
  return None if value is None or not math.isfinite(value) else float(value)
