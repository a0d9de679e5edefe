"""Evaluation during training: which tasks, how often, and their record."""

import dataclasses
import json
import logging

from xlflax import errors, registry
from xlflax.evaluation import base as evaluation_base
from xlflax.training import run_directory
from xlflax.training import state as state_lib
from xlflax.training.processes import distributed


@registry.register('evaluation')
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
  every_steps: int
  batch_size: int = 64
  seed: int = 0
  use_ema: bool = True

  def __post_init__(self):
    object.__setattr__(self, 'tasks', tuple(self.tasks))
    if self.every_steps < 1:
      raise errors.ConfigError(
        'Evaluation.every_steps must be positive',
        got=self.every_steps,
        expected='1 or more',
        where='Evaluation.every_steps',
      )

  def is_due(self, step: int, last_step: int) -> bool:
    return step % self.every_steps == 0 or step == last_step


def run(
  evaluation: Evaluation, setup, state: state_lib.TrainState
) -> dict[str, float]:
  """Evaluates all tasks at a state; a task that fails is logged and left out.

  Args:
    evaluation: the tasks.
    setup: the run's `Setup`.
    state: the train state.

  Returns:
    'task/metric' -> number; each task's result is in eval/<task>/<step>.json.
  """
  step = int(state.step)
  use_ema = evaluation.use_ema and setup.settings.ema_decay is not None
  subject = evaluation_base.Subject(
    model=setup.model,
    params=state.ema if use_ema else state.params,
    vocabulary=setup.vocabulary,
    partitioner=setup.settings.partitioner,
    seed=evaluation.seed,
    batch_size=evaluation.batch_size,
    objectives={
      objective.name: objective
      for objective in setup.settings.objectives.objectives
    },
  )
  metrics: dict[str, float] = {}
  for task in evaluation.tasks:
    result = evaluation_base.evaluate_task(task, subject)
    for failure in result.failures:
      logging.error('Evaluation at step %d: %s', step, failure)
    metrics.update({f'{task.name}/{k}': v for k, v in result.metrics.items()})
    if distributed.is_lead():
      folder = setup.model_dir / run_directory.EVALUATION / task.name
      for name, text in result.files.items():
        run_directory.write_atomically(folder / str(step) / name, text)
      run_directory.write_atomically(
        folder / f'{step}.json',
        json.dumps({'step': step} | result.to_json(), indent=2) + '\n',
      )
  return metrics
