"""Hook that traces some steps with JAX's profiler."""

import dataclasses
import logging
import pathlib
import re
from typing import Any, Self

import jax

from xlflax.training.hooks import hook_base
from xlflax.utils import errors

DIRECTORY = 'profile'
MEMORY = 'memory.prof'
_LOCATION = 'Trainer.profile_steps'  # The gin-configured field.


@dataclasses.dataclass(frozen=True)
class Steps:
  """Range of steps to trace: from `first` + 1 to `last`, inclusive."""

  first: int
  last: int

  @classmethod
  def of(cls, text: str | None) -> Self | None:
    """Parses a range 'FIRST:LAST'. Returns None if the text is None.

    Raises:
      ConfigError: If the text is not a valid range.
    """
    if text is None:
      return None
    match = re.fullmatch(r'(\d+):(\d+)', text)
    if not match or not int(match[1]) < int(match[2]):
      raise errors.ConfigError(
        '`profile_steps` must be a range FIRST:LAST with FIRST < LAST, such as '
        '100:105',
        got=text,
        where=_LOCATION,
      )
    return cls(int(match[1]), int(match[2]))


class ProfilerHook(hook_base.Hook):
  """Hook that traces a range of training steps with JAX's profiler.

  Args:
    steps: Range of steps to trace.
    directory: Run directory. The trace is written to its subdirectory
      `profile/`, which `tensorboard --logdir` and ui.perfetto.dev can read.
    memory: Whether to also profile the memory of the devices after the last
      traced step.
  """

  def __init__(
    self, steps: Steps, directory: pathlib.Path, *, memory: bool = False
  ):
    self._steps: Steps | None = steps
    self._directory = directory / DIRECTORY
    self._memory = memory
    self._is_tracing = False

  def before_training(self, run):
    """See base class."""
    self.start(run.step)

  def after_step(self, run, step, output):
    """See base class."""
    self.stop(step, output)
    if step < run.trainer.last_step:
      self.start(step)

  def after_training(self, run):
    """See base class."""
    self.close()

  def start(self, step: int) -> None:
    """Starts the trace if the step after `step` is the first one to trace."""
    if self._steps and step > self._steps.first and not self._is_tracing:
      logging.warning(
        'Not tracing the steps %s, because the run resumes at step %s.',
        f'{self._steps.first:,} to {self._steps.last:,}',
        f'{step:,}',
      )
      self._steps = None
    if self._steps and step == self._steps.first:
      jax.profiler.start_trace(str(self._directory))
      self._is_tracing = True

  def stop(self, step: int, output: Any) -> None:
    """Stops the trace after the devices have finished the last traced step."""
    if self._is_tracing and self._steps and step == self._steps.last:
      jax.block_until_ready(output)
      self.close()
      if self._memory:
        self._directory.mkdir(parents=True, exist_ok=True)
        jax.profiler.save_device_memory_profile(
          str(self._directory / f'{MEMORY}.{jax.process_index()}')
        )

  def close(self) -> None:
    """Stops the trace if it is active."""
    if self._is_tracing:
      self._is_tracing, self._steps = False, None
      jax.profiler.stop_trace()
      logging.info('Wrote the profiler trace to %s.', self._directory)
