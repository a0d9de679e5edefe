"""Weights & Biases and MLflow as writers of metrics.

Both are optional (extras `wandb`, `mlflow`) and configured by their own
variables: WANDB_PROJECT, WANDB_MODE and so on, MLFLOW_TRACKING_URI and
MLFLOW_EXPERIMENT_NAME. A run that is continued goes on as the same run there.
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
_TAG = 'xlflax.run'  # of MLflow's run: the id of the run here


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
  """The run whose metrics are written.

  Attributes:
    run_id: what tells it from others (`run_directory.run_id`).
    name: for people.
    description: of its settings, as plain JSON.
    folder: a directory on disk for the tracker's own files.
  """

  run_id: str
  name: str
  description: dict[str, Any]
  folder: pathlib.Path


class WandbWriter:
  """A run of Weights & Biases."""

  def __init__(self, subject: Subject):
    wandb = _library('wandb')
    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', _PROJECT),
      id=subject.run_id,
      name=subject.name,
      config=subject.description,
      dir=str(subject.folder),
      resume='allow',
    )
    # Its own count may not fall, as it does after the loss of some steps.
    self._run.define_metric('step')
    self._run.define_metric('*', step_metric='step')

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Logs scalars by 'kind/name' and the step."""
    self._run.log({'step': step, **metric_writer.flatten_metrics(metrics)})

  def close(self) -> None:
    """Ends the run there."""
    self._run.finish()


class MlflowWriter:
  """A run of MLflow, found again by a tag."""

  def __init__(self, subject: Subject):
    mlflow = _library('mlflow')
    self._entities = mlflow.entities
    self._client = mlflow.MlflowClient()
    experiment = self._experiment(
      os.environ.get('MLFLOW_EXPERIMENT_NAME', _PROJECT)
    )
    existing_runs = self._client.search_runs(
      [experiment], f"tags.`{_TAG}` = '{subject.run_id}'"
    )
    if existing_runs:
      self._id = existing_runs[0].info.run_id
      self._client.update_run(self._id, status='RUNNING')
    else:
      run = self._client.create_run(
        experiment, tags={_TAG: subject.run_id}, run_name=subject.name
      )
      self._id = run.info.run_id
    self._client.log_dict(self._id, subject.description, 'trainer.json')

  def _experiment(self, name: str) -> str:
    experiment = self._client.get_experiment_by_name(name)
    return (
      experiment.experiment_id
      if experiment
      else self._client.create_experiment(name)
    )

  def write(self, step: int, metrics: metric_writer.Metrics) -> None:
    """Logs scalars by 'kind/name', at a thousand to a call."""
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
    """Ends the run there."""
    self._client.set_terminated(self._id)


def _mlflow_name(name: str) -> str:
  """MLflow takes letters, digits and _-./: and spaces."""
  return re.sub(r'[^\w\-./: ]', '_', name)


def _library(name: str) -> Any:
  """An optional library.

  Raises:
    ConfigError: it is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.ConfigError(
      f'{name} is not installed',
      got=str(error),
      where=f'--report_to={name}',
      fix=f"pip install '.[{name}]' in a checkout of xlflax, or leave it out",
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
  """Opens a tracker; None where a continued run finds it out of order.

  Args:
    destination: WANDB or MLFLOW.
    subject: the run.
    first_time: whether the run starts; then what is wrong is an error, as
      somebody is there to mend it.

  Raises:
    ConfigError: the library is not installed, or refuses the run.
  """
  try:
    return KINDS[destination](subject)
  except errors.XlflaxError:
    raise
  except Exception as error:
    if first_time:
      raise errors.ConfigError(
        f'{destination.value} cannot be used',
        got=f'{type(error).__name__}: {error}',
        where=f'--report_to={destination.value}',
        fix='log in there, or look at its variables and the network; '
        'WANDB_MODE=offline needs none',
      ) from error
    logging.warning(
      '%s cannot be used (%s: %s); training goes on without it.',
      destination.value,
      type(error).__name__,
      error,
    )
    return None
