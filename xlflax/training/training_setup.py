"""Setup of a run, which resolves and checks the run's settings."""

import dataclasses
import functools
import logging
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from xlflax.config import setting_names
from xlflax.data import loader_base, loader_factory
from xlflax.data.tokenizers import base_vocabulary, vocabulary_spec
from xlflax.models import (
  adapter_config,
  compile_targets,
  encoder_config,
  model_params,
)
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import objective_base, objective_mixture
from xlflax.storage import paths
from xlflax.training import (
  randomness,
  sharing_checks,
  train_state,
  train_step,
  unused_parameters,
)
from xlflax.training.checkpointing import config_serialization, data_fingerprint
from xlflax.training.devices import flops
from xlflax.training.initialization import init_from
from xlflax.training.optimization import (
  default_learning_rate,
  optimizer_checks,
  schedule_checks,
)
from xlflax.utils import errors, logs, plurals

if TYPE_CHECKING:
  from xlflax.trainer import Trainer

# Weight of the initial parameters in the averaged parameters at the last step
# from which a warning is logged.
_MAX_INITIAL_WEIGHT = 0.1


class Setup:
  """The vocabulary, model, state factory and compiled steps of a run.

  Attributes:
    settings: Settings of the run, which are the fields of its `Trainer`. The
      number of steps is set.
    vocabulary: Vocabulary of the run, or None if only its sizes are given.
    spec: Sizes and special token ids of the vocabulary.
    model: Linen module, all of whose sizes are set.
    factory: Factory that creates train states.
    rate_description: Description of the default learning rate, or '' if the run
      sets a learning rate.

  Args:
    settings: Settings of the run, which are the fields of its `Trainer`.
  """

  def __init__(self, settings: 'Trainer'):
    if isinstance(settings.vocabulary, vocabulary_spec.VocabularySpec):
      self.vocabulary, self.spec = None, settings.vocabulary
    else:
      self.vocabulary = base_vocabulary.Vocabulary.load(settings.vocabulary)
      self.spec = self.vocabulary.spec
    self.settings = settings.resolved(self.vocabulary)
    self.rate_description = ''
    if default_learning_rate.is_open(self.settings.optimizer):
      self.settings = self._with_default_rate()
    self.settings = self._with_frozen_base()
    settings = self.settings
    self.model = settings.model.clone(
      config=encoder_config.with_vocabulary(settings.model.config, self.spec)
    )
    check_lengths(self.model, settings.datasets, settings.objectives)
    check_models(self.model, self.spec, settings.datasets, settings.objectives)
    if settings.xla_sdc_check:
      machine = settings.partitioner.topology
      compile_targets.check_supports_sdc_checker(
        machine.platform
        if machine
        else compile_targets.current_target().platform
      )
    sharing_checks.check_sharing(
      parameter_sharing.get_sharing_plan(self.model),
      settings.datasets,
      self.spec,
    )
    schedule_checks.check_scalars(
      [list(settings.objectives.objectives), list(settings.datasets)]
    )
    schedule_checks.check_learning_rates(settings.optimizer, settings.steps)
    schedule_checks.warn_of_zero_rates(settings.optimizer, settings.steps)
    schedule_checks.warn_of_high_rates(settings.optimizer, settings.steps)
    schedule_checks.warn_of_other_maximum(settings.optimizer, settings.steps)
    schedule_checks.warn_of_unfinished_warmup(
      settings.optimizer, settings.steps
    )
    schedule_checks.warn_of_missing_decay(settings.optimizer, settings.steps)
    schedule_checks.warn_of_late_decay(settings.optimizer, settings.steps)
    schedule_checks.warn_of_drop_after_warmup(
      settings.optimizer, settings.steps
    )
    if settings.ema_decay is not None:
      warn_of_slow_average(settings.ema_decay, settings.steps)
    self.factory = train_state.StateFactory(
      self.model,
      settings.objectives,
      settings.optimizer,
      self.spec,
      settings.partitioner,
      use_ema=settings.ema_decay is not None,
    )
    params = self.factory.abstract.params
    optimizer_checks.warn_of_ascent(settings.optimizer, params)
    optimizer_checks.warn_of_growth(settings.optimizer, params)
    optimizer_checks.warn_of_normalized_decay(settings.optimizer, params)
    optimizer_checks.warn_of_ignored_decay(settings.optimizer, params)
    optimizer_checks.warn_of_inverted_decay(settings.optimizer, params)
    optimizer_checks.warn_of_misused_rate(settings.optimizer, params)
    optimizer_checks.warn_of_stacked_vectors(settings.optimizer, params)
    optimizer_checks.warn_of_clipped_updates(settings.optimizer, params)

  def _with_default_rate(self) -> 'Trainer':
    """Returns the run's settings with the default learning rate filled in."""
    settings, config = self.settings, self.settings.model.config
    active_by_step = [settings.objectives.active(step) for step in range(256)]
    tokens = sum(
      math.prod(leaf.shape)
      for active in active_by_step
      for batch in self.abstract_batches(active).values()
      for key, leaf in batch.items()
      if key.endswith('token_ids')
    )
    norm = getattr(getattr(config, 'encoder', config), 'norm_position', None)
    basis = default_learning_rate.Basis(
      width=config.hidden_dim,
      tokens=round(tokens / len(active_by_step)),
      steps=settings.steps,
      post_norm=norm is encoder_config.NormPosition.POST,
      continued=bool(settings.init_from),
    )
    self.rate_description = basis.words()
    optimizer = default_learning_rate.with_peak(settings.optimizer, basis)
    return dataclasses.replace(settings, optimizer=optimizer)

  def _with_frozen_base(self) -> 'Trainer':
    """Returns the run's settings with training limited to adapters, if any.

    `Optimizer.trainable` takes precedence, except for frozen adapters.
    """
    settings = self.settings
    adapters = adapter_config.model_adapters(settings.model)
    if not adapters:
      return settings
    optimizer = settings.optimizer
    optimizer = dataclasses.replace(
      optimizer,
      trainable=optimizer.trainable
      or adapter_config.trainable_patterns(adapters),
      frozen=optimizer.frozen + adapter_config.frozen_patterns(adapters),
    )
    return dataclasses.replace(settings, optimizer=optimizer)

  @functools.cached_property
  def description(self) -> dict[str, Any]:
    """The run's description as plain JSON (see `config_serialization`)."""
    return config_serialization.to_json_config(self.settings)

  @functools.cached_property
  def steps(self) -> train_step.TrainStepBuilder:
    """Builder of the run's step functions."""
    return train_step.TrainStepBuilder(
      model=self.model,
      mixture=self.settings.objectives,
      optimizer=self.settings.optimizer,
      vocabulary=self.spec,
      seed=self.settings.seed,
      gradient_accumulation_steps=self.settings.gradient_accumulation_steps,
      ema_decay=self.settings.ema_decay,
      shardings=self._gradient_shardings,
    )

  @property
  def _gradient_shardings(self):
    """The shardings of gradients, or None on a single device."""
    is_sharded = self.settings.partitioner.mesh.size > 1
    return self.factory.shardings.params if is_sharded else None

  def jitted_step(self, active: tuple[int, ...], *, checked: bool = False):
    """Returns the jitted step function for the given objectives.

    The step donates its train state.

    Args:
      active: Objectives that the step trains, as indices into the objective
        mixture.
      checked: Whether to compile the program with XLA's checker for silent data
        corruption (`Trainer.xla_sdc_check`).
    """
    options = compile_targets.compiler_options(
      model_params.count_params(self.factory.abstract.params)
    )
    if self.settings.sdc_check_every:
      options |= compile_targets.deterministic_options()
    if checked:
      options |= compile_targets.sdc_checker_options()
    return jax.jit(
      self.steps.build(active),
      donate_argnums=0,
      out_shardings=(
        self.factory.shardings,
        self.settings.partitioner.replicated,
      ),
      compiler_options=options,
    )

  def dataset(self, name: str) -> loader_base.AnyDatasetConfig:
    """Returns the dataset that has the given name."""
    return next(s for s in self.settings.datasets if s.name == name)

  def datasets_of(self, active: tuple[int, ...]) -> list[str]:
    """Returns the names of the datasets that the active objectives read."""
    entries = self.settings.objectives.entries
    return sorted({entries[i].dataset for i in active})

  def abstract_batches(self, active: tuple[int, ...]):
    """Returns abstract batches, with shardings, for the active objectives.

    Args:
      active: Objectives that the step trains, as indices into the objective
        mixture.

    Returns:
      ShapeDtypeStructs by key for each dataset name.
    """
    sharding = self.settings.partitioner.batch_sharding
    return {
      name: {
        key: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        for key, leaf in self.dataset(name).batch_spec(self.spec).items()
      }
      for name in self.datasets_of(active)
    }

  def open_loaders(self) -> dict[str, loader_base.Loader]:
    """Opens the run's data loaders and returns them by dataset name.

    The result is empty if the vocabulary consists of sizes only.

    Raises:
      ConfigError: If the run would read more batches from a dataset than it
        provides in `max_epochs` epochs.
    """
    if self.vocabulary is None:
      return {}
    loaders = {
      dataset.name: loader_factory.open_loader(
        dataset,
        vocabulary=self.vocabulary,
        seed=self.settings.seed,
        cache_dir=self.settings.cache_dir,
        cache_generation=self.settings.cache_generation,
        corpus=self.settings.corpus,
        task_modules=self.settings.task_modules,
        verified=data_fingerprint.verified_signatures(self.model_dir)
        if self.settings.verify_cache
        else None,
      )
      for dataset in self.settings.datasets
    }
    for name, loader in loaders.items():
      self._check_num_batches(name, loader.num_batches)
    return loaders

  def _check_num_batches(self, dataset: str, num_batches: int | None) -> None:
    """Raises a ConfigError if a dataset provides too few batches for the run.

    Args:
      dataset: Name of the dataset.
      num_batches: Number of batches that the dataset provides, or None if it is
        not limited.
    """
    steps = self.settings.last_step
    num_read = self.settings.objectives.dataset_step(dataset, steps)
    if num_batches is not None and num_read > num_batches:
      raise errors.ConfigError(
        '`DatasetConfig.max_epochs` limits the number of batches of dataset '
        f'{dataset!r} to {num_batches:,}, but training for {steps:,} steps '
        f'requires {num_read:,}',
        where='Trainer.num_train_steps',
        fix='Train fewer steps, add text, or increase '
        f'{setting_names.name_setting(dataset, "max_epochs")}.',
      )

  def initial_state(
    self, *, report_dir: pathlib.Path | None = None
  ) -> train_state.TrainState:
    """Creates a train state, with parameters from `init_from` if that is set.

    Args:
      report_dir: Directory for a report of the initialized parameters. If None,
        no report is written.
    """
    key = randomness.purpose_key(
      self.settings.seed, randomness.Purpose.PARAMETERS
    )
    state = self.factory.create(
      key,
      without=init_from.replaced_parameters(
        self.settings.init_from, self.factory.abstract.params
      ),
    )
    if self.settings.init_from:
      state = init_from.initialize_from_runs(
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
    elif adapter_config.model_adapters(self.model):
      logging.warning(
        'The base of the adapters is frozen and has random parameters. Set '
        'init_from to the run in which the base was trained.',
        extra=logs.ONCE,
      )
    return state.replace(objective_state=self._load_objective_state(state))

  def _load_objective_state(self, state):
    """Returns the state of each objective, including data read from files."""
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
    """Returns the model FLOPs of a step with the given objectives."""
    with self.settings.partitioner.scope():
      return flops.count_training_step(*self._traceable_loss(active))

  def find_unused_parameters(self) -> list[str]:
    """Returns the paths of the parameters that no objective trains."""
    active = tuple(range(len(self.settings.objectives.entries)))
    with self.settings.partitioner.scope():
      return unused_parameters.find_unused_parameters(
        *self._traceable_loss(active)
      )

  def _traceable_loss(self, active: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Returns the forward pass of a step, and abstract arguments for it.

    Args:
      active: Objectives whose losses are added, as indices into the mixture.

    Returns:
      A function `(params, batches)` that returns the loss, the parameters, and
      the batches by dataset name.
    """

    def forward(params, batches):
      total = jnp.zeros([])
      for i in active:
        entry = self.settings.objectives.entries[i]
        total += objective_base.compute_output(
          entry.objective,
          self.model,
          params,
          batches[entry.dataset],
          self._context(entry),
        ).loss.total
      return total

    return forward, self.factory.abstract.params, self.abstract_batches(active)

  def _context(self, entry) -> objective_base.ObjectiveContext:
    """Returns a context for tracing the objective of a mixture entry."""
    state = jax.tree.map(
      lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
      self.factory.abstract.objective_state.get(entry.objective.name, ()),
    )
    return objective_base.ObjectiveContext(
      vocabulary=self.spec,
      step=jnp.zeros([], jnp.int32),
      train=True,
      rng=jax.random.key(0),
      state=state,
    )

  @property
  def model_dir(self) -> pathlib.Path:
    """Directory in which the run is stored."""
    return paths.to_path(self.settings.model_dir)


def warn_of_slow_average(ema_decay: float, num_steps: int) -> None:
  """Logs a warning if averaged parameters are still close to the initial ones.

  The average starts with the initial parameters, without a correction of the
  bias. After n steps with the decay rate d, their weight in it is d^n.

  Args:
    ema_decay: Decay rate of the exponential moving average of the parameters.
    num_steps: Number of steps in the run.
  """
  initial_weight = ema_decay**num_steps
  if initial_weight <= _MAX_INITIAL_WEIGHT:
    return
  # With this decay rate, the weight of the initial parameters is 1 %.
  update_weight = 1 - 0.01 ** (1 / num_steps)
  logging.warning(
    'With ema_decay=%s, the initial parameters have a weight of %.1f %% in the '
    'averaged parameters after the %s of the run. Evaluation and export use '
    'the averaged parameters. Pass --gin.trainer.Trainer.ema_decay=%s, or '
    'None to disable the average.',
    f'{ema_decay:.12g}',
    100 * initial_weight,
    plurals.format_count(num_steps, 'step'),
    f'{1 - float(f"{update_weight:.2g}"):.12g}',
    extra=logs.ONCE,
  )


def check_models(
  model: Any,
  vocabulary: vocabulary_spec.VocabularySpec,
  datasets: Sequence[Any],
  objectives: objective_mixture.ObjectiveMixture,
) -> None:
  """Checks that the objectives support the model and the vocabulary.

  Args:
    model: Linen module of the run.
    vocabulary: Sizes and special token ids of the vocabulary.
    datasets: Configurations of the datasets.
    objectives: Objectives with the names of their datasets.

  Raises:
    ConfigError: If an objective requires another class of models.
    VocabularyError: If the vocabulary lacks special tokens that an objective
      requires.
  """
  lengths = {dataset.name: dataset.length for dataset in datasets}
  for entry in objectives.entries:
    entry.objective.check_model(model, vocabulary, lengths[entry.dataset])


def check_lengths(
  model: Any,
  datasets: Sequence[Any],
  objectives: objective_mixture.ObjectiveMixture,
) -> None:
  """Checks that a model supports the sequence lengths of all datasets.

  Args:
    model: Linen module of the run.
    datasets: Configurations of the datasets.
    objectives: Objectives with the names of their datasets.

  Raises:
    ConfigError: If a dataset's sequences are too long for the model.
  """
  max_length = getattr(model.config, 'max_position_embeddings', None)
  lengths = {dataset.name: dataset.length for dataset in datasets}
  for entry in objectives.entries:
    length = entry.objective.longest_row(lengths[entry.dataset])
    if max_length is not None and length > max_length:
      raise errors.ConfigError(
        f'With dataset {entry.dataset!r}, the sequences of objective '
        f'{entry.objective.name!r} have {length} tokens, but the model accepts '
        f'at most {max_length} (`max_position_embeddings`)',
        fix="Reduce the dataset's `length` (--gin.LENGTH), or increase the "
        "model's `max_position_embeddings`.",
      )
