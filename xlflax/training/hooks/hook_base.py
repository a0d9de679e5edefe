"""The interface of hooks, which are called by the training loop."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xlflax.utils import validation

if TYPE_CHECKING:
  from xlflax.training import train_step, training_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
  """An action that a hook requests from the training loop.

  The loop executes the requests of a step after all hooks have been called. A
  rewind is executed first and cancels the other requests of the step.

  Attributes:
    save: Whether to save a checkpoint.
    metrics: Evaluation metrics to store with the saved checkpoint, by name.
    stop: Whether to save a checkpoint and end training.
    rewind: Whether to restore the last checkpoint and skip the batches that
      were read after it was written.
    reason: Reason for the rewind, which is logged.
    error: Exception to raise after the checkpoint is saved.
  """

  save: bool = False
  metrics: Mapping[str, float] | None = None
  stop: bool = False
  rewind: bool = False
  reason: str = ''
  error: Exception | None = None


class Hook(validation.ValidatedFields):
  """Base class of hooks.

  All methods are optional. In a job with several processes, all processes call
  the same hooks at the same steps, and their requests must be equal. The
  argument `run` is the `TrainingRun`, which provides its step, state, setup and
  `write_metrics`.
  """

  @property
  def state_key(self) -> str:
    """Key of this hook's state in checkpoints, unique among all hooks."""
    return type(self).__name__

  def running(
    self, run: 'training_run.TrainingRun'
  ) -> contextlib.AbstractContextManager[Any]:
    """Returns a context manager in which the run is restored and trained.

    Args:
      run: Run whose state is not restored yet.
    """
    del run
    return contextlib.nullcontext()

  def before_training(self, run: 'training_run.TrainingRun') -> Request | None:
    """Reacts to the start of training, with an initialized train state."""

  def wrap_train_step(
    self,
    run: 'training_run.TrainingRun',
    train_step: Callable[..., Any],
    active: tuple[int, ...],
  ) -> Callable[..., Any]:
    """Returns the step function for the next step, or a wrapper of it.

    Args:
      run: The run, whose state does not yet include the step.
      train_step: Compiled step function, which earlier hooks may have wrapped.
      active: Objectives that the step trains, as indices into the objective
        mixture.
    """
    del run, active
    return train_step

  def after_step(
    self,
    run: 'training_run.TrainingRun',
    step: int,
    output: 'train_step.StepOutput',
  ) -> Request | None:
    """Reacts to a training step that has been dispatched to the devices.

    Reading `output` or `run.state` waits for the devices. The next step reuses
    the memory of `run.state`, so references to its arrays must not be stored.

    Args:
      run: Training run, whose state already includes the update of this step.
      step: Number of completed steps.
      output: Loss and metrics of the step, as arrays on the devices.
    """

  def before_checkpoint(self, run: 'training_run.TrainingRun') -> bool:
    """Returns True if the train state after this step may be saved.

    If the result is False, the checkpoint is not written. Other values, such as
    None, raise an error.
    """
    del run
    return True

  def after_checkpoint(
    self, run: 'training_run.TrainingRun', step: int
  ) -> None:
    """Reacts to a checkpoint that was passed to the background writer.

    Args:
      run: Run whose state is saved.
      step: Step of the checkpoint.
    """

  def after_rewind(
    self, run: 'training_run.TrainingRun', from_step: int
  ) -> None:
    """Reacts to a rewind, after an earlier checkpoint was restored.

    Args:
      run: Run whose state was restored from the checkpoint.
      from_step: Step at which the rewind was requested.
    """

  def after_training(self, run: 'training_run.TrainingRun') -> None:
    """Reacts to the end of training, even after an error."""

  def state_dict(self) -> dict[str, Any] | None:
    """Returns the hook's state for the next checkpoint, as plain JSON.

    Scalars of JAX, and those of NumPy other than float64, raise an error.
    Convert them with `float` or `int`.
    The method is also called before training, to save the initial state. If
    None, the hook has no state. Only the state of the first process is
    saved.
    """
    return None

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores the hook's state from the result of `state_dict`.

    The method is called on resumption, before `before_training`, and on a
    rewind. After a rewind to the start of training, the argument is the initial
    state.

    Args:
      state: State of the hook in the checkpoint.
    """
