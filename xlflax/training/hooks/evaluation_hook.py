"""Evaluation during training."""

from xlflax.training import interfaces
from xlflax.training.distributed import goodput
from xlflax.training.hooks import hook_base
from xlflax.utils import errors


class EvaluationHook(hook_base.Hook):
  """Evaluates the state periodically and saves it for the best metric.

  Args:
    evaluation: Tasks and their schedule.
  """

  def __init__(self, evaluation: interfaces.Evaluation):
    self._evaluation = evaluation

  def after_step(self, run, step, output):
    """See base class."""
    if not self._evaluation.is_due(step, run.trainer.steps):
      return None
    run.activities.start(goodput.Activity.EVALUATION, f'step {step}')
    metrics = self._evaluation.run(run.setup, run.state)
    run.write_metrics(step, eval=metrics)
    run.restart_clocks()
    best_metric = run.trainer.checkpoints.best_metric
    if best_metric is None:
      return None
    if best_metric in metrics:
      return hook_base.Request(save=True, metrics=metrics)
    return hook_base.Request(
      save=True,
      error=errors.ConfigError(
        'The evaluation does not compute `best_metric`',
        got=best_metric,
        expected='one of ' + ', '.join(sorted(metrics)),
        where='CheckpointOptions.best_metric',
      ),
    )
