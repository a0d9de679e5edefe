"""Chooses the checkpoints of a run that are evaluated."""

import json
from collections.abc import Sequence

from xlflax.evaluation import result_store, task_families
from xlflax.evaluation.metrics.metric import Better
from xlflax.training.checkpointing import metrics_file, run_directory, saved_run
from xlflax.utils import errors

CHOICES = ('last', 'all', 'best', 'none')


def check_checkpoint_steps(steps: str | Sequence[int]) -> None:
  """Raises ConfigError unless `steps` is a choice or a list of steps."""
  if isinstance(steps, str) and steps not in CHOICES:
    raise errors.ConfigError(
      'There is no such choice of checkpoints',
      got=repr(steps),
      expected=f'{", ".join(CHOICES)}, or steps such as 1000,2000',
      where='steps',
    )


def select_checkpoints(
  run: saved_run.SavedRun,
  steps: str | Sequence[int],
  *,
  best_metric: str | None = None,
  may_be_none: bool = False,
) -> list[int]:
  """The steps to evaluate, rising.

  Args:
    run: the run.
    steps: 'last', 'all', 'best', 'none' or steps.
    best_metric: what 'best' goes by, '<task>/<metric>/<part>'; the metric's
      declaration says whether the highest or the lowest is best.
    may_be_none: whether a run without checkpoints is no error.

  Raises:
    CheckpointError: a step has no checkpoint, or there is none at all.
    ConfigError: 'best' has no metric to go by, or one that no task declares.
  """
  available = run.steps
  if not isinstance(steps, str):
    return _existing(available, steps, run)
  if steps == 'none' or (not available and may_be_none):
    return []
  if not available:
    raise errors.CheckpointError(
      'The run has no finished checkpoint',
      where=run.directory,
      fix='train longer, or wait for it with --continuous',
    )
  if steps == 'best':
    return [_best(run, available, best_metric)]
  return available if steps == 'all' else available[-1:]


def _existing(found: list[int], steps: Sequence[int], run) -> list[int]:
  missing = sorted(set(steps) - set(found))
  if missing:
    raise errors.CheckpointError(
      'The run has no checkpoint of some steps',
      got=', '.join(map(str, missing)),
      expected='some of ' + (', '.join(map(str, found)) or 'none'),
      where=run.directory,
    )
  return sorted(set(steps))


def _best(run, found: list[int], metric: str | None) -> int:
  """The checkpoint with the best value of a metric in metrics.jsonl."""
  recorded = {
    step: metrics
    for step, metrics in training_evaluations(run).items()
    if step in found
  }
  names = sorted({name for metrics in recorded.values() for name in metrics})
  values = {
    step: metrics[metric]
    for step, metrics in recorded.items()
    if metric and metrics.get(metric) is not None
  }
  if metric is not None and not values and (causes := _causes(run, metric)):
    raise errors.ConfigError(
      'The metric of the best checkpoint could not be evaluated in training',
      got=causes,
      expected=metric,
      where=run.directory,
    )
  if metric is None or not values:
    raise errors.ConfigError(
      'The best checkpoint needs a metric that was evaluated in training',
      got=metric,
      where=run.directory / run_directory.METRICS,
      expected='one of '
      + (', '.join(names) or 'those of evaluations, of which there are none'),
      fix='give --metric_for_best_model=NAME',
    )
  sign = 1 if task_families.better_of(metric) is Better.LOWER else -1
  return min(sorted(values), key=lambda step: sign * values[step])


def _causes(run, metric: str) -> str:
  """What failed in the evaluations of a metric's task; '' for nothing."""
  results = result_store.find_results(run.directory, metric.partition('/')[0])
  return '; '.join(
    dict.fromkeys(
      str(failure)
      for by_step in results.values()
      for result in by_step.values()
      for failure in result.failures
    )
  )


def training_evaluations(run) -> dict[int, dict[str, float]]:
  """Step -> metrics of the evaluations during training.

  Raises:
    RunDirectoryError: the file that has them is not this run's.
  """
  evaluations: dict[int, dict[str, float]] = {}
  for line in metrics_file.read_own(run.directory).splitlines():
    try:
      record = json.loads(line)
      if 'eval' in record:
        evaluations.setdefault(record['step'], {}).update(record['eval'])
    except (ValueError, KeyError, TypeError, RecursionError):
      continue  # a line that is being written, or damaged
  return evaluations
