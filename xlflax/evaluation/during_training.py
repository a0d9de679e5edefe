"""Evaluation during training."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from xlflax.evaluation import (
  eval_task,
  result_store,
  score_format,
  selection_metrics,
  sentence_embedding,
  task_families,
  task_sources,
)
from xlflax.evaluation.metrics.metric import Better
from xlflax.evaluation.tasks import head_task
from xlflax.training import train_state
from xlflax.training.checkpointing import objective_config
from xlflax.training.distributed import distributed_job
from xlflax.utils import class_registry, validation


@class_registry.register('evaluation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """Evaluation tasks that run during training.

  Attributes:
    tasks: Tasks to evaluate.
    eval_interval_steps: Number of training steps between two evaluations. The
      last step is always evaluated.
    num_evaluations: Number of evaluations in the run, at equal intervals. If it
      equals the number of epochs, the tasks run after each epoch. If None,
      `eval_interval_steps` determines the interval instead.
    batch_size: Number of sentences per batch.
    seed: Random seed for the tasks. It is the same at every step.
    use_ema: Whether to evaluate the averaged weights if EMA is enabled.
  """

  tasks: tuple[eval_task.EvalTask, ...]
  eval_interval_steps: validation.PositiveInt
  num_evaluations: validation.PositiveInt | None = None
  batch_size: validation.PositiveInt = 64
  seed: validation.Seed = 0
  use_ema: bool = True

  def __post_init__(self):
    object.__setattr__(self, 'tasks', tuple(self.tasks))

  def is_due(self, step: int, last_step: int) -> bool:
    """Returns whether to run the tasks after the given training step."""
    if self.num_evaluations is not None:
      num_due = step * self.num_evaluations // last_step
      return num_due > (step - 1) * self.num_evaluations // last_step
    return step % self.eval_interval_steps == 0 or step == last_step

  def is_better_higher(self, metric: str) -> bool:
    """Returns whether higher values of a metric are better."""
    return task_families.better_of(metric) is Better.HIGHER

  def check_inputs(self, objectives: Mapping[str, Any]) -> None:
    """Reads and checks the labeled examples of all tasks.

    A warning is logged for each SeqIO task that is evaluated on its training
    examples.

    Args:
      objectives: Objectives of the run by name.

    Raises:
      XlflaxError: If a file cannot be read, if its examples or labels do not
        fit a task or a head, or if it has no gold labels.
    """
    for task in self.tasks:
      task.check_inputs(objectives)
      if isinstance(task, head_task.HeadTask):
        task.check_gold_labels()
    if distributed_job.is_lead():
      task_sources.warn_of_split_problems(
        getattr(task, 'source', None) for task in self.tasks
      )

  def check_metric(self, metric: str) -> None:
    """Raises a ConfigError if no task computes the model selection metric.

    Args:
      metric: Metric that selects a checkpoint, in the format
        'task/metric/part'.
    """
    selection_metrics.check_exists(
      metric, self.tasks, where='CheckpointOptions.metric_for_best_model'
    )

  def run(self, setup, state: train_state.TrainState) -> dict[str, float]:
    """Evaluates all tasks and logs their primary metrics.

    See `evaluate_state`.
    """
    results = _evaluate_tasks(self, setup, state)
    _log_primary_metrics(self.tasks, int(state.step), results)
    return _join_metrics(results)


def evaluate_state(
  evaluation: Evaluation, setup, state: train_state.TrainState
) -> dict[str, float]:
  """Evaluates all tasks with the parameters of a train state.

  The result of each task is also written to disk (see
  `xlflax.evaluation.result_store`). A failed task is logged and omitted from
  the returned metrics.

  Args:
    evaluation: Evaluation tasks, with their interval and batch size.
    setup: `Setup` object of the training run, which contains the model, the
      vocabulary and the training settings.
    state: Train state to evaluate.

  Returns:
    Metrics by name, such as 'retrieval/accuracy/de'.
  """
  return _join_metrics(_evaluate_tasks(evaluation, setup, state))


def _join_metrics(
  results: Mapping[str, eval_task.EvalResult],
) -> dict[str, float]:
  """Returns the metrics of all tasks, such as 'retrieval/accuracy/de'."""
  return {
    f'{task}/{name}': value
    for task, result in results.items()
    for name, value in result.metrics.items()
  }


def _evaluate_tasks(
  evaluation: Evaluation, setup, state: train_state.TrainState
) -> dict[str, eval_task.EvalResult]:
  """Evaluates all tasks on a train state and returns the results by task."""
  step = int(state.step)
  use_ema = evaluation.use_ema and setup.settings.ema_decay is not None
  params = state.ema if use_ema else state.params
  eval_model = eval_task.EvalModel(
    model=setup.model,
    params=params,
    vocabulary=setup.vocabulary,
    partitioner=setup.settings.partitioner,
    seed=evaluation.seed,
    batch_size=evaluation.batch_size,
    objectives={
      objective.name: objective
      for objective in setup.settings.objectives.objectives
    },
    inputs=objective_config.collect_inputs(setup.settings),
    sentence=sentence_embedding.of_run(setup.model_dir, params),
  )
  results: dict[str, eval_task.EvalResult] = {}
  for task in evaluation.tasks:
    result = eval_task.evaluate_task(task, eval_model)
    for failure in result.failures:
      logging.error('Evaluation at step %d: %s', step, failure)
    results[task.name] = result
    if distributed_job.is_lead():
      _write_result(evaluation, setup, task, step, result)
  return results


def _write_result(
  evaluation: Evaluation, setup, task, step: int, result
) -> None:
  """Writes a task's result to the run directory.

  Nothing is written if the task's text cannot be read, since the result's path
  contains a hash of the text.
  """
  uses_default = evaluation.use_ema or setup.settings.ema_decay is None
  failures = eval_task.Failures(task.name)
  with failures.guard():
    identity = result_store.result_identity(
      task,
      model=setup.model,
      vocabulary_hash=setup.vocabulary.hash,
      seed=evaluation.seed,
      parameters='default' if uses_default else 'not averaged',
      sentence=sentence_embedding.read_sentence_encoding(setup.model_dir),
    )
    result_store.write_result(
      setup.model_dir,
      dataclasses.replace(result, is_development=True),
      step=step,
      identity=identity,
    )


def _log_primary_metrics(
  tasks, step: int, results: Mapping[str, eval_task.EvalResult]
) -> None:
  """Logs the primary metrics (`score_format.format_mean`).

  For a task that failed and has no metrics, 'failed' is logged.
  """
  scores = []
  for task in tasks:
    result = results[task.name]
    if result.failures and not result.metrics:
      score = 'failed'
    else:
      score = score_format.format_mean(task.primary_metric, result.metrics)
    scores.append(f'{task.name} {task.primary_metric} {score}')
  logging.info('step %d | %s', step, ' | '.join(scores))
