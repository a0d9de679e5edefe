"""Scores of runs side by side: with their number, and intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlflax.evaluation import (
  eval_task,
  result_store,
  result_tables,
  task_families,
)
from xlflax.evaluation.reports import text
from xlflax.training.checkpointing import run_directory

_MOST = 6  # checkpoints of one run


def table(group: result_store.Group, runs: Sequence[Any]) -> text.Table:
  """The main metric of each part, by run; the untrained model beside it.

  One run alone has its last checkpoints, several have the last one each.

  Numbers have half of their 95 % intervals beside them, where examples are
  recorded, and chance where it is known; the title says of which of the
  languages trained on there is none.

  Args:
    group: a task, its split and settings.
    runs: each a `run_pages.RunRecord`.
  """
  columns = {
    f'{run.name}, {name}': (result, _intervals(run, group, step))
    for run in runs
    for name, step, result in _shown(
      run.results.get(group, {}), most=1 if len(runs) > 1 else _MOST
    )
  }
  found = [result for result, _ in columns.values()]
  metric = _metric(found)
  parts = result_tables.parts_of(metric, dict(enumerate(found)))
  beside: dict[str, dict[str, float]] = {}
  for result in found:
    unit, counts = result_tables.count_items(result)
    beside.setdefault(unit, {}).update(counts)
    chances = result_tables.chance_levels(metric, result)
    beside.setdefault(result_tables.CHANCE, {}).update(chances)
  beside = {name: values for name, values in beside.items() if values}
  title = [
    f'{group.task}: {task_families.find_metric(metric).explained}, {group.split} split'
  ]
  if any(bounds for _, bounds in columns.values()):
    title.append('± half of the 95 % interval')
  if result_tables.CHANCE not in beside:
    title.append('chance is not known')
  languages = dict.fromkeys(code for run in runs for code in _languages(run))
  title.append(result_tables.describe_coverage(parts, [*languages], found[-1]))
  return text.Table(
    ', '.join(filter(None, title)),
    ['', *beside, *columns],
    [
      [
        part,
        *(
          result_tables.score_note(name, values.get(part))
          for name, values in beside.items()
        ),
        *(
          result_tables.format_cell(result.metrics.get(f'{metric}/{part}'))
          + result_tables.format_half_width(bounds.get(f'{metric}/{part}'))
          for result, bounds in columns.values()
        ),
      ]
      for part in parts
    ],
  )


def _languages(run) -> list[str]:
  """Those that the run's training reports losses of."""
  names = (name.split('/') for name in run.losses)
  return [code for *_, code in (one for one in names if len(one) == 3)]


def _intervals(
  run, group: result_store.Group, step: result_store.Step
) -> dict[str, result_tables.Interval]:
  """Of one result, where what was predicted is beside it."""
  task = result_tables.summarize_group(
    group, run.results[group], is_one_of_many=False
  )
  folder = run.directory / run_directory.EVALUATION / group.folder / str(step)
  return (
    result_tables.result_intervals(task, run.results[group][step], folder)
    if task
    else {}
  )


def _shown(
  found: Mapping[result_store.Step, eval_task.EvalResult], most: int
) -> Iterator[tuple[str, result_store.Step, eval_task.EvalResult]]:
  """The untrained model's and the last checkpoints' results."""
  if result_store.UNTRAINED in found:
    yield 'untrained', result_store.UNTRAINED, found[result_store.UNTRAINED]
  for step in sorted(x for x in found if isinstance(x, int))[-most:]:
    yield f'step {step:,}', step, found[step]


def _metric(found: Sequence[eval_task.EvalResult]) -> str:
  """The metric that stands for a task."""
  for result in found:
    if names := (*result.score_metrics, *result.metrics):
      return names[0].partition('/')[0]
  return ''
