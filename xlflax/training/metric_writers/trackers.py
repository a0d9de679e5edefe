"""Metric writers for the experiment trackers Weights & Biases and MLflow.

Both are optional (extras `wandb`, `mlflow`) and are configured by their own
environment variables, such as WANDB_PROJECT, WANDB_MODE, MLFLOW_TRACKING_URI
and MLFLOW_EXPERIMENT_NAME. A resumed run is also resumed in the tracker.
"""

import dataclasses
import importlib
import logging
import os
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

from xlflax.training.metric_writers import metric_writer
from xlflax.utils import errors

_PROJECT = 'xlflax'
_RUN_ID_TAG = 'xlflax.run'  # Tag of MLflow runs with the run id.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
  """Description of a run for an experiment tracker.

  Attributes:
    run_id: Unique id of the run (`run_directory.run_id`).
    name: Display name of the run.
    description: Configuration of the run as plain JSON.
    folder: Local directory for the tracker's files.
  """

  run_id: str
  name: str
  description: dict[str, Any]
  folder: pathlib.Path


class WandbWriter:
  """Metric writer for a Weights & Biases run."""

  def __init__(self, subject: Subject):
    wandb = _import_library('wandb')
    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', _PROJECT),
      id=subject.run_id,
      name=subject.name,
      config=subject.description,
      dir=str(subject.folder),
      resume='allow',
    )
    # W&B requires its own step to increase, but a resumed run repeats steps.
    self._run.define_metric('step')
    self._run.define_metric('*', step_metric='step')

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Logs the step, and scalars whose names have the form 'kind/name'."""
    self._run.log({'step': step, **metric_writer.flatten_metrics(metrics)})

  def close(self) -> None:
    """Marks the run as finished."""
    self._run.finish()


class MlflowWriter:
  """Metric writer for an MLflow run, which is identified by a tag."""

  def __init__(self, subject: Subject):
    mlflow = _import_library('mlflow')
    self._entities = mlflow.entities
    self._client = mlflow.MlflowClient()
    experiment = self._get_or_create_experiment(
      os.environ.get('MLFLOW_EXPERIMENT_NAME', _PROJECT)
    )
    existing_runs = self._client.search_runs(
      [experiment], f"tags.`{_RUN_ID_TAG}` = '{subject.run_id}'"
    )
    if existing_runs:
      self._id = existing_runs[0].info.run_id
      self._client.update_run(self._id, status='RUNNING')
    else:
      run = self._client.create_run(
        experiment, tags={_RUN_ID_TAG: subject.run_id}, run_name=subject.name
      )
      self._id = run.info.run_id
    self._client.log_dict(self._id, subject.description, 'trainer.json')

  def _get_or_create_experiment(self, name: str) -> str:
    """Returns the id of the experiment with this name."""
    experiment = self._client.get_experiment_by_name(name)
    if experiment:
      return experiment.experiment_id
    return self._client.create_experiment(name)

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Logs scalars with names 'kind/name', at most 1,000 in each request."""
    timestamp_ms = int(time.time() * 1000)
    values = [
      self._entities.Metric(
        _mlflow_name(name), float(value), timestamp_ms, step
      )
      for name, value in metric_writer.flatten_metrics(metrics).items()
    ]
    for i in range(0, len(values), 1000):
      self._client.log_batch(self._id, metrics=values[i : i + 1000])

  def close(self) -> None:
    """Marks the run as finished."""
    self._client.set_terminated(self._id)


def _mlflow_name(name: str) -> str:
  """Replaces the characters of a name that MLflow does not allow by '_'."""
  return re.sub(r'[^\w\-./: ]', '_', name)


def _import_library(name: str) -> Any:
  """Imports an optional library.

  Raises:
    ConfigError: If the tracker's library is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.ConfigError(
      f'The package {name} is not installed, but --report_to={name} requires it',
      got=str(error),
      fix=f"Run `pip install '.[{name}]'` in a checkout of xlflax, or remove "
      f'{name} from --report_to.',
    ) from error


KINDS: dict[
  metric_writer.Destination, Callable[[Subject], metric_writer.MetricWriter]
] = {
  metric_writer.Destination.WANDB: WandbWriter,
  metric_writer.Destination.MLFLOW: MlflowWriter,
}


def open_tracker(
  destination: metric_writer.Destination, subject: Subject, *, first_time: bool
) -> metric_writer.MetricWriter | None:
  """Opens an experiment tracker. Returns None if this fails for a resumed run.

  Args:
    destination: Tracker to open, WANDB or MLFLOW.
    subject: Run whose metrics are written.
    first_time: Whether the run is started rather than resumed. A failure then
      raises an error. For a resumed run, it is logged as a warning.

  Raises:
    ConfigError: If the library is not installed, or it fails when the run
      starts.
  """
  try:
    return KINDS[destination](subject)
  except errors.XlflaxError:
    raise
  except Exception as error:
    if first_time:
      reason = f'{type(error).__name__}: {error}'
      raise errors.ConfigError(
        f'The flag --report_to={destination.value} is set, but a run could not '
        'be opened in this tracker',
        got=reason,
        fix='Log in to the tracker, and check its environment variables and '
        'the network. To use wandb without a login or a network '
        'connection, set WANDB_MODE=offline.',
      ) from error
    logging.warning(
      'Opening a run in %s failed (%s: %s). Training continues without it.',
      destination.value,
      type(error).__name__,
      error,
    )
    return None
