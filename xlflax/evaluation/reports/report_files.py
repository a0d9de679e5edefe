"""Report files: JSON, CSV, Markdown, an HTML page and figures."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.evaluation import plots
from xlflax.evaluation.metrics import averages
from xlflax.evaluation.reports import (
  cells,
  leaderboard,
  page,
  published,
  score_table,
  text,
)
from xlflax.storage import checksums, manifests
from xlflax.utils import errors

JSON = 'scores.json'
CSV = 'scores.csv'
MARKDOWN = 'leaderboard.md'
PAGE = 'leaderboard.html'
_DPI = 160


def write_report(
  directory: pathlib.Path,
  tables: Sequence[score_table.ScoreTable],
  *,
  title: str = 'Cross-lingual evaluation',
  source: str = averages.ENGLISH,
  baseline: str | None = None,
  samples: int = 1000,
  seed: int = 0,
) -> list[pathlib.Path]:
  """Writes a report that compares one or more models.

  The files are `scores.json` (averages, comparisons and the score tables),
  `scores.csv`, `leaderboard.md`, `leaderboard.html` (a single file that
  contains the figures), `all_tasks.png`, `transfer_gaps.png`, and
  `<task>.png` with the scores by language.

  Args:
    directory: Directory of the report. It is created, and existing files of a
      report are replaced.
    tables: Score table of each model.
    title: Title of the report page.
    source: Language of the fine-tuning data.
    baseline: Name of the model with which the others are compared. If None, the
      first model.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.

  Returns:
    Paths to the written files.

  Raises:
    ConfigError: If there is no model, if two models have the same name, or if
      no model has the name of the baseline.
    CorpusError: If two models were scored on different numbers of examples.
  """
  _check_models(tables)
  directory.mkdir(parents=True, exist_ok=True)
  num_languages = leaderboard.count_languages(tables)
  summaries = [
    leaderboard.summarize_model(
      table, source=source, num_languages=num_languages
    )
    for table in tables
  ]
  comparisons = leaderboard.compare_models(
    tables, baseline=baseline, source=source, samples=samples, seed=seed
  )
  figures = _draw_figures(directory, summaries)
  details = cells.collect_details(
    tables,
    comparisons,
    page=directory,
    source=source,
    samples=samples,
    seed=seed,
  )
  page_tables = text.build_tables(summaries, comparisons, details, tables)
  published_table = published.build_table(text.task_names(summaries))
  if published_table.rows:
    page_tables.append(published_table)
  notes = [f'{table.model}: {note}' for table in tables for note in table.notes]
  explanation = _explain(source, comparisons, samples, details)
  record = {
    'models': [dataclasses.asdict(summary) for summary in summaries],
    'comparisons': [
      dataclasses.asdict(comparison) for comparison in comparisons
    ],
    'title': title,
    'source_language': source,
    'baseline': baseline,
    'samples': samples,
    'seed': seed,
    'intervals': [
      [*key, detail.interval.low, detail.interval.high]
      for key, detail in details.items()
      if detail.interval is not None
    ],
    'tables': [table.to_json() for table in tables],
  }
  # The JSON file is written last, so a report that has it is complete.
  contents = {
    CSV: text.scores_csv(tables),
    MARKDOWN: '\n'.join(
      [
        f'# {title}\n',
        f'{explanation}\n',
        *(table.to_markdown() for table in page_tables),
        *(f'- {note}' for note in notes),
      ]
    )
    + '\n',
    PAGE: page.render_page(
      title,
      explanation,
      page_tables,
      figures,
      notes,
      metrics=list(
        dict.fromkeys(
          metric
          for summary in summaries
          for task in summary.tasks.values()
          for metric in task.metrics
        )
      ),
    ),
    JSON: json.dumps(
      checksums.add_digest(record),
      indent=1,
      ensure_ascii=False,
      allow_nan=False,
    )
    + '\n',
  }
  kind = manifests.Kind.REPORT
  manifests.record_files(
    directory, kind, [path.name for path in figures.values()]
  )
  manifests.write_files(directory, kind, contents)
  names = [*contents, manifests.FILE]
  return [*(directory / name for name in names), *figures.values()]


def read_report(directory: pathlib.Path) -> list[score_table.ScoreTable]:
  """Reads the score tables of an existing report.

  Raises:
    RunDirectoryError: If `scores.json` is damaged.
  """
  return _read_record(directory)['tables']


def regenerate_report(directory: pathlib.Path) -> list[pathlib.Path]:
  """Regenerates all report files from `scores.json`.

  Returns:
    Paths to the written files.

  Raises:
    RunDirectoryError: If `scores.json` is damaged.
  """
  record = _read_record(directory)
  (directory / manifests.FILE).unlink(missing_ok=True)
  return write_report(
    directory,
    record['tables'],
    title=record['title'],
    source=record['source_language'],
    baseline=record['baseline'],
    samples=record['samples'],
    seed=record['seed'],
  )


def _read_record(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the content of `scores.json`, with score tables as objects."""

  def parse_tables(record: dict[str, Any]) -> dict[str, Any]:
    tables = [
      score_table.ScoreTable.from_json(table) for table in record['tables']
    ]
    return record | {'tables': tables}

  return checksums.read_json(
    directory / JSON,
    error=errors.RunDirectoryError,
    message='The report is damaged',
    has_digest=True,
    fix='Write the report again.',
    convert=parse_tables,
  )


