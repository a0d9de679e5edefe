"""Runs of a `Trainer` that share their compiled steps over seeds.

Compilation costs as much as a whole run of these sizes. A program is compiled
once for all trainers that differ in the seed, the directory and the initial
parameters only: the seed is an argument of the step that the project's
`TrainStepBuilder` makes, and some steps in a row are one call.
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
from xlflax.training import train_state
from xlflax.training import training_setup as setup_lib
from xlflax.training.checkpointing import (
  checkpoints,
  config_serialization,
  run_directory,
)
from xlflax.training.devices import mmap_limit
from xlflax.utils import errors

_TOGETHER = 10  # steps in one call, where all train the same entries


class Trained(NamedTuple):
  """The end of a run.

  Attributes:
    setup: model, vocabulary and objectives.
    state: after the last step.
    losses: (step, mean loss since the one before).
  """

  setup: setup_lib.Setup
  state: train_state.TrainState
  losses: tuple[tuple[int, float], ...]


class Programs:
  """Compiled programs, by what they are made from."""

  def __init__(self):
    self._setups: dict[str, setup_lib.Setup] = {}
    self._steps: dict[Any, Any] = {}

  def run(
    self, trainer: Trainer, *, model_params=None, untrained: bool = False
  ) -> Trained:
    """Trains from the start.

    Args:
      trainer: the run; nothing is written to its directory (see `save`).
      model_params: parameters of the model to begin with instead of its own.
      untrained: no step is made.

    Raises:
      TrainingError: a step was not finite.
      XlflaxError: settings or data are unusable.
    """
    self._make_room()
    setup = self._setup(trainer)
    state = setup.initial_state()
    if model_params is not None:
      taken = jax.tree.map(jax.numpy.copy, model_params)
      state = state.replace(params={**state.params, 'model': taken})
    if untrained:
      return Trained(setup, state, ())
    loaders = setup.open_loaders()
    losses = []
    together = self._together(setup)
    try:
      for step in range(0, trainer.num_train_steps or 0, together):
        state, found = self._advance(setup, loaders, state, step, together)
        losses.append((step + together, _finite(found, trainer, step)))
    finally:
      for loader in loaders.values():
        loader.close()
    return Trained(setup, state, tuple(losses))

  def _make_room(self) -> None:
    """Forgets all programs where a process can hold no more of them."""
    if mmap_limit.is_scarce():
      self._setups.clear()
      self._steps.clear()
      mmap_limit.free_programs_if_scarce()

  def _setup(self, trainer: Trainer) -> setup_lib.Setup:
    """A trainer's own view of the setup that it shares with other seeds."""
    plain = dataclasses.replace(
      trainer, seed=0, model_dir='unused', init_from=None
    )
    key = json.dumps(
      [config_serialization.to_json_config(plain), trainer.cache_dir],
      sort_keys=True,
    )
    if key not in self._setups:
      self._setups[key] = setup_lib.Setup(plain)
    own = copy.copy(self._setups[key])
    own.settings = dataclasses.replace(
      own.settings,
      seed=trainer.seed,
      model_dir=trainer.model_dir,
      init_from=trainer.init_from,
    )
    return own

  def _together(self, setup) -> int:
    """How many steps are one call."""
    if len(setup.settings.objectives.groups) > 1:
      return 1
    return math.gcd(_TOGETHER, setup.settings.steps)

  def _advance(self, setup, loaders, state, first, count):
    """Some steps: the new state and their losses [count]."""
    mixture = setup.settings.objectives
    active = mixture.active(first)
    batches = {
      name: _stacked(
        [
          loaders[name].rows(
            mixture.dataset_step(name, step), 0, setup.dataset(name).batch_size
          )
          for step in range(first, first + count)
        ]
      )
      for name in setup.datasets_of(active)
    }
    # Equal for other seeds and text, too; shardings follow from the rest.
    program = setup.steps._replace(seed=0, shardings=None), active
    if program not in self._steps:
      self._steps[program] = jax.jit(
        functools.partial(_steps, setup.steps, active), donate_argnums=0
      )
    with setup.settings.partitioner.scope():
      return self._steps[program](state, batches, setup.settings.seed)


def save(trained: Trained, vocabulary) -> str:
  """Writes a run's directory anew, for others to begin from; returns it."""
  setup = trained.setup
  directory = pathlib.Path(setup.settings.model_dir)
  if directory.exists():  # of other settings, or not whole
    paths.remove_directory(directory)
  directory.mkdir(parents=True, exist_ok=True)
  run_directory.write_model(directory, setup.model, vocabulary=setup.vocabulary)
  run_directory.copy_vocabulary(pathlib.Path(vocabulary), directory)
  written = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  written.save(trained.state, {'seed': setup.settings.seed})
  written.close()
  return str(directory)


def _steps(builder, active, state, batches, seed):
  """Scans steps over batches [steps, ...] under a traced seed."""
  step = builder._replace(seed=seed).build(active)

  def body(state, batch):
    state, output = step(state, batch)
    return state, jax.numpy.where(output.finite, output.loss, jax.numpy.nan)

  return jax.lax.scan(body, state, batches)


def _stacked(batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
  return {
    name: np.stack([batch[name] for batch in batches]) for name in batches[0]
  }


def _finite(losses, trainer: Trainer, step: int) -> float:
  """The mean of some steps' losses."""
  mean = float(np.mean(losses))
  if not math.isfinite(mean):
    raise errors.TrainingError(
      'The loss or its gradient is not finite',
      got=f'after step {step}',
      where=trainer.model_dir,
      fix='lower the learning rate of the condition',
    )
  return mean
