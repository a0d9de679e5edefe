"""`Trainer`, the definition of a pretraining or fine-tuning run."""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any

import pydantic
from flax import linen as nn

from xlflax.config import gin_config
from xlflax.data import dataset_config, loader_base
from xlflax.data.supervised import supervised_dataset, supervised_loader
from xlflax.data.tokenizers import base_vocabulary, vocabulary_spec
from xlflax.objectives import objective_mixture
from xlflax.planning import dry_run
from xlflax.training import (
  interfaces,
  step_benchmark,
  train_loop,
  train_step,
  training_setup,
)
from xlflax.training.checkpointing import directory_claim, run_directory
from xlflax.training.checkpointing.checkpoints import CheckpointOptions
from xlflax.training.devices import machine_topology, partitioning
from xlflax.training.hooks import hook_base, profiler_hook
from xlflax.training.initialization.init_from import (
  InitFromCheckpoint,
  Inits,
  as_init_list,
)
from xlflax.training.metric_writers import metric_writer
from xlflax.training.optimization import (
  loss_spike_options,
  optimizers,
  schedules,
)
from xlflax.utils import class_registry, errors, user_modules, validation

_changeable = class_registry.changeable_field


@class_registry.register('trainer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
  """Definition of a pretraining or fine-tuning run.

  A trainer is built by gin, by Python, or from another trainer by
  `dataclasses.replace`. Fields that may change when a run is resumed are
  declared with `class_registry.changeable_field`. All others identify the run.

  Attributes:
    model_dir: Run directory. An existing run is resumed.
    model: Linen module of the model to train. Sizes that are not set are
      derived from the vocabulary.
    objectives: Objectives with their datasets and weights.
    datasets: Datasets that the objectives read.
    vocabulary: Directory of the vocabulary. For dry runs and benchmarks, a
      `VocabularySpec`, which contains only sizes and special token ids, is
      sufficient.
    optimizer: Optimizer with its learning rate schedule
      (`training.optimization.optimizers`).
    num_train_steps: Number of optimizer steps. If None, it is computed from
      `epochs`.
    epochs: Number of passes over the labeled examples, used if
      `num_train_steps` is None, and ignored otherwise. It may be fractional.
    corpus: Corpus directory, whose tasks are registered as `corpus.*`.
    cache_dir: Token cache to read. If None, SeqIO tasks are read live, without
      a cache.
    cache_generation: Generation of the token cache to read, counted from 1. A
      new generation is created each time text is added. If None, the newest
      generation is read.
    verify_cache: Whether to verify the checksums of the cache before the first
      read and after its files have changed.
    task_modules: Modules that register SeqIO tasks, as importable names or
      paths of Python files. They are imported if the tasks are read live,
      without a token cache.
    partitioner: Mesh and sharding rules. The default splits the batch over all
      devices.
    checkpoints: Options for saving and keeping checkpoints.
    evaluation: Evaluation tasks and their schedule during training. If None,
      there is no evaluation.
    init_from: Run or runs whose checkpoints provide initial parameters.
      Parameters of a later run replace those of an earlier run.
    seed: Random seed for parameter initialization, data order, masking and
      dropout.
    gradient_accumulation_steps: Number of micro-batches per step. The batch of
      a dataset, `batch_size` sequences, is divided into these micro-batches, so
      that the number does not change the batch size of an optimizer update. In
      Hugging Face Transformers, the number multiplies the batch size instead.
    ema_decay: Decay rate d of the exponential moving average of the parameters.
      The average starts with the initial parameters, whose weight after n steps
      is d^n. Evaluation and export use the average. If None, no average is
      kept.
    non_finite: Policy for steps with a loss or gradient that is not finite.
    max_consecutive_skips: Number of consecutive skipped steps after which the
      run ends with an error.
    loss_spike_guard: Guard against loss spikes
      (`training.hooks.loss_spike_hook`). If None, loss spikes are not handled.
    log_metrics_every: Number of steps between two reports of the metrics.
    trackers: Destinations of metrics in addition to `metrics.jsonl`
      (`training.metric_writers`).
    prefetch: Number of batches that are transferred to the devices ahead of
      time.
    watchdog_timeout: Maximum time in seconds without a finished step, batch or
      checkpoint. When it is exceeded, all processes log their stacks, and the
      job ends so that it can be restarted. 0 disables the watchdog
      (`training.hooks.watchdog_hook`).
    sdc_check_every: Number of steps between checks for silent data corruption.
      At each check, a step is computed twice, and all results and replicas must
      be bitwise equal (`training.hooks.sdc_hook`). The check requires memory
      for a second copy of the training state. None and 0 disable it.
    xla_sdc_check: Whether to also run XLA's checker for silent data corruption
      in every step that `sdc_check_every` selects. It is supported only on
      TPUs.
    profile_steps: Steps to profile, in the form FIRST:LAST. The profile
      contains the steps from FIRST + 1 to LAST, inclusive
      (`training.hooks.profiler_hook`).
    profile_memory: Whether to also profile the devices' memory.
    stop_after_steps: Step at which the run saves a checkpoint and stops, for
      tests and time-limited jobs. Learning rate schedules still end at
      `num_train_steps`.
    on_config_mismatch: Action if the directory contains a run with a different
      configuration.
    hooks: Hooks that are called after the default hooks (`training.hooks`).
      Each call of `train` uses copies of these hooks.
  """

  model_dir: str = _changeable()
  model: Annotated[
    nn.Module,
    pydantic.Field(
      description='a model, such as encoder.Encoder(config=EncoderConfig(...))'
    ),
  ]
  objectives: objective_mixture.ObjectiveMixture
  datasets: Annotated[
    tuple[loader_base.AnyDatasetConfig, ...],
    pydantic.Field(
      description='a list of datasets, such as [DatasetConfig(...)]'
    ),
  ]
  # The vocabulary is compared with the copy in the run directory.
  vocabulary: Annotated[
    str | vocabulary_spec.VocabularySpec,
    pydantic.Field(
      description='the directory of a vocabulary, or a VocabularySpec'
    ),
  ] = _changeable()
  optimizer: Annotated[
    optimizers.Optimizer,
    pydantic.Field(
      description='an optimizer of xlflax.training.optimization.optimizers, '
      'such as AdamW(learning_rate=1e-4), or @optimizers.AdamW() in gin'
    ),
  ]
  # The identity of the run includes the resolved schedules instead.
  num_train_steps: validation.PositiveInt | None = _changeable(default=None)
  epochs: validation.PositiveFloat | None = _changeable(default=None)
  # The text is compared by the fingerprint of the data.
  corpus: str | None = _changeable(default=None)
  # The order of examples depends on the use of a cache, but not on its path.
  cache_dir: str | None = class_registry.partial_identity_field(
    lambda path: 'live' if path is None else 'cached', default=None
  )
  # The tokens are compared by the fingerprint of the data.
  cache_generation: validation.PositiveInt | None = _changeable(default=None)
  verify_cache: bool = _changeable(default=True)
  task_modules: tuple[str, ...] = _changeable(default=())
  partitioner: partitioning.Partitioner = _changeable(
    default_factory=partitioning.Partitioner
  )
  checkpoints: CheckpointOptions = _changeable(
    default_factory=CheckpointOptions
  )
  evaluation: interfaces.Evaluation | None = _changeable(default=None)
  init_from: Inits | None = None
  seed: validation.Seed = 0
  gradient_accumulation_steps: validation.PositiveInt = 1
  ema_decay: validation.OpenFraction | None = None
  non_finite: train_step.NonFinitePolicy = train_step.NonFinitePolicy.STOP
  max_consecutive_skips: validation.PositiveInt = _changeable(default=100)
  loss_spike_guard: loss_spike_options.LossSpikeGuard | None = _changeable(
    default=None
  )
  log_metrics_every: validation.PositiveInt = _changeable(default=50)
  trackers: tuple[metric_writer.Destination, ...] = _changeable(
    default=(metric_writer.Destination.TENSORBOARD,)
  )
  prefetch: validation.PositiveInt = _changeable(default=2)
  watchdog_timeout: validation.NonNegativeFloat = _changeable(default=900.0)
  sdc_check_every: validation.NonNegativeInt | None = _changeable(default=None)
  xla_sdc_check: bool = _changeable(default=False)
  profile_steps: str | None = _changeable(default=None)
  profile_memory: bool = _changeable(default=False)
  stop_after_steps: validation.PositiveInt | None = _changeable(default=None)
  on_config_mismatch: run_directory.OnConfigMismatch = _changeable(
    default=run_directory.OnConfigMismatch.ERROR
  )
  hooks: tuple[hook_base.Hook, ...] = _changeable(default=())

  def __post_init__(self):
    # Equal initializations get one representation, because the field is part
    # of the identity of the run.
    inits = as_init_list(self.init_from)
    is_single = isinstance(self.init_from, (str, InitFromCheckpoint))
    init = inits[0] if inits and is_single else inits or None
    object.__setattr__(self, 'init_from', init)
    self._check_steps()
    self._check_best_metric()
    self._check_datasets()

  def _check_steps(self):
    """Checks the fields that contain steps and the fields that require them."""
    profiler_hook.Steps.of(self.profile_steps)
    if self.profile_memory and self.profile_steps is None:
      raise errors.ConfigError(
        '`profile_memory` requires `profile_steps`',
        where=errors.field_location(self, 'profile_memory'),
        fix='Pass --profile_steps=FIRST:LAST.',
      )
    if self.xla_sdc_check and not self.sdc_check_every:
      raise errors.ConfigError(
        '`xla_sdc_check` requires `sdc_check_every`',
        where=errors.field_location(self, 'xla_sdc_check'),
        fix='Set `sdc_check_every`, for example to 1000.',
      )
    if self.num_train_steps is None and self.epochs is None:
      raise errors.ConfigError(
        'The Trainer requires `num_train_steps` or `epochs`, but both are None',
        fix='Set `num_train_steps` (gin: TRAIN_STEPS).',
      )
    if self.epochs is not None and all(
      isinstance(dataset, dataset_config.DatasetConfig)
      for dataset in self.datasets
    ):
      raise errors.ConfigError(
        '`epochs` requires labeled examples, but no dataset is a '
        'LabeledDatasetConfig',
        got=self.epochs,
        where=errors.field_location(self, 'epochs'),
        fix='Set `num_train_steps` (gin: TRAIN_STEPS) instead of `epochs` '
        '(gin: EPOCHS).',
      )

  def _check_best_metric(self):
    """Checks that an evaluation can compute the best metric."""
    if (
      self.checkpoints.metric_for_best_model is not None
      and self.evaluation is None
    ):
      raise errors.ConfigError(
        '`metric_for_best_model` requires evaluation tasks during training',
        got=self.checkpoints.metric_for_best_model,
        where=errors.field_location(self.checkpoints, 'metric_for_best_model'),
        fix='Pass --gin_file=evaluate/during_training.gin, or set '
        'Trainer.evaluation.',
      )

  def _check_datasets(self):
    """Checks the datasets and their use by the objectives."""
    names = [dataset.name for dataset in self.datasets]
    if len(set(names)) != len(names):
      raise errors.ConfigError(
        'Each dataset of the Trainer must have a unique name',
        got=names,
        where=errors.field_location(self, 'datasets'),
      )
    read_datasets = {entry.dataset for entry in self.objectives.entries}
    if read_datasets != set(names):
      raise errors.ConfigError(
        'The Trainer must have exactly the datasets that the entries of its '
        '`ObjectiveMixture` read',
        got=sorted(names),
        expected=sorted(read_datasets),
        where=errors.field_location(self, 'datasets'),
        fix='Add a WeightedObjective for each dataset to the ObjectiveMixture. '
        'Remove datasets that no objective reads.',
      )
    by_name = dict(zip(names, self.datasets, strict=True))
    for entry in self.objectives.entries:
      entry.objective.check_dataset(by_name[entry.dataset])
    for dataset in self.datasets:
      self.partitioner.check_batch_size(
        dataset.batch_size,
        accumulation=self.gradient_accumulation_steps,
        where=f'dataset {dataset.name}',
      )

  @classmethod
  @validation.validate_call
  def from_recipe(
    cls, name: str, *, pretraining: str = 'mlm', **macros: Any
  ) -> 'Trainer':
    """Builds a trainer from a recipe, as `xlflax train --gin_file` does.

    Args:
      name: Name of a recipe, a gin file in `gin_configs/recipes/`, such as
        'small'.
      pretraining: Name of the file in `gin_configs/pretrain/` that defines the
        objectives.
      **macros: Values of both files' gin macros, with names in lower case, such
        as `model_dir`, `corpus`, `vocabulary`, `cache_dir` and `train_steps`.

    Raises:
      ConfigError: If the recipe or a macro does not exist, or a value is
        missing.
    """
    values = {name.upper(): value for name, value in macros.items()}
    files = [f'pretrain/{pretraining}.gin', f'recipes/{name}.gin']
    return gin_config.load_gin_files(files, macros=values).build(cls)

  @validation.validate_call
  def train(
    self,
    *,
    gin_config: str | Callable[[], str] = '',
    report: metric_writer.Report | None = None,
  ) -> dict[str, Any]:
    """Trains to the last step, resuming from the last checkpoint if one exists.

    Args:
      gin_config: Text of a gin file that builds this trainer, or a function
        that returns this text. It is written to the run directory.
      report: Function called after each report with the step and the metrics of
        `metrics.jsonl`, such as {'train': {'mlm/loss/en': 2.0}}. Only the first
        process calls it.

    Returns:
      A dictionary with 'step', 'first_step' (the number of steps that were
      finished before this call), 'checkpoint' (the step of the newest
      checkpoint, or None), 'loss' (the mean loss of the steps of the last
      report or, if the run stopped before its first report, of all steps; None
      if it is not finite), 'model_dir', 'finished', 'interrupted' (whether a
      signal stopped the run), 'has_untrained_mlm_head' (whether the model has
      a masked LM head that no objective has trained), 'stopped_by' (the class
      of the user-defined hook that stopped the run, if there is one), 'seconds'
      (the time spent on each activity in all starts of the run),
      'earlier_seconds' (the time spent in earlier starts), and further results.

    Raises:
      XlflaxError: If a field of the trainer is invalid, the data or a
        checkpoint cannot be used, or the loss is not finite.
    """
    text = gin_config() if callable(gin_config) else gin_config
    trainer, options = self, self.checkpoints
    if (
      self.evaluation is not None
      and options.metric_for_best_model
      and options.greater_is_better is None
    ):
      highest = self.evaluation.is_better_higher(options.metric_for_best_model)
      options = dataclasses.replace(options, greater_is_better=highest)
      trainer = dataclasses.replace(self, checkpoints=options)
    with user_modules.converting_class_errors():
      return train_loop.train(trainer, gin_config=text, report=report)

  def can_resume(self) -> bool:
    """Returns whether the run in `model_dir` can be resumed with this trainer.

    Only the vocabulary and the names and shapes of the arrays in the last
    checkpoint are compared. Other settings may differ if `on_config_mismatch`
    is CONTINUE.

    Raises:
      ConfigError: If a field of the trainer is invalid.
      RunDirectoryError: If the run has a different vocabulary.
    """
    return directory_claim.can_resume(training_setup.Setup(self))

  @validation.validate_call
  def plan(
    self,
    machine: machine_topology.DeviceTopology | None = None,
    *,
    by: dry_run.By = dry_run.By.AUTO,
  ) -> dict[str, Any]:
    """Checks the configuration and estimates the run's costs without training.

    Args:
      machine: Machine for which the run is planned. This process's devices
        stand in for the machine's devices (`planning.cpu_stand_in`). If None,
        the run is planned for this process's devices.
      by: Method by which memory and times are determined: compilation for the
        machine, or an estimate.

    Returns:
      Memory, parameters, datasets and times; see `planning.dry_run.make_plan`.

    Raises:
      XlflaxError: If a field of the trainer is invalid, or the data cannot be
        used.
    """
    with user_modules.converting_class_errors():
      return dry_run.make_plan(self.on(machine) if machine else self, by=by)

  @validation.validate_call
  def benchmark(self, *, steps: validation.PositiveInt = 10) -> dict[str, Any]:
    """Measures the speed of steps on synthetic batches, without writing files.

    Args:
      steps: Number of timed steps.

    Returns:
      Step time, tokens/s, MFU and peak memory; see
      `training.step_benchmark.time_steps`.
    """
    with user_modules.converting_class_errors():
      return step_benchmark.time_steps(self, steps=steps)

  @property
  def steps(self) -> int:
    """Number of optimizer steps of the run, as determined by `resolved()`."""
    assert self.num_train_steps is not None
    return self.num_train_steps

  @property
  def last_step(self) -> int:
    """Step at which training stops: `stop_after_steps`, or `steps` if smaller.

    The run must be `resolved`.
    """
    return min(self.steps, self.stop_after_steps or self.steps)

  def on(
    self,
    machine: machine_topology.DeviceTopology,
    *,
    devices: tuple[Any, ...] | None = None,
  ) -> 'Trainer':
    """Returns a copy of the run's settings for a given machine.

    Args:
      machine: Topology of the target machine.
      devices: The machine's devices, for which programs are compiled. If None,
        the devices of this process stand in for them.
    """
    partitioner = dataclasses.replace(
      self.partitioner, topology=machine, devices=devices
    )
    return dataclasses.replace(self, partitioner=partitioner)

  def resolved(
    self, vocabulary: base_vocabulary.Vocabulary | None
  ) -> 'Trainer':
    """Returns a copy of the trainer in which the number of steps is set.

    The number of steps is also set in all schedules.

    Args:
      vocabulary: Vocabulary of the run. It is required for counting the
        examples of an epoch.

    Raises:
      ConfigError: If `epochs` is set for a dataset without labeled examples.
      XlflaxError: If the examples cannot be read.
    """
    total_steps = self.num_train_steps or self._steps_of_epochs(vocabulary)
    trainer = dataclasses.replace(self, num_train_steps=total_steps)
    return schedules.resolve_schedules(trainer, total_steps)

  def _steps_of_epochs(
    self, vocabulary: base_vocabulary.Vocabulary | None
  ) -> int:
    """Returns the number of steps in `epochs` epochs over the first dataset.

    The number is rounded up. 2 epochs of 25 examples in batches of 10 are 5
    steps.
    """
    assert self.epochs is not None
    dataset = self.datasets[0]
    if vocabulary is None or not isinstance(
      dataset, supervised_dataset.LabeledDatasetConfig
    ):
      raise errors.ConfigError(
        '`epochs` requires a vocabulary directory, and dataset '
        f'{dataset.name!r} must be a LabeledDatasetConfig',
        got=self.epochs,
        where=errors.field_location(self, 'epochs'),
        fix='Set `num_train_steps` instead (gin: TRAIN_STEPS).',
      )
    loader = supervised_loader.LabeledLoader(
      dataset, vocabulary=vocabulary, seed=self.seed
    )
    try:
      return math.ceil(self.epochs * loader.num_rows / dataset.batch_size)
    finally:
      loader.close()
