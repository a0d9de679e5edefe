"""Tables that show the estimated costs of a run on the terminal."""

from collections.abc import Mapping
from typing import Any

import rich.console
import rich.table

from xlflax.training import progress_lines
from xlflax.training.optimization import schedule_checks
from xlflax.utils import rich_tables


def print_plan(
  plan: dict[str, Any], console: rich.console.Console | None = None
) -> None:
  """Prints estimated costs of a run, with warnings and recommendations.

  Args:
    plan: Estimated costs of a run, as returned by
      `xlflax.planning.dry_run.make_plan`.
    console: Console on which to print. If None, standard output.
  """
  console = console or rich.console.Console()
  rich_tables.print_table(_overview(plan), console)
  for name, tasks in plan['datasets'].items():
    rich_tables.print_table(_dataset(name, tasks), console)
  if plan.get('collectives'):
    rich_tables.print_table(
      _collectives(plan['collectives'], plan['ideal_sent']), console
    )
  for step in plan.get('steps', ()):
    if step['parts']:
      rich_tables.print_table(_parts(step), console)
  if plan.get('estimate'):
    rich_tables.print_table(_estimate(plan['estimate']), console)
    console.print(plan['estimate']['known_error'], markup=False)
  for warning in plan.get('warnings', ()):
    console.print(f'Warning: {warning}', markup=False, highlight=False)
  for text in plan.get('recommendations', ()):
    console.print(f'Recommendation: {text}', markup=False, highlight=False)


def show_phases(
  plans: Mapping[str, dict[str, Any]],
  console: rich.console.Console | None = None,
) -> None:
  """Prints the estimated costs of consecutive training phases in one table.

  Args:
    plans: Mapping from the name of each training phase to its estimated costs,
      as returned by `make_plan`.
    console: Console on which to print. If None, standard output.
  """
  columns = 'steps left', 'memory per device', 'estimated time'
  table = rich_tables.make_table(['phase'], columns, title='All phases')
  total = 0.0
  for name, plan in plans.items():
    remaining = _remaining(plan)
    seconds = remaining * plan['seconds_per_step']
    total += seconds
    table.add_row(
      name,
      f'{remaining:,}',
      format_mebibytes(plan['memory']['total']),
      progress_lines.format_duration(seconds),
    )
  table.add_row('total', '', '', progress_lines.format_duration(total))
  rich_tables.print_table(table, console or rich.console.Console())


def _remaining(plan: dict[str, Any]) -> int:
  """Returns the number of steps that remain until the end of the run."""
  return plan['total_steps'] - max(plan['finished_steps'], default=0)


def _overview(plan) -> rich.table.Table:
  """Returns a table with a run's properties."""
  table = rich.table.Table(title='Plan', show_header=False)
  if 'machine' in plan:
    table.add_row('planned for', plan['machine']['devices'])
    table.add_row('basis', plan['basis'])
  table.add_row('mesh', ' x '.join(f'{k} {v}' for k, v in plan['mesh'].items()))
  table.add_row(
    'vocabulary',
    f'{plan["vocabulary"]["size"]:,} tokens, '
    f'{len(plan["vocabulary"]["languages"])} languages',
  )
  parameters = plan['parameters']
  table.add_row(
    'parameters',
    f'{parameters["total"]:,} ({parameters["trainable"]:,} trainable)',
  )
  for name, size in parameters['modules'].items():
    table.add_row(f'  {name}', f'{size:,}')
  for name, size in plan['memory'].items():
    table.add_row(
      f'memory per device: {_MEMORY.get(name, name)}', format_mebibytes(size)
    )
  usable = plan.get('machine', {}).get('usable_memory')
  if usable is not None:
    table.add_row(
      'memory per device: available to a run', format_mebibytes(usable)
    )
  if 'sharding' in plan:
    table.add_row(
      'state that is not split over all devices',
      format_mebibytes(plan['sharding']['not_split']),
    )
  table.add_row('FLOPs per step', f'{plan["flops_per_step"]:.3g}')
  if 'replay' in plan:
    table.add_row('replay', _replay(plan['replay']))
  if plan.get('learning_rate'):
    table.add_row('learning rate', plan['learning_rate'])
  for fields in plan.get('max_learning_rates', ()):
    rate = schedule_checks.MaxRate(**fields)
    label = rate.label[0].lower() + rate.label[1:]
    table.add_row(label, rate.description)
  remaining = _remaining(plan)
  table.add_row('steps left', f'{remaining:,} of {plan["total_steps"]:,}')
  duration = progress_lines.format_duration(
    remaining * plan['seconds_per_step']
  )
  table.add_row(
    'estimated time', f'{duration} (at {plan["seconds_per_step_basis"]})'
  )
  return table


