"""Writes a report: JSON, CSV, Markdown, a page and pictures."""

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


def write(
  directory: pathlib.Path,
  tables: Sequence[score_table.ScoreTable],
  *,
  title: str = 'Cross-lingual evaluation',
  source: str = averages.ENGLISH,
  baseline: str | None = None,
  samples: int = 1000,
  seed: int = 0,
) -> list[pathlib.Path]:
  """Writes everything about one or more models side by side.

  `scores.json` (averages, comparisons, and the tables themselves),
  `scores.csv`, `leaderboard.md`, `leaderboard.html` (one file, pictures
  within), `all_tasks.png`, `transfer_gaps.png` and `<task>.png` (by
  language).

  Args:
    directory: is created; the files in it are replaced.
    tables: one for each model.
    title: of the page.
    source: the language that models were fine-tuned in.
    baseline: the model that the others are compared with; None: the first.
    samples: of the bootstrap.
    seed: of the bootstrap.

  Returns:
    The files written.

  Raises:
    ConfigError: no model, or two of one name, or none of the baseline's.
    CorpusError: the examples of two models are not as many.
  """
  _check(tables)
  directory.mkdir(parents=True, exist_ok=True)
  wanted = leaderboard.expected(tables)
  summaries = [
    leaderboard.summarize(one, source=source, wanted=wanted) for one in tables
  ]
  compared = leaderboard.compare(
    tables, baseline=baseline, source=source, samples=samples, seed=seed
  )
  drawn = _draw(directory, summaries)
  details = cells.details(
    tables, compared, page=directory, source=source, samples=samples, seed=seed
  )
  grids = text.tables(summaries, compared, details, tables)
  others = published.table(text.task_names(summaries))
  grids += [others] * bool(others.rows)
  notes = [f'{one.model}: {note}' for one in tables for note in one.notes]
  explanation = _explanation(source, compared, samples, details)
  record = {
    'models': [dataclasses.asdict(one) for one in summaries],
    'comparisons': [dataclasses.asdict(one) for one in compared],
    'title': title,
    'source_language': source,
    'baseline': baseline,
    'samples': samples,
    'seed': seed,
    'intervals': [
      [*key, one.interval.low, one.interval.high]
      for key, one in details.items()
      if one.interval is not None
    ],
    'tables': [one.to_json() for one in tables],
  }
  contents = {
    CSV: text.scores_csv(tables),
    MARKDOWN: '\n'.join(
      [
        f'# {title}\n',
        f'{explanation}\n',
        *(one.to_markdown() for one in grids),
        *(f'- {note}' for note in notes),
      ]
    )
    + '\n',
    PAGE: page.render(title, explanation, grids, drawn, notes),
    JSON: json.dumps(
      checksums.add_digest(record),
      indent=1,
      ensure_ascii=False,
      allow_nan=False,
    )
    + '\n',
  }  # last: the report is whole
  kind = manifests.Kind.REPORT
  manifests.record_files(
    directory, kind, [path.name for path in drawn.values()]
  )
  manifests.write_files(directory, kind, contents)
  names = [*contents, manifests.FILE]
  return [*(directory / name for name in names), *drawn.values()]


def read(directory: pathlib.Path) -> list[score_table.ScoreTable]:
  """The tables of a report, to be compared with other ones."""
  return _record(directory)['tables']


def write_again(directory: pathlib.Path) -> list[pathlib.Path]:
  """Makes all files of a report of its `scores.json`; returns them.

  Raises:
    RunDirectoryError: that file is damaged.
  """
  record = _record(directory)
  (directory / manifests.FILE).unlink(missing_ok=True)
  return write(
    directory,
    record['tables'],
    title=record['title'],
    source=record['source_language'],
    baseline=record['baseline'],
    samples=record['samples'],
    seed=record['seed'],
  )


def _record(directory: pathlib.Path) -> dict[str, Any]:
  return checksums.read_json(
    directory / JSON,
    error=errors.RunDirectoryError,
    what='A report is damaged',
    own=True,
    fix='write it again',
    into=lambda record: (
      record
      | {
        'tables': [
          score_table.ScoreTable.from_json(one) for one in record['tables']
        ]
      }
    ),
  )


