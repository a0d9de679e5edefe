"""Evaluation during training: which tasks, how often, and their record."""

import dataclasses
import logging

from xlflax.evaluation import eval_task as evaluation_base
from xlflax.evaluation import result_store, sentence_embedding, task_families
from xlflax.evaluation.metrics.metric import Better
from xlflax.training import train_state
from xlflax.training.checkpointing import objective_config
from xlflax.training.distributed import distributed_job
from xlflax.utils import class_registry, validation


@class_registry.register('evaluation')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """Tasks that run during training.

  Attributes:
    tasks: what is evaluated.
    every_steps: at each multiple of this, and after the last step.
    batch_size: sentences a batch.
    seed: of the tasks' random choices, the same at every step.
    use_ema: evaluate the running average of the parameters, where it is on.
  """

  tasks: tuple[evaluation_base.EvalTask, ...]
  every_steps: validation.PositiveInt
  batch_size: validation.PositiveInt = 64
  seed: validation.Seed = 0
  use_ema: bool = True

  def __post_init__(self):
    object.__setattr__(self, 'tasks', tuple(self.tasks))

  def is_due(self, step: int, last_step: int) -> bool:
    """Returns whether the tasks run after a step."""
    return step % self.every_steps == 0 or step == last_step

  def is_better_higher(self, metric: str) -> bool:
    """Returns whether more of a metric is better, as its task declares it."""
    return task_families.better_of(metric) is Better.HIGHER

  def run(self, setup, state: train_state.TrainState) -> dict[str, float]:
    """Evaluates all tasks and logs their primary metrics; see `evaluate_state`."""
    metrics = evaluate_state(self, setup, state)
    _log_primary_metrics(self.tasks, int(state.step), metrics)
    return metrics


def evaluate_state(
  evaluation: Evaluation, setup, state: train_state.TrainState
) -> dict[str, float]:
  """Evaluates all tasks at a state; a task that fails is logged and left out.

  Args:
    evaluation: the tasks.
    setup: the run's `Setup`.
    state: the train state.

  Returns:
    'task/metric' -> number; each task's result is also written to disk
    (see `xlflax.evaluation.result_store`).
  """
  step = int(state.step)
  use_ema = evaluation.use_ema and setup.settings.ema_decay is not None
  params = state.ema if use_ema else state.params
  subject = evaluation_base.Subject(
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
    inputs=objective_config.inputs_of(setup.settings),
    sentence=sentence_embedding.of_run(setup.model_dir, params),
  )
  metrics: dict[str, float] = {}
  for task in evaluation.tasks:
    result = evaluation_base.evaluate_task(task, subject)
    for failure in result.failures:
      logging.error('Evaluation at step %d: %s', step, failure)
    metrics.update({f'{task.name}/{k}': v for k, v in result.metrics.items()})
    if distributed_job.is_lead():
      _write(evaluation, setup, task, step, result)
  return metrics


def _write(evaluation: Evaluation, setup, task, step: int, result) -> None:
  """Writes a result; text that cannot be read has no place to write it to."""
  averaged = evaluation.use_ema or setup.settings.ema_decay is None
  failures = evaluation_base.Failures(task.name)
  with failures.guard():
    identity = result_store.result_identity(
      task,
      model=setup.model,
      vocabulary_hash=setup.vocabulary.hash,
      seed=evaluation.seed,
      parameters='default' if averaged else 'not averaged',
      sentence=sentence_embedding.read_sentence_encoding(setup.model_dir),
    )
    result_store.write_result(
      setup.model_dir, result, step=step, identity=identity
    )


def _log_primary_metrics(tasks, step, metrics) -> None:
  means = {
    f'{task.name} {task.primary_metric}': metrics.get(
      f'{task.name}/{task.primary_metric}/mean'
    )
    for task in tasks
  }
  logging.info(
    'step %d | %s',
    step,
    ' | '.join(
      f'{name} {"failed" if value is None else f"{value:.4g}"}'
      for name, value in means.items()
    ),
  )
