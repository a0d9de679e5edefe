"""From settings to everything that a run needs, checked before a step."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from xlflax import errors, paths
from xlflax.data import loader as loader_lib
from xlflax.data.vocabularies import spec as vocabulary_spec
from xlflax.data.vocabularies import vocabulary as vocabulary_lib
from xlflax.models import config as model_config
from xlflax.models import sharing
from xlflax.objectives import base
from xlflax.objectives import mixture as mixture_lib
from xlflax.training import checkpoints as checkpoints_lib
from xlflax.training import evaluation as evaluation_lib
from xlflax.training import (
  flops,
  machines,
  optimizers,
  partitioning,
  randomness,
  run_directory,
  sharing_checks,
)
from xlflax.training import state as state_lib
from xlflax.training import step as step_lib
from xlflax.training.initialization import init_from as initialization


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The arguments of `xlflax.trainer.train`, which documents them.

  With a machine, the partitioner's devices stand in for it.
  """

  model_dir: str
  model: Any
  objectives: mixture_lib.ObjectiveMixture
  streams: tuple[loader_lib.AnyStream, ...]
  vocabulary: str | vocabulary_spec.VocabularySpec
  total_steps: int
  optimizer: optimizers.Optimizer
  corpus: str | None
  cache_dir: str | None
  task_modules: tuple[str, ...]
  partitioner: partitioning.Partitioner
  checkpoints: checkpoints_lib.CheckpointOptions
  evaluation: evaluation_lib.Evaluation | None
  init_from: initialization.Inits | None
  seed: int
  accumulation: int
  ema_decay: float | None
  non_finite: step_lib.NonFinite
  log_every_steps: int
  prefetch: int
  stop_at_step: int | None
  other_config: run_directory.OtherConfig
  machine: machines.Machine | None = None

  def __post_init__(self):
    if self.machine:
      object.__setattr__(
        self,
        'partitioner',
        dataclasses.replace(self.partitioner, machine=self.machine),
      )
    for field in ('total_steps', 'accumulation', 'log_every_steps', 'prefetch'):
      if getattr(self, field) < 1:
        raise errors.ConfigError(
          f'{field} must be positive',
          got=getattr(self, field),
          expected='1 or more',
          where=f'train.{field}',
        )
    self._check_streams()

  def _check_streams(self):
    names = [stream.name for stream in self.streams]
    if len(set(names)) != len(names):
      raise errors.ConfigError(
        'Two streams have the same name', got=names, where='train.streams'
      )
    wanted = {entry.stream for entry in self.objectives.entries}
    if wanted != set(names):
      raise errors.ConfigError(
        'Streams and objectives do not match',
        got=f'streams {sorted(names)}, objectives read {sorted(wanted)}',
        expected='each stream read by an objective, each read stream given',
        where='train.streams and ObjectiveMixture.entries',
      )
    for stream in self.streams:
      self.partitioner.check_batch_size(
        stream.batch_size,
        accumulation=self.accumulation,
        where=f'stream {stream.name}',
      )

  @property
  def last_step(self) -> int:
    """Where this call stops."""
    return min(self.total_steps, self.stop_at_step or self.total_steps)


