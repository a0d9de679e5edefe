"""Report on a hyperparameter grid: `grid.json`, `grid.csv`, tables and HTML."""

import collections
import csv
import dataclasses
import io
import json
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import rich.table

from xlflax import evaluate
from xlflax.evaluation import (
  eval_task,
  plots,
  result_tables,
  score_format,
  task_families,
)
from xlflax.evaluation.metrics.metric import Better
from xlflax.evaluation.reports import run_pages, text
from xlflax.finetuning import grid_data, grid_trials, model_selection
from xlflax.storage import manifests
from xlflax.training import nonfinite_checks
from xlflax.training.checkpointing import run_directory
from xlflax.training.distributed import distributed_job
from xlflax.utils import errors, rich_tables

CSV = 'grid.csv'
_MAX_LANGUAGES = 10  # names in a sentence


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridReport:
  """Dev and test results of the trials of a hyperparameter grid.

  Attributes:
    select: Dev-set metric that selects the best setting.
    select_split: Split on which `select` is computed, or 'all' if the data has
      no splits.
    trials: Results of the trials that were run, in the order of the grid.
    tests: Test scores by trial name and 'task/metric'.
    primary_metrics: Primary metrics of the test tasks in the form
      'task/metric', without a language.
    failures: Failures that occurred in evaluation on the test sets.
    training_data: Training data of the trials by dataset and language. It is
      empty if the files have not been checked before training.
  """

  select: str | None = None
  select_split: str = 'all'
  trials: tuple[grid_trials.TrialResult, ...] = ()
  tests: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
  primary_metrics: tuple[str, ...] = ()
  failures: tuple[eval_task.Failure, ...] = ()
  training_data: tuple[grid_data.TrainingData, ...] = ()

  @property
  def settings(self) -> tuple[model_selection.Setting, ...]:
    """Trial results grouped by hyperparameter setting, in grid order."""
    return model_selection.results_by_setting(self.trials)

  @property
  def ranking(self) -> tuple[model_selection.Setting, ...]:
    """Hyperparameter settings with results for all seeds, best first."""
    return self._ranked(untrained=False)

  @property
  def untrained_ranking(self) -> tuple[model_selection.Setting, ...]:
    """Hyperparameter settings of randomly initialized models, best first."""
    return self._ranked(untrained=True)

  def _ranked(self, *, untrained: bool) -> tuple[model_selection.Setting, ...]:
    """Ranks either the untrained settings or all other settings."""
    settings = [
      setting for setting in self.settings if setting.untrained == untrained
    ]
    return model_selection.rank_settings(settings, self.select)

  @property
  def is_complete(self) -> bool:
    """True if all trials have finished and all tests succeeded."""
    return not self.failures and all(
      trial.status is grid_trials.Status.FINISHED for trial in self.trials
    )

  @property
  def exit_status(self) -> errors.ExitStatus:
    """Combined exit status of all trials and failed tests."""
    return errors.joint_status(
      [
        *(trial.exit_status for trial in self.trials),
        *(failure.status for failure in self.failures),
      ]
    )

  def with_trial(self, result: grid_trials.TrialResult) -> 'GridReport':
    """Returns a copy of the report that includes a trial's result."""
    return dataclasses.replace(self, trials=(*self.trials, result))

  def with_test(
    self, result: grid_trials.TrialResult, report: evaluate.Report
  ) -> 'GridReport':
    """Returns a copy of the report that includes a trial's test scores.

    Args:
      result: Training result of the trial.
      report: Evaluation results on the test sets.
    """
    test_metrics = {
      f'{task}/{name}': value
      for task, results_by_step in report.results.items()
      for step, task_result in results_by_step.items()
      if step == result.step
      for name, value in task_result.metrics.items()
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
    """Returns a setting's test scores for all seeds, by 'task/metric'."""
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
    """Averages the scores of the grid's two best settings (ECS, section 4)."""
    best = self.ranking[:2]
    if self.select is None or len(best) < 2:
      return None
    first_test, second_test = (self.test_spreads(setting) for setting in best)

    def mean(*values: float | None) -> float | None:
      return model_selection.Spread.from_optional(values).mean

    return {
      'settings': [setting.name for setting in best],
      'dev': mean(*(setting.dev.mean for setting in best)),
      'test': {
        name: mean(first_test[name].mean, second_test[name].mean)
        for name in first_test
        if name in second_test
      },
    }

  def to_json(self) -> dict[str, Any]:
    """Returns the report as JSON values. NaN becomes null."""
    selected, untrained = (
      ranking[0].name if ranking else None
      for ranking in (self.ranking, self.untrained_ranking)
    )
    return nonfinite_checks.or_null(
      {
        'select': self.select,
        'selected': selected,
        'untrained': untrained,
        'best_two': self.best_two(),
        'training_data': [
          dataclasses.asdict(data) for data in self.training_data
        ],
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
          result.to_json()
          | {
            'setting': result.trial.setting,
            'test': self.tests.get(result.trial.name, {}),
          }
          for result in self.trials
        ],
        'failures': [
          *(
            f'{result.trial.name}: {result.message}'
            for result in self.trials
            if result.status
            in (grid_trials.Status.FAILED, grid_trials.Status.DIVERGED)
          ),
          *map(str, self.failures),
        ],
      }
    )

  def write(self, output: pathlib.Path) -> None:
    """Writes grid.json and grid.csv.

    Args:
      output: Output directory of the hyperparameter grid.
    """
    if distributed_job.is_lead():
      content = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + '\n'
      contents = {run_directory.GRID_RESULTS: content, CSV: self._to_csv()}
      manifests.write_files(output, manifests.Kind.GRID, contents)

  def _to_csv(self) -> str:
    """Returns CSV with a line for each trial."""
    trials = self.trials
    # Each group has the same kind of columns for all trials. The columns of the
    # groups follow one another.
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
      [_add_prefix('dev', result.metrics) for result in trials],
      [
        _add_prefix('test', self.tests.get(result.trial.name, {}))
        for result in trials
      ],
    ]
    stream = io.StringIO()
    columns = dict.fromkeys(
      column for group in groups for values in group for column in values
    )
    writer = csv.DictWriter(stream, list(columns), lineterminator='\n')
    writer.writeheader()
    for trial_groups in zip(*groups, strict=True):
      writer.writerow(dict(collections.ChainMap(*trial_groups)))
    return stream.getvalue()


