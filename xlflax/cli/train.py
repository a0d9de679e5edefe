"""`xlflax train`: pretrains and fine-tunes models."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

from xlflax.cli import (
  compilation_cache,
  distributed,
  run_options,
  train_next_steps,
  train_phases,
)
from xlflax.cli import options as shared_options
from xlflax.config import flag_validation, gin_config, setting_names
from xlflax.storage import paths
from xlflax.training.devices import machine_topology
from xlflax.utils import errors, live_display, signals


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(run_options.RunOptions):
  """Trains a model, or resumes the run in --model_dir.

  Attributes:
    phases: Directory with the gin files phase1.gin, phase2.gin and so on, or
      gin files separated by commas. The phases are trained one after another in
      MODEL_DIR/phase1, MODEL_DIR/phase2 and so on (see
      docs/modern_encoders.md).
    dry_run: Check the configuration and print the plan without training.
    target_topology: Devices for which a dry run makes its plan, as
      PLATFORM:KIND:COUNT, such as gpu:H200:512, tpu:v5p:256 or cpu:8. The
      devices need not be available. gpu:A100-40GB:64/4 has 4 devices per node.
    cost_model: Method by which the plan for a target topology is made.
      "compiler" compiles the program for the devices and requires the extra
      plan-gpu or plan-tpu. "estimate" does not require a compiler. "auto"
      compiles if the compiler is installed, and estimates otherwise.
    output_file: JSON file to which a dry run writes the plan.
    on_config_mismatch: Behavior if --model_dir contains a run with a different
      configuration. "continue" resumes the run with the new configuration.
    stop_after_steps: Save a checkpoint and stop after this step, even if it is
      not the last step of the run.
    preemption_exit_code: Exit code if a signal stops the run. Choose a code for
      which the scheduler restarts the job. With 0, the exit code is 130 if the
      signal arrives before the run has finished a step.
    watchdog_timeout: Seconds without a step, batch or checkpoint after which
      all processes write their stack traces and the job exits with code 74. The
      limit is at least ten times the duration of the longest step so far. 0
      disables the watchdog. Defaults to 900.
    profile_steps: Steps to profile, as FIRST:LAST. The first profiled step is
      FIRST + 1, and the last one is LAST. The trace is written to
      MODEL_DIR/profile and can be opened in TensorBoard or at ui.perfetto.dev.
    profile_memory: Also write a device memory profile, which can be opened with
      pprof.
    report_to: Destination of the metrics, in addition to metrics.jsonl. Repeat
      the option for several destinations. "jsonl" alone disables all other
      destinations, and "terminal" logs losses by objective and language.
      Defaults to tensorboard.
  """

  phases: str | None = None
  dry_run: bool = False
  target_topology: str | None = None
  cost_model: Literal['auto', 'compiler', 'estimate'] = 'auto'
  output_file: str | None = None
  on_config_mismatch: Literal['error', 'continue'] = 'error'
  stop_after_steps: shared_options.PositiveInt | None = None
  preemption_exit_code: shared_options.ExitCode = 0
  watchdog_timeout: shared_options.NonNegativeFloat | None = None
  profile_steps: str | None = None
  profile_memory: bool = False
  report_to: tuple[
    Literal['jsonl', 'tensorboard', 'wandb', 'mlflow', 'terminal'], ...
  ] = ()
  format: shared_options.OutputOptions = shared_options.OutputOptions()
  distributed: shared_options.DistributedOptions = (
    shared_options.DistributedOptions()
  )

  def __post_init__(self):
    super().__post_init__()
    shared_options.check_requires(
      self,
      ['target_topology', 'output_file', 'vocabulary_size'],
      requires='--dry_run',
      satisfied=self.dry_run,
    )
    shared_options.check_requires(
      self,
      ['cost_model'],
      requires='--target_topology',
      satisfied=self.target_topology is not None,
    )
    shared_options.check_requires(
      self,
      ['profile_memory'],
      requires='--profile_steps',
      satisfied=self.profile_steps is not None,
    )
    shared_options.check_excludes(
      self, ['json'], excluded_by='--dry_run', given=self.dry_run
    )
    shared_options.check_excludes(
      self,
      ['corpus', 'cache'],
      excluded_by='--vocabulary_size',
      given=self.vocabulary_size is not None,
    )


EXAMPLES = r"""
Pretrain a small encoder:
  xlflax train --gin_file=pretrain/mlm.gin --gin_file=models/small.gin \
      --corpus=corpus --vocabulary=vocab --cache=cache --model_dir=runs/mlm \
      --gin.TRAIN_STEPS=10000

Print the plan: parameters, memory, batches per language and time:
  xlflax train --gin_file=... --model_dir=runs/mlm --dry_run

Plan for other devices, without text or vocabulary:
  xlflax train --gin_file=papers/veco/small_ca_mlm_tlm.gin --dry_run \
      --vocabulary_size=250002 --num_languages=50 --target_topology=gpu:H200:64
  xlflax train --gin_file=papers/metaxlm/xlm.gin --dry_run \
      --vocabulary_size=250002 --num_languages=94 --target_topology=tpu:v5e:8

Train several phases in runs/modern/phase1 and so on, each from the checkpoint
of the previous phase. Run the command again to resume:
  xlflax train --phases=recipes/modernbert --corpus=corpus --cache=cache \
      --vocabulary=vocab --model_dir=runs/modern

