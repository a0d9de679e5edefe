"""Interfaces of objects that higher layers of xlflax pass to training."""

from typing import Any, Protocol

from xlflax.training import train_state


class Evaluation(Protocol):
  """Interface for evaluation during training (see
  `evaluation.during_training`).
  """

  def is_due(self, step: int, last_step: int) -> bool:
    """Returns whether to evaluate the model after a step.

    Args:
      step: Number of completed steps.
      last_step: Total number of steps in the run.
    """

  def run(self, setup: Any, state: train_state.TrainState) -> dict[str, float]:
    """Evaluates the parameters in a train state.

    Args:
      setup: `xlflax.training.training_setup.Setup` of the run.
      state: Train state to evaluate.

    Returns:
      Metrics with names such as 'task/metric'.
    """

  def is_better_higher(self, metric: str) -> bool:
    """Returns whether higher values of a metric indicate a better model.

    Args:
      metric: Name of the metric, such as 'task/metric'.

    Raises:
      ConfigError: If it is not defined whether higher values of the metric are
        better.
    """
