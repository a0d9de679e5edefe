"""Reports of several suites and models, joined into one."""

import dataclasses
import pathlib
from collections.abc import Sequence

from xlflax.evaluation.reports import report_files, score_table
from xlflax.utils import errors


def tables(folders: Sequence[pathlib.Path]) -> list[score_table.ScoreTable]:
  """One table for each model, with the scores of every folder's report.

  Args:
    folders: what suites have written, or their folders `report`.

  Raises:
    RunDirectoryError: a folder has no report, or a damaged one.
    ConfigError: two reports have a task of one name for one model, or two
      models of one name.
  """
  found: dict[str, score_table.ScoreTable] = {}
  for folder in folders:
    for table in report_files.read(_report(folder)):
      before = found.get(table.model)
      found[table.model] = table if before is None else _joined(before, table)
  return list(found.values())


def _report(folder: pathlib.Path) -> pathlib.Path:
  for place in (folder, folder / 'report'):
    if (place / report_files.JSON).exists():
      return place
  raise errors.RunDirectoryError(
    'There is no report to be joined',
    got=str(folder),
    expected=f"a suite's output with report/{report_files.JSON}",
    fix='run the suite: xlflax evaluate --suite=NAME --output=DIR',
  )


def _joined(
  first: score_table.ScoreTable, second: score_table.ScoreTable
) -> score_table.ScoreTable:
  if first.run and second.run and first.run != second.run:
    raise errors.ConfigError(
      'Two reports are of different runs of one name',
      got=f'{first.model}, of the runs {first.run} and {second.run}',
      fix='rename the folder of one run, and make its report again',
    )
  twice = sorted(set(first.tasks) & set(second.tasks))
  if twice:
    raise errors.ConfigError(
      'Two reports have the same task of one model',
      got=f'{", ".join(twice)} of {first.model}',
      expected='reports of different tasks, or of different models',
    )
  costs = [cost for cost in (first.cost, second.cost) if cost is not None]
  return dataclasses.replace(
    first,
    scores=(*first.scores, *second.scores),
    notes=(*first.notes, *second.notes),
    expected={**first.expected, **second.expected},
    cost=costs[0] + costs[1] if len(costs) == 2 else next(iter(costs), None),
  )
