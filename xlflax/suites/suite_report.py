"""Suite results by task, language and model, and reports on the results."""

import csv
import dataclasses
import functools
import io
import itertools
import logging
import operator
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from xlflax import evaluate
from xlflax.data.supervised.sources import xtreme_tasks
from xlflax.evaluation import eval_task, result_store
from xlflax.evaluation.metrics import averages, example_statistics
from xlflax.evaluation.reports import leaderboard, score_table
from xlflax.evaluation.tasks import head_task
from xlflax.finetuning import model_selection
from xlflax.storage import paths
from xlflax.training import nonfinite_checks
from xlflax.utils import errors

MEAN = 'mean'
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Evaluated:
  """Location of an evaluation task's results for one checkpoint.

  Attributes:
    folder: Folder that contains the result files, such as predictions.
    task: Evaluation task. None if the result is from an earlier call and
      its task cannot be created.
    seed: Zero-based index of the fine-tuning seed. Each seed has one folder
      per evaluation task.
  """

  folder: pathlib.Path
  task: eval_task.EvalTask | None
  seed: int = 0


class Coverage(NamedTuple):
  """Number of languages in a mean score, and number of languages expected.

  Attributes:
    num_languages: Number of languages with a score.
    num_expected: Number of languages in the test data.
  """

  num_languages: int
  num_expected: int

  @property
  def is_complete(self) -> bool:
    """True if all expected languages have a score."""
    return self.num_languages >= self.num_expected


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
  """Result of a suite task for one checkpoint of a pretrained model.

  Attributes:
    task: Name of the suite task.
    family: Group of tasks to which the task belongs when scores are averaged.
    label: Model name in tables.
    step: Step of the evaluated checkpoint.
    run: Identifier of the pretrained run, which does not depend on its
      location.
    recipe: Name of the recipe that the suite's tasks followed.
    setting: Name of the hyperparameter setting selected from the grid, or ''
      without fine-tuning.
    main: Metrics whose mean is the task's score. If empty, the metrics that the
      evaluation tasks declare are used.
    values: Mapping from 'metric/part' to the metric's values, one for each
      seed. The part is a language, a file or 'mean'.
    evaluated: Locations of the result files, one for each evaluation task and
      seed.
    languages: Mapping from each metric to the languages of the test data,
      including those without data or without scores. Their names are the same
      as in `values`.
    notes: Remarks that are needed to interpret the scores.
    failures: Languages or files without scores, with the reason for each.
    is_earlier: Whether the result was computed by an earlier call of the suite.
    cost: Total cost of all calls that have contributed to the result. None if
      the cost was not measured.
  """

  task: str
  family: str
  label: str
  step: int
  run: str = ''
  recipe: str = ''
  setting: str = ''
  main: tuple[str, ...] = ()
  values: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
  evaluated: tuple[Evaluated, ...] = ()
  languages: dict[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  notes: tuple[str, ...] = ()
  failures: tuple[eval_task.Failure, ...] = ()
  is_earlier: bool = False
  cost: score_table.Cost | None = None

  @property
  def model(self) -> str:
    """Name of the checkpoint, such as 'mlm@1000'."""
    return f'{self.label}@{self.step}'

  @property
  def unlabeled(self) -> tuple[str, ...]:
    """Notes on languages or files that have examples without gold labels."""
    return tuple(
      note for note in self.notes if note.endswith(head_task.UNLABELED)
    )

  def coverage(self, metric: str) -> Coverage:
    """Counts the languages with a score, and those expected to have one.

    Args:
      metric: Name of the metric, such as 'accuracy'.
    """
    num_scored = sum(
      name.startswith(f'{metric}/') and name != f'{metric}/{MEAN}'
      for name in self.values
    )
    num_expected = len(self.languages.get(metric, ()))
    return Coverage(num_scored, max(num_scored, num_expected))

  def with_report(self, report: evaluate.Report, step: int) -> 'TaskResult':
    """Returns a copy that also contains the test results of another seed.

    Args:
      report: Evaluation results on the test sets.
      step: Step of the evaluated checkpoint.

    Raises:
      ConfigError: If two evaluation tasks report the same metric for the same
        language or file.
    """
    values, notes = dict(self.values), list(self.notes)
    metrics: dict[str, float] = {}
    languages = dict(self.languages)
    tasks = {task.name: task for task in report.tasks}
    for name, results_by_step in report.results.items():
      result = results_by_step.get(step)
      if result is None:  # The report lists the failure.
        continue
      if duplicates := metrics.keys() & result.metrics.keys():
        raise errors.ConfigError(
          'The evaluation tasks in one `SuiteTask` must report different '
          'metrics',
          got=', '.join(sorted(duplicates)),
          where=self.task,
          fix='Define one `SuiteTask` for each evaluation task.',
        )
      metrics |= result.metrics
      notes += result.notes
      if name in tasks:
        languages |= _languages_by_metric(tasks[name], result)
    for name, value in metrics.items():
      values[name] = (*values.get(name, ()), value)
    seed = max((evaluated.seed + 1 for evaluated in self.evaluated), default=0)
    return dataclasses.replace(
      self,
      values=values,
      languages=languages,
      notes=tuple(dict.fromkeys(notes)),
      evaluated=(
        *self.evaluated,
        *(
          Evaluated(report.folders[task.name] / str(step), task, seed)
          for task in report.tasks
        ),
      ),
      failures=(*self.failures, *report.failures),
    )

  @property
  def metrics(self) -> tuple[str, ...]:
    """Metrics whose mean is the task's score."""
    if self.main:
      return self.main
    declared = (
      evaluated.task.score_metrics
      for evaluated in self.evaluated
      if evaluated.task is not None
    )
    return tuple(dict.fromkeys(itertools.chain.from_iterable(declared)))

  def scores(self, *, examples: Sequence[str] = ()) -> list[score_table.Score]:
    """Returns the main metrics of every language, averaged over seeds.

    Args:
      examples: Languages whose scores include per-example statistics.
    """
    scores = []
    for name, values in self.values.items():
      metric, _, part = name.partition('/')
      mean = model_selection.Spread(values).mean
      if (
        metric in self.metrics
        and mean is not None
        and (part and part != MEAN and '/' not in part)
      ):
        scores.append(
          score_table.Score(
            self.task,
            metric,
            part,
            mean,
            self._examples(metric, part) if part in examples else None,
            self._predictions(part),
          )
        )
    return scores

  def first_seed_folders(self) -> list[pathlib.Path]:
    """Returns the result folders of all evaluation tasks for the first seed."""
    return [
      evaluated.folder for evaluated in self.evaluated if evaluated.seed == 0
    ]

  def parts(self) -> list[str]:
    """Returns the languages or files for which there are scores."""
    return list(dict.fromkeys(score.language for score in self.scores()))

  def _predictions(self, part: str) -> str:
    """Returns the path to a language's predictions, or '' without predictions.

    If there are several seeds, the predictions of the first seed are used.
    """
    files = [
      file
      for folder in self.first_seed_folders()
      for file in sorted(paths.list_directory(folder), key=lambda f: f.name)
      if file.suffix != eval_task.STATISTICS
    ]
    exact_matches = [file for file in files if file.stem == part]
    prefix_matches = [
      file for file in files if file.stem.startswith(f'{part}-')
    ]
    for file in exact_matches + prefix_matches:
      return str(file)
    return ''

  def _examples(
    self, metric: str, part: str
  ) -> tuple[example_statistics.Statistics, ...] | None:
    """Returns the per-example statistics for each seed, or None."""
    try:
      for evaluated in self.evaluated:
        result_store.check_files(evaluated.folder)
      statistics_by_metric = [
        evaluated.task.statistics(part, evaluated.folder)
        for evaluated in self.evaluated
        if evaluated.task is not None
      ]
      seed_statistics = tuple(
        statistics[metric]
        for statistics in statistics_by_metric
        if metric in statistics
      )
    except (OSError, ValueError, StopIteration, errors.XlflaxError) as error:
      _LOG.warning(
        '%s, %s, %s: individual examples cannot be compared. %s',
        self.model,
        self.task,
        part,
        error,
      )
      return None
    return seed_statistics or None

  def to_json(self) -> dict[str, Any]:
    """Returns the result as JSON values."""
    return {
      'task': self.task,
      'family': self.family,
      'label': self.label,
      'step': self.step,
      'setting': self.setting,
      'metrics': list(self.metrics),
      'notes': list(self.notes),
      'scores': {
        name: model_selection.Spread(values).to_json()
        | self._coverage_to_json(name)
        for name, values in self.values.items()
      },
      'failures': [str(failure) for failure in self.failures],
    }

  def _coverage_to_json(self, name: str) -> dict[str, int]:
    """Returns a mean's coverage as a JSON object, or {} for other values."""
    metric, _, part = name.partition('/')
    return self.coverage(metric)._asdict() if part == MEAN else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteReport:
  """Results of all models and tasks of a suite.

  Attributes:
    suite: Name of the suite.
    source_language: Language of the fine-tuning data.
    results: Results of all models and tasks, including those of earlier calls.
    tasks: Names of the suite's tasks.
    head_languages: Codes of the head languages, or () if the suite does not
      distinguish head and tail languages.
  """

  suite: str
  source_language: str
  results: tuple[TaskResult, ...] = ()
  tasks: tuple[str, ...] = ()
  head_languages: tuple[str, ...] = ()

  @property
  def expected(self) -> dict[str, int]:
    """Number of languages in each task's test data, or 0 if unknown.

    The languages include those without data. For the tasks of XTREME, they are
    also known before a task has a result.
    """
    published = xtreme_tasks.VERSIONS.get(self.suite, {})
    counts = {
      task: len(published[task].languages) if task in published else 0
      for task in self.tasks
    }
    for result in self.results:
      counts[result.task] = max(
        counts.get(result.task, 0),
        *(len(result.languages.get(name, ())) for name in result.metrics),
        0,
      )
    return counts

  @property
  def failures(self) -> tuple[eval_task.Failure, ...]:
    """Failures of the tasks evaluated in this call, not in earlier calls."""
    return tuple(
      dataclasses.replace(failure, task=f'{result.model}: {failure.task}')
      for result in self.results
      if not result.is_earlier
      for failure in result.failures
    )

  @property
  def models(self) -> list[str]:
    """Names of the evaluated checkpoints."""
    return list(dict.fromkeys(result.model for result in self.results))

  def results_by_task(self, model: str) -> dict[str, TaskResult]:
    """Returns a model's results by task."""
    return {
      result.task: result for result in self.results if result.model == model
    }

  def tables(self, *, with_examples: bool) -> list[score_table.ScoreTable]:
    """Returns a score table for each model.

    Args:
      with_examples: Whether to include per-example statistics, which confidence
        intervals and comparisons need.
    """
    tables = []
    for model in self.models:
      results = self.results_by_task(model).values()
      tables.append(
        score_table.ScoreTable(
          model,
          tuple(
            score
            for result in results
            for score in result.scores(
              examples=result.parts() if with_examples else ()
            )
          ),
          tuple(
            f'{result.task}: {note}'
            for result in results
            for note in (
              *result.notes,
              *(f'missing: {failure}' for failure in result.failures),
            )
          ),
          _sum_costs(result.cost for result in results),
          self.expected,
          next((result.run for result in results), ''),
        )
      )
    return tables

  def summaries(self) -> list[leaderboard.Summary]:
    """Returns every model's task scores, averages and transfer gaps."""
    tables = self.tables(with_examples=False)
    num_languages = leaderboard.count_languages(tables) if tables else {}
    return [
      leaderboard.summarize_model(
        table, source=self.source_language, num_languages=num_languages
      )
      for table in tables
    ]

  def head_tail_averages(
    self, summary: leaderboard.Summary
  ) -> dict[str, dict[str, float]]:
    """Averages scores over head languages, tail languages and all languages.

    The means are in points.

    Args:
      summary: Summary of the model's scores.

    Returns:
      The means 'head', 'tail' and 'all' for each task, and for 'mean' the means
      over the tasks that have the respective mean. 'mean' is omitted if a task
      or a language is missing. Empty if the suite has no head languages.
    """
    if not self.head_languages:
      return {}
    means = {
      name: averages.head_tail_averages(task.languages, self.head_languages)
      for name, task in summary.tasks.items()
    }
    if summary.missing:
      return means
    groups = dict.fromkeys(group for task in means.values() for group in task)
    return means | {
      MEAN: {
        group: averages.macro_average(
          [task[group] for task in means.values() if group in task]
        )
        for group in groups
      }
    }

  def head_tail_coverage(
    self, summary: leaderboard.Summary
  ) -> dict[str, dict[str, Coverage]]:
    """Counts the languages in each mean of `head_tail_averages`.

    The expected languages of a task are those of its test data, and those for
    which any model has a score.

    Args:
      summary: Summary of the model's scores.

    Returns:
      Coverage of the means 'head', 'tail' and 'all' for each task. Empty if the
      suite has no head languages.
    """
    if not self.head_languages:
      return {}
    coverage = {}
    for name, task in summary.tasks.items():
      languages = dict.fromkeys(
        language
        for result in self.results
        if result.task == name
        for languages_of_metric in (
          *(result.languages.get(name, ()) for name in result.metrics),
          result.parts(),
        )
        for language in languages_of_metric
      )
      scored, expected = (
        averages.group_head_tail(codes, self.head_languages)
        for codes in (task.languages, languages)
      )
      coverage[name] = {
        group: Coverage(len(scored[group]), len(expected[group]))
        for group in expected
      }
    return coverage

  def to_json(self) -> dict[str, Any]:
    """Returns the report as JSON values. NaN becomes null."""
    return nonfinite_checks.or_null(
      {
        'suite': self.suite,
        'source_language': self.source_language,
        'models': [
          {
            'model': summary.model,
            'average': summary.average,
            'missing': summary.missing,
            'xtreme': summary.xtreme,
            'gap': summary.gap,
            **(
              {
                'head_tail': self.head_tail_averages(summary),
                'head_tail_languages': {
                  task: {
                    group: coverage._asdict()
                    for group, coverage in by_group.items()
                  }
                  for task, by_group in self.head_tail_coverage(summary).items()
                },
              }
              if self.head_languages
              else {}
            ),
            'tasks': {
              name: result.to_json()
              | (
                {
                  'score': summary.tasks[name].score,
                  'gap': summary.tasks[name].gap,
                  **_task_coverage(summary.tasks[name])._asdict(),
                }
                if name in summary.tasks
                else {'score': None, 'gap': None}
              )
              for name, result in self.results_by_task(summary.model).items()
            },
          }
          for summary in self.summaries()
        ],
        'failures': [str(failure) for failure in self.failures],
      }
    )

  def to_csv(self) -> str:
    """Returns CSV text with the mean and the spread of metrics over seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(
      (
        'model',
        'task',
        'family',
        'metric',
        'part',
        'mean',
        'std',
        'seeds',
        *Coverage._fields,
      )
    )
    for result in self.results:
      for name, values in result.values.items():
        spread = model_selection.Spread(values)
        metric, _, part = name.partition('/')
        writer.writerow(
          (
            result.model,
            result.task,
            result.family,
            metric,
            part,
            spread.mean,
            spread.std,
            len(spread.values),
            *(result.coverage(metric) if part == MEAN else ('', '')),
          )
        )
    return text.getvalue()

  def curves(self) -> dict[str, dict[int, score_table.ScoreTable]]:
    """Returns scores by model and step for models with several checkpoints."""
    curves: dict[str, dict[int, score_table.ScoreTable]] = {}
    for table in self.tables(with_examples=False):
      first = next(iter(self.results_by_task(table.model).values()))
      curves.setdefault(first.label, {})[first.step] = table
    return {label: steps for label, steps in curves.items() if len(steps) > 1}


def _languages_by_metric(
  task: eval_task.EvalTask, result: eval_task.EvalResult
) -> dict[str, tuple[str, ...]]:
  """Maps each metric of a task's result to the languages of its test data.

  If the metrics name pairs with English by their other language, so does the
  result.
  """
  names = {name.partition('/')[2] for name in result.metrics}
  languages = (*task.labeled_parts(), *task.missing_parts())
  if not names.intersection(languages):
    languages = tuple(part.removesuffix('-en') for part in languages)
  metrics = dict.fromkeys(name.partition('/')[0] for name in result.metrics)
  return dict.fromkeys(metrics, languages)


def _task_coverage(summary: leaderboard.TaskSummary) -> Coverage:
  """Returns the number of languages over which a task's score is averaged."""
  return Coverage(len(summary.languages), summary.of)


def _sum_costs(
  costs: Iterable[score_table.Cost | None],
) -> score_table.Cost | None:
  """Returns the sum of the measured costs, or None if there are none."""
  measured = [cost for cost in costs if cost is not None]
  return functools.reduce(operator.add, measured) if measured else None
