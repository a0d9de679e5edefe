"""Scores of runs side by side: with their number, and intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlflax.evaluation import base, families, results, summary
from xlflax.evaluation.reports import text
from xlflax.training.checkpointing import run_directory


def table(group: results.Group, runs: Sequence[Any]) -> text.Table:
  """The main metric of each part, by run; the untrained model beside it.

  Numbers have half of their 95 % intervals beside them, where examples are
  recorded.

  Args:
    group: a task, its split and settings.
    runs: each a `run_pages.RunRecord`.
  """
  columns = {
    f'{run.name}, {name}': (result, _intervals(run, group, step))
    for run in runs
    for name, step, result in _shown(run.results.get(group, {}))
  }
  found = [result for result, _ in columns.values()]
  metric = _metric(found)
  unit, counts = '', dict[str, float]()
  for result in found:
    unit, more = summary.counted(result)
    counts |= more
  parts = summary.parts_of(metric, dict(enumerate(found)))
  return text.Table(
    f'{group.task}: {families.metric(metric).explained}, {group.split} split'
    + (
      ', ± half of the 95 % interval'
      if any(x for _, x in columns.values())
      else ''
    ),
    ['', *([unit] if counts else []), *columns],
    [
      [
        part,
        *([f'{counts[part]:,.0f}' if part in counts else ''] if counts else []),
        *(
          summary.cell(result.metrics.get(f'{metric}/{part}'))
          + summary.reach(bounds.get(f'{metric}/{part}'))
          for result, bounds in columns.values()
        ),
      ]
      for part in parts
    ],
  )


def _intervals(
  run, group: results.Group, step: results.Step
) -> dict[str, summary.Interval]:
  """Of one result, where what was predicted is beside it."""
  task = summary.recorded(group, run.results[group], is_one_of_many=False)
  folder = run.directory / run_directory.EVALUATION / group.folder / str(step)
  return (
    summary.intervals(task, run.results[group][step], folder) if task else {}
  )


def _shown(
  found: Mapping[results.Step, base.EvalResult],
) -> Iterator[tuple[str, results.Step, base.EvalResult]]:
  """The untrained model's and the last checkpoint's result."""
  if results.UNTRAINED in found:
    yield 'untrained', results.UNTRAINED, found[results.UNTRAINED]
  last = max((step for step in found if isinstance(step, int)), default=None)
  if last is not None:
    yield f'step {last:,}', last, found[last]


def _metric(found: Sequence[base.EvalResult]) -> str:
  """The metric that stands for a task."""
  for result in found:
    if names := (*result.score_metrics, *result.metrics):
      return names[0].partition('/')[0]
  return ''
