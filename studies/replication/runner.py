"""Execution of training runs, with compiled steps reused across seeds.

For the study's small runs, compilation takes as much time as training. A
program is therefore compiled only once for all trainers that differ only in the
seed, the directory and the initial parameters. The seed is an argument of the
step that `TrainStepBuilder` builds, and one call runs several steps.
"""

import copy
import dataclasses
import functools
import json
import math
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from xlflax.storage import paths
from xlflax.trainer import Trainer
from xlflax.training import train_state, training_setup
from xlflax.training.checkpointing import (
  checkpoints,
  config_serialization,
  run_directory,
)
from xlflax.training.devices import mmap_limit
from xlflax.utils import errors

# Steps per call, if all steps train the same entries of the mixture.
_STEPS_PER_CALL = 10


class TrainedRun(NamedTuple):
  """A finished training run.

  Attributes:
    setup: Training setup with the model, vocabulary and objectives.
    state: Training state after the last step.
    losses: Pairs of a step and the mean loss over the steps since the previous
      pair.
  """

  setup: training_setup.Setup
  state: train_state.TrainState
  losses: tuple[tuple[int, float], ...]


class Runner:
  """Executor of training runs that reuses compiled steps across seeds."""

  def __init__(self):
    self._setups: dict[str, training_setup.Setup] = {}
    self._steps: dict[Any, Any] = {}

  def train(
    self, trainer: Trainer, *, model_params=None, untrained: bool = False
  ) -> TrainedRun:
    """Initializes a model and trains it for the trainer's `num_train_steps`.

    Args:
      trainer: Configuration of the run. Nothing is written to its model
        directory (see `save_run`).
      model_params: Initial parameters of the model. If None, the trainer's own
        initialization is used.
      untrained: Whether to return the initial training state without training.

    Raises:
      TrainingError: If a loss or gradient is not finite.
      XlflaxError: If the settings or the data are invalid.
    """
    self._free_programs_if_scarce()
    setup = self._get_setup(trainer)
    state = setup.initial_state()
    if model_params is not None:
      # The compiled steps donate the state.
      copied_params = jax.tree.map(jax.numpy.copy, model_params)
      state = state.replace(params={**state.params, 'model': copied_params})
    if untrained:
      return TrainedRun(setup, state, ())

    loaders = setup.open_loaders()
    losses = []
    steps_per_call = self._steps_per_call(setup)
    try:
      for step in range(0, trainer.num_train_steps or 0, steps_per_call):
        state, step_losses = self._run_steps(
          setup, loaders, state, step, steps_per_call
        )
        mean_loss = _finite_mean(step_losses, trainer, step)
        losses.append((step + steps_per_call, mean_loss))
    finally:
      for loader in loaders.values():
        loader.close()
    return TrainedRun(setup, state, tuple(losses))

  def _free_programs_if_scarce(self) -> None:
    """Frees all compiled programs if most memory maps are in use."""
    if mmap_limit.is_scarce():
      self._setups.clear()
      self._steps.clear()
      mmap_limit.free_programs_if_scarce()

  def _get_setup(self, trainer: Trainer) -> training_setup.Setup:
    """Returns a copy of the cached setup with the trainer's own settings."""
    shared_trainer = dataclasses.replace(
      trainer, seed=0, model_dir='unused', init_from=None
    )
    key = json.dumps(
      [config_serialization.to_json_config(shared_trainer), trainer.cache_dir],
      sort_keys=True,
    )
    if key not in self._setups:
      self._setups[key] = training_setup.Setup(shared_trainer)
    setup = copy.copy(self._setups[key])
    setup.settings = dataclasses.replace(
      setup.settings,
      seed=trainer.seed,
      model_dir=trainer.model_dir,
      init_from=trainer.init_from,
    )
    return setup

  def _steps_per_call(self, setup: training_setup.Setup) -> int:
    """Returns the number of steps per call, which divides the total number."""
    if len(setup.settings.objectives.groups) > 1:
      return 1
    return math.gcd(_STEPS_PER_CALL, setup.settings.steps)

  def _run_steps(
    self, setup: training_setup.Setup, loaders, state, first_step, count
  ):
    """Runs `count` steps and returns the new state and the losses [count]."""
    mixture = setup.settings.objectives
    active = mixture.active(first_step)
    batches = {
      name: _stack_batches(
        [
          loaders[name].rows(
            mixture.dataset_step(name, step), 0, setup.dataset(name).batch_size
          )
          for step in range(first_step, first_step + count)
        ]
      )
      for name in setup.datasets_of(active)
    }
    # The key is equal for other seeds and other text. Shardings are determined
    # by the other fields.
    key = setup.steps._replace(seed=0, shardings=None), active
    if key not in self._steps:
      self._steps[key] = jax.jit(
        functools.partial(_scan_steps, setup.steps, active), donate_argnums=0
      )
    with setup.settings.partitioner.scope():
      return self._steps[key](state, batches, setup.settings.seed)


def save_run(run: TrainedRun, vocabulary) -> str:
  """Writes a run's model directory, which can initialize other runs.

  If the directory exists, it is replaced.

  Args:
    run: Finished run.
    vocabulary: Directory of the vocabulary.

  Returns:
    The run's directory.
  """
  setup = run.setup
  directory = pathlib.Path(setup.settings.model_dir)
  # An existing directory has other settings or is incomplete.
  if directory.exists():
    paths.remove_directory(directory)
  directory.mkdir(parents=True, exist_ok=True)
  run_directory.write_model(directory, setup.model, vocabulary=setup.vocabulary)
  run_directory.copy_vocabulary(pathlib.Path(vocabulary), directory)
  saved_checkpoints = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  saved_checkpoints.save(run.state, {'seed': setup.settings.seed})
  saved_checkpoints.close()
  return str(directory)


def _scan_steps(builder, active, state, batches, seed):
  """Scans training steps over batches [steps, ...] with a traced seed."""
  train_step = builder._replace(seed=seed).build(active)

  def body(state, batch):
    state, output = train_step(state, batch)
    return state, jax.numpy.where(output.finite, output.loss, jax.numpy.nan)

  return jax.lax.scan(body, state, batches)


def _stack_batches(
  batches: list[dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
  return {
    name: np.stack([batch[name] for batch in batches]) for name in batches[0]
  }


def _finite_mean(losses, trainer: Trainer, step: int) -> float:
  """Returns the mean loss over the steps in one call."""
  mean = float(np.mean(losses))
  if not math.isfinite(mean):
    raise errors.TrainingError(
      'The training loss and its gradient must be finite',
      got=f'The mean loss is NaN or infinite after step {step}',
      where=trainer.model_dir,
      fix="Lower the condition's learning rate.",
    )
  return mean
