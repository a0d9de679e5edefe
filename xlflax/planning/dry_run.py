"""Dry run, which checks a run's settings and data without training."""

import dataclasses
import enum
import logging
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from xlflax.data.sampling import sampling_order
from xlflax.models import compile_targets, vocabulary_padding
from xlflax.planning import (
  collectives,
  compiled_plan,
  compilers,
  memory,
  plan_report,
  step_plan,
  step_time,
)
from xlflax.training import param_tree, training_setup
from xlflax.training.checkpointing import checkpoint_reader
from xlflax.training.devices import accelerators, device_rates, machine_topology
from xlflax.training.hooks import evaluation_hook
from xlflax.training.optimization import schedule_checks
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax import trainer


class By(enum.Enum):
  """Method of estimating costs on a target machine."""

  AUTO = 'auto'  # COMPILER if it is installed, otherwise ESTIMATE.
  COMPILER = 'compiler'  # The compiler of the machine.
  ESTIMATE = 'estimate'  # The CPU compiler and a model of the machine.


def make_plan(
  settings: 'trainer.Trainer', *, by: By = By.AUTO
) -> dict[str, Any]:
  """Checks a run, and prints and returns the estimated costs of its steps.

  Args:
    settings: Settings of the run. For a target machine, pass
      `settings.on(machine)`.
    by: Method of estimating costs on the target machine: COMPILER, ESTIMATE, or
      AUTO, which prefers the compiler if it is installed.

  Returns:
    'learning_rate' (description of the default, '' if the run sets it),
    'max_learning_rates' (fields of `schedule_checks.MaxRate` for each
    schedule), 'parameters' (total, trainable, by top-level module), 'memory'
    (bytes on each device for parameters, optimizer, batch and temporary
    arrays), 'datasets' (rows and expected batches per language),
    'flops_per_step', 'seconds_per_step' (an estimate) and 'total_steps'. If
    some steps are computed twice, also 'replay': the bytes per device, the
    seconds and the fraction of steps. For a target machine, also the result of
    `planning.compiled_plan.analyze_run`, 'basis' (a description) and 'compiled'
    (whether the compiler of the machine was used).
  """
  machine = settings.partitioner.topology
  if machine:
    result = _plan_for_machine(settings, machine, by)
    result |= _time_on_machine(result)
  else:
    setup = training_setup.Setup(settings)
    result = _describe_run(setup) | _measure_local_run(setup)
  result |= _add_replay_time(settings.sdc_check_every, result)
  plan_report.print_plan(result)
  return result


def _plan_for_machine(
  settings, machine: machine_topology.DeviceTopology, by: By
) -> dict[str, Any]:
  """Plans a run on a target machine, with its compiler or with an estimate."""
  obstacle = compilers.unavailable_reason(machine)
  if by is By.COMPILER:
    check_compiler(machine)
  is_compiled = by is not By.ESTIMATE and not obstacle
  if is_compiled:
    on_devices = settings.on(
      machine, devices=compilers.topology_devices(machine)
    )
    with compile_targets.compiling_for(compilers.target_of(machine)):
      setup = training_setup.Setup(on_devices)
      result = compiled_plan.analyze_run(setup, machine, is_compiled=True)
    basis = f'the program that XLA:{machine.platform.upper()} compiles'
    basis += f' ({compilers.compiler_version(machine)})'
  else:
    setup = training_setup.Setup(settings)
    result = compiled_plan.analyze_run(setup, machine, is_compiled=False)
    basis = 'an estimate from the traced step'
    if obstacle and machine.accelerator:
      basis += f'; {obstacle}'
  result |= {'basis': basis, 'compiled': is_compiled}
  return _describe_run(setup) | result


