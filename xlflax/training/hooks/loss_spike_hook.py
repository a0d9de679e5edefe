"""Guard against loss spikes: skips the update, or rewinds the run."""

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
  options: loss_spike_options.LossSpikes | None, limit: float = math.inf
) -> tuple[np.float32, ...]:
  """Returns the arguments of a step function after state and batches.

  Args:
    options: Options of the guard. If None, there is no guard.
    limit: Largest loss that is not a spike.
  """
  if (
    options is None or options.response is not loss_spike_options.Response.SKIP
  ):
    return ()
  return (np.float32(limit),)


class LossSpikeHook(hook_base.Hook):
  """Detects sudden rises of the loss.

  The losses and limits are equal on all processes and part of every checkpoint,
  so that a resumed run decides as an uninterrupted one does.

  Args:
    options: When a loss is a spike, and the action taken.
  """

  def __init__(self, options: loss_spike_options.LossSpikes):
    self._options = options
    self._losses: dict[str, list[float]] = {}
    self._limits: dict[str, float] = {}
    self._pending: list[tuple[int, str, train_step.StepOutput]] = []
    self._first_spike: int | None = None
    self._rewinds = (-1, 0)  # Step of the checkpoint, number of rewinds to it.

  def limit_of(self, active: tuple[int, ...]) -> float:
    """Returns the largest loss of some entries that is not a spike."""
    return self._limits.get(_key(active), math.inf)

  def wrap_train_step(self, run, train_step, active):
    """See base class. Passes the limit to steps that skip spikes."""
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
    """See base class. A state that a spike has changed is not saved."""
    spike = self.first_spike()
    if spike is not None:
      logging.warning(
        'Loss spike at step %d. Step %d is not saved. The run resumes from '
        'the previous checkpoint.',
        spike,
        run.step,
      )
    return spike is None

  def after_rewind(self, run, from_step):
    """See base class.

    Raises:
      TrainingError: If the run was rewound to one checkpoint too often.
    """
    same = self._rewinds[0] == run.step
    self._rewinds = (run.step, self._rewinds[1] + 1 if same else 1)
    if self._rewinds[1] > self._options.most_rewinds:
      raise errors.TrainingError(
        'The loss spikes again after every rewind',
        got=f'{self._rewinds[1]} spikes after step {run.step}, the last one '
        f'up to step {from_step}',
        where=f'up to step {from_step}',
        fix='lower the learning rate or clip the gradient; '
        'LossSpikes.most_rewinds is the maximum number of rewinds',
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
    """Adds the output of a step, which stays on the devices.

    Args:
      step: Number of the step.
      active: Entries of the mixture that it trained.
      output: Its output.
    """
    self._pending.append((step, _key(active), output._replace(metrics={})))

  def update_limits(self) -> None:
    """Computes the limits from the last losses."""
    self._fetch()
    limits = {k: self._options.limit(v) for k, v in self._losses.items()}
    self._limits = {k: v for k, v in limits.items() if math.isfinite(v)}

  def first_spike(self) -> int | None:
    """Returns the first step since the last rewind that is a spike."""
    self._fetch()
    return self._first_spike

  def _fetch(self) -> None:
    """Adds the losses of the pending steps that are not spikes."""
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
  """Returns the JSON key of a step's entries of the mixture."""
  return ','.join(map(str, active))
