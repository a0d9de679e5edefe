"""What a suite found: per task, language and model; its reports."""

import csv
import dataclasses
import functools
import io
import itertools
import logging
import operator
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax import evaluate as evaluate_lib
from xlflax.data.supervised.sources import xtreme_tasks
from xlflax.evaluation import eval_task
from xlflax.evaluation import result_store as evaluation_results
from xlflax.evaluation.metrics import corpus_statistics
from xlflax.evaluation.reports import leaderboard, score_table
from xlflax.finetuning import model_selection
from xlflax.storage import paths
from xlflax.training import nonfinite_checks
from xlflax.utils import errors

MEAN = 'mean'
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Evaluated:
  """One evaluation task on one checkpoint.

  Attributes:
    folder: of the files that belong to the result, such as predictions.
    task: the evaluation task; None for an earlier call's that cannot be made.
  """

  folder: pathlib.Path
  task: eval_task.EvalTask | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
  """A task of a suite on one checkpoint of a pretrained model.

  Attributes:
    task: name of the suite's task.
    family: its group.
    label: of the model.
    step: of its checkpoint.
    run: what tells its run from others, wherever they lie.
    recipe: whose settings the suite's tasks had.
    setting: of the grid, that was selected; '' without fine-tuning.
    main: metrics whose mean is the task's score; () for those that its
      evaluation tasks declare.
    values: 'metric/part' -> a number for each seed.
    evaluated: where predictions lie, for each seed.
    notes: facts a reader must know.
    failures: what is missing, and why.
    is_earlier: whether it is of an earlier call.
    cost: of all calls so far; None where it was not measured.
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
  notes: tuple[str, ...] = ()
  failures: tuple[eval_task.Failure, ...] = ()
  is_earlier: bool = False
  cost: score_table.Cost | None = None

  @property
  def model(self) -> str:
    """The checkpoint's name, 'mlm@1000'."""
    return f'{self.label}@{self.step}'

  def with_report(self, report: evaluate_lib.Report, step: int) -> 'TaskResult':
    """The result with that of one more seed.

    Raises:
      ConfigError: two tasks of the report have one metric of one part.
    """
    values, notes = dict(self.values), list(self.notes)
    named: dict[str, float] = {}
    for found in (results.get(step) for results in report.results.values()):
      if found is None:  # its failure is in the report
        continue
      if twice := named.keys() & found.metrics.keys():
        raise errors.ConfigError(
          'Two test tasks of a task of a suite have one metric',
          got=', '.join(sorted(twice)),
          where=self.task,
          fix='make them two tasks of the suite',
        )
      named |= found.metrics
      notes += found.notes
    for name, value in named.items():
      values[name] = (*values.get(name, ()), value)
    return dataclasses.replace(
      self,
      values=values,
      notes=tuple(dict.fromkeys(notes)),
      evaluated=(
        *self.evaluated,
        *(
          Evaluated(report.folders[task.name] / str(step), task)
          for task in report.tasks
        ),
      ),
      failures=(*self.failures, *report.failures),
    )

  @property
  def metrics(self) -> tuple[str, ...]:
    """Those whose mean is the score."""
    if self.main:
      return self.main
    declared = (
      one.task.score_metrics for one in self.evaluated if one.task is not None
    )
    return tuple(dict.fromkeys(itertools.chain.from_iterable(declared)))

  def scores(self, *, examples: Sequence[str] = ()) -> list[score_table.Score]:
    """The main metrics of every part, their means over seeds.

    Args:
      examples: parts whose single examples are wanted, too.
    """
    found = []
    for name, values in self.values.items():
      metric, _, part = name.partition('/')
      mean = model_selection.Spread(values).mean
      if (
        metric in self.metrics
        and mean is not None
        and (part and part != MEAN and '/' not in part)
      ):
        found.append(
          score_table.Score(
            self.task,
            metric,
            part,
            mean,
            self._examples(metric, part) if part in examples else None,
            self._predictions(part),
          )
        )
    return found

  def parts(self) -> list[str]:
    """The parts of the scores."""
    return list(dict.fromkeys(score.language for score in self.scores()))

  def _predictions(self, part: str) -> str:
    """Path of a part's file of predictions, of the first seed; '' for none."""
    for one in self.evaluated[:1]:
      files = sorted(
        paths.list_directory(one.folder), key=lambda file: file.name
      )
      for fits in (part.__eq__, lambda stem: stem.startswith(f'{part}-')):
        for file in files:
          if fits(file.stem) and file.suffix != eval_task.STATISTICS:
            return str(file)
    return ''

  def _examples(
    self, metric: str, part: str
  ) -> tuple[corpus_statistics.Statistics, ...] | None:
    """Statistics of single examples, one for each seed."""
    try:
      for one in self.evaluated:
        evaluation_results.check_files(one.folder)
      several = tuple(
        found[metric]
        for found in (
          one.task.statistics(part, one.folder)
          for one in self.evaluated
          if one.task is not None
        )
        if metric in found
      )
    except (OSError, ValueError, StopIteration, errors.XlflaxError) as error:
      _LOG.warning(
        '%s, %s, %s: single examples cannot be compared: %s',
        self.model,
        self.task,
        part,
        error,
      )
      return None
    return several or None

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values."""
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
        for name, values in self.values.items()
      },
      'failures': [str(failure) for failure in self.failures],
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteReport:
  """All results of a suite.

  Attributes:
    suite: its name.
    source_language: the one that was fine-tuned on.
    results: of all models and tasks so far, earlier calls included.
    tasks: names of the suite's tasks.
  """

  suite: str
  source_language: str
  results: tuple[TaskResult, ...] = ()
  tasks: tuple[str, ...] = ()

  @property
  def expected(self) -> dict[str, int]:
    """Task -> its languages; 0 for tasks whose languages are not published."""
    known = xtreme_tasks.VERSIONS.get(self.suite, {})
    return {
      task: len(known[task].languages) if task in known else 0
      for task in self.tasks
    }

  @property
  def failures(self) -> tuple[eval_task.Failure, ...]:
    """What this call missed; what earlier ones did is in their results."""
    return tuple(
      dataclasses.replace(failure, task=f'{result.model}: {failure.task}')
      for result in self.results
      if not result.is_earlier
      for failure in result.failures
    )

  @property
  def models(self) -> list[str]:
    return list(dict.fromkeys(result.model for result in self.results))

  def of(self, model: str) -> dict[str, TaskResult]:
    """Task -> result of one model."""
    return {
      result.task: result for result in self.results if result.model == model
    }

  def tables(self, *, with_examples: bool) -> list[score_table.ScoreTable]:
    """The scores of each model, for reports.

    Args:
      with_examples: also single examples, for intervals and comparisons.
    """
    made = []
    for model in self.models:
      results = self.of(model).values()
      made.append(
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
          _sum(result.cost for result in results),
          self.expected,
          next((result.run for result in results), ''),
        )
      )
    return made

  def summaries(self) -> list[leaderboard.Summary]:
    """Task scores, averages and gaps of each model."""
    tables = self.tables(with_examples=False)
    wanted = leaderboard.expected(tables) if tables else {}
    return [
      leaderboard.summarize(table, source=self.source_language, wanted=wanted)
      for table in tables
    ]

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values; NaN becomes null."""
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
            'tasks': {
              name: result.to_json()
              | (
                {
                  'score': summary.tasks[name].score,
                  'gap': summary.tasks[name].gap,
                }
                if name in summary.tasks
                else {'score': None, 'gap': None}
              )
              for name, result in self.of(summary.model).items()
            },
          }
          for summary in self.summaries()
        ],
        'failures': [str(failure) for failure in self.failures],
      }
    )

  def to_csv(self) -> str:
    """A line for each metric and part: mean and spread over seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(
      ('model', 'task', 'family', 'metric', 'part', 'mean', 'std', 'seeds')
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
          )
        )
    return text.getvalue()

  def curves(self) -> dict[str, dict[int, score_table.ScoreTable]]:
    """Label -> step -> scores, of models with several checkpoints."""
    found: dict[str, dict[int, score_table.ScoreTable]] = {}
    for table in self.tables(with_examples=False):
      first = next(iter(self.of(table.model).values()))
      found.setdefault(first.label, {})[first.step] = table
    return {label: steps for label, steps in found.items() if len(steps) > 1}


def _sum(costs: Iterable[score_table.Cost | None]) -> score_table.Cost | None:
  known = [cost for cost in costs if cost is not None]
  return functools.reduce(operator.add, known) if known else None
