"""What a writer of metrics is, and which there are."""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol

# 'train', 'eval' or 'speed' -> name -> number.
Metrics = Mapping[str, Mapping[str, float]]
# What is called with a step and its metrics.
Report = Callable[[int, Mapping[str, Mapping[str, float]]], Any]


class Destination(enum.Enum):
  """Where metrics go; lines of JSON are part of every run."""

  JSONL = 'jsonl'
  TENSORBOARD = 'tensorboard'
  WANDB = 'wandb'  # Weights & Biases
  MLFLOW = 'mlflow'
  TERMINAL = 'terminal'  # losses by objective and language, in the log


class MetricWriter(Protocol):
  """Something that metrics are written to."""

  def write(self, step: int, metrics: Metrics) -> None:
    """Takes the metrics of a step; steps rise, and may come twice after a
    restart."""

  def close(self) -> None:
    """Writes what is left; nothing is written afterwards."""


def flatten_metrics(metrics: Metrics) -> dict[str, float]:
  """{'train': {'loss': 1.0}} -> {'train/loss': 1.0}."""
  return {
    f'{kind}/{name}': value
    for kind, values in metrics.items()
    for name, value in values.items()
  }