def check_compiler(machine: machine_topology.DeviceTopology) -> None:
  """Raises an error if the compiler for a target machine is unavailable.

  Args:
    machine: Target machine, for which costs are estimated.

  Raises:
    ConfigError: If the compiler for the machine is not installed or does not
      support it.
  """
  obstacle = compilers.unavailable_reason(machine)
  if obstacle:
    extra = compilers.EXTRAS.get(machine.platform)
    raise errors.ConfigError(
      'The flag --cost_model=compiler requires a compiler package that '
      'supports the target machine and matches the installed version of JAX',
      got=obstacle,
      fix=f'Install xlflax with the extra {extra!r}, or pass '
      '--cost_model=estimate.'
      if extra
      else 'Pass --cost_model=estimate.',
    )


def _describe_run(setup: training_setup.Setup) -> dict[str, Any]:
  """Opens the data and describes a run, except for its compiled steps."""
  settings = setup.settings
  if setup.vocabulary is None:
    logging.info(
      'The dummy vocabulary has only a size. Text and initial parameters are '
      'not checked.'
    )
  elif settings.init_from and not settings.partitioner.topology:
    setup.initial_state()
  if setup.vocabulary is not None:
    evaluation_hook.check_evaluation(settings)
  loaders = setup.open_loaders()
  try:
    datasets = {
      name: _describe_dataset(
        loader, settings.objectives.dataset_step(name, settings.steps)
      )
      for name, loader in loaders.items()
    }
  finally:
    for loader in loaders.values():
      loader.close()
  return {
    'model_dir': settings.model_dir,
    'finished_steps': checkpoint_reader.finished_steps(settings.model_dir),
    'total_steps': settings.steps,
    'mesh': dict(settings.partitioner.mesh.shape),
    'vocabulary': {
      'size': setup.spec.size,
      'languages': list(setup.spec.languages),
    },
    'parameters': _count_parameters(setup),
    'learning_rate': setup.rate_description,
    'max_learning_rates': [
      rate._asdict()
      for rate in schedule_checks.find_max_rates(
        settings.optimizer, settings.steps
      )
    ],
    'datasets': datasets,
  }


def _count_parameters(setup: training_setup.Setup) -> dict[str, Any]:
  """Counts the parameters of the model: total, trainable, and by module."""
  shapes = param_tree.param_shapes(setup.factory.abstract.params)
  optimizer = setup.settings.optimizer
  modules: dict[str, int] = {}
  trainable = 0
  for name, shape in shapes.items():
    size = vocabulary_padding.count_unpadded({name: shape}, setup.model.config)
    module = '/'.join(name.split('/')[:2])
    modules[module] = modules.get(module, 0) + size
    trainable += size if optimizer.is_trainable(name) else 0
  return {
    'total': sum(modules.values()),
    'trainable': trainable,
    'modules': modules,
  }


def _measure_local_run(setup: training_setup.Setup) -> dict[str, Any]:
  """Returns a run's memory and time on this process's devices.

  The memory is computed for the compiled steps. The time is estimated for
  a known accelerator. On a CPU, it is computed from the measured rate of a
  matmul.
  """
  state = setup.factory.abstract_sharded
  machine = _local_machine(setup)
  mixture = setup.settings.objectives
  schedule = [mixture.active(i) for i in range(mixture.period)]
  used = {'batch': 0, 'temporary': 0}
  times, tokens = [], 0.0
  with setup.settings.partitioner.scope():
    for active in dict.fromkeys(schedule):
      fraction = schedule.count(active) / len(schedule)
      batches = setup.abstract_batches(active)
      traced = setup.jitted_step(active).trace(state, batches)
      compiled = traced.lower().compile()
      stats = compiled.memory_analysis()
      used['batch'] = max(used['batch'], memory.bytes_per_device(batches))
      used['temporary'] = max(
        used['temporary'], getattr(stats, 'temp_size_in_bytes', 0)
      )
      if machine:
        counts = collectives.find_collectives(
          compiled.as_text(), devices=machine.count, per_node=machine.per_node
        )
        time = step_time.estimate_time(
          step_plan.count_costs(traced.jaxpr.jaxpr, machine),
          machine,
          counts,
          update_fraction=compiled_plan.update_fraction(setup),
        )
        times.append((fraction, time))
        tokens += fraction * step_plan.count_tokens(batches)
  used = memory.state_bytes(state) | used | memory.replay_bytes(setup)
  flops = flops_per_step(setup)
  result = {
    'memory': used | {'total': sum(used.values())},
    'flops_per_step': flops,
  }
  if not machine:
    return result | _time_measured(flops)
  estimate = step_time.describe_time(
    machine, step_time.mean_time(times), flops=flops, tokens=tokens
  )
  return result | {'estimate': estimate} | _time_estimated(estimate)


