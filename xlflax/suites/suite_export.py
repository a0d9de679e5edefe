"""What a suite found as files, as a submission and as a table."""

import json
import logging
import pathlib
from typing import Any

import rich.table

from xlflax.data.supervised import xtreme_submission
from xlflax.data.supervised.sources import xtreme, xtreme_tasks
from xlflax.evaluation import eval_task
from xlflax.evaluation import result_store as evaluation_results
from xlflax.evaluation.reports import report_files
from xlflax.storage import manifests, paths
from xlflax.suites import suite_report
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
) -> None:
  """Writes suite.json, suite.csv and the folder `report`.

  Args:
    report: of all models.
    output: where it is written.
    baseline: the model that the others are compared with; None: the first.
  """
  text = json.dumps(report.to_json(), indent=2, ensure_ascii=False) + '\n'
  contents = {JSON: text, CSV: report.to_csv()}
  manifests.write_files(output, manifests.Kind.SUITE, contents)
  curves = report.curves()
  tables = report.tables(with_examples=True)
  if any(table.scores for table in tables):
    report_files.write(
      output / 'report',
      tables,
      title=report.suite,
      source=report.source_language,
      baseline=baseline,
    )
  for model in report.models:
    _write_submission(report, model, output)
  if curves:
    report_files.write_curves(
      output / 'report', curves, source=report.source_language
    )


def _write_submission(
  report: suite_report.SuiteReport, model: str, output: pathlib.Path
) -> None:
  """Predictions of XTREME's tasks, as its leaderboard takes them.

  Of several seeds the first one's.
  """
  if report.suite not in xtreme_tasks.VERSIONS:
    return
  first = [one for r in report.of(model).values() for one in r.evaluated[:1]]
  for one in first:
    evaluation_results.check_files(one.folder)
  contents = {
    name: text
    for result in report.of(model).values()
    for one in result.evaluated[:1]
    for file in paths.list_directory(one.folder)
    for name, text in _submitted(report.suite, result.task, file)
  }
  if contents:
    folder = str(output / SUBMISSION / model)
    missing = xtreme_submission.write_submission(folder, contents, report.suite)
    if missing:
      _LOG.warning(
        'The submission of %s lacks %d files, such as %s.',
        model,
        len(missing),
        missing[0],
      )


def _submitted(
  version: str, task: str, file: pathlib.Path
) -> list[tuple[str, str]]:
  """Name and text of a file of predictions in a submission, if it is one."""
  part = file.stem.split('-')[0]
  if file.suffix == eval_task.STATISTICS:
    return []
  if task in xtreme_tasks.RANKED:
    if task == 'lareqa':
      return []
    text = xtreme_submission.entities_json(file.read_text(encoding='utf-8'))
    return [(xtreme_submission.file_name(task, part, version), text)]
  if part not in xtreme.find_xtreme_task(task, version).languages:
    return []
  text = file.read_text(encoding='utf-8')
  return [(xtreme_submission.file_name(task, part, version), text)]


def print_tables(report: suite_report.SuiteReport, console: Any) -> None:
  """One table: tasks down, models across, averages below; points."""
  table = rich.table.Table(
    title=f'{report.suite}: mean over languages', title_justify='left'
  )
  summaries = report.summaries()
  table.add_column('')
  table.add_column('metric')
  for model in report.models:
    table.add_column(model, justify='right')
  for task in dict.fromkeys(result.task for result in report.results):
    found = [summary.tasks.get(task) for summary in summaries]
    metrics = next((one.metrics for one in found if one), ())
    table.add_row(
      task,
      ', '.join(metrics),
      *(f'{_shown(one.score)} {one.missing}' if one else '-' for one in found),
    )
  table.add_row(
    'mean',
    '',
    *(f'{_shown(s.average)} {s.missing}' for s in summaries),
    style='bold',
  )
  for name in dict.fromkeys(key for s in summaries for key in s.xtreme):
    table.add_row(
      f'XTREME: {name}',
      '',
      *(_shown(s.xtreme.get(name)) for s in summaries),
      style='bold',
    )
  table.add_row('transfer gap', '', *(_shown(s.gap) for s in summaries))
  rich_tables.print_table(table, console)


def _shown(value: float | None) -> str:
  return '-' if value is None else f'{value:.1f}'
