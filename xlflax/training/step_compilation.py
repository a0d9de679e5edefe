"""Compilation of step functions while the state is being restored."""

import contextvars
import threading
from typing import Any

import jax

from xlflax.training import training_setup
from xlflax.training.hooks import loss_spike_hook
from xlflax.utils import process_exit


class StepCompiler:
  """Compiler of a run's step functions.

  The first step is compiled in a thread while the main thread initializes or
  restores the state, because XLA compiles without holding Python's lock. The
  training loop then finds the program in JAX's cache. On GPUs, the first step
  is compiled in the main thread, because XLA times kernels during compilation.
  Jobs with several processes compile together and also use the main thread.

  The compiler is a context manager. On exit, it joins the thread, or leaves it
  to the shutdown of a command.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    first: Step from which the run is expected to start or resume.
  """

  def __init__(self, setup: training_setup.Setup, first: int):
    self._steps: dict[tuple[int, ...], Any] = {}
    self._setup = setup
    self._active = setup.settings.objectives.active(first)
    self.step = setup.jitted_step(self._active)
    self._error: BaseException | None = None
    self._lowered = threading.Event()
    context = contextvars.copy_context()
    self._thread = threading.Thread(
      target=context.run, args=(self._compile,), name='compiling', daemon=True
    )
    self._uses_thread = (
      first < setup.settings.last_step
      and jax.process_count() == 1
      and jax.default_backend() != 'gpu'
    )

  def __enter__(self) -> 'StepCompiler':
    if self._uses_thread:
      self._thread.start()
    return self

  def __exit__(self, *error) -> None:
    if not self._thread.is_alive():
      return
    # The run was stopped before the first step.
    if process_exit.is_command():
      process_exit.abandon_thread(self._thread)
    else:
      self._thread.join()

  def wait_lowered(self) -> None:
    """Waits until the background thread has traced the first step.

    XLA then compiles the step in the thread, which is not waited for. Tracing
    another program earlier would delay the compilation, because both traces
    hold Python's lock.
    """
    if self._uses_thread:
      self._lowered.wait()

  def is_compiled(self, active: tuple[int, ...]) -> bool:
    """Returns whether the step function of the given objectives is compiled."""
    return active in self._steps

  def step_of(self, active: tuple[int, ...]):
    """Returns the compiled step function for the given objectives.

    Args:
      active: Objectives that the step trains, as indices into the objective
        mixture.

    Raises:
      Exception: If the compilation failed.
    """
    if active not in self._steps:
      self._steps[active] = self._first_step(active)
    return self._steps[active]

  def _first_step(self, active: tuple[int, ...]):
    """Returns the step function of active objectives before its first call."""
    if active != self._active:
      return self._setup.jitted_step(active)
    if self._uses_thread:
      self._thread.join()
    if self._error is not None:
      raise self._error
    return self.step

  def _compile(self) -> None:
    """Compiles the first step in the background thread."""
    try:
      with self._setup.settings.partitioner.scope():
        batches = self._setup.abstract_batches(self._active)
        state = self._setup.factory.abstract_sharded
        limits = loss_spike_hook.step_arguments(
          self._setup.settings.loss_spike_guard
        )
        lowered = self.step.lower(state, batches, *limits)
        self._lowered.set()
        lowered.compile()
    except BaseException as error:  # noqa: BLE001, raised by `step_of`
      self._error = error
    finally:
      self._lowered.set()
