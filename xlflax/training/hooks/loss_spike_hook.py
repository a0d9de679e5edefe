"""Hook that skips updates or rewinds the run after loss spikes."""

import logging
import math
from typing import Any

import jax
import numpy as np

from xlflax.training import train_step
from xlflax.training.hooks import hook_base
from xlflax.training.optimization import loss_spike_options
from xlflax.utils import errors


def step_arguments(
  options: loss_spike_options.LossSpikeGuard | None, limit: float = math.inf
) -> tuple[np.float32, ...]:
  """Returns the step function's additional arguments for the spike guard.

  Args:
    options: Options of the loss-spike guard. If None, there is no guard.
    limit: Largest loss that does not count as a spike.
  """
  if (
    options is None or options.action is not loss_spike_options.SpikeAction.SKIP
  ):
    return ()
  return (np.float32(limit),)


class LossSpikeHook(hook_base.Hook):
  """Hook that skips updates or rewinds the run after sudden rises of the loss.

  The losses and limits are equal on all processes and are saved in all
  checkpoints. A resumed run therefore takes the same decisions as an
  uninterrupted run.

  Args:
    options: Options that define a spike and the action taken.
  """

  def __init__(self, options: loss_spike_options.LossSpikeGuard):
    self._options = options
    self._losses: dict[str, list[float]] = {}
    self._limits: dict[str, float] = {}
    self._pending: list[tuple[int, str, train_step.StepOutput]] = []
    self._first_spike: int | None = None
    # Step of the checkpoint, and number of rewinds to it.
    self._rewinds = (-1, 0)

  def limit_of(self, active: tuple[int, ...]) -> float:
    """Returns the loss above which a step with these objectives is a spike."""
    return self._limits.get(_key(active), math.inf)

  def wrap_train_step(self, run, train_step, active):
    """See base class. Passes the loss limit to steps that skip loss spikes."""
    del run
    arguments = step_arguments(self._options, self.limit_of(active))
    if not arguments:
      return train_step
    return lambda state, batches: train_step(state, batches, *arguments)

  def after_step(self, run, step, output):
    """See base class."""
    self.add(step, run.trainer.objectives.active(step - 1), output)
    if not run.is_output_step():
      return None
    run.wait_for_steps()
    spike = self.first_spike()
    if spike is not None:
      return hook_base.Request(
        rewind=True, reason=f'Loss spike at step {spike}.'
      )
    if run.is_report_step:
      self.update_limits()
    return None

  def before_checkpoint(self, run):
    """See base class. After a loss spike, the state is not saved."""
    spike = self.first_spike()
    if spike is not None:
      logging.warning(
        'Loss spike at step %d. Skipping the checkpoint of step %d. A resumed '
        'run will start from the previous checkpoint.',
        spike,
        run.step,
      )
    return spike is None

  def after_rewind(self, run, from_step):
    """See base class.

    Raises:
      TrainingError: If the number of rewinds to one checkpoint exceeds the
        limit.
    """
    last_step, num_rewinds = self._rewinds
    num_rewinds = num_rewinds + 1 if last_step == run.step else 1
    self._rewinds = (run.step, num_rewinds)
    if num_rewinds > self._options.max_rewinds:
      raise errors.TrainingError(
        'The loss spikes after every rewind to the checkpoint of step '
        f'{run.step}. It has spiked {num_rewinds} times, most recently at or '
        f'before step {from_step}',
        fix='Lower the learning rate, clip the gradient, or increase '
        'LossSpikeGuard.max_rewinds.',
      )

  def state_dict(self) -> dict[str, Any]:
    """See base class."""
    self._fetch()
    return {'losses': self._losses, 'limits': self._limits}

  def load_state_dict(self, state):
    """See base class."""
    self._losses = {k: list(v) for k, v in state['losses'].items()}
    self._limits = dict(state['limits'])
    self._pending, self._first_spike = [], None

  def add(
    self, step: int, active: tuple[int, ...], output: train_step.StepOutput
  ) -> None:
    """Records a step's output without copying it to the host.

    Args:
      step: Number of the step.
      active: Objectives that the step trained, as indices into the objective
        mixture.
      output: Loss and metrics of the step.
    """
    self._pending.append((step, _key(active), output._replace(metrics={})))

  def update_limits(self) -> None:
    """Recomputes the loss limits from the most recent losses."""
    self._fetch()
    limits = {k: self._options.limit(v) for k, v in self._losses.items()}
    self._limits = {k: v for k, v in limits.items() if math.isfinite(v)}

  def first_spike(self) -> int | None:
    """Returns the step of the first spike since the last rewind, or None."""
    self._fetch()
    return self._first_spike

  def _fetch(self) -> None:
    """Fetches the losses of pending steps and stores those without a spike."""
    pending, self._pending = self._pending, []
    outputs = jax.device_get([output for _, _, output in pending])
    for (step, key, _), output in zip(pending, outputs, strict=True):
      loss = float(output.loss)
      if not output.finite:
        continue
      if loss > self._limits.get(key, math.inf):
        if self._first_spike is None:
          self._first_spike = step
        continue
      losses = [*self._losses.get(key, []), loss]
      self._losses[key] = losses[-self._options.window :]


def _key(active: tuple[int, ...]) -> str:
  """Returns the JSON key for a combination of active objectives."""
  return ','.join(map(str, active))