class Setup:
  """Vocabulary, model, state factory and compiled steps of a run.

  Attributes:
    settings: what it was made from.
    vocabulary: the run's vocabulary; None where only its sizes are given.
    spec: the vocabulary's sizes and special ids.
    model: the module with all sizes filled in.
    factory: makes train states.
  """

  def __init__(self, settings: Settings):
    self.settings = settings
    if isinstance(settings.vocabulary, vocabulary_spec.VocabularySpec):
      self.vocabulary, self.spec = None, settings.vocabulary
    else:
      self.vocabulary = vocabulary_lib.Vocabulary.load(settings.vocabulary)
      self.spec = self.vocabulary.spec
    self.model = settings.model.clone(
      config=model_config.with_vocabulary(settings.model.config, self.spec)
    )
    self._check_lengths()
    sharing_checks.check(
      sharing.plan_of(self.model), settings.streams, self.spec
    )
    self.factory = state_lib.StateFactory(
      self.model,
      settings.objectives,
      settings.optimizer,
      self.spec,
      settings.partitioner,
      use_ema=settings.ema_decay is not None,
    )

  def _check_lengths(self):
    most = getattr(self.model.config, 'max_length', None)
    lengths = {s.name: s.length for s in self.settings.streams}
    for entry in self.settings.objectives.entries:
      length = entry.objective.longest_row(lengths[entry.stream])
      if most is not None and length > most:
        raise errors.ConfigError(
          'A stream has longer rows than the model takes',
          got=f'length {length}',
          expected=f'at most {most}',
          where=f'stream {entry.stream}',
          fix="shorten the stream, or raise the model's max_length",
        )

  @functools.cached_property
  def steps(self) -> step_lib.StepBuilder:
    return step_lib.StepBuilder(
      model=self.model,
      mixture=self.settings.objectives,
      optimizer=self.settings.optimizer,
      vocabulary=self.spec,
      seed=self.settings.seed,
      accumulation=self.settings.accumulation,
      ema_decay=self.settings.ema_decay,
    )

  def jitted_step(self, active: tuple[int, ...]):
    """The jitted step for these entries; the state is donated."""
    return jax.jit(
      self.steps.build(active),
      donate_argnums=0,
      out_shardings=(
        self.factory.shardings,
        self.settings.partitioner.replicated,
      ),
    )

  def stream(self, name: str) -> loader_lib.AnyStream:
    return next(s for s in self.settings.streams if s.name == name)

  def streams_of(self, active: tuple[int, ...]) -> list[str]:
    """Names of the streams that these entries read."""
    entries = self.settings.objectives.entries
    return sorted({entries[i].stream for i in active})

  def abstract_batches(self, active: tuple[int, ...]):
    """{stream: {key: ShapeDtypeStruct with its sharding}}."""
    sharding = self.settings.partitioner.batch_sharding
    return {
      name: {
        key: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        for key, leaf in loader_lib.abstract_batch(
          self.stream(name), self.spec
        ).items()
      }
      for name in self.streams_of(active)
    }

  def open_loaders(self) -> dict[str, loader_lib.Loader]:
    """Stream name -> its loader; none for a vocabulary of sizes only."""
    if self.vocabulary is None:
      return {}
    return {
      stream.name: loader_lib.open_loader(
        stream,
        vocabulary=self.vocabulary,
        seed=self.settings.seed,
        cache_dir=self.settings.cache_dir,
        corpus=self.settings.corpus,
        task_modules=self.settings.task_modules,
      )
      for stream in self.settings.streams
    }

  def initial_state(
    self, *, report_dir: pathlib.Path | None = None
  ) -> state_lib.TrainState:
    """A fresh state, with parameters from `init_from` where that is given.

    Args:
      report_dir: where it is reported what came from there; None: nowhere.
    """
    key = randomness.key(self.settings.seed, randomness.Purpose.PARAMETERS)
    state = self.factory.create(key)
    if self.settings.init_from:
      state = initialization.apply(
        self.settings.init_from,
        state,
        self.factory,
        vocabulary=self.vocabulary,
        report_dir=report_dir,
      )
      state = state.replace(
        objective_state=self.factory.create_objective_state(state.params)
      )
    return state.replace(objective_state=self._load_objective_state(state))

  def _load_objective_state(self, state):
    """The state of each objective, what it reads from files included."""
    return {
      objective.name: objective.load_state(
        state.objective_state[objective.name],
        model=self.model,
        params=state.params,
        vocabulary=self.vocabulary,
      )
      for objective in self.settings.objectives.objectives
      if objective.name in state.objective_state
    }

  def flops(self, active: tuple[int, ...]) -> int:
    """Model FLOPs of one step of these entries."""
    params = self.factory.abstract.params
    batches = self.abstract_batches(active)

    def forward(params, batches):
      total = jnp.zeros([])
      for i in active:
        entry = self.settings.objectives.entries[i]
        total += entry.objective(
          self.model, params, batches[entry.stream], self._context(entry)
        ).loss.total
      return total

    with self.settings.partitioner.scope():
      return flops.of_training_step(forward, params, batches)

  def _context(self, entry) -> base.Context:
    state = jax.tree.map(
      lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
      self.factory.abstract.objective_state.get(entry.objective.name, ()),
    )
    return base.Context(
      vocabulary=self.spec,
      step=jnp.zeros([], jnp.int32),
      train=True,
      rng=jax.random.key(0),
      state=state,
    )

  @property
  def model_dir(self) -> pathlib.Path:
    return paths.of(self.settings.model_dir)
