"""What a grid found: grid.json, grid.csv, tables."""

import collections
import csv
import dataclasses
import io
import itertools
import json
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import rich.table

from xlflax import evaluate as evaluate_lib
from xlflax.evaluation import eval_task, plots
from xlflax.evaluation.reports import run_pages, score_table
from xlflax.finetuning import grid_trials, model_selection
from xlflax.storage import manifests
from xlflax.training import nonfinite_checks
from xlflax.training.distributed import distributed_job
from xlflax.utils import errors, rich_tables

JSON = 'grid.json'
CSV = 'grid.csv'


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridReport:
  """What is known of a grid so far.

  Attributes:
    select: the metric that is selected by.
    trials: those that have been run, in the order of the grid.
    tests: trial's name -> 'task/metric' -> number, on the test sets.
    primary_metrics: 'task/metric' before the part, of the test tasks.
    failures: what could not be evaluated on the test sets.
  """

  select: str | None = None
  trials: tuple[grid_trials.TrialResult, ...] = ()
  tests: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
  primary_metrics: tuple[str, ...] = ()
  failures: tuple[eval_task.Failure, ...] = ()

  @property
  def settings(self) -> tuple[model_selection.Setting, ...]:
    return model_selection.results_by_setting(self.trials)

  @property
  def ranking(self) -> tuple[model_selection.Setting, ...]:
    """The best setting first; those without all seeds are missing."""
    return self._ranked(untrained=False)

  @property
  def untrained_ranking(self) -> tuple[model_selection.Setting, ...]:
    """The same of the trials from random parameters, which are a baseline."""
    return self._ranked(untrained=True)

  def _ranked(self, *, untrained: bool) -> tuple[model_selection.Setting, ...]:
    chosen = [
      setting for setting in self.settings if setting.untrained == untrained
    ]
    return model_selection.rank_settings(chosen, self.select)

  @property
  def is_complete(self) -> bool:
    """Whether nothing failed."""
    return not self.failures and all(
      trial.status is grid_trials.Status.FINISHED for trial in self.trials
    )

  @property
  def exit_status(self) -> errors.ExitStatus:
    """What fits what failed, or that a trial was stopped."""
    return errors.joint_status(
      [
        *(trial.exit_status for trial in self.trials),
        *(failure.status for failure in self.failures),
      ]
    )

  def with_trial(self, result: grid_trials.TrialResult) -> 'GridReport':
    """The report with one more trial."""
    return dataclasses.replace(self, trials=(*self.trials, result))

  def with_test(
    self, result: grid_trials.TrialResult, report: evaluate_lib.Report
  ) -> 'GridReport':
    """The report with the test results of one more trial."""
    test_metrics = {
      f'{task}/{name}': value
      for task, by_step in report.results.items()
      for step, evaluated in by_step.items()
      if step == result.step
      for name, value in evaluated.metrics.items()
    }
    failures = tuple(
      dataclasses.replace(failure, part=f'{result.trial.name} {failure.part}')
      for failure in report.failures
    )
    return dataclasses.replace(
      self,
      tests=self.tests | {result.trial.name: test_metrics},
      failures=(*self.failures, *failures),
      primary_metrics=tuple(
        f'{task.name}/{task.primary_metric}' for task in report.tasks
      ),
    )

  def test_spreads(
    self, setting: model_selection.Setting
  ) -> dict[str, model_selection.Spread]:
    """'task/metric' -> its values over the seeds of a setting."""
    tests = [
      self.tests[result.trial.name]
      for result in setting.results
      if result.trial.name in self.tests
    ]
    names = dict.fromkeys(name for test in tests for name in test)
    return {
      name: model_selection.Spread(
        tuple(test[name] for test in tests if name in test)
      )
      for name in names
    }

  def best_two(self) -> dict[str, Any] | None:
    """Means of the two best settings (ECS, section 4); None without two."""
    best = self.ranking[:2]
    if self.select is None or len(best) < 2:
      return None
    tests = [self.test_spreads(setting) for setting in best]
    return {
      'settings': [setting.name for setting in best],
      'dev': model_selection.Spread.of(s.dev.mean for s in best).mean,
      'test': {
        name: model_selection.Spread.of(test[name].mean for test in tests).mean
        for name in tests[0]
        if name in tests[1]
      },
    }

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values; NaN becomes null."""
    selected, untrained = (
      next((setting.name for setting in ranked), None)
      for ranked in (self.ranking, self.untrained_ranking)
    )
    return nonfinite_checks.or_null(
      {
        'select': self.select,
        'selected': selected,
        'untrained': untrained,
        'best_two': self.best_two(),
        'settings': [
          {
            'setting': setting.name,
            'complete': setting.is_complete,
            'dev': setting.dev.to_json(),
            'test': {
              name: spread.to_json()
              for name, spread in self.test_spreads(setting).items()
            },
          }
          for setting in self.settings
        ],
        'trials': [
          result.to_json() | {'test': self.tests.get(result.trial.name, {})}
          for result in self.trials
        ],
        'failures': [str(failure) for failure in self.failures],
      }
    )

  def write(self, output: pathlib.Path) -> None:
    """Writes grid.json and grid.csv."""
    if distributed_job.is_lead():
      text = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + '\n'
      contents = {JSON: text, CSV: self._csv()}
      manifests.write_files(output, manifests.Kind.GRID, contents)

  def _csv(self) -> str:
    """A line for each trial."""
    trials = self.trials
    groups: list[list[dict[str, Any]]] = [
      [
        {'trial': result.trial.name, **result.trial.values} for result in trials
      ],
      [
        {
          'status': result.status.value,
          'step': result.step,
          'seconds': result.seconds,
        }
        for result in trials
      ],
      [_named('dev', result.metrics) for result in trials],
      [
        _named('test', self.tests.get(result.trial.name, {}))
        for result in trials
      ],
    ]
    text = io.StringIO()
    names = dict.fromkeys(itertools.chain(*itertools.chain(*groups)))
    writer = csv.DictWriter(text, list(names), lineterminator='\n')
    writer.writeheader()
    writer.writerows(
      dict(collections.ChainMap(*parts)) for parts in zip(*groups, strict=True)
    )
    return text.getvalue()


def _named(start: str, metrics: Mapping[str, float]) -> dict[str, Any]:
  return {f'{start}/{name}': value for name, value in metrics.items()}


def grid_tables(report: GridReport) -> list[rich.table.Table]:
  """The settings by their dev score, and the test scores of the tested."""
  tables = [_settings_table(report)]
  tested = [s for s in report.settings if report.test_spreads(s)]
  if tested:
    tables.append(_test_table(report, tested))
  return tables


def _settings_table(report: GridReport) -> rich.table.Table:
  marks = {setting.name: 'selected' for setting in report.ranking[:1]} | {
    setting.name: 'baseline' for setting in report.untrained_ranking[:1]
  }
  table = rich_tables.make_table(
    ['setting'],
    ['mean ± std', 'seeds', ''],
    title=f'dev: {report.select or "last checkpoint"}',
    title_justify='left',
  )
  for setting in report.settings:
    lost = [
      result.status.value
      for result in setting.results
      if result not in setting.finished
    ]
    table.add_row(
      setting.name,
      str(setting.dev),
      f'{len(setting.finished)}/{len(setting.results)}',
      marks.get(setting.name, ', '.join(dict.fromkeys(lost))),
      style='bold' if marks.get(setting.name) == 'selected' else None,
    )
  two = report.best_two()
  if two:
    table.add_row('mean of the best two', f'{two["dev"]:.4f}', '', '')
  return table


def _test_table(report: GridReport, tested) -> rich.table.Table:
  table = rich_tables.make_table(
    [''],
    [setting.name for setting in tested],
    title='test: mean ± std over seeds',
    title_justify='left',
  )
  spreads = [report.test_spreads(setting) for setting in tested]
  names = [
    name
    for name in dict.fromkeys(name for spread in spreads for name in spread)
    if name.startswith(tuple(f'{h}/' for h in report.primary_metrics))
  ]
  for name in sorted(names, key=lambda n: n.endswith('/mean')):
    table.add_row(name, *(str(spread.get(name, '-')) for spread in spreads))
  return table


def write_page(
  output: pathlib.Path,
  reports: Mapping[str, GridReport],
  *,
  command: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `report.html`: the tables of grids, and the test scores drawn.

  Args:
    output: directory of the grid, or of all directions.
    reports: by training language, or by ''.
    command: the words of the command.

  Returns:
    The page.
  """
  page_tables: list[Any] = []
  drawn: dict[str, pathlib.Path] = {}
  notes: list[str] = []
  for language, report in reports.items():
    start = f'{language}, ' if language else ''
    for table in grid_tables(report):
      page_table = run_pages.convert_rich_table(table)
      page_table.title = start + page_table.title
      page_tables.append(page_table)
    for metric, scores in _test_scores(report).items():
      title = f'{start}{metric} on test data'
      file = output / (re.sub(r'[^\w.-]+', '_', title) + '.png')
      name = metric.rpartition('/')[2]
      points = {
        setting: {
          part: score_table.to_points(name, value) for part, value in of.items()
        }
        for setting, of in scores.items()
      }
      unit = ' (points)' if score_table.is_bounded(name) else ''
      canvas = plots.bar_chart(title, name + unit, points)
      drawn[title] = plots.save_figure(canvas, file, dpi=150)
    notes += [f'failed: {failure}' for failure in report.failures]
    notes += [
      f'{result.status.value}: {result.trial.name}: {result.message}'
      for result in report.trials
      if result.status is not grid_trials.Status.FINISHED
    ]
  return run_pages.write_page(
    output,
    'Fine-tuning',
    'Settings by their score on the dev set, which selects; then the selected '
    'on the test sets. Means and standard deviations are over seeds. '
    'Settings called untrained start from random parameters of the same model: '
    'what they score, the data of the task taught.',
    page_tables,
    drawn,
    notes=notes,
    command=command,
  )


def _test_scores(report: GridReport) -> dict[str, dict[str, dict[str, float]]]:
  """'task/metric' -> setting -> part -> mean over seeds."""
  scores: dict[str, dict[str, dict[str, float]]] = {}
  for setting in report.settings:
    for name, spread in report.test_spreads(setting).items():
      metric, _, part = name.rpartition('/')
      mean = spread.mean
      if metric not in report.primary_metrics or mean is None:
        continue
      if not math.isnan(mean):
        of_metric = scores.setdefault(metric, {})
        of_metric.setdefault(setting.name, {})[part] = mean
  return scores