def _add_prefix(prefix: str, metrics: Mapping[str, float]) -> dict[str, Any]:
  """Returns metrics with names in the form 'prefix/name'."""
  return {f'{prefix}/{name}': value for name, value in metrics.items()}


def grid_tables(report: GridReport) -> list[rich.table.Table]:
  """Returns a table of dev scores and, if available, one of test scores."""
  tables = [_settings_table(report)]
  best_two = report.best_two()
  if best_two and best_two['test']:
    tables.append(_best_two_table(report, best_two))
  tested_settings = [
    setting for setting in report.settings if report.test_spreads(setting)
  ]
  if tested_settings:
    tables.append(_test_table(report, tested_settings))
  return tables


def describe_unfinished(report: GridReport) -> list[str]:
  """Returns a line for each trial that did not finish, with the reason.

  The trials that were not started are listed in one line.

  Args:
    report: Report of the hyperparameter grid.
  """
  lines = [
    f'{result.status.value}: {result.trial.name}: {result.message}'
    for result in report.trials
    if result.status
    not in (grid_trials.Status.FINISHED, grid_trials.Status.NOT_STARTED)
  ]
  names = [
    result.trial.name
    for result in report.trials
    if result.status is grid_trials.Status.NOT_STARTED
  ]
  if names:
    status = grid_trials.Status.NOT_STARTED.value
    lines.append(f'{status}: {", ".join(names)}')
  return lines


