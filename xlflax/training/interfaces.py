"""Interfaces of objects that higher layers pass to training."""

from typing import Any, Protocol

from xlflax.training import train_state


class Evaluation(Protocol):
  """Evaluation during training, such as `evaluation.during_training`."""

  def is_due(self, step: int, last_step: int) -> bool:
    """Returns whether to evaluate after a step.

    Args:
      step: Number of finished steps.
      last_step: Number of steps of the run.
    """

  def run(self, setup: Any, state: train_state.TrainState) -> dict[str, float]:
    """Evaluates a train state.

    Args:
      setup: `xlflax.training.training_setup.Setup` of the run.
      state: Train state.

    Returns:
      Metrics with names such as 'task/metric'.
    """

  def is_better_higher(self, metric: str) -> bool:
    """Returns whether higher values of a metric are better.

    Args:
      metric: Name of the metric, such as 'task/metric'.

    Raises:
      ConfigError: If the direction of the metric is unknown.
    """
