"""Accumulation of training metrics between reports.

Steps pass small device arrays to the accumulator. They are fetched only when a
report or a checkpoint needs them, so that the host does not wait for a step in
between.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from xlflax.training import train_step


@dataclasses.dataclass
class Sums:
  """Sums of metrics over steps, stored on the host in float64.

  Attributes:
    steps: Number of steps whose outputs have been added to the sums.
    skipped: Number of steps that were skipped because the loss or the gradient
      was not finite.
    spikes: Number of steps that were skipped because their loss spiked.
    streak: Number of consecutive skipped steps up to the last step, including
      those before the last report.
    unsound: Number of steps whose update left non-finite values in a parameter.
    loss: Mean loss of the steps that were not skipped.
    grad_norm: Mean gradient norm of the steps that were not skipped.
    tokens: Number of tokens in the steps that were not skipped.
    metrics: Mapping from metric names to pairs (total, weight) of arrays. The
      value of a metric is total / weight.
  """

  steps: int = 0
  skipped: int = 0
  spikes: int = 0
  streak: int = 0
  unsound: int = 0
  loss: float = float('nan')
  grad_norm: float = float('nan')
  tokens: float = 0.0
  metrics: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(
    default_factory=dict
  )


class MetricAccumulator:
  """Accumulator of losses and metrics over steps, saved in checkpoints."""

  def __init__(self):
    self._streak = self._unsound = 0
    self._clear()

  def _clear(self) -> None:
    """Resets the sums, except the number of consecutive skipped steps."""
    self._pending: list[train_step.StepOutput] = []
    self._steps = 0
    self._scalars = {
      'finite': 0.0,
      'spikes': 0.0,
      'loss': 0.0,
      'grad_norm': 0.0,
      'tokens': 0.0,
    }
    self._metrics: dict[str, tuple[np.ndarray, np.ndarray]] = {}

  def add(self, output: train_step.StepOutput) -> None:
    """Accumulates the output of a step without transferring it to the host."""
    self._pending.append(output)
    self._steps += 1

  def peek(self) -> Sums:
    """Returns the accumulated metrics without resetting the accumulator."""
    self._fetch()
    finite = self._scalars['finite']

    def mean(name):
      return self._scalars[name] / finite if finite else float('nan')

    return Sums(
      steps=self._steps,
      skipped=self._steps - int(finite) - int(self._scalars['spikes']),
      spikes=int(self._scalars['spikes']),
      streak=self._streak,
      unsound=self._unsound,
      loss=mean('loss'),
      grad_norm=mean('grad_norm'),
      tokens=self._scalars['tokens'],
      metrics=dict(self._metrics),
    )

  def take(self) -> Sums:
    """Returns the accumulated metrics and resets the accumulator."""
    sums = self.peek()
    self._clear()
    return sums

  def to_json(self) -> dict[str, Any]:
    """Converts the accumulator's state to plain JSON, without rounding sums."""
    self._fetch()
    return {
      'steps': self._steps,
      'streak': self._streak,
      'scalars': dict(self._scalars),
      'metrics': {
        k: [np.asarray(v).tolist() for v in pair]
        for k, pair in self._metrics.items()
      },
    }

  @classmethod
  def from_json(cls, value: dict[str, Any]) -> 'MetricAccumulator':
    """Restores an accumulator from the result of `to_json`."""
    accumulator = cls()
    accumulator._steps = value['steps']
    accumulator._streak = value['streak']
    accumulator._scalars = dict(value['scalars'])
    accumulator._metrics = {
      k: (np.asarray(pair[0], np.float64), np.asarray(pair[1], np.float64))
      for k, pair in value['metrics'].items()
    }
    return accumulator

  def _fetch(self) -> None:
    """Fetches the pending outputs and adds them to the sums."""
    outputs, self._pending = jax.device_get(self._pending), []
    for output in outputs:
      self._scalars['tokens'] += float(output.tokens)
      if not output.finite:
        # A step that is finite but was not applied is a loss spike.
        self._streak += 1
        is_spike = np.isfinite(output.loss) and np.isfinite(output.grad_norm)
        self._scalars['spikes'] += float(is_spike)
        continue
      self._streak = 0
      self._unsound += not np.isfinite(output.param_norm)
      self._scalars['finite'] += 1.0
      self._scalars['loss'] += float(output.loss)
      self._scalars['grad_norm'] += float(output.grad_norm)
      for name, value in output.metrics.items():
        total, weight = self._metrics.get(name, (0.0, 0.0))
        self._metrics[name] = (
          total + np.asarray(value.total, np.float64),
          weight + np.asarray(value.weight, np.float64),
        )