Start the first of two processes (see `xlflax launch local`):
  xlflax train ... --coordinator_address=localhost:9876 --num_processes=2 \
      --process_id=0
"""


def main(options: TrainOptions) -> int:
  """Trains or, with `--dry_run`, plans the run. Returns the exit status."""
  try:
    with signals.reraise_stop():
      return _train_or_plan(options)
  except signals.Stopped as error:  # Raised before training handles signals.
    if not options.preemption_exit_code:
      raise
    print(f'xlflax train: {signals.describe_stop(error)}.', file=sys.stderr)
    return options.preemption_exit_code


def _train_or_plan(options: TrainOptions) -> int:
  """Trains or plans the run and returns the exit status."""
  machine = (
    None
    if options.target_topology is None
    else machine_topology.parse_topology(options.target_topology)
  )
  flag_validation.check_directory('corpus', options.corpus)
  phases = train_phases.configure(options)
  if machine is None:
    compilation_cache.enable(options.compilation.compilation_cache)
  else:
    from xlflax.planning import cpu_stand_in

    # This must precede the initialization of JAX's devices.
    cpu_stand_in.create_cpu_devices(machine)
  from xlflax.training.distributed import distributed_job

  with distributed_job.leaving_together(
    'train', stopped_status=options.preemption_exit_code
  ):
    distributed.join(
      options.distributed,
      [phase.configuration for phase in phases],
      _shared_settings(options),
    )
    with machine_topology.planning_for(machine):
      trainers = [_build_trainer(options, phase) for phase in phases]
    gin_config.check_bindings([phase.configuration for phase in phases])
    if options.dry_run:
      return _plan(options, phases, trainers, machine)
    return _train(options, phases, trainers)


def _shared_settings(options: TrainOptions) -> list[str]:
  """Returns the options that must be equal in all processes of a job."""
  names = ('dry_run', 'stop_after_steps', 'on_config_mismatch')
  return [f'--{name}={getattr(options, name)}' for name in names]


def _plan(
  options: TrainOptions,
  phases: Sequence[train_phases.Phase],
  trainers: Sequence[Any],
  machine: machine_topology.DeviceTopology | None,
) -> int:
  """Prints the plan of each phase and, for several phases, a summary."""
  from xlflax.planning import dry_run, plan_report
  from xlflax.training.distributed import distributed_job

  if options.phases:
    train_phases.check(
      [run.on(machine) if machine else run for run in trainers]
    )
  plans = {}
  for phase, trainer in zip(phases, trainers, strict=True):
    train_next_steps.log_export(trainer)
    if options.phases:
      trainer = train_phases.without_missing_checkpoint(trainer)
    with setting_names.naming_settings(
      phase.configuration.find_dataset_binding, phase.configuration.is_default
    ):
      plans[phase.name] = trainer.plan(
        machine, by=dry_run.By(options.cost_model)
      )
  if options.phases:
    plan_report.show_phases(plans)
  if options.output_file and distributed_job.is_lead():
    result = {'phases': plans} if options.phases else plans['']
    text = json.dumps(result, indent=2) + '\n'
    paths.write_atomically(paths.to_path(options.output_file), text)
  return 0


def _train(
  options: TrainOptions,
  phases: Sequence[train_phases.Phase],
  trainers: Sequence[Any],
) -> int:
  """Trains the phases in order, until one stops before its last step."""
  from xlflax.training.distributed import distributed_job

  finished = train_phases.check(trainers) if options.phases else [False]
  for phase, trainer, is_finished in zip(
    phases, trainers, finished, strict=True
  ):
    if is_finished:
      continue
    if distributed_job.is_lead():
      train_next_steps.log_export(trainer)
    line = live_display.Line(f'{trainer.model_dir}: starting or saving')
    with (
      contextlib.closing(line),
      setting_names.naming_settings(
        phase.configuration.find_dataset_binding, phase.configuration.is_default
      ),
    ):
      result = trainer.train(gin_config=phase.configuration.operative)
    if distributed_job.is_lead():
      print(json.dumps(result))
      train_next_steps.log_next_steps(trainer, result)
    if result['interrupted']:
      return options.preemption_exit_code or _interruption_status(result)
    if not result.get('finished'):
      break
  return 0


def _interruption_status(result: dict[str, Any]) -> int:
  """Returns the exit status after a signal stopped a run.

  Args:
    result: Result of `Trainer.train`.
  """
  is_saved = result['checkpoint'] == result['step'] > result['first_step']
  return errors.ExitStatus.DONE if is_saved else errors.ExitStatus.INTERRUPTED


def _build_trainer(options: TrainOptions, phase: train_phases.Phase) -> Any:
  """Builds a phase's trainer from the configuration and the options."""
  from xlflax import trainer
  from xlflax.training.checkpointing import run_directory

  fields: dict[str, Any] = {
    'stop_after_steps': options.stop_after_steps,
    'watchdog_timeout': options.watchdog_timeout,
    'profile_steps': options.profile_steps,
    'trackers': list(options.report_to) or None,
    'profile_memory': options.profile_memory or None,
  }
  run = phase.configuration.build(
    trainer.Trainer,
    on_config_mismatch=run_directory.OnConfigMismatch(
      options.on_config_mismatch
    ),
    **{name: value for name, value in fields.items() if value is not None},
    **options.dummy_vocabulary(),
  )
  if not options.format.json:
    return run
  # JSON output includes the losses of each objective and language.
  return dataclasses.replace(run, trackers=(*run.trackers, 'terminal'))
