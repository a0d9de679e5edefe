"""The interface of metric writers, and the destinations of metrics."""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol

# Values by kind ('train', 'eval' or 'speed') and name.
Metrics = Mapping[str, Mapping[str, float]]
# Function that is called with a step and its metrics.
Report = Callable[[int, Mapping[str, Mapping[str, float]]], Any]


class Destination(enum.Enum):
  """Destinations to which metrics can be written.

  Attributes:
    JSONL: File with JSON lines, which every run writes.
    TENSORBOARD: TensorBoard event files.
    WANDB: A Weights & Biases run.
    MLFLOW: An MLflow run.
    TERMINAL: Log output, with the losses by objective and language.
  """

  JSONL = 'jsonl'
  TENSORBOARD = 'tensorboard'
  WANDB = 'wandb'
  MLFLOW = 'mlflow'
  TERMINAL = 'terminal'


class MetricWriter(Protocol):
  """Interface of an object that writes metrics to one destination."""

  def write(self, step: int, metrics: Metrics) -> None:
    """Writes a step's metrics.

    Steps increase, but may be repeated after a restart.
    """

  def close(self) -> None:
    """Writes the remaining metrics. `write` must not be called afterwards."""


def flatten_metrics(metrics: Metrics) -> dict[str, float]:
  """Flattens {'train': {'loss': 1.0}} to {'train/loss': 1.0}."""
  return {
    f'{kind}/{name}': value
    for kind, values in metrics.items()
    for name, value in values.items()
  }
