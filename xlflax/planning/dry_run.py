"""The dry run: everything checked and described, without a step."""

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
  step_costs,
  step_plan,
  step_time,
)
from xlflax.training import param_tree, training_setup
from xlflax.training.checkpointing import checkpoint_reader
from xlflax.training.devices import accelerators, device_rates, machine_topology
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax import trainer as trainer_lib


class By(enum.Enum):
  """What a plan for a described machine is made by."""

  AUTO = 'auto'  # the compiler where it is installed, else an estimate
  COMPILER = 'compiler'  # the machine's own compiler
  ESTIMATE = 'estimate'  # the CPU's compiler, and a model of the machine


def make_plan(
  settings: 'trainer_lib.Trainer', *, by: By = By.AUTO
) -> dict[str, Any]:
  """Checks settings and data, compiles the steps, prints and returns the plan.

  Args:
    settings: of the run; `settings.on(machine)` for a described machine.
    by: what a plan for a described machine is made by.

  Returns:
    'learning_rate' (in words, '' where the run gives it), 'parameters' (total,
    trainable, by top-level module), 'memory' (bytes per
    device: parameters, optimizer, batch, temporary), 'streams' (rows and
    expected batches per language), 'flops_per_step', 'seconds_per_step'
    (an estimate), 'total_steps'; where steps are replayed, 'replay': bytes
    per device, seconds and their share. With a described machine also what
    `planning.analysis.analyze_run` returns, 'basis' (in words) and 'compiled'
    (whether by the machine's compiler).
  """
  machine = settings.partitioner.machine
  if machine:
    result = _there(settings, machine, by)
    result |= _time_there(result)
  else:
    setup = training_setup.Setup(settings)
    result = _described(setup) | _measured_here(setup)
  result |= _with_replay(settings.replay_every, result)
  plan_report.print_plan(result)
  return result


def _there(
  settings, machine: machine_topology.Machine, by: By
) -> dict[str, Any]:
  """Plans for a described machine, by its compiler or by an estimate."""
  obstacle = compilers.why_unavailable(machine)
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
  return _described(setup) | result


def check_compiler(machine: machine_topology.Machine) -> None:
  """Raises ConfigError if the machine's own compiler cannot be used."""
  obstacle = compilers.why_unavailable(machine)
  if obstacle:
    raise errors.ConfigError(
      "The machine's compiler cannot be used here",
      got=obstacle,
      expected="its package, of this JAX's version",
      where='--cost_model=compiler',
      fix='install that extra of xlflax, or plan by --cost_model=estimate',
    )


def _described(setup: training_setup.Setup) -> dict[str, Any]:
  """Describes all but the compiled steps; opens the data."""
  settings = setup.settings
  if setup.vocabulary is None:
    logging.info(
      'The vocabulary is no more than its size: text and initial '
      'parameters are not looked at.'
    )
  elif settings.init_from and not settings.partitioner.machine:
    setup.initial_state()
  loaders = setup.open_loaders()
  try:
    streams = {
      name: _stream(
        loader, settings.objectives.stream_step(name, settings.steps)
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
    'parameters': _parameters(setup),
    'learning_rate': setup.rate_description,
    'streams': streams,
  }


def _parameters(setup: training_setup.Setup) -> dict[str, Any]:
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


def _measured_here(setup: training_setup.Setup) -> dict[str, Any]:
  """Returns memory and time of a run on the devices of this process.

  Memory is that of the compiled steps. On a known accelerator the time is
  estimated; on a CPU it follows from the measured rate of a matmul.
  """
  state = setup.factory.abstract_sharded
  machine = _machine_here(setup)
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
      used['batch'] = max(used['batch'], memory.per_device(batches))
      used['temporary'] = max(
        used['temporary'], getattr(stats, 'temp_size_in_bytes', 0)
      )
      if machine:
        counts = collectives.find_collectives(
          compiled.as_text(), devices=machine.count, per_node=machine.per_node
        )
        time = step_time.estimate_time(
          step_costs.count_costs(traced.jaxpr.jaxpr),
          machine,
          counts,
          update_fraction=compiled_plan.update_fraction(setup),
        )
        times.append((fraction, time))
        tokens += fraction * step_plan.count_tokens(batches)
  used = memory.of_state(state) | used | memory.of_replay(setup)
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


def _machine_here(
  setup: training_setup.Setup,
) -> machine_topology.Machine | None:
  """Returns the devices of this process, None if their rates are unknown."""
  local = jax.devices()
  accelerator = accelerators.find_by_kind(local[0].device_kind)
  if accelerator is None:
    return None
  count = setup.settings.partitioner.mesh.size
  return machine_topology.Machine(
    platform=accelerator.platform,
    accelerator=accelerator,
    count=count,
    per_node=min(machine_topology.node_size(local), count),
  )


def flops_per_step(setup: training_setup.Setup) -> float:
  """Returns the model FLOPs of a step, the mean over kinds of steps."""
  objectives = setup.settings.objectives
  kinds = [objectives.active(step) for step in range(objectives.period)]
  flops_by_kind = {kind: setup.flops(kind) for kind in set(kinds)}
  return float(np.mean([flops_by_kind[kind] for kind in kinds]))


def _time_measured(flops: float) -> dict[str, Any]:
  return {
    'seconds_per_step': flops / device_rates.measure_matmul_rate(),
    'seconds_per_step_basis': 'the rate of a matrix product on this '
    'machine, just measured',
  }


def _time_there(result: dict[str, Any]) -> dict[str, Any]:
  """Returns the estimated time of a step on the described machine."""
  if not result['estimate']:
    return _time_measured(result['flops_per_step'])
  return _time_estimated(result['estimate'])


def _time_estimated(estimate: dict[str, Any]) -> dict[str, Any]:
  return {
    'seconds_per_step': estimate['seconds_per_step'],
    'seconds_per_step_basis': estimate['basis'],
  }


def _with_replay(every: int | None, result: dict[str, Any]) -> dict[str, Any]:
  """Returns the mean time of steps of which each n-th is taken twice."""
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


def _stream(loader, total_steps: int) -> list[dict[str, Any]]:
  """Returns a row per task: sizes, share, and how much of it the run sees."""
  rows = []
  tasks = loader.statistics()
  of_tasks = sampling_order.count_rows_read(loader.stream, tasks, total_steps)
  for task, num_read in zip(tasks, of_tasks.tolist(), strict=True):
    epochs = num_read / task.rows if task.rows else None
    rows.append(
      dataclasses.asdict(task)
      | {
        'batches': num_read / loader.stream.batch_size,
        'epochs': epochs,
        # An epoch has each row once, so less than one leaves rows unseen.
        'unseen': None if epochs is None else max(0.0, 1 - epochs),
        'tokens_read': None
        if epochs is None or task.tokens is None
        else round(epochs * task.tokens),
      }
    )
  return rows
