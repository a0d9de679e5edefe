"""`train`: the one entry point of pretraining and fine-tuning."""

import enum
from collections.abc import Callable, Sequence
from typing import Any

from xlflax import enums
from xlflax.data import loader as loader_lib
from xlflax.data.vocabularies import spec as vocabulary_spec
from xlflax.objectives import mixture as mixture_lib
from xlflax.planning import plan
from xlflax.training import (
  benchmark,
  loop,
  machines,
  optimizers,
  partitioning,
  run_directory,
)
from xlflax.training import checkpoints as checkpoints_lib
from xlflax.training import evaluation as evaluation_lib
from xlflax.training import setup as setup_lib
from xlflax.training import step as step_lib
from xlflax.training.initialization import init_from as initialization


class Mode(enum.Enum):
  """What `train` does with its settings."""

  TRAIN = 'train'
  PLAN = 'plan'  # check everything and describe the run, without a step
  BENCHMARK = 'benchmark'  # time steps on synthetic batches


def train(
  *,
  model_dir: str,
  model: Any,
  objectives: mixture_lib.ObjectiveMixture,
  streams: Sequence[loader_lib.AnyStream],
  vocabulary: str | vocabulary_spec.VocabularySpec,
  total_steps: int,
  optimizer: optimizers.Optimizer,
  corpus: str | None = None,
  cache_dir: str | None = None,
  task_modules: Sequence[str] = (),
  partitioner: partitioning.Partitioner | None = None,
  checkpoints: checkpoints_lib.CheckpointOptions | None = None,
  evaluation: evaluation_lib.Evaluation | None = None,
  init_from: initialization.Inits | None = None,
  seed: int = 0,
  accumulation: int = 1,
  ema_decay: float | None = None,
  non_finite: step_lib.NonFinite = step_lib.NonFinite.STOP,
  log_every_steps: int = 50,
  prefetch: int = 2,
  stop_at_step: int | None = None,
  other_config: run_directory.OtherConfig = run_directory.OtherConfig.REFUSE,
  config: str | Callable[[], str] = '',
  mode: Mode = Mode.TRAIN,
  benchmark_steps: int = 10,
  machine: machines.Machine | None = None,
) -> dict[str, Any]:
  """Trains a model, or continues a run where its last checkpoint left it.

  Args:
    model_dir: the run's directory; a run that is there is continued.
    model: Linen module; sizes that it leaves open come from the vocabulary.
    objectives: entries of (stream, objective, weight).
    streams: what the entries read.
    vocabulary: directory of the vocabulary; its sizes alone are enough for
      `Mode.BENCHMARK`.
    total_steps: optimizer steps of the whole run.
    optimizer: see `xlflax.training.optimizers`.
    corpus: corpus directory; registers the tasks `corpus.*`.
    cache_dir: token cache to read from; None reads SeqIO tasks live.
    task_modules: modules that register SeqIO tasks, imported to read live.
    partitioner: mesh and rules; None splits the batch over all devices.
    checkpoints: when checkpoints are written and kept.
    evaluation: tasks to run during training.
    init_from: another run to take initial parameters from; or several, in
      their order.
    seed: of parameters, data order, masking and dropout.
    accumulation: micro-batches per step.
    ema_decay: decay of a running average of the parameters, or None.
    non_finite: what happens at a loss that is not finite.
    log_every_steps: steps between reports.
    prefetch: batches made ready on the devices ahead of time.
    stop_at_step: save and stop here, before `total_steps` (for tests and
      time-limited jobs); schedules do not change.
    other_config: what to do if the directory holds another configuration.
    config: the configuration's text, for the run directory.
    mode: train, only plan, or time synthetic steps.
    benchmark_steps: timed steps of `Mode.BENCHMARK`.
    machine: what `Mode.PLAN` plans for, while this process's devices stand in
      for it (`planning.program.stand_in`); None for these devices.

  Returns:
    `Mode.TRAIN`: {'step', 'loss', 'model_dir', 'finished', 'interrupted'}
    (by a signal);
    `Mode.PLAN` and `Mode.BENCHMARK`: their figures.

  Raises:
    XlflaxError: settings, data or checkpoints are unusable, or the loss was
      not finite.
  """
  settings = setup_lib.Settings(
    model_dir=model_dir,
    model=model,
    objectives=objectives,
    streams=tuple(streams),
    vocabulary=vocabulary,
    total_steps=total_steps,
    optimizer=optimizer,
    corpus=corpus,
    cache_dir=cache_dir,
    task_modules=tuple(task_modules),
    partitioner=partitioner or partitioning.Partitioner(),
    checkpoints=checkpoints or checkpoints_lib.CheckpointOptions(),
    evaluation=evaluation,
    init_from=init_from,
    seed=seed,
    accumulation=accumulation,
    ema_decay=ema_decay,
    non_finite=enums.of_value(
      non_finite, step_lib.NonFinite, where='train.non_finite'
    ),
    log_every_steps=log_every_steps,
    prefetch=prefetch,
    stop_at_step=stop_at_step,
    machine=machine,
    other_config=enums.of_value(
      other_config, run_directory.OtherConfig, where='train.other_config'
    ),
  )
  if mode is Mode.BENCHMARK:
    return benchmark.run(settings, steps=benchmark_steps)
  if mode is Mode.PLAN:
    return plan.make(settings)
  return loop.run(settings, config=config() if callable(config) else config)