def _local_machine(
  setup: training_setup.Setup,
) -> machine_topology.DeviceTopology | None:
  """Returns the devices of this process, or None if their rates are unknown."""
  local = jax.devices()
  accelerator = accelerators.find_by_kind(local[0].device_kind)
  if accelerator is None:
    return None
  count = setup.settings.partitioner.mesh.size
  return machine_topology.DeviceTopology(
    platform=accelerator.platform,
    accelerator=accelerator,
    count=count,
    per_node=min(machine_topology.node_size(local), count),
  )


def flops_per_step(setup: training_setup.Setup) -> float:
  """Returns a run's mean number of model FLOPs per step.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
  """
  objectives = setup.settings.objectives
  kinds = [objectives.active(step) for step in range(objectives.period)]
  flops_by_kind = {kind: setup.flops(kind) for kind in set(kinds)}
  return float(np.mean([flops_by_kind[kind] for kind in kinds]))


def _time_measured(flops: float) -> dict[str, Any]:
  """Estimates the time of a step from the measured rate of a matmul."""
  return {
    'seconds_per_step': flops / device_rates.measure_matmul_rate(),
    'seconds_per_step_basis': 'the matmul rate measured on this machine',
  }


def _time_on_machine(result: dict[str, Any]) -> dict[str, Any]:
  """Returns the estimated time of a step on the described machine."""
  if not result['estimate']:
    return _time_measured(result['flops_per_step'])
  return _time_estimated(result['estimate'])


def _time_estimated(estimate: dict[str, Any]) -> dict[str, Any]:
  """Returns an estimate's time per step and the basis of the estimate."""
  return {
    'seconds_per_step': estimate['seconds_per_step'],
    'seconds_per_step_basis': estimate['basis'],
  }


def _add_replay_time(
  every: int | None, result: dict[str, Any]
) -> dict[str, Any]:
  """Returns the mean time of a step if every n-th step is computed twice."""
  if not every:
    return {}
  once = result['seconds_per_step']
  return {
    'seconds_per_step': once * (1 + 1 / every),
    'replay': {
      'every': every,
      'memory': result['memory']['replay'],
      'seconds': once,
      'share': 1 / every,
    },
  }


def _describe_dataset(loader, total_steps: int) -> list[dict[str, Any]]:
  """Returns each task's sizes, sampling rate and number of epochs."""
  rows = []
  tasks = loader.statistics()
  rows_read = sampling_order.count_rows_read(loader.dataset, tasks, total_steps)
  for task, num_read in zip(tasks, rows_read.tolist(), strict=True):
    epochs = num_read / task.rows if task.rows else None
    num_counted = task.examples_read
    if not num_counted and task.rows is not None:
      num_counted = task.examples  # Labeled data, which have no preprocessors.
    rows.append(
      dataclasses.asdict(task)
      | {
        # Without a token cache, a task is only read if its pairs are counted.
        'examples_read': num_counted or None,
        'dropped': task.dropped if num_counted else None,
        'truncated': task.truncated if num_counted else None,
        'batches': num_read / loader.dataset.batch_size,
        'epochs': epochs,
        # An epoch contains each row once, so some rows remain unread if the run
        # takes less than one epoch.
        'unseen': None if epochs is None else max(0.0, 1 - epochs),
        'tokens_read': None
        if epochs is None or task.tokens is None
        else round(epochs * task.tokens),
      }
    )
  return rows