def write_curves(
  directory: pathlib.Path,
  models: Mapping[str, Mapping[int, score_table.ScoreTable]],
  *,
  source: str = averages.ENGLISH,
) -> list[pathlib.Path]:
  """Draws each task's score along pretraining, as MetaXLM's figure 5.

  `<task>.curves.png` has the mean of the other languages, the source
  language's score and the transfer gap by step.

  Args:
    directory: is created.
    models: name -> step -> scores of that checkpoint.
    source: the language that models were fine-tuned in.

  Returns:
    The files written: of the tasks that have the source language and another
    one at two steps or more.
  """
  directory.mkdir(parents=True, exist_ok=True)
  written = []
  tables = [one for steps in models.values() for one in steps.values()]
  for task in dict.fromkeys(task for one in tables for task in one.tasks):
    lines = {
      name: found
      for name, steps in models.items()
      if (found := _curves(task, steps, source))
    }
    if any(len(found['gap']) > 1 for found in lines.values()):
      written.append(
        _save(
          directory / f'{_file(task)}.curves.png',
          plots.transfer_curves(
            task, _label(_metrics(task, models)), source, lines
          ),
        )
      )
  names = [path.name for path in written]
  manifests.record_files(directory, manifests.Kind.REPORT, names)
  return written


def _curves(
  task: str, steps: Mapping[int, score_table.ScoreTable], source: str
) -> plots.Curves:
  out: dict[str, list[tuple[int, float]]] = {}
  for step in sorted(steps):
    if task not in steps[step].tasks:
      continue
    scores = steps[step].task_scores(task)
    gap = averages.transfer_gap(scores, source=source)
    if gap is not None:
      for key, value in (
        ('source', scores[source]),
        ('gap', gap),
        ('transfer', scores[source] - gap),
      ):
        out.setdefault(key, []).append((step, value))
  return out


def _metrics(task: str, models) -> tuple[str, ...]:
  return next(
    one.metrics(task)
    for steps in models.values()
    for one in steps.values()
    if task in one.tasks
  )


def _draw(directory: pathlib.Path, summaries) -> dict[str, pathlib.Path]:
  """Title -> picture."""
  overall = {
    one.model: {
      task: found.score
      for task, found in one.tasks.items()
      if all(map(score_table.is_averaged, found.metrics))
    }
    for one in summaries
  }
  gaps = {
    one.model: {
      task: found.gap
      for task, found in one.tasks.items()
      if found.gap is not None
    }
    for one in summaries
  }
  written = {}
  for name, title, label, scores in (
    ('all_tasks', 'Score of each task', 'score (points)', overall),
    ('transfer_gaps', 'Transfer gap of each task', 'gap (points)', gaps),
  ):
    if any(scores.values()):
      written[title] = _save(
        directory / f'{name}.png', plots.bar_chart(title, label, scores)
      )
  for task in text.task_names(summaries):
    found = {
      one.model: one.tasks[task] for one in summaries if task in one.tasks
    }
    title = f'{task} by language'
    label = _label(next(iter(found.values())).metrics)
    written[title] = _save(
      directory / f'{_file(task)}.png',
      plots.bar_chart(
        title, label, {name: one.languages for name, one in found.items()}
      ),
    )
  return written


def _save(path: pathlib.Path, canvas) -> pathlib.Path:
  return plots.save_figure(canvas, path, dpi=_DPI)


def _label(metrics: Sequence[str]) -> str:
  names = ' and '.join(map(text.metric_name, metrics))
  if len(metrics) > 1:
    return f'mean of {names}'
  return f'{names} (points)' if score_table.is_bounded(metrics[0]) else names


def _explanation(source: str, compared, samples: int, details) -> str:
  sentences = [
    'Scores are points: percent, BLEU and chrF as they are.',
    'A task’s score is the mean over its languages, of F1 and exact match '
    'for question answering; the mean over tasks leaves out errors and '
    'perplexities, and there is none where a task or a language is missing. The transfer gap is the score in '
    f'{source} minus the mean of the other languages.',
  ]
  if any(one.interval for one in details.values()):
    sentences.append(
      '±: half of the 95 % interval of a score, a mean or a gap; questions of '
      'one text, and other examples that belong together, are drawn together.'
    )
  if any(one.link for one in details.values()):
    sentences.append('A score of a language leads to its predictions.')
  if compared:
    sentences.append(
      f'p: two-sided, by a paired bootstrap of {samples} samples over the '
      'examples and, with several seeds, their spread; p (Holm): adjusted over '
      f'all comparisons of the page; * below {cells.SIGNIFICANT}, and '
      f'{cells.BETTER} or {cells.WORSE} beside the score of a model that is '
      f'better or worse than {compared[0].baseline}.'
    )
  return ' '.join(sentences)


def _file(task: str) -> str:
  """A task's name without what a file's name may not have."""
  return re.sub(r'[^\w.-]', '_', task)


def _check(tables: Sequence[score_table.ScoreTable]) -> None:
  names = [one.model for one in tables]
  if not names or len(set(names)) < len(names):
    raise errors.ConfigError(
      'A report needs models of different names',
      got=names,
      expected='one ScoreTable for each model',
    )
