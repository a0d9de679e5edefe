"""What a run is: the fields of `xlflax.Trainer`, checked and described."""

import dataclasses
import math
from typing import Annotated, Any

from flax import linen as nn

from xlflax.data import loader as loader_lib
from xlflax.data.labelled import loader as labelled_loader
from xlflax.data.labelled import stream as labelled_stream
from xlflax.data.vocabularies import spec as vocabulary_spec
from xlflax.data.vocabularies import vocabulary as vocabulary_lib
from xlflax.foundation import errors, ranges, registry, schema
from xlflax.objectives import mixture as mixture_lib
from xlflax.training import protocols, train_step
from xlflax.training.checkpointing import checkpoints as checkpoints_lib
from xlflax.training.checkpointing import run_directory
from xlflax.training.devices import machines, partitioning
from xlflax.training.hooks import base as hooks_base
from xlflax.training.hooks import profiler
from xlflax.training.initialization import init_from as initialization
from xlflax.training.metric_writers import base as writers
from xlflax.training.optimization import optimizers, schedules
from xlflax.training.optimization import spikes as spikes_lib

_changeable = registry.changeable


@schema.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """Everything that a run is made of.

  Attributes:
    model_dir: the run's directory; a run that is there is continued.
    model: Linen module; sizes that it leaves open come from the vocabulary.
    objectives: entries of (stream, objective, weight).
    streams: what the entries read.
    vocabulary: directory of the vocabulary; its sizes alone are enough for
      plans and benchmarks.
    optimizer: see `xlflax.training.optimization.optimizers`.
    total_steps: optimizer steps of the whole run; None: as many as `epochs`
      asks for.
    epochs: how often each labelled example is seen, where `total_steps` is
      None; not always whole.
    corpus: corpus directory; registers the tasks `corpus.*`.
    cache_dir: token cache to read from; None reads SeqIO tasks live.
    cache_generation: state of a cache that text was added to, from 1; None:
      the newest.
    check_cache: compare the content of the cache with its digests before this
      run reads it for the first time, or after its files were written.
    task_modules: modules that register SeqIO tasks, imported to read live.
    partitioner: mesh and rules; the default splits the batch over all devices.
    checkpoints: when checkpoints are written and kept.
    evaluation: tasks to run during training.
    init_from: another run to take initial parameters from; or several, in
      their order.
    seed: of parameters, data order, masking and dropout.
    accumulation: micro-batches per step.
    ema_decay: decay of a running average of the parameters, or None.
    non_finite: what happens at a loss that is not finite.
    most_skipped: so many steps in a row that are not finite end the run, also
      where `non_finite` skips them.
    spikes: what happens where the loss rises suddenly; None: nothing
      (`training.spikes`).
    log_every_steps: steps between reports.
    log_to: where metrics go beside the run's `metrics.jsonl`
      (`training.metric_writers`).
    prefetch: batches made ready on the devices ahead of time.
    hang_timeout: seconds without a step, a batch or a checkpoint after which
      all processes write their stacks and the job ends, to be started again;
      0 waits for ever (`training.processes.watchdog`).
    replay_every: every so many steps, one is computed twice and must give the
      same bits, and the devices' copies of one array are compared; a
      disagreement ends the run, unsaved (`training.hooks.silent_data_corruption`). It takes the
      memory of a second state. None or 0: never.
    xla_checker: whether XLA's own checker looks at the same steps; TPUs only.
    profile_steps: steps to trace, 'FIRST:LAST' (`training.hooks.profiler`).
    profile_memory: whether to write a profile of the devices' memory too.
    stop_at_step: save and stop here, before `total_steps` (for tests and
      time-limited jobs); schedules do not change.
    other_config: what to do if the directory holds another run.
    hooks: Hooks that run after the default ones (`training.hooks`).
  """

  model_dir: str = _changeable()
  model: Annotated[
    nn.Module,
    schema.Takes('a model, such as encoder.Encoder(config=EncoderConfig(...))'),
  ]
  objectives: mixture_lib.ObjectiveMixture
  streams: Annotated[
    tuple[loader_lib.AnyStream, ...],
    schema.Takes('a list of streams, such as [Stream(...)]'),
  ]
  # Its content is compared with the copy that the run has.
  vocabulary: Annotated[
    str | vocabulary_spec.VocabularySpec,
    schema.Takes('the directory of a vocabulary, or a VocabularySpec'),
  ] = _changeable()
  optimizer: Annotated[
    optimizers.Optimizer,
    schema.Takes(
      'an optimizer of xlflax.training.optimization.optimizers, such as '
      'AdamW(learning_rate=1e-4)'
    ),
  ]
  # What it changes in schedules is in the description of these.
  total_steps: ranges.Count | None = _changeable(default=None)
  epochs: ranges.Positive | None = _changeable(default=None)
  # Its text is compared by the digests of what streams read.
  corpus: str | None = _changeable(default=None)
  # The live loader has another order; where a cache lies does not matter.
  cache_dir: str | None = registry.part_of_identity(
    lambda path: 'live' if path is None else 'cached', default=None
  )
  # Other tokens are noticed by their digests.
  cache_generation: ranges.Count | None = _changeable(default=None)
  check_cache: bool = _changeable(default=True)
  task_modules: tuple[str, ...] = _changeable(default=())
  partitioner: partitioning.Partitioner = _changeable(
    default_factory=partitioning.Partitioner
  )
  checkpoints: checkpoints_lib.CheckpointOptions = _changeable(
    default_factory=checkpoints_lib.CheckpointOptions
  )
  evaluation: protocols.Evaluation | None = _changeable(default=None)
  init_from: initialization.Inits | None = None
  seed: ranges.Seed = 0
  accumulation: ranges.Count = 1
  ema_decay: ranges.InnerShare | None = None
  non_finite: train_step.NonFinite = train_step.NonFinite.STOP
  most_skipped: ranges.Count = _changeable(default=100)
  spikes: spikes_lib.LossSpikes | None = _changeable(default=None)
  log_every_steps: ranges.Count = _changeable(default=50)
  log_to: tuple[writers.Destination, ...] = _changeable(
    default=(writers.Destination.TENSORBOARD,)
  )
  prefetch: ranges.Count = _changeable(default=2)
  hang_timeout: ranges.NonNegative = _changeable(default=900.0)
  replay_every: ranges.Natural | None = _changeable(default=None)
  xla_checker: bool = _changeable(default=False)
  profile_steps: str | None = _changeable(default=None)
  profile_memory: bool = _changeable(default=False)
  stop_at_step: ranges.Count | None = _changeable(default=None)
  other_config: run_directory.OtherConfig = _changeable(
    default=run_directory.OtherConfig.REFUSE
  )
  hooks: tuple[hooks_base.Hook, ...] = _changeable(default=())

  def __post_init__(self):
    # One run by its directory alone is the same as an InitFrom of it.
    inits = initialization.several(self.init_from)
    is_one = isinstance(self.init_from, (str, initialization.InitFrom))
    init = inits[0] if inits and is_one else inits or None
    object.__setattr__(self, 'init_from', init)
    self._check_length()
    self._check_best()
    self._check_streams()

  def _check_length(self):
    profiler.Steps.of(self.profile_steps)
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
    wanted = {entry.stream for entry in self.objectives.entries}
    if wanted != set(names):
      raise errors.ConfigError(
        'Streams and objectives do not match',
        got=f'streams {sorted(names)}, objectives read {sorted(wanted)}',
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
    self, machine: machines.Machine, *, devices: tuple[Any, ...] | None = None
  ) -> 'Settings':
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
    self, vocabulary: vocabulary_lib.Vocabulary | None
  ) -> 'Settings':
    """The same run with the number of steps filled in, also in schedules.

    Args:
      vocabulary: of the run; needed to count the rows that `epochs` is of.

    Raises:
      ConfigError: `epochs` is given for a stream without labelled examples.
      XlflaxError: the rows cannot be made.
    """
    total_steps = self.total_steps or self._steps_of_epochs(vocabulary)
    counted = dataclasses.replace(self, total_steps=total_steps)
    return schedules.resolved(counted, total_steps)

  def _steps_of_epochs(
    self, vocabulary: vocabulary_lib.Vocabulary | None
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
