"""The interface of metric writers, and their destinations."""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol

# Values by kind ('train', 'eval' or 'speed') and name.
Metrics = Mapping[str, Mapping[str, float]]
# Function that is called with a step and its metrics.
Report = Callable[[int, Mapping[str, Mapping[str, float]]], Any]


class Destination(enum.Enum):
  """Destinations of metrics.

  Attributes:
    JSONL: Lines of JSON, which every run writes.
    TENSORBOARD: Event files of TensorBoard.
    WANDB: Weights & Biases.
    MLFLOW: MLflow.
    TERMINAL: Losses by objective and language, in the log.
  """

  JSONL = 'jsonl'
  TENSORBOARD = 'tensorboard'
  WANDB = 'wandb'
  MLFLOW = 'mlflow'
  TERMINAL = 'terminal'


class MetricWriter(Protocol):
  """A destination that metrics can be written to."""

  def write(self, step: int, metrics: Metrics) -> None:
    """Writes the metrics of a step.

    Steps increase, but may be repeated after a restart.
    """

  def close(self) -> None:
    """Writes the remaining metrics. `write` must not be called afterwards."""


def flatten_metrics(metrics: Metrics) -> dict[str, float]:
  """Joins kinds and names: {'train': {'loss': 1.0}} to {'train/loss': 1.0}."""
  return {
    f'{kind}/{name}': value
    for kind, values in metrics.items()
    for name, value in values.items()
  }
