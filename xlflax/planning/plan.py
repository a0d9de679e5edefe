"""The dry run: everything checked and described, without a step."""

import dataclasses
import enum
import logging
from typing import Any

import jax
import numpy as np

from xlflax.data.sampling import row_schedule
from xlflax.foundation import errors
from xlflax.models import targets
from xlflax.planning import analysis, memory, report
from xlflax.planning.targets import attention, compilers
from xlflax.training import params as params_lib
from xlflax.training import settings as settings_lib
from xlflax.training import setup as setup_lib
from xlflax.training.checkpointing import saved_checkpoints
from xlflax.training.devices import devices, machines

# Share of the peak rate that a first estimate of the time assumes.
ASSUMED_UTILISATION = 0.4


class By(enum.Enum):
  """What a plan for a described machine is made by."""

  AUTO = 'auto'  # the compiler where it is installed, else an estimate
  COMPILER = 'compiler'  # the machine's own compiler
  ESTIMATE = 'estimate'  # the CPU's compiler, and a model of the machine


def make(
  settings: settings_lib.Settings, *, by: By = By.AUTO
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
    `planning.analysis.make` returns, 'basis' (in words) and 'compiled'
    (whether by the machine's compiler).
  """
  machine = settings.partitioner.machine
  if machine:
    result = _there(settings, machine, by)
    result |= _time_there(result)
  else:
    setup = setup_lib.Setup(settings)
    result = _described(setup) | {'memory': _memory(setup)} | _time(setup)
  result |= _with_replay(settings.replay_every, result)
  report.show(result)
  return result


def _there(settings, machine: machines.Machine, by: By) -> dict[str, Any]:
  """Plans for a described machine, by its compiler or by an estimate."""
  obstacle = compilers.missing(machine)
  if by is By.COMPILER:
    check_compiler(machine)
  if by is By.ESTIMATE or obstacle:
    setup = setup_lib.Setup(attention.stand_in(settings))
    made = analysis.make(setup, machine, attention.choose(settings, machine))
    basis = 'an estimate from the program that the CPU compiler partitions'
    if obstacle and machine.accelerator:
      basis += f'; {obstacle}'
  else:
    own = settings.on(machine, devices=compilers.devices(machine))
    with targets.compiling_for(compilers.target_of(machine)):
      setup = setup_lib.Setup(own)
      made = analysis.make(setup, machine, None)
    basis = f'the program that XLA:{machine.platform.upper()} compiles'
    basis += f' ({compilers.version(machine)})'
  compiled = setup.settings.partitioner.devices is not None
  made |= {'basis': basis, 'compiled': compiled}
  return _described(setup) | made


def check_compiler(machine: machines.Machine) -> None:
  """Raises ConfigError if the machine's own compiler cannot be used."""
  obstacle = compilers.missing(machine)
  if obstacle:
    raise errors.ConfigError(
      "The machine's compiler cannot be used here",
      got=obstacle,
      expected="its package, of this JAX's version",
      where='--plan_by=compiler',
      fix='install that extra of xlflax, or plan by --plan_by=estimate',
    )


def _described(setup: setup_lib.Setup) -> dict[str, Any]:
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
    'finished_steps': saved_checkpoints.finished_steps(settings.model_dir),
    'total_steps': settings.steps,
    'mesh': dict(settings.partitioner.mesh.shape),
    'vocabulary': {
      'size': setup.spec.size,
      'languages': list(setup.spec.languages),
    },
    'parameters': _parameters(setup),
    'learning_rate': setup.followed_rate,
    'streams': streams,
  }


def _parameters(setup: setup_lib.Setup) -> dict[str, Any]:
  named = params_lib.names(setup.factory.abstract.params)
  optimizer = setup.settings.optimizer
  modules: dict[str, int] = {}
  for name, leaf in named.items():
    module = '/'.join(name.split('/')[:2])
    modules[module] = modules.get(module, 0) + int(leaf.size)
  return {
    'total': sum(modules.values()),
    'trainable': sum(
      int(leaf.size)
      for name, leaf in named.items()
      if optimizer.is_trainable(name)
    ),
    'modules': modules,
  }


def _memory(setup: setup_lib.Setup) -> dict[str, int]:
  """Returns bytes per device: state by kind, and of the largest step."""
  state = setup.factory.abstract_sharded
  most = {'batch': 0, 'temporary': 0}
  with setup.settings.partitioner.scope():
    for active in setup.settings.objectives.groups:
      batches = setup.abstract_batches(active)
      compiled = setup.jitted_step(active).lower(state, batches).compile()
      found = compiled.memory_analysis()
      most['batch'] = max(most['batch'], memory.per_device(batches))
      most['temporary'] = max(
        most['temporary'], getattr(found, 'temp_size_in_bytes', 0)
      )
  used = memory.of_state(state) | most | memory.of_replay(setup)
  return used | {'total': sum(used.values())}


def _time(setup: setup_lib.Setup) -> dict[str, Any]:
  """Returns the FLOPs of a step, and an estimate of its time."""
  flops = flops_per_step(setup)
  peak = devices.peak_flops(jax.devices()[0])
  count = setup.settings.partitioner.mesh.size
  if not peak:
    return {'flops_per_step': flops} | _time_measured(flops)
  return {
    'flops_per_step': flops,
    'seconds_per_step': flops / (peak * count * ASSUMED_UTILISATION),
    'seconds_per_step_basis': f'{ASSUMED_UTILISATION:.0%} of the peak of '
    f'{count} devices',
  }


def flops_per_step(setup: setup_lib.Setup) -> float:
  """Returns the model FLOPs of a step, the mean over kinds of steps."""
  objectives = setup.settings.objectives
  kinds = [objectives.active(step) for step in range(objectives.period)]
  each = {kind: setup.flops(kind) for kind in set(kinds)}
  return float(np.mean([each[kind] for kind in kinds]))


def _time_measured(flops: float) -> dict[str, Any]:
  return {
    'seconds_per_step': flops / devices.product_rate(),
    'seconds_per_step_basis': 'the rate of a matrix product on this '
    'machine, just measured',
  }


def _time_there(result: dict[str, Any]) -> dict[str, Any]:
  """Returns the expected time of a step on the described machine."""
  if not result['roofline']:
    return _time_measured(result['flops_per_step'])
  return {
    'seconds_per_step': result['roofline']['expected']['seconds_per_step'],
    'seconds_per_step_basis': result['roofline']['expected_basis'],
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
  of_tasks = row_schedule.rows_read(loader.stream, tasks, total_steps)
  for task, seen in zip(tasks, of_tasks.tolist(), strict=True):
    epochs = seen / task.rows if task.rows else None
    rows.append(
      dataclasses.asdict(task)
      | {
        'batches': seen / loader.stream.batch_size,
        'epochs': epochs,
        # An epoch has each row once, so less than one leaves rows unseen.
        'unseen': None if epochs is None else max(0.0, 1 - epochs),
        'tokens_read': None
        if epochs is None or task.tokens is None
        else round(epochs * task.tokens),
      }
    )
  return rows
