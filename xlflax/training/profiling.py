"""Traces of a few steps, for TensorBoard and Perfetto."""

import dataclasses
import logging
import pathlib
import re
from typing import Any, Self

import jax

from xlflax.foundation import errors

DIRECTORY = 'profile'
MEMORY = 'memory.prof'


@dataclasses.dataclass(frozen=True)
class Steps:
  """The steps after `first`, up to and with `last`."""

  first: int
  last: int

  @classmethod
  def of(cls, text: str | None) -> Self | None:
    """Reads 'FIRST:LAST'; None without.

    Raises:
      ConfigError: it is something else.
    """
    if text is None:
      return None
    match = re.fullmatch(r'(\d+):(\d+)', text)
    if not match or not int(match[1]) < int(match[2]):
      raise errors.ConfigError(
        'The steps of a profile are not usable',
        got=text,
        expected='FIRST:LAST, such as 100:105, with FIRST below LAST',
        where='Trainer.profile_steps',
      )
    return cls(int(match[1]), int(match[2]))


class Profiler:
  """Traces some steps of a run; does nothing without any.

  Args:
    steps: which; None for none.
    directory: of the run; the trace goes to its `profile/`, where
      `tensorboard --logdir` and ui.perfetto.dev read it.
    memory: whether to write a profile of the devices' memory too, after the
      last traced step.
  """

  def __init__(
    self, steps: Steps | None, directory: pathlib.Path, *, memory: bool = False
  ):
    self._steps = steps
    self._directory = directory / DIRECTORY
    self._memory = memory
    self._running = False

  def before(self, step: int) -> None:
    """Begins the trace where `step` steps are done and the next is traced."""
    if self._steps and step > self._steps.first and not self._running:
      logging.warning(
        'There is no trace of steps %s: the run goes on at step %s.',
        f'{self._steps.first:,} to {self._steps.last:,}',
        f'{step:,}',
      )
      self._steps = None
    if self._steps and step == self._steps.first:
      jax.profiler.start_trace(str(self._directory))
      self._running = True

  def after(self, step: int, output: Any) -> None:
    """Ends the trace after the last step, whose output is waited for."""
    if self._running and self._steps and step == self._steps.last:
      jax.block_until_ready(output)
      self.close()
      if self._memory:
        self._directory.mkdir(parents=True, exist_ok=True)
        jax.profiler.save_device_memory_profile(
          str(self._directory / f'{MEMORY}.{jax.process_index()}')
        )

  def close(self) -> None:
    """Ends a trace that a stop cut."""
    if self._running:
      self._running, self._steps = False, None
      jax.profiler.stop_trace()
      logging.info('Wrote the trace of the steps to %s.', self._directory)