def _settings_table(report: GridReport) -> rich.table.Table:
  """Returns a table of the settings, with dev scores if a metric selects."""
  best_role = 'selected' if report.select else grid_trials.Status.FINISHED.value
  roles = {setting.name: best_role for setting in report.ranking[:1]} | {
    setting.name: 'random-init baseline'
    for setting in report.untrained_ranking[:1]
  }
  title = 'no selection on a development set: the last checkpoint is used'
  score_headings = []
  if report.select:
    split = eval_task.describe_training_split(report.select_split)
    title = f'{split}: {_explain_metric(report.select)}'
    score_headings = [
      _score_heading(setting.dev for setting in report.settings)
    ]
  table = rich_tables.make_table(
    ['setting', 'status'],
    [*score_headings, 'seeds', 'step of each seed'],
    title=title,
    title_justify='left',
  )
  for setting in report.settings:
    unfinished_statuses = dict.fromkeys(
      result.status.value
      for result in setting.results
      if result not in setting.finished
    )
    table.add_row(
      setting.name,
      roles.get(setting.name, ', '.join(unfinished_statuses)),
      *([str(setting.dev)] if report.select else []),
      f'{len(setting.finished)}/{len(setting.results)}',
      ', '.join(str(result.step) for result in setting.finished),
      style='bold' if roles.get(setting.name) == 'selected' else None,
    )
  return table


def _explain_metric(name: str) -> str:
  """Returns 'task/metric/part' with the range and direction of the metric."""
  metric = task_families.find_metric(name.split('/')[1])
  return name + metric.explained.removeprefix(metric.title)


def _best_two_table(report: GridReport, best_two) -> rich.table.Table:
  """Returns a table of the mean scores of the two best settings."""
  table = rich_tables.make_table(
    [''],
    ['mean'],
    title='mean of the two best settings: '
    + ' and '.join(best_two['settings']),
    title_justify='left',
  )
  table.add_row(f'dev {report.select}', _format_mean(best_two['dev']))
  for name, mean in best_two['test'].items():
    if mean is not None and name.rpartition('/')[0] in report.primary_metrics:
      table.add_row(f'test {name}', _format_mean(mean))
  return table


def untrained_notes(report: GridReport) -> list[str]:
  """Returns notes on scores that pretraining did not improve.

  The selected setting is compared with the best setting that starts from random
  parameters, on the dev set, if a metric selects the setting, and on each test
  set.

  Args:
    report: Report of the hyperparameter grid.
  """
  if not (report.ranking and report.untrained_ranking):
    return []
  selected, untrained = report.ranking[0], report.untrained_ranking[0]
  tests = [report.test_spreads(s) for s in (selected, untrained)]
  pairs = {
    f'test {name}': (tests[0][name], tests[1][name])
    for name in tests[0]
    if name in tests[1] and name.rpartition('/')[0] in report.primary_metrics
  }
  if report.select:
    pairs = {f'dev {report.select}': (selected.dev, untrained.dev)} | pairs
  notes = []
  for name, (score_spread, baseline_spread) in pairs.items():
    score, baseline = score_spread.mean, baseline_spread.mean
    metric = name.partition(' ')[2].split('/')[1]
    better = task_families.find_metric(metric).better
    if score is None or baseline is None or better is Better.NEITHER:
      continue
    sign = -1 if better is Better.LOWER else 1
    if sign * score > sign * baseline:
      continue
    relation = 'equals' if score == baseline else 'is worse than'
    note = (
      f'{name}: the score of the {_best_label(report)} ({score_spread}) '
      f'{relation} '
      'the score of the randomly initialized, fine-tuned model '
      f'({baseline_spread}).'
    )
    stds = [
      spread.std
      for spread in (score_spread, baseline_spread)
      if spread.std is not None
    ]
    if len(stds) == 2 and abs(score - baseline) <= max(stds):
      note += ' The difference is within one standard deviation over seeds.'
    elif not stds:
      note += ' Each score was computed with a single seed.'
    notes.append(note)
  return notes


