"""Hook that evaluates the model during training."""

from typing import TYPE_CHECKING

from xlflax.training import interfaces
from xlflax.training.distributed import goodput
from xlflax.training.hooks import hook_base
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax.trainer import Trainer


def check_evaluation(trainer: 'Trainer') -> None:
  """Checks the data and the selection metric for evaluation during training.

  Args:
    trainer: Trainer with or without evaluation tasks.

  Raises:
    XlflaxError: If the data of a task cannot be read, or if no task computes
      the metric `metric_for_best_model`.
  """
  # Other implementations of the interface may lack these methods.
  check_inputs = getattr(trainer.evaluation, 'check_inputs', None)
  if check_inputs is not None:
    objectives = trainer.objectives.objectives
    check_inputs({objective.name: objective for objective in objectives})
  metric = trainer.checkpoints.metric_for_best_model
  check_metric = getattr(trainer.evaluation, 'check_metric', None)
  if metric is not None and check_metric is not None:
    check_metric(metric)


class EvaluationHook(hook_base.Hook):
  """Hook that evaluates the train state at regular intervals during training.

  If `metric_for_best_model` is set, each evaluated train state is saved as a
  checkpoint with its metrics.

  Args:
    evaluation: Evaluation tasks and their schedule.
  """

  def __init__(self, evaluation: interfaces.Evaluation):
    self._evaluation = evaluation

  def before_training(self, run):
    """Checks the evaluation tasks and the metric before the first step."""
    check_evaluation(run.trainer)

  def after_step(self, run, step, output):
    """See base class."""
    if not self._evaluation.is_due(step, run.trainer.steps):
      return None
    run.activities.start(goodput.Activity.EVALUATION, f'step {step}')
    metrics = self._evaluation.run(run.setup, run.state)
    run.write_training_metrics(step, eval=metrics)
    run.restart_clocks()
    metric_for_best_model = run.trainer.checkpoints.metric_for_best_model
    if metric_for_best_model is None:
      return None
    if metric_for_best_model in metrics:
      return hook_base.Request(save=True, metrics=metrics)
    problem = (
      'The evaluation does not compute the metric `metric_for_best_model`'
      if metrics
      else 'The evaluation did not compute a metric, which '
      '`metric_for_best_model` requires. See the errors logged above and the '
      'notes in eval/'
    )
    return hook_base.Request(
      save=True,
      error=errors.ConfigError(
        problem,
        got=metric_for_best_model,
        expected=', '.join(sorted(metrics)) or None,
        where=errors.field_location(
          run.trainer.checkpoints, 'metric_for_best_model'
        ),
      ),
    )
