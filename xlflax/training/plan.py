"""The dry run: everything checked and described, without a step."""

import dataclasses
import logging
from typing import Any

import jax
import numpy as np
import rich.console
import rich.table

from xlflax.training import checkpoints, devices, progress
from xlflax.training import params as params_lib
from xlflax.training import setup as setup_lib

# Share of the peak rate that a first estimate of the time assumes.
ASSUMED_UTILISATION = 0.4


def make(settings: setup_lib.Settings) -> dict[str, Any]:
  """Checks settings and data, compiles the steps, prints and returns the plan.

  Returns:
    'parameters' (total, trainable, by top-level module), 'memory' (bytes per
    device: parameters, optimizer, batch, temporary), 'streams' (rows and
    expected batches per language), 'flops_per_step', 'seconds_per_step'
    (an estimate), 'total_steps'.
  """
  setup = setup_lib.Setup(settings)
  if setup.vocabulary is None:
    logging.info('The vocabulary is no more than its size: text and initial '
                 'parameters are not looked at.')
  elif settings.init_from:
    setup.initial_state()
  loaders = setup.open_loaders()
  try:
    result = {
        'model_dir': settings.model_dir,
        'finished_steps': checkpoints.finished_steps(settings.model_dir),
        'total_steps': settings.total_steps,
        'mesh': dict(settings.partitioner.mesh.shape),
        'vocabulary': {'size': setup.spec.size,
                       'languages': list(setup.spec.languages)},
        'parameters': _parameters(setup),
        'streams': {name: _stream(loader, settings.total_steps)
                    for name, loader in loaders.items()},
        'memory': _memory(setup),
    } | _time(setup)
  finally:
    for loader in loaders.values():
      loader.close()
  _print(result)
  return result


def _parameters(setup: setup_lib.Setup) -> dict[str, Any]:
  named = params_lib.names(setup.factory.abstract.params)
  optimizer = setup.settings.optimizer
  modules: dict[str, int] = {}
  for name, leaf in named.items():
    module = '/'.join(name.split('/')[:2])
    modules[module] = modules.get(module, 0) + int(leaf.size)
  return {
      'total': sum(modules.values()),
      'trainable': sum(int(leaf.size) for name, leaf in named.items()
                       if optimizer.is_trainable(name)),
      'modules': modules}


def _memory(setup: setup_lib.Setup) -> dict[str, int]:
  """Bytes per device: state by kind, and what the largest step adds."""
  state = setup.factory.abstract_sharded
  most = {'batch': 0, 'temporary': 0}
  with setup.settings.partitioner.scope():
    for active in setup.settings.objectives.groups:
      batches = setup.abstract_batches(active)
      compiled = setup.jitted_step(active).lower(state, batches).compile()
      analysis = compiled.memory_analysis()
      most['batch'] = max(most['batch'], _per_device(batches))
      most['temporary'] = max(
          most['temporary'], getattr(analysis, 'temp_size_in_bytes', 0))
  memory = {'parameters': _per_device(state.params),
            'optimizer': _per_device(state.opt_state),
            'other_state': _per_device((state.ema, state.objective_state))}
  memory |= most
  return memory | {'total': sum(memory.values())}


def _per_device(tree) -> int:
  """Bytes of the largest shard of each array of a tree, summed."""
  return sum(
      int(np.prod(leaf.sharding.shard_shape(leaf.shape)))
      * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _time(setup: setup_lib.Setup) -> dict[str, Any]:
  """FLOPs of a step, and an estimate of its time."""
  objectives = setup.settings.objectives
  kinds = [objectives.active(step) for step in range(256)]
  each = {kind: setup.flops(kind) for kind in set(kinds)}
  flops = float(np.mean([each[kind] for kind in kinds]))
  peak = devices.peak_flops(jax.devices()[0])
  count = setup.settings.partitioner.mesh.size
  if peak:
    rate, basis = peak * count * ASSUMED_UTILISATION, (
        f'{ASSUMED_UTILISATION:.0%} of the peak of {count} devices')
  else:
    rate = devices.measured_flops()
    basis = 'the rate of a matrix product on this machine, just measured'
  return {'flops_per_step': flops, 'seconds_per_step': flops / rate,
          'seconds_per_step_basis': basis}


def _print(result: dict[str, Any]) -> None:
  console = rich.console.Console()
  table = rich.table.Table(title='Plan', show_header=False)
  parameters, memory = result['parameters'], result['memory']
  table.add_row('mesh', ' x '.join(f'{k} {v}' for k, v in
                                   result['mesh'].items()))
  table.add_row('vocabulary', f'{result["vocabulary"]["size"]:,} entries, '
                f'{len(result["vocabulary"]["languages"])} languages')
  table.add_row('parameters', f'{parameters["total"]:,} '
                f'({parameters["trainable"]:,} trainable)')
  for name, size in parameters['modules'].items():
    table.add_row(f'  {name}', f'{size:,}')
  for name, size in memory.items():
    table.add_row(f'memory per device: {name}', _mebibytes(size))
  remaining = result['total_steps'] - max(result['finished_steps'], default=0)
  table.add_row('FLOPs per step', f'{result["flops_per_step"]:.3g}')
  table.add_row('steps left', f'{remaining:,} of {result["total_steps"]:,}')
  duration = progress.duration(remaining * result['seconds_per_step'])
  table.add_row('estimated time',
                f'{duration} (at {result["seconds_per_step_basis"]})')
  console.print(table)
  for name, tasks in result['streams'].items():
    console.print(_stream_table(name, tasks))


def _stream(loader, total_steps: int) -> list[dict[str, Any]]:
  """A row per task: sizes, share, and how much of it the run will see."""
  rows = []
  for task in loader.statistics():
    seen = task.rate * total_steps * loader.stream.batch_size
    rows.append(dataclasses.asdict(task) | {
        'batches': task.rate * total_steps,
        'epochs': seen / task.rows if task.rows else None})
  return rows


def _stream_table(name, tasks) -> rich.table.Table:
  table = rich.table.Table(title=f'Stream {name}')
  table.add_column('task', overflow='fold', min_width=24)
  for column in ('examples', 'dropped', 'rows', 'share', 'batches', 'epochs'):
    table.add_column(column, justify='right')
  for task in tasks:
    table.add_row(
        task['task'], f'{task["examples"]:,}',
        f'{task["dropped"]:,}', f'{task["rows"]:,}' if task['rows'] else '?',
        f'{task["rate"]:.2%}', f'{task["batches"]:,.1f}',
        f'{task["epochs"]:.2f}' if task['epochs'] is not None else '?')
  return table


def _mebibytes(size: int) -> str:
  return f'{size / 2**20:,.1f} MiB'