def _best_label(report: GridReport) -> str:
  """Returns the description of the model that was tested."""
  return 'selected setting' if report.select else 'last checkpoint'


def _training_data_table(report: GridReport) -> text.Table:
  """Returns a table of the files or tasks with training examples."""
  return text.Table(
    'training data',
    ['dataset', 'language', 'examples', 'files or tasks'],
    [
      [
        data.dataset,
        data.language or '-',
        '-' if data.num_examples is None else f'{data.num_examples:,}',
        data.source,
      ]
      for data in report.training_data
    ],
  )


def _describe_training_data(report: GridReport) -> list[str]:
  """Returns a sentence on the number and the languages of the examples."""
  counts = [data.num_examples for data in report.training_data]
  keys = {(data.dataset, data.language) for data in report.training_data}
  # If trials differ in their data, the sum is not that of any trial.
  if not counts or None in counts or len(keys) < len(counts):
    return []
  languages = dict.fromkeys(data.language for data in report.training_data)
  names = ', '.join(languages)
  if len(languages) > _MAX_LANGUAGES:
    names = f'{len(languages)} languages'
  return [f'Training data: {sum(filter(None, counts)):,} examples ({names}).']


def _describe_selection(report: GridReport) -> list[str]:
  """Returns sentences on the selected setting and its test scores."""
  if not report.ranking:
    return []
  selected = report.ranking[0]
  lines = []
  if report.select and selected.dev.mean is not None:
    split = eval_task.describe_training_split(report.select_split)
    scope = f', over {len(selected.dev.values)} seeds' * (
      selected.dev.std is not None
    )
    criterion = f'{report.select} on the {split} ({selected.dev}{scope})'
    if len(report.ranking) == 1:
      lines.append(f'Selected setting: {selected.name}, {criterion}.')
    else:
      ties = sum(s.dev.mean == selected.dev.mean for s in report.ranking) - 1
      lines.append(
        f'Selected setting: {selected.name}. It has the best {criterion} of '
        f'{len(report.ranking)} settings'
        + (f'; {ties} of the others have the same score.' if ties else '.')
      )
  spreads = report.test_spreads(selected)
  for metric in report.primary_metrics:
    scores = {
      name: spread.mean
      for name, spread in spreads.items()
      if name.startswith(f'{metric}/') and spread.mean is not None
    }
    scores.pop(f'{metric}/mean', None)
    better = task_families.find_metric(metric.rpartition('/')[2]).better
    if better is Better.NEITHER:
      continue
    sign = -1 if better is Better.LOWER else 1
    if len(scores) > 1:
      worst = min(scores, key=lambda name: sign * scores[name])
      lines.append(
        f'The worst test score is {worst} ({_format_mean(scores[worst])}).'
      )
    for name, (baseline, baseline_score) in _baselines_of_scores(
      report, spreads
    ).items():
      score = scores.get(name)
      if score is not None and sign * score <= sign * baseline_score:
        lines.append(
          f'test {name}: the score of the {_best_label(report)} '
          f'({_format_mean(score)}) is not better than the baseline '
          f'"{baseline}" ({_format_mean(baseline_score)}).'
        )
  return lines


def _baselines_of_scores(
  report: GridReport, spreads: Mapping[str, model_selection.Spread]
) -> dict[str, tuple[str, float]]:
  """Returns the best baseline for each metric and language, with its score."""
  baselines: dict[str, tuple[str, float]] = {}
  for name, spread in spreads.items():
    task, _, metric_and_part = name.partition('/')
    baseline, _, part = metric_and_part.partition('/')
    for primary_metric in report.primary_metrics:
      metric = primary_metric.removeprefix(f'{task}/')
      if spread.mean is None or not result_tables.is_baseline(baseline, metric):
        continue
      key = f'{primary_metric}/{part}'
      if key not in baselines or baselines[key][1] < spread.mean:
        baselines[key] = (baseline, spread.mean)
  return baselines


