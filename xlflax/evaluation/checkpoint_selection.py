"""Selection of a run's checkpoints for evaluation."""

import contextlib
import json
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.evaluation import result_store, task_families
from xlflax.evaluation.metrics.metric import Better
from xlflax.training.checkpointing import (
  config_serialization,
  metrics_file,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, plurals

CHOICES = ('last', 'all', 'best', 'none')


def check_checkpoint_steps(steps: str | Sequence[int]) -> None:
  """Checks that `steps` is 'last', 'all', 'best', 'none' or a list of steps.

  Raises:
    ConfigError: If `steps` is a string that is not in `CHOICES`.
  """
  if isinstance(steps, str) and steps not in CHOICES:
    raise errors.ConfigError(
      f'`steps` must be one of {", ".join(CHOICES)}, or a list of steps such '
      'as 1000,2000',
      got=repr(steps),
    )


def select_checkpoints(
  run: saved_run.SavedRun,
  steps: str | Sequence[int],
  *,
  metric_for_best_model: str | None = None,
  may_be_none: bool = False,
) -> list[int]:
  """Selects checkpoints to evaluate and returns their steps in ascending order.

  Args:
    run: Run whose checkpoints are selected.
    steps: Checkpoints to select: 'last', 'all', 'best', 'none' or a sequence of
      training steps.
    metric_for_best_model: Metric that selects the checkpoint for 'best', in the
      form '<task>/<metric>/<part>'. The declaration of the metric determines
      whether higher or lower is better.
    may_be_none: Whether to return an empty list if the run has no checkpoint.

  Raises:
    CheckpointError: If a step has no checkpoint, or if the run has no
      checkpoint at all.
    ConfigError: If `metric_for_best_model` is required and missing, was not
      recorded in training, or is not declared by any task.
  """
  available = run.steps
  if not isinstance(steps, str):
    return _check_steps_exist(available, steps, run)
  if steps == 'none' or (not available and may_be_none):
    return []
  if not available:
    raise errors.CheckpointError(
      'The run does not have a complete checkpoint',
      where=run.directory,
      fix='Train longer, or pass --continuous to wait for a checkpoint.',
    )
  if steps == 'best':
    return [_best_checkpoint(run, available, metric_for_best_model)]
  return available if steps == 'all' else available[-1:]


def _check_steps_exist(
  available: list[int], steps: Sequence[int], run
) -> list[int]:
  """Returns the steps in ascending order after checking that they exist."""
  missing = sorted(set(steps) - set(available))
  if missing:
    raise errors.CheckpointError(
      'The run does not have checkpoints for some of the requested steps',
      got=', '.join(map(str, missing)),
      expected='one of the steps ' + ', '.join(map(str, available))
      if available
      else 'a run with checkpoints',
      where=run.directory,
    )
  return sorted(set(steps))


def _best_checkpoint(run, available: list[int], metric: str | None) -> int:
  """Returns the step with the best value of a metric in metrics.jsonl."""
  recorded = {
    step: metrics
    for step, metrics in training_evaluations(run).items()
    if step in available
  }
  names = sorted({name for metrics in recorded.values() for name in metrics})
  values = {
    step: metrics[metric]
    for step, metrics in recorded.items()
    if metric and metrics.get(metric) is not None
  }
  if metric is not None and not values:
    failures = _describe_failures(run, metric)
    if failures:
      raise errors.ConfigError(
        f'The best checkpoint cannot be selected by the metric {metric!r}, '
        'because its computation failed during training',
        got=failures,
        where=run.directory,
      )

  if metric is None or not values:
    raise errors.ConfigError(
      'Selecting the best checkpoint requires a metric that was recorded '
      'during training',
      got=metric,
      where=run.directory / run_directory.METRICS,
      expected='one of '
      + (', '.join(names) or 'the metrics of evaluations during training'),
      fix='Pass --metric_for_best_model=NAME.'
      if names
      else 'The run has no results of evaluations during training. Select the '
      'checkpoints by their steps, or train with '
      '--gin_file=evaluate/during_training.gin.',
    )

  best_step = _best_step(metric, values)
  logging.info(
    'The checkpoint of step %d has the %s %s, %.4g, of the %s of %s '
    'that have been evaluated and kept.',
    best_step,
    'lowest' if _is_lower_better(metric) else 'highest',
    metric,
    values[best_step],
    plurals.format_count(len(values), 'checkpoint'),
    run.directory,
  )
  return best_step


def _best_step(metric: str, values: Mapping[int, float]) -> int:
  """Returns the first step with the best value of a metric."""
  sign = 1 if _is_lower_better(metric) else -1
  return min(sorted(values), key=lambda step: sign * values[step])


def _is_lower_better(metric: str) -> bool:
  return task_families.better_of(metric) is Better.LOWER


def _describe_failures(run, metric: str) -> str:
  """Returns failures of a metric's task as text, or '' if there are none."""
  results = result_store.find_results(run.directory, metric.partition('/')[0])
  return '; '.join(
    dict.fromkeys(
      str(failure)
      for by_step in results.values()
      for result in by_step.values()
      for failure in result.failures
    )
  )


def read_selection_metric(directory: pathlib.Path) -> str | None:
  """Returns `metric_for_best_model` of a run, or None if it is not recorded."""
  return _checkpoint_settings(directory).get('metric_for_best_model')


def _checkpoint_settings(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the checkpoint options of a run, or {} if none are recorded."""
  settings = _trainer_settings(directory)
  checkpoints = settings.get('checkpoints') or {}
  return checkpoints.get(config_serialization.FIELDS, {})


def _trainer_settings(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the fields of a run's trainer, or {} if none are recorded."""
  return run_directory.read_trainer(directory).get(
    config_serialization.FIELDS, {}
  )


def describe_selection(run: saved_run.SavedRun, step: int) -> list[str]:
  """Describes settings by which a checkpoint may not be the intended model.

  Args:
    run: Run that was opened for reading.
    step: Step of a checkpoint that was selected because it is the last one.

  Returns:
    A sentence if another checkpoint has the best value of the run's selection
    metric, and a sentence if the checkpoint contains averaged parameters.
  """
  sentences = []
  metric = read_selection_metric(run.directory) or ''
  # The metric of a user-defined task is unknown unless its module is imported.
  with contextlib.suppress(errors.XlflaxError):
    evaluations = training_evaluations(run) if metric else {}
    values = {
      evaluated_step: metrics[metric]
      for evaluated_step, metrics in evaluations.items()
      if evaluated_step in run.steps and metrics.get(metric) is not None
    }
    best_step = _best_step(metric, values) if step in values else step
    if best_step != step and values[best_step] != values[step]:
      sentences.append(
        f'step {step} is the last checkpoint, with a {metric} of '
        f'{values[step]:.4g}; step {best_step} is the best checkpoint, with '
        f'{values[best_step]:.4g}. To select it, pass --step={best_step}'
      )
  decay = _trainer_settings(run.directory).get('ema_decay')
  if decay is not None:
    sentences.append(
      f'the parameters are averaged over training steps (ema_decay={decay:g})'
    )
  return sentences


def training_evaluations(run) -> dict[int, dict[str, float]]:
  """Returns metrics from evaluations during training, by step.

  Raises:
    RunDirectoryError: If the metrics file belongs to a different run.
  """
  evaluations: dict[int, dict[str, float]] = {}
  for line in metrics_file.read_verified(run.directory).splitlines():
    try:
      record = json.loads(line)
      if 'eval' in record:
        evaluations.setdefault(record['step'], {}).update(record['eval'])
    except (ValueError, KeyError, TypeError, RecursionError):
      continue  # The line is damaged or is still being written.
  return evaluations