def write_curves(
  directory: pathlib.Path,
  models: Mapping[str, Mapping[int, score_table.ScoreTable]],
  *,
  source: str = averages.ENGLISH,
) -> list[pathlib.Path]:
  """Plots each task's scores over pretraining, as in MetaXLM's figure 5.

  `<task>.curves.png` shows, by training step, the mean score of the target
  languages, the score of the source language, and the transfer gap.

  Args:
    directory: Directory for the figures. It is created if necessary.
    models: Score table of each checkpoint, by model name and step.
    source: Language of the fine-tuning data.

  Returns:
    Paths to the written files. A task has a file if a model has scores in the
    source language and in at least one target language at two or more steps.
  """
  directory.mkdir(parents=True, exist_ok=True)
  files = []
  tables = [table for steps in models.values() for table in steps.values()]
  for task in dict.fromkeys(task for table in tables for task in table.tasks):
    curves_by_model = {
      name: curves
      for name, steps in models.items()
      if (curves := _curves(task, steps, source))
    }
    if not any(len(curves['gap']) > 1 for curves in curves_by_model.values()):
      continue
    label = _score_label(_task_metrics(task, models))
    canvas = plots.transfer_curves(task, label, source, curves_by_model)
    path = directory / f'{_file_name(task)}.curves.png'
    files.append(plots.save_figure(canvas, path, dpi=_DPI))
  names = [path.name for path in files]
  manifests.record_files(directory, manifests.Kind.REPORT, names)
  return files


def _curves(
  task: str, steps: Mapping[int, score_table.ScoreTable], source: str
) -> plots.Curves:
  """Returns the points (step, score) of the three curves of a model."""
  curves: dict[str, list[tuple[int, float]]] = {}
  for step in sorted(steps):
    if task not in steps[step].tasks:
      continue
    scores = steps[step].task_scores(task)
    gap = averages.transfer_gap(scores, source=source)
    if gap is None:
      continue
    values = {
      'source': scores[source],
      'gap': gap,
      'transfer': scores[source] - gap,
    }
    for key, value in values.items():
      curves.setdefault(key, []).append((step, value))
  return curves


def _task_metrics(task: str, models) -> tuple[str, ...]:
  """Returns the metrics of a task in the first table that contains it."""
  return next(
    table.metrics(task)
    for steps in models.values()
    for table in steps.values()
    if task in table.tasks
  )


def _draw_figures(
  directory: pathlib.Path, summaries
) -> dict[str, pathlib.Path]:
  """Draws the figures of a report and returns their files by title."""
  scores = {
    summary.model: {
      task: task_summary.score
      for task, task_summary in summary.tasks.items()
      if all(map(score_table.is_averaged, task_summary.metrics))
    }
    for summary in summaries
  }
  gaps = {
    summary.model: {
      task: task_summary.gap
      for task, task_summary in summary.tasks.items()
      if task_summary.gap is not None
    }
    for summary in summaries
  }
  files = {}
  for name, title, label, values in (
    ('all_tasks', 'Score of each task', 'score (points)', scores),
    ('transfer_gaps', 'Transfer gap of each task', 'gap (points)', gaps),
  ):
    if any(values.values()):
      canvas = plots.bar_chart(title, label, values)
      path = directory / f'{name}.png'
      files[title] = plots.save_figure(canvas, path, dpi=_DPI)

  for task in text.task_names(summaries):
    task_summaries = {
      summary.model: summary.tasks[task]
      for summary in summaries
      if task in summary.tasks
    }
    title = f'{task} by language'
    canvas = plots.bar_chart(
      title,
      _score_label(next(iter(task_summaries.values())).metrics),
      {
        model: task_summary.languages
        for model, task_summary in task_summaries.items()
      },
    )
    path = directory / f'{_file_name(task)}.png'
    files[title] = plots.save_figure(canvas, path, dpi=_DPI)
  return files


def _score_label(metrics: Sequence[str]) -> str:
  """Returns the axis label of the mean of metrics."""
  names = ' and '.join(map(text.metric_name, metrics))
  if len(metrics) > 1:
    return f'mean of {names}'
  return f'{names} (points)' if score_table.is_bounded(metrics[0]) else names


def _explain(source: str, comparisons, samples: int, details) -> str:
  """Returns the paragraph that explains the numbers of a report."""
  sentences = [
    'Scores are in points: fractions are shown in percent, BLEU and chrF are '
    'unchanged.',
    'The score of a task is the mean over its languages and, for question '
    'answering, of F1 and exact match.',
    'The mean over tasks excludes error rates and perplexities. It is omitted '
    'if a task or a language is missing.',
    f'The transfer gap is the score in {source} minus the mean of the other '
    'languages.',
  ]
  if any(detail.interval for detail in details.values()):
    sentences.append(
      '±: half of the 95 % confidence interval of a score, a mean or a gap. '
      'Examples that belong together, such as questions about the same text, '
      'are resampled together.'
    )
  if any(detail.link for detail in details.values()):
    sentences.append('The score of a language links to its predictions.')
  if comparisons:
    sentences.append(
      f'p: two-sided p-value of a paired bootstrap test with {samples} samples '
      'of the examples. With several seeds, it includes the variance between '
      'seeds. p (Holm): p-value adjusted for all comparisons in the report. '
      f'*: p (Holm) is below {cells.SIGNIFICANT}. {cells.BETTER} and '
      f'{cells.WORSE} mark scores that are significantly better or worse than '
      f'those of {comparisons[0].baseline}.'
    )
  return ' '.join(sentences)


def _file_name(task: str) -> str:
  """Returns the name of a task without characters unsuitable for file names."""
  return re.sub(r'[^\w.-]', '_', task)


def _check_models(tables: Sequence[score_table.ScoreTable]) -> None:
  names = [table.model for table in tables]
  if not names or len(set(names)) < len(names):
    raise errors.ConfigError(
      'A report requires at least one ScoreTable, and every ScoreTable must be '
      'for a different model',
      got=names,
    )
