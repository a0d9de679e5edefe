"""`Trainer`: a pretraining or fine-tuning run as one object."""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any

import pydantic
from flax import linen as nn

from xlflax.config import gin_config
from xlflax.data import loader_base
from xlflax.data.supervised import supervised_dataset as labelled_stream
from xlflax.data.supervised import supervised_loader as labelled_loader
from xlflax.data.tokenizers import base_vocabulary, vocabulary_spec
from xlflax.objectives import objective_mixture
from xlflax.planning import dry_run
from xlflax.training import interfaces, step_benchmark, train_loop, train_step
from xlflax.training.checkpointing import checkpoints as checkpoints_lib
from xlflax.training.checkpointing import run_directory
from xlflax.training.devices import machine_topology, partitioning
from xlflax.training.hooks import hook_base as hooks_base
from xlflax.training.hooks import profiler_hook
from xlflax.training.initialization import init_from as initialization
from xlflax.training.metric_writers import metric_writer as writers
from xlflax.training.optimization import (
  loss_spike_options,
  optimizers,
  schedules,
)
from xlflax.utils import class_registry, errors, validation

_changeable = class_registry.changeable_field


@class_registry.register('trainer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
  """A pretraining or fine-tuning run.

  It is built by gin, by Python, or from another trainer by
  `dataclasses.replace`. Fields that may change when a run is resumed are
  declared with `class_registry.changeable_field`. All others identify the run.

  Attributes:
    model_dir: Run directory. An existing run is resumed.
    model: Linen module. Sizes that it leaves open follow from the vocabulary.
    objectives: Weighted entries of (stream, objective).
    streams: Data that the entries read.
    vocabulary: Directory of the vocabulary. Plans and benchmarks only need its
      sizes.
    optimizer: Optimizer with its learning rate schedule
      (`training.optimization.optimizers`).
    total_steps: Number of optimizer steps. If None, it follows from `epochs`.
    epochs: Number of passes over the labeled examples if `total_steps` is
      None. It may be a fraction.
    corpus: Corpus directory, whose tasks are registered as `corpus.*`.
    cache_dir: Token cache to read. If None, SeqIO tasks are read live.
    cache_generation: Generation of a cache that text was added to, from 1. If
      None, the newest one is read.
    check_cache: Whether to compare the cache with its digests before the first
      read, and after its files were changed.
    task_modules: Modules that register SeqIO tasks, imported to read live.
    partitioner: Mesh and sharding rules. The default splits the batch over all
      devices.
    checkpoints: When checkpoints are saved and kept.
    evaluation: Tasks that are evaluated during training. If None, there are
      none.
    init_from: One or several runs to initialize parameters from, in their
      order.
    seed: Random seed of parameters, data order, masking and dropout.
    accumulation: Number of micro-batches per step.
    ema_decay: Decay of the averaged parameters. If None, no average is kept.
    non_finite: Policy for steps whose loss or gradient is not finite.
    most_skipped: Maximum number of consecutive skipped steps. One more ends
      the run.
    spikes: Guard against loss spikes (`training.hooks.loss_spikes`). If None,
      there is none.
    log_every_steps: Number of steps between reports.
    log_to: Destinations of metrics in addition to `metrics.jsonl`
      (`training.metric_writers`).
    prefetch: Number of batches that are transferred to the devices ahead.
    hang_timeout: Seconds without a step, batch or checkpoint after which all
      processes write their stacks and the job ends, to be restarted. 0
      disables the watchdog (`training.hooks.watchdog`).
    replay_every: Number of steps between checks for silent data corruption: a
      step is computed twice, and all results and replicas must be equal bit by
      bit (`training.hooks.silent_data_corruption`). It takes the memory of a
      second state. None and 0 disable it.
    xla_checker: Whether XLA's own checker runs at the same steps. TPUs only.
    profile_steps: Steps to trace, FIRST:LAST (`training.hooks.profiler`).
    profile_memory: Whether to profile the memory of the devices, too.
    stop_at_step: Step at which the run saves and stops before `total_steps`,
      for tests and time-limited jobs. Schedules do not change.
    other_config: Action if the directory holds another run.
    hooks: Hooks that run after the default ones (`training.hooks`). Each call
      of `train` works with copies of them.
  """

  model_dir: str = _changeable()
  model: Annotated[
    nn.Module,
    pydantic.Field(
      description='a model, such as encoder.Encoder(config=EncoderConfig(...))'
    ),
  ]
  objectives: objective_mixture.ObjectiveMixture
  streams: Annotated[
    tuple[loader_base.AnyStream, ...],
    pydantic.Field(description='a list of streams, such as [Stream(...)]'),
  ]
  # Its content is compared with the copy that the run has.
  vocabulary: Annotated[
    str | vocabulary_spec.VocabularySpec,
    pydantic.Field(
      description='the directory of a vocabulary, or a VocabularySpec'
    ),
  ] = _changeable()
  optimizer: Annotated[
    optimizers.Optimizer,
    pydantic.Field(
      description='an optimizer of xlflax.training.optimization.optimizers, such as '
      'AdamW(learning_rate=1e-4)'
    ),
  ]
  # What it changes in schedules is in the description of these.
  total_steps: validation.PositiveInt | None = _changeable(default=None)
  epochs: validation.PositiveFloat | None = _changeable(default=None)
  # Its text is compared by the digests of what streams read.
  corpus: str | None = _changeable(default=None)
  # The live loader has another order; where a cache lies does not matter.
  cache_dir: str | None = class_registry.part_of_identity(
    lambda path: 'live' if path is None else 'cached', default=None
  )
  # Other tokens are noticed by their digests.
  cache_generation: validation.PositiveInt | None = _changeable(default=None)
  check_cache: bool = _changeable(default=True)
  task_modules: tuple[str, ...] = _changeable(default=())
  partitioner: partitioning.Partitioner = _changeable(
    default_factory=partitioning.Partitioner
  )
  checkpoints: checkpoints_lib.CheckpointOptions = _changeable(
    default_factory=checkpoints_lib.CheckpointOptions
  )
  evaluation: interfaces.Evaluation | None = _changeable(default=None)
  init_from: initialization.Inits | None = None
  seed: validation.Seed = 0
  accumulation: validation.PositiveInt = 1
  ema_decay: validation.OpenFraction | None = None
  non_finite: train_step.NonFinite = train_step.NonFinite.STOP
  most_skipped: validation.PositiveInt = _changeable(default=100)
  spikes: loss_spike_options.LossSpikes | None = _changeable(default=None)
  log_every_steps: validation.PositiveInt = _changeable(default=50)
  log_to: tuple[writers.Destination, ...] = _changeable(
    default=(writers.Destination.TENSORBOARD,)
  )
  prefetch: validation.PositiveInt = _changeable(default=2)
  hang_timeout: validation.NonNegativeFloat = _changeable(default=900.0)
  replay_every: validation.NonNegativeInt | None = _changeable(default=None)
  xla_checker: bool = _changeable(default=False)
  profile_steps: str | None = _changeable(default=None)
  profile_memory: bool = _changeable(default=False)
  stop_at_step: validation.PositiveInt | None = _changeable(default=None)
  other_config: run_directory.OtherConfig = _changeable(
    default=run_directory.OtherConfig.REFUSE
  )
  hooks: tuple[hooks_base.Hook, ...] = _changeable(default=())

  def __post_init__(self):
    # One run by its directory alone is the same as an InitFrom of it.
    inits = initialization.as_init_list(self.init_from)
    is_one = isinstance(self.init_from, (str, initialization.InitFrom))
    init = inits[0] if inits and is_one else inits or None
    object.__setattr__(self, 'init_from', init)
    self._check_length()
    self._check_best()
    self._check_streams()

  def _check_length(self):
    profiler_hook.Steps.of(self.profile_steps)
    if self.profile_memory and self.profile_steps is None:
      raise errors.ConfigError(
        "The devices' memory is profiled after traced steps",
        got='profile_memory without profile_steps',
        fix='give --profile_steps=FIRST:LAST too',
        where='Trainer.profile_memory',
      )
    if self.xla_checker and not self.replay_every:
      raise errors.ConfigError(
        "XLA's checker looks at the steps that are replayed",
        got='xla_checker without replay_every',
        fix='give replay_every too, such as 1000',
        where='Trainer.xla_checker',
      )
    if self.total_steps is None and self.epochs is None:
      raise errors.ConfigError(
        'The length of the run is not given',
        got='neither total_steps nor epochs',
        where='Trainer',
        fix='give total_steps (gin: TRAIN_STEPS)',
      )

  def _check_best(self):
    if self.checkpoints.best_metric is not None and self.evaluation is None:
      raise errors.ConfigError(
        'There is no evaluation that would tell the best checkpoint',
        got=f'best_metric={self.checkpoints.best_metric!r}',
        where='CheckpointOptions.best_metric',
        fix='give an evaluation (gin_file evaluate/during_training.gin)',
      )

  def _check_streams(self):
    names = [stream.name for stream in self.streams]
    if len(set(names)) != len(names):
      raise errors.ConfigError(
        'Two streams have the same name', got=names, where='Trainer.streams'
      )
    read_streams = {entry.stream for entry in self.objectives.entries}
    if read_streams != set(names):
      raise errors.ConfigError(
        'Streams and objectives do not match',
        got=f'streams {sorted(names)}, objectives read {sorted(read_streams)}',
        expected='each stream read by an objective, each read stream given',
        where='Trainer.streams and ObjectiveMixture.entries',
      )
    by_name = dict(zip(names, self.streams, strict=True))
    for entry in self.objectives.entries:
      entry.objective.check_stream(by_name[entry.stream])
    for stream in self.streams:
      self.partitioner.check_batch_size(
        stream.batch_size,
        accumulation=self.accumulation,
        where=f'stream {stream.name}',
      )

  @classmethod
  @validation.validate_call
  def from_recipe(
    cls, name: str, *, pretraining: str = 'mlm', **macros: Any
  ) -> 'Trainer':
    """Builds the run of a recipe, as `xlflax train --gin_file` does.

    Args:
      name: of a file of `gin_configs/recipes/`, such as 'small'.
      pretraining: of a file of `gin_configs/pretrain/`: what is learned.
      **macros: values of what the two files name in capitals, such as
        `model_dir`, `corpus`, `vocabulary`, `cache_dir`, `train_steps`.

    Raises:
      ConfigError: there is no such recipe or macro, or a value is missing.
    """
    values = {name.upper(): value for name, value in macros.items()}
    files = [f'pretrain/{pretraining}.gin', f'recipes/{name}.gin']
    return gin_config.load_gin_files(files, macros=values).build(cls)

  @validation.validate_call
  def train(
    self,
    *,
    gin_config: str | Callable[[], str] = '',
    report: writers.Report | None = None,
  ) -> dict[str, Any]:
    """Trains from the last checkpoint, or from the start, to the last step.

    Args:
      gin_config: Text of a gin file that builds this trainer, or a function
        that returns it, for the run directory.
      report: Function called after each report with the step and the metrics
        of `metrics.jsonl`, such as {'train': {'mlm/loss/en': 2.0}}. Only the
        first process calls it.

    Returns:
      'step', 'loss', 'model_dir', 'finished', and 'interrupted' (by a signal).

    Raises:
      XlflaxError: If fields, data or checkpoints are unusable, or the loss is
        not finite.
    """
    text = gin_config() if callable(gin_config) else gin_config
    trainer, options = self, self.checkpoints
    if (
      self.evaluation is not None
      and options.best_metric
      and options.best_is_highest is None
    ):
      highest = self.evaluation.is_better_higher(options.best_metric)
      options = dataclasses.replace(options, best_is_highest=highest)
      trainer = dataclasses.replace(self, checkpoints=options)
    return train_loop.train(trainer, gin_config=text, report=report)

  @validation.validate_call
  def plan(
    self,
    machine: machine_topology.Machine | None = None,
    *,
    by: dry_run.By = dry_run.By.AUTO,
  ) -> dict[str, Any]:
    """Checks everything and describes the run, without a step.

    Args:
      machine: what is planned for, while this process's devices stand in for
        it (`planning.stand_in`); None for these devices.
      by: the machine's own compiler, or an estimate.

    Returns:
      Memory, parameters, streams, times: see `planning.plan.make`.

    Raises:
      XlflaxError: settings or data are unusable.
    """
    return dry_run.make_plan(self.on(machine) if machine else self, by=by)

  @validation.validate_call
  def benchmark(self, *, steps: validation.PositiveInt = 10) -> dict[str, Any]:
    """Times steps on synthetic batches; writes nothing.

    Args:
      steps: how many are timed.

    Returns:
      Step time, tokens/s, MFU, peak memory: see `training.benchmark.run`.
    """
    return step_benchmark.time_steps(self, steps=steps)

  @property
  def steps(self) -> int:
    """Optimizer steps of the whole run, once it is `resolved`."""
    assert self.total_steps is not None
    return self.total_steps

  @property
  def last_step(self) -> int:
    """Where this call stops, once the run is `resolved`."""
    return min(self.steps, self.stop_at_step or self.steps)

  def on(
    self,
    machine: machine_topology.Machine,
    *,
    devices: tuple[Any, ...] | None = None,
  ) -> 'Trainer':
    """The same run on a described machine.

    Args:
      machine: the description.
      devices: its devices, to compile for; None has this process's devices
        stand in for them.
    """
    partitioner = dataclasses.replace(
      self.partitioner, machine=machine, devices=devices
    )
    return dataclasses.replace(self, partitioner=partitioner)

  def resolved(
    self, vocabulary: base_vocabulary.Vocabulary | None
  ) -> 'Trainer':
    """The same run with the number of steps filled in, also in schedules.

    Args:
      vocabulary: of the run; needed to count the rows that `epochs` is of.

    Raises:
      ConfigError: `epochs` is given for a stream without labelled examples.
      XlflaxError: the rows cannot be made.
    """
    total_steps = self.total_steps or self._steps_of_epochs(vocabulary)
    counted = dataclasses.replace(self, total_steps=total_steps)
    return schedules.resolve_schedules(counted, total_steps)

  def _steps_of_epochs(
    self, vocabulary: base_vocabulary.Vocabulary | None
  ) -> int:
    """Steps that see each row of the first stream so often, rounded up.

    25 rows in batches of 10 are 5 steps in 2 epochs.
    """
    assert self.epochs is not None
    stream = self.streams[0]
    if vocabulary is None or not isinstance(
      stream, labelled_stream.LabelledStream
    ):
      raise errors.ConfigError(
        'Epochs are counted over labelled examples',
        got=f'epochs={self.epochs} of stream {stream.name!r}',
        expected='a labelled stream and a vocabulary, or total_steps',
        where='Trainer.epochs',
        fix='give total_steps (gin: TRAIN_STEPS)',
      )
    loader = labelled_loader.LabelledLoader(
      stream, vocabulary=vocabulary, seed=self.seed
    )
    try:
      return math.ceil(self.epochs * loader.num_rows / stream.batch_size)
    finally:
      loader.close()