def _test_table(
  report: GridReport, settings: Sequence[model_selection.Setting]
) -> rich.table.Table:
  """Returns a table of the primary metrics of tested settings."""
  spreads_of_settings = [report.test_spreads(setting) for setting in settings]
  baselines: dict[str, dict[str, float | None]] = {}
  for primary_metric in report.primary_metrics:
    for baseline, by_part in _baselines_of_metric(
      report, primary_metric
    ).items():
      scores_by_name = baselines.setdefault(baseline, {})
      for part, mean in by_part.items():
        scores_by_name[f'{primary_metric}/{part}'] = mean
  explanations = dict.fromkeys(
    task_families.find_metric(metric.rpartition('/')[2]).explained
    for metric in report.primary_metrics
  )
  table = rich_tables.make_table(
    [''],
    [
      *baselines,
      *(
        f'{setting.name}, {_score_heading(spreads.values())}'
        for setting, spreads in zip(settings, spreads_of_settings, strict=True)
      ),
    ],
    title=f'test set: {", ".join(explanations)}',
    title_justify='left',
  )
  prefixes = tuple(f'{metric}/' for metric in report.primary_metrics)
  names = dict.fromkeys(
    name
    for spreads in spreads_of_settings
    for name in spreads
    if name.startswith(prefixes)
  )
  # Means follow the languages.
  for name in sorted(names, key=lambda name: name.endswith('/mean')):
    scores = (str(spreads.get(name, '-')) for spreads in spreads_of_settings)
    baseline_cells = (
      _format_mean(by_name[name]) if name in by_name else ''
      for by_name in baselines.values()
    )
    table.add_row(name, *baseline_cells, *scores)
  return table


def _baselines_of_metric(
  report: GridReport, primary_metric: str
) -> dict[str, dict[str, float | None]]:
  """Returns 'baseline' -> part -> score for a primary metric 'task/metric'.

  The score is None if it is not a finite number.
  """
  task, _, metric = primary_metric.partition('/')
  baselines: dict[str, dict[str, float | None]] = {}
  for setting in report.settings:
    for name, spread in report.test_spreads(setting).items():
      test_task, _, metric_and_part = name.partition('/')
      baseline, _, part = metric_and_part.partition('/')
      if test_task == task and result_tables.is_baseline(baseline, metric):
        baselines.setdefault(baseline, {})[part] = spread.mean
  return baselines


def _score_heading(spreads: Iterable[model_selection.Spread]) -> str:
  """Returns the heading of a score column, which explains the ± sign."""
  num_seeds = max((len(s.values) for s in spreads), default=0)
  if num_seeds < 2:
    return 'score'
  return f'mean ± standard deviation of {num_seeds} seeds'


def _format_mean(mean: float | None) -> str:
  """Formats a mean score. A missing value becomes '-'."""
  return score_format.format_score(mean, decimals=4)


