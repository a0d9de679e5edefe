"""Merging of reports from several suites and models."""

import dataclasses
import pathlib
from collections.abc import Sequence

from xlflax.evaluation.reports import report_files, score_table
from xlflax.utils import errors


def merge_reports(
  folders: Sequence[pathlib.Path],
) -> list[score_table.ScoreTable]:
  """Returns one table per model with the scores from all reports.

  Args:
    folders: Output directories of suites, or the folders named `report` in
      them.

  Raises:
    RunDirectoryError: If a folder does not contain a report, or if a report is
      damaged.
    ConfigError: If two reports contain the same task of the same model, or
      different runs with the same model name.
  """
  tables: dict[str, score_table.ScoreTable] = {}
  for folder in folders:
    for table in report_files.read_report(_report_folder(folder)):
      if table.model in tables:
        table = _merge_tables(tables[table.model], table)
      tables[table.model] = table
  return list(tables.values())


def _report_folder(folder: pathlib.Path) -> pathlib.Path:
  """Returns the folder that contains the report of a suite."""
  for candidate in (folder, folder / 'report'):
    if (candidate / report_files.JSON).exists():
      return candidate
  raise errors.RunDirectoryError(
    'The directory must be the output directory of a suite, which contains '
    f'report/{report_files.JSON}',
    got=str(folder),
    fix='Run the suite with `xlflax evaluate --suite=NAME --output=DIR`.',
  )


def _merge_tables(
  first: score_table.ScoreTable, second: score_table.ScoreTable
) -> score_table.ScoreTable:
  """Returns the scores of two tables of the same model in one table."""
  if first.run and second.run and first.run != second.run:
    raise errors.ConfigError(
      f'Two reports use the model name {first.model!r} for two different runs, '
      f'{first.run} and {second.run}',
      fix='Rename the folder of one run, and write its report again with '
      '`xlflax evaluate --suite=NAME --output=DIR`.',
    )
  common_tasks = sorted(set(first.tasks) & set(second.tasks))
  if common_tasks:
    raise errors.ConfigError(
      'Reports of the same model must be for different tasks, but two reports '
      f'contain scores of {first.model!r} for the same tasks',
      got=', '.join(common_tasks),
    )

  costs = [cost for cost in (first.cost, second.cost) if cost is not None]
  return dataclasses.replace(
    first,
    scores=(*first.scores, *second.scores),
    notes=(*first.notes, *second.notes),
    expected={**first.expected, **second.expected},
    cost=costs[0] + costs[1] if len(costs) == 2 else next(iter(costs), None),
  )
