"""What training knows of the rooms above it."""

from collections.abc import Callable
from typing import Any, Protocol

from xlflax.training import state as state_lib


class Evaluation(Protocol):
  """What runs during training, such as `evaluation.during_training`."""

  def is_due(self, step: int, last_step: int) -> bool:
    """Returns whether to evaluate after `step` of `last_step` steps."""

  def run(self, setup: Any, state: state_lib.TrainState) -> dict[str, float]:
    """Evaluates a state.

    Args:
      setup: the run's `xlflax.training.setup.Setup`.
      state: the train state.

    Returns:
      'task/metric' -> number.
    """

  def is_better_higher(self, metric: str) -> bool:
    """Returns whether more of 'task/metric' is better.

    Raises:
      ConfigError: nothing says so.
    """


class Comparison(Protocol):
  """What some steps are compared with, such as `planning.in_run`."""

  def at(self, step: int, output: Any) -> None:
    """Is told that `step` steps were begun, and the last one's output."""

  def take(self) -> dict[str, float]:
    """Returns what was found since the last call, by name."""


# (step -> its kind, jitted function and arguments; seconds waited for batches)
Compares = Callable[[Callable[[int], Any], Callable[[], float]], Comparison]
