"""What training knows of the rooms above it."""

from typing import Any, Protocol

from xlflax.training import train_state


class Evaluation(Protocol):
  """What runs during training, such as `evaluation.during_training`."""

  def is_due(self, step: int, last_step: int) -> bool:
    """Returns whether to evaluate after `step` of `last_step` steps."""

  def run(self, setup: Any, state: train_state.TrainState) -> dict[str, float]:
    """Evaluates a state.

    Args:
      setup: the run's `xlflax.training.training_setup.Setup`.
      state: the train state.

    Returns:
      'task/metric' -> number.
    """

  def is_better_higher(self, metric: str) -> bool:
    """Returns whether more of 'task/metric' is better.

    Raises:
      ConfigError: nothing says so.
    """