def _replay(costs: dict[str, Any]) -> str:
  """Describes the cost of replayed steps."""
  return (
    f'one in {costs["every"]:,} steps is computed twice: '
    f'{format_mebibytes(costs["memory"])} per device, '
    f'about {costs["share"]:.2%} more time'
  )


_MEMORY = {
  'arguments': 'state and batch in the layout of the compiler',
  'temporary': 'temporary',
  'outputs': 'outputs other than the state',
  'replay': 'copy of the state for replayed steps',
  'total': 'peak',
}


def _collectives(kinds, ideal: float) -> rich.table.Table:
  """Returns a table with a step's collectives."""
  columns = 'count', 'arrays', 'sent', 'sent to other nodes'
  table = rich_tables.make_table(
    ['kind'], columns, title='Collectives in a step, per device'
  )
  for kind, row in kinds.items():
    table.add_row(
      kind,
      f'{row["count"]:,.0f}',
      *(
        format_mebibytes(row[name])
        for name in ('bytes', 'sent', 'sent_outside')
      ),
    )
  sent = sum(row['sent'] for row in kinds.values())
  table.add_row('total', '', '', format_mebibytes(sent), '')
  table.add_row('minimum', '', '', format_mebibytes(ideal), '')
  return table


def _parts(step) -> rich.table.Table:
  """Returns a table with a step's costs for each part of the model."""
  names = ', '.join(step['objectives'])
  table = rich_tables.make_table(
    ('part', 'phase'),
    ('operations', 'GFLOP', 'traffic', 'time', 'fraction'),
    title=f'Parts of a step of {names} (FLOPs and memory traffic of all devices)',
  )
  total = sum(row['seconds'] for row in step['parts'])
  for row in step['parts']:
    table.add_row(
      row['part'],
      row['phase'],
      f'{row["count"]:,.0f}',
      f'{row["flops"] / 1e9:,.0f}',
      format_mebibytes(row['bytes']),
      format_milliseconds(row['seconds']),
      f'{row["seconds"] / max(total, 1e-12):.0%}',
    )
  return table


def _estimate(estimate) -> rich.table.Table:
  """Returns a table with a step's estimated time."""
  table = rich.table.Table(title='Estimated time of a step', show_header=False)
  for name, label in (
    ('matmuls', 'matmuls'),
    ('misaligned', 'misaligned rows of matmuls'),
    ('attention', 'attention kernels'),
    ('memory', 'memory traffic of other operations'),
    ('launches', 'kernel launches'),
    ('hidden', 'communication during computation'),
    ('exposed', 'communication that delays the step'),
  ):
    table.add_row(label, format_milliseconds(estimate['parts'][name]))
  table.add_row(
    'step',
    f'{format_milliseconds(estimate["seconds_per_step"])}, '
    f'{estimate["tokens_per_second"]:,.0f} tokens/s, '
    f'MFU {estimate["mfu"]:.1%}',
  )
  table.add_row('largest part', estimate['limit'])
  table.add_row('rates', estimate['basis'])
  return table


def _dataset(name, tasks) -> rich.table.Table:
  """Returns a table with a dataset's tasks."""
  table = rich.table.Table(title=f'Dataset {name}')
  table.add_column('task', overflow='fold', min_width=24)
  for column in (
    'task size',
    'examples',
    'dropped',
    'truncated',
    'sequences',
    'fraction',
    'batches',
    'epochs',
    'tokens read',
    'unseen',
  ):
    table.add_column(column, justify='right')
  for task in tasks:
    table.add_row(
      task['task'],
      f'{task["examples"]:,}',
      *(
        '?' if task[name] is None else f'{task[name]:,}'
        for name in ('examples_read', 'dropped', 'truncated')
      ),
      f'{task["rows"]:,}' if task['rows'] else '?',
      f'{task["rate"]:.2%}',
      f'{task["batches"]:,.1f}',
      f'{task["epochs"]:.2f}' if task['epochs'] is not None else '?',
      '?' if task['tokens_read'] is None else f'{task["tokens_read"]:,}',
      '?' if task['unseen'] is None else f'{task["unseen"]:.1%}',
    )
  return table


def format_mebibytes(size: float) -> str:
  """Formats a number of bytes in mebibytes, such as '1,024.0 MiB'."""
  return f'{size / 2**20:,.1f} MiB'


def format_milliseconds(seconds: float) -> str:
  """Formats a duration in milliseconds, such as '1,024.00 ms'."""
  return f'{seconds * 1e3:,.2f} ms'