def write_page(
  output: pathlib.Path,
  reports: Mapping[str, GridReport],
  *,
  command: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `report.html` with tables and plots of hyperparameter grids.

  Args:
    output: Directory of the grid, or of the grids for all training languages.
    reports: Grid reports by training language. A single grid has the key ''.
    command: Command-line arguments to show on the page.

  Returns:
    The path of the page.
  """
  page_tables: list[Any] = []
  chart_paths: dict[str, pathlib.Path] = {}
  notes: list[str] = []
  summary: list[str] = []
  for language, report in reports.items():
    prefix = f'{language}, ' if language else ''
    for page_table in (
      *map(run_pages.convert_rich_table, grid_tables(report)),
      _training_data_table(report),
    ):
      page_table.title = prefix + page_table.title
      page_tables.append(page_table)
    for metric, scores_by_setting in _test_scores(report).items():
      title = f'{prefix}{metric} on test data'
      chart_path = output / (re.sub(r'[^\w.-]+', '_', title) + '.png')
      name = metric.rpartition('/')[2]
      label = task_families.find_metric(name).explained
      chart = plots.bar_chart(
        title,
        label,
        scores_by_setting,
        intervals=_test_bounds(report, metric),
        baselines=_baselines_of_metric(report, metric),
      )
      chart_paths[title] = plots.save_figure(chart, chart_path, dpi=150)
    summary += [
      prefix + line
      for line in (
        *_describe_training_data(report),
        *_describe_selection(report),
        *untrained_notes(report),
      )
    ]
    notes += [f'failed: {failure}' for failure in report.failures]
    notes += describe_unfinished(report)
  return run_pages.write_page(
    output,
    'Fine-tuning',
    f'{_explain_selection(reports.values())} The number after ± and the error '
    'bars in figures are the standard deviation over seeds, which is not a '
    'confidence interval. For a single seed, there is no standard deviation. '
    '"majority" and "chance" are the accuracies of always predicting the most '
    'frequent class and of guessing. Settings named "untrained" are randomly '
    'initialized and then fine-tuned in the same way. Their scores are due to '
    'the training data of the task alone.',
    page_tables,
    chart_paths,
    notes=notes,
    command=command,
    summary=summary,
    metrics=_shown_metrics(reports.values()),
  )


def _explain_selection(reports: Iterable[GridReport]) -> str:
  """Returns sentences on how settings and checkpoints were selected."""
  splits = dict.fromkeys(
    eval_task.describe_training_split(report.select_split)
    for report in reports
    if report.select
  )
  if not splits:
    return (
      'The last checkpoint of each seed is used, because no metric on a '
      'development set was chosen for the selection.'
    )
  return (
    f'The score on the {" and the ".join(splits)} determines the selected '
    'setting and, for each seed, the step of the selected checkpoint. The test '
    'sets do not influence the selection.'
  )


def _shown_metrics(reports: Iterable[GridReport]) -> list[str]:
  """Returns the metrics and baselines that the tables of grids show."""
  metrics: list[str] = []
  for report in reports:
    selection = [report.select] if report.select else []
    shown = [
      name.split('/')[1] for name in (*selection, *report.primary_metrics)
    ]
    tested = {
      name.split('/')[1] for scores in report.tests.values() for name in scores
    }
    metrics += shown
    metrics += [
      baseline
      for baseline in sorted(tested)
      if any(result_tables.is_baseline(baseline, metric) for metric in shown)
    ]
  return list(dict.fromkeys(metrics))


def _test_bounds(
  report: GridReport, metric: str
) -> dict[str, dict[str, tuple[float, float]]]:
  """Returns a test metric's (mean - std, mean + std) by setting and part."""
  return {
    setting.name: {
      name.removeprefix(f'{metric}/'): (
        spread.mean - spread.std,
        spread.mean + spread.std,
      )
      for name, spread in report.test_spreads(setting).items()
      if name.startswith(f'{metric}/')
      and spread.mean is not None
      and spread.std is not None
    }
    for setting in report.settings
  }


def _test_scores(report: GridReport) -> dict[str, dict[str, dict[str, float]]]:
  """Returns 'task/metric' -> setting -> part -> mean over seeds."""
  scores: dict[str, dict[str, dict[str, float]]] = {}
  for setting in report.settings:
    for name, spread in report.test_spreads(setting).items():
      metric, _, part = name.rpartition('/')
      mean = spread.mean
      if metric not in report.primary_metrics or mean is None:
        continue
      if not math.isnan(mean):
        scores_by_setting = scores.setdefault(metric, {})
        scores_by_setting.setdefault(setting.name, {})[part] = mean
  return scores
