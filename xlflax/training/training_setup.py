"""From settings to everything that a run needs, checked before a step."""

import dataclasses
import functools
import math
import pathlib
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from xlflax.data import loader_base, loader_factory
from xlflax.data.tokenizers import base_vocabulary, vocabulary_spec
from xlflax.models import compile_targets
from xlflax.models import encoder_config as model_config
from xlflax.models import model_params as models_api
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import objective_base
from xlflax.storage import paths
from xlflax.training import randomness, sharing_checks, train_state, train_step
from xlflax.training.checkpointing import config_serialization, data_fingerprint
from xlflax.training.devices import flops
from xlflax.training.initialization import init_from as initialization
from xlflax.training.optimization import learning_rates
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax import trainer as trainer_lib


class Setup:
  """Vocabulary, model, state factory and compiled steps of a run.

  Attributes:
    settings: what it was made from, with the number of steps filled in.
    vocabulary: the run's vocabulary; None where only its sizes are given.
    spec: the vocabulary's sizes and special ids.
    model: the module with all sizes filled in.
    factory: makes train states.
    followed_rate: the learning rate in words, where the run gives none.
  """

  def __init__(self, settings: 'trainer_lib.Trainer'):
    if isinstance(settings.vocabulary, vocabulary_spec.VocabularySpec):
      self.vocabulary, self.spec = None, settings.vocabulary
    else:
      self.vocabulary = base_vocabulary.Vocabulary.load(settings.vocabulary)
      self.spec = self.vocabulary.spec
    self.settings, self.followed_rate = settings.resolved(self.vocabulary), ''
    if learning_rates.is_open(self.settings.optimizer):
      self.settings = self._with_rate()
    settings = self.settings
    self.model = settings.model.clone(
      config=model_config.with_vocabulary(settings.model.config, self.spec)
    )
    self._check_lengths()
    if settings.xla_checker:
      machine = settings.partitioner.machine
      compile_targets.check_has_checker(
        machine.platform
        if machine
        else compile_targets.current_target().platform
      )
    sharing_checks.check_sharing(
      parameter_sharing.plan_of(self.model), settings.streams, self.spec
    )
    self.factory = train_state.StateFactory(
      self.model,
      settings.objectives,
      settings.optimizer,
      self.spec,
      settings.partitioner,
      use_ema=settings.ema_decay is not None,
    )

  def _with_rate(self) -> 'trainer_lib.Trainer':
    """The run with the learning rate that follows from the rest of it."""
    settings, config = self.settings, self.settings.model.config
    kinds = [settings.objectives.active(step) for step in range(256)]
    tokens = sum(
      math.prod(leaf.shape)
      for kind in kinds
      for batch in self.abstract_batches(kind).values()
      for key, leaf in batch.items()
      if key.endswith('token_ids')
    )
    norm = getattr(getattr(config, 'encoder', config), 'norm_position', None)
    basis = learning_rates.Basis(
      width=config.hidden_dim,
      tokens=round(tokens / len(kinds)),
      steps=settings.steps,
      post_norm=norm is model_config.NormPosition.POST,
      continued=bool(settings.init_from),
    )
    self.followed_rate = basis.words()
    optimizer = learning_rates.with_peak(settings.optimizer, basis)
    return dataclasses.replace(settings, optimizer=optimizer)

  def _check_lengths(self):
    max_length = getattr(self.model.config, 'max_length', None)
    lengths = {s.name: s.length for s in self.settings.streams}
    for entry in self.settings.objectives.entries:
      length = entry.objective.longest_row(lengths[entry.stream])
      if max_length is not None and length > max_length:
        raise errors.ConfigError(
          'A stream has longer rows than the model takes',
          got=f'length {length}',
          expected=f'at most {max_length}',
          where=f'stream {entry.stream}',
          fix="shorten the stream, or raise the model's max_length",
        )

  @functools.cached_property
  def description(self) -> dict[str, Any]:
    """The run as plain JSON (`training.description`)."""
    return config_serialization.to_json_config(self.settings)

  @functools.cached_property
  def steps(self) -> train_step.TrainStepBuilder:
    return train_step.TrainStepBuilder(
      model=self.model,
      mixture=self.settings.objectives,
      optimizer=self.settings.optimizer,
      vocabulary=self.spec,
      seed=self.settings.seed,
      accumulation=self.settings.accumulation,
      ema_decay=self.settings.ema_decay,
      shardings=self._gradient_shardings,
    )

  @property
  def _gradient_shardings(self):
    is_sharded = self.settings.partitioner.mesh.size > 1
    return self.factory.shardings.params if is_sharded else None

  def jitted_step(self, active: tuple[int, ...], *, checked: bool = False):
    """The jitted step for these entries; the state is donated.

    Args:
      active: the entries.
      checked: whether the program checks itself (`Trainer.xla_checker`).
    """
    options = compile_targets.compiler_options(
      models_api.count_params(self.factory.abstract.params)
    )
    if self.settings.replay_every:
      options |= compile_targets.repeatable_options()
    if checked:
      options |= compile_targets.checker_options()
    return jax.jit(
      self.steps.build(active),
      donate_argnums=0,
      out_shardings=(
        self.factory.shardings,
        self.settings.partitioner.replicated,
      ),
      compiler_options=options,
    )

  def stream(self, name: str) -> loader_base.AnyStream:
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
        for key, leaf in self.stream(name).batch_spec(self.spec).items()
      }
      for name in self.streams_of(active)
    }

  def open_loaders(self) -> dict[str, loader_base.Loader]:
    """Stream name -> its loader; none for a vocabulary of sizes only."""
    if self.vocabulary is None:
      return {}
    return {
      stream.name: loader_factory.open_loader(
        stream,
        vocabulary=self.vocabulary,
        seed=self.settings.seed,
        cache_dir=self.settings.cache_dir,
        cache_generation=self.settings.cache_generation,
        corpus=self.settings.corpus,
        task_modules=self.settings.task_modules,
        verified=data_fingerprint.verified_signatures(self.model_dir)
        if self.settings.check_cache
        else None,
      )
      for stream in self.settings.streams
    }

  def initial_state(
    self, *, report_dir: pathlib.Path | None = None
  ) -> train_state.TrainState:
    """A fresh state, with parameters from `init_from` where that is given.

    Args:
      report_dir: where it is reported what came from there; None: nowhere.
    """
    key = randomness.purpose_key(
      self.settings.seed, randomness.Purpose.PARAMETERS
    )
    state = self.factory.create(
      key,
      without=initialization.replaced_parameters(
        self.settings.init_from, self.factory.abstract.params
      ),
    )
    if self.settings.init_from:
      state = initialization.initialize_from_runs(
        self.settings.init_from,
        state,
        self.factory,
        model=self.model,
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

  def _context(self, entry) -> objective_base.Context:
    state = jax.tree.map(
      lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
      self.factory.abstract.objective_state.get(entry.objective.name, ()),
    )
    return objective_base.Context(
      vocabulary=self.spec,
      step=jnp.zeros([], jnp.int32),
      train=True,
      rng=jax.random.key(0),
      state=state,
    )

  @property
  def model_dir(self) -> pathlib.Path:
    return paths.to_path(self.settings.model_dir)
