"""Export of suite results as files, XTREME submissions and a terminal table."""

import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Any

import rich.table

from xlflax.data.supervised import xtreme_submission
from xlflax.data.supervised.sources import xtreme, xtreme_tasks
from xlflax.evaluation import eval_task, result_store
from xlflax.evaluation.reports import report_files
from xlflax.storage import manifests, paths
from xlflax.suites import paper_table, suite_report, table_export
from xlflax.utils import rich_tables

JSON = 'suite.json'
CSV = 'suite.csv'
SUBMISSION = 'submission'
_LOG = logging.getLogger(__name__)


def write(
  report: suite_report.SuiteReport,
  output: pathlib.Path,
  *,
  baseline: str | None = None,
  table: paper_table.PaperTable | None = None,
) -> None:
  """Writes `suite.json`, `suite.csv`, the folder `report` and submissions.

  With a table of a paper, the function also writes `table.md`, `table.csv` and
  `table.png`.

  Args:
    report: Suite results of all models.
    output: Output directory of the suite.
    baseline: Model with which the other models are compared. If None, the first
      model is used.
    table: Table of a paper that the suite reproduces.
  """
  text = json.dumps(report.to_json(), indent=2, ensure_ascii=False) + '\n'
  contents = {JSON: text, CSV: report.to_csv()}
  manifests.write_files(output, manifests.Kind.SUITE, contents)
  curves = report.curves()
  tables = report.tables(with_examples=True)
  if any(table.scores for table in tables):
    report_files.write_report(
      output / 'report',
      tables,
      title=report.suite,
      source=report.source_language,
      baseline=baseline,
    )
  if table is not None:
    table_export.write(table, report, output)
  for model in report.models:
    _write_submission(report, model, output)
  if curves:
    report_files.write_curves(
      output / 'report', curves, source=report.source_language
    )


def _write_submission(
  report: suite_report.SuiteReport, model: str, output: pathlib.Path
) -> None:
  """Writes the predictions of XTREME's tasks in the leaderboard's format.

  If a task was evaluated with several seeds, the predictions of the first seed
  are used.
  """
  if report.suite not in xtreme_tasks.VERSIONS:
    return
  first_seed_folders = [
    (result.task, folder)
    for result in report.results_by_task(model).values()
    for folder in result.first_seed_folders()
  ]
  for _, prediction_folder in first_seed_folders:
    result_store.check_files(prediction_folder)
  contents = {
    name: text
    for task, prediction_folder in first_seed_folders
    for file in paths.list_directory(prediction_folder)
    for name, text in _submission_files(report.suite, task, file)
  }
  if contents:
    folder = str(output / SUBMISSION / model)
    missing = xtreme_submission.write_submission(folder, contents, report.suite)
    if missing:
      _LOG.warning(
        'The submission of %s is missing %d files, such as %s.',
        model,
        len(missing),
        missing[0],
      )


def _submission_files(
  version: str, task: str, file: pathlib.Path
) -> list[tuple[str, str]]:
  """Returns name and text of a prediction file in a submission.

  The list is empty if the file is not part of a submission.
  """
  language = file.stem.split('-')[0]
  if file.suffix == eval_task.STATISTICS:
    return []
  if task in xtreme_tasks.RANKED:
    if task == 'lareqa':
      return []
    text = xtreme_submission.entities_json(file.read_text(encoding='utf-8'))
    return [(xtreme_submission.file_name(task, language, version), text)]
  if language not in xtreme.find_xtreme_task(task, version).languages:
    return []
  text = file.read_text(encoding='utf-8')
  return [(xtreme_submission.file_name(task, language, version), text)]


def print_tables(report: suite_report.SuiteReport, console: Any) -> None:
  """Prints a table with one row per task and one column per model.

  The rows below the tasks contain averages. Scores are in points.
  """
  titles = table_titles(report.suite, report.head_languages)
  table = rich.table.Table(title=titles[0], title_justify='left')
  summaries = report.summaries()
  table.add_column('')
  table.add_column('metric')
  for model in report.models:
    table.add_column(model, justify='right')
  for task in dict.fromkeys(result.task for result in report.results):
    task_summaries = [summary.tasks.get(task) for summary in summaries]
    metrics = next(
      (summary.metrics for summary in task_summaries if summary), ()
    )
    table.add_row(
      task,
      ', '.join(metrics),
      *(
        f'{_format_score(summary.score)} {summary.missing}' if summary else '-'
        for summary in task_summaries
      ),
    )
  table.add_row(
    'mean',
    '',
    *(
      f'{_format_score(summary.average)} {summary.missing}'
      for summary in summaries
    ),
    style='bold',
  )
  for name in dict.fromkeys(
    key for summary in summaries for key in summary.xtreme
  ):
    table.add_row(
      f'XTREME: {name}',
      '',
      *(_format_score(summary.xtreme.get(name)) for summary in summaries),
      style='bold',
    )
  table.add_row(
    'transfer gap', '', *(_format_score(summary.gap) for summary in summaries)
  )
  rich_tables.print_table(table, console)
  if report.head_languages:
    _print_head_and_tail(titles[1], report, summaries, console)


def table_titles(
  suite: str, head_languages: Sequence[str] = ()
) -> tuple[str, ...]:
  """Returns the titles of the tables that `print_tables` prints.

  Args:
    suite: Name of the suite.
    head_languages: Codes of the suite's head languages.
  """
  titles = [f'{suite}: mean over languages']
  if head_languages:
    titles.append(f'{suite}: mean over head, tail and all languages')
  return tuple(titles)


def _print_head_and_tail(title: str, report, summaries, console: Any) -> None:
  """Prints the means over head, tail and all languages of each task."""
  means = [report.head_tail_averages(summary) for summary in summaries]
  coverage = [report.head_tail_coverage(summary) for summary in summaries]
  table = rich.table.Table(title=title, title_justify='left')
  table.add_column('')
  for model in report.models:
    table.add_column(f'{model}: head', justify='right')
    table.add_column('tail', justify='right')
    table.add_column('all', justify='right')
  for task in dict.fromkeys(name for by_task in means for name in by_task):
    table.add_row(
      task,
      *(
        _format_mean(
          by_task.get(task, {}).get(group),
          coverage_by_task.get(task, {}).get(group),
        )
        for by_task, coverage_by_task in zip(means, coverage, strict=True)
        for group in ('head', 'tail', 'all')
      ),
      style='bold' if task == suite_report.MEAN else None,
    )
  rich_tables.print_table(table, console)


def _format_mean(
  value: float | None, coverage: suite_report.Coverage | None
) -> str:
  """Formats a mean, with the number of languages if some are missing."""
  text = _format_score(value)
  if value is None or coverage is None or coverage.is_complete:
    return text
  return f'{text} ({coverage.num_languages} of {coverage.num_expected})'


def _format_score(value: float | None) -> str:
  return '-' if value is None else f'{value:.1f}'
