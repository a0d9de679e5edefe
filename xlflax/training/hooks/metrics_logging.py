"""Hook that reports training metrics and speed periodically."""

import logging
import math
import os
import platform
import sys
from typing import Any

import jax
import numpy as np

from xlflax.objectives import objective_base, objective_metrics
from xlflax.training import (
  divergence,
  metric_accumulator,
  train_step,
  unigram_plateau,
)
from xlflax.training.checkpointing import metrics_file
from xlflax.training.distributed import distributed_job
from xlflax.training.hooks import hook_base, progress_logging, step_time_logging
from xlflax.training.metric_writers import run_metrics
from xlflax.utils import environment_variables


class MetricsHook(hook_base.Hook):
  """Hook that writes the mean metrics of the steps since the last report.

  Args:
    progress_hook: Hook that logs a line at each report and measures the speed.
    step_time_hook: Hook that compares the step times of all processes.
  """

  def __init__(
    self,
    progress_hook: progress_logging.ProgressHook,
    step_time_hook: step_time_logging.StepTimeHook,
  ):
    self._progress, self._step_times = progress_hook, step_time_hook
    self._plateaus = unigram_plateau.Plateaus({})
    self._last_metrics: dict[str, float] = {}
    self._non_finite_metrics: set[str] = set()
    self._first_output: train_step.StepOutput | None = None
    self._environment: dict[str, Any] = {'environment': _describe_environment()}

  def before_training(self, run):
    """See base class."""
    if distributed_job.is_lead():
      self._plateaus = unigram_plateau.Plateaus(
        unigram_plateau.mixture_entropies(
          run.trainer.objectives, run.loaders, run.setup.spec
        )
      )
    self._read_metrics(run)

  def after_step(self, run, step, output):
    """See base class."""
    if self._first_output is None:
      self._first_output = output
    if run.is_report_step:
      run.wait_for_steps()
      with run.clock.waiting():
        sums = run.accumulator.take()
      self.report(run, sums)

  def after_rewind(self, run, from_step):
    """See base class."""
    self._read_metrics(run)

  def after_training(self, run):
    """See base class."""
    plateaus = self._plateaus.result()
    if plateaus:
      run.results['plateau'] = plateaus
    if run.is_finished and sys.exception() is None:
      self._plateaus.log_advice()
    if distributed_job.is_lead():
      for message in divergence.describe_divergence(
        run.trainer.objectives,
        self._last_metrics,
        first_metrics=self._first_metrics(run),
        step=run.step,
        vocabulary_size=run.setup.spec.size,
        optimizer=run.trainer.optimizer,
        num_steps=run.trainer.steps,
      ):
        logging.warning('%s', message)

  def report(self, run, sums: metric_accumulator.Sums) -> None:
    """Writes one report of metrics and speed.

    Args:
      run: Run to report on.
      sums: Sums of the steps' losses and metrics since the last report.
    """
    step, tokens_per_step = run.step, sums.tokens / sums.steps
    if distributed_job.is_lead():
      self._warn_of_values(step, sums)
    metrics = self._last_metrics = _train_metrics(run, sums)
    seconds = run.activities.seconds()
    speed = {
      **self._progress.report(step, sums.loss, tokens_per_step),
      **self._step_times.report(step),
      'goodput': run.activities.goodput(),
      'run_seconds': sum(seconds.values()),
      **{f'run_seconds/{name}': value for name, value in seconds.items()},
    }
    self._plateaus.add(step, metrics, step * tokens_per_step)
    run.write_training_metrics(
      step, train=metrics, speed=speed, **self._environment
    )
    run.results['loss'] = run_metrics.json_number(sums.loss)
    self._environment = {}

  def _warn_of_values(self, step: int, sums: metric_accumulator.Sums) -> None:
    """Warns of a gradient of 0, and of metrics that are NaN or infinite.

    The gradient is checked in the first report of the process. Each metric
    causes at most one warning.

    Args:
      step: Step of the report.
      sums: Sums of the steps' losses and metrics since the last report.
    """
    is_first_report = not self._last_metrics
    # A loss of 0 may have a gradient of 0, such as a loss with a margin.
    if is_first_report and sums.grad_norm == 0 and sums.loss != 0:
      logging.warning(
        'The gradient of the loss (%.4g) is 0 at all steps up to step %d, so '
        'the loss does not change the parameters. Check whether the objective '
        'computes the loss with jax.lax.stop_gradient or with operations '
        'without a gradient, such as argmax, comparisons and rounding.',
        sums.loss,
        step,
      )
    if not math.isfinite(sums.loss):
      return
    names = {
      name
      for name, pair in sums.metrics.items()
      if not all(np.all(np.isfinite(values)) for values in pair)
    } - self._non_finite_metrics
    self._non_finite_metrics |= names
    if names:
      logging.warning(
        'Metrics are NaN or infinite at step %d, although the loss is finite: '
        '%s. Check the objective for divisions by zero. A metric that is not '
        'defined for a batch must have the total 0 and the weight 0.',
        step,
        ', '.join(sorted(names)),
      )

  def _first_metrics(self, run) -> dict[str, float]:
    """Returns the metrics of the first step of this process, by name."""
    if self._first_output is None:
      return {}
    return objective_metrics.finalize_metrics(
      jax.device_get(self._first_output.metrics), run.setup.spec.languages
    )

  def _read_metrics(self, run) -> None:
    """Restores the state of this hook from the metrics of earlier steps.

    The environment is written again only if it has changed, so that the metrics
    of a resumed run are equal to those of an uninterrupted run.
    """
    if distributed_job.is_lead():
      records = metrics_file.read_metrics(run.model_dir)
      self._plateaus.restore(records)
      recorded = [r['environment'] for r in records if 'environment' in r]
      environment = _describe_environment()
      self._environment = (
        {} if recorded[-1:] == [environment] else {'environment': environment}
      )


def _train_metrics(run, sums: metric_accumulator.Sums) -> dict[str, float]:
  """Returns the mean metrics by name, overall and per language."""
  means = {
    name: objective_base.WeightedMean(*pair)
    for name, pair in sums.metrics.items()
  }
  metrics = {
    'loss': sums.loss,
    'grad_norm': sums.grad_norm,
    'learning_rate': float(run.trainer.optimizer.rate_at(run.step - 1)),
  } | objective_metrics.finalize_metrics(means, run.setup.spec.languages)
  if sums.skipped:
    metrics['skipped_steps'] = sums.skipped
  if sums.spikes:
    metrics['skipped_spikes'] = sums.spikes
  return metrics


def _describe_environment() -> dict[str, str]:
  """Returns versions, devices and variables that can affect results."""
  return {
    'python': platform.python_version(),
    **distributed_job.checked_versions(),
    'device': jax.devices()[0].device_kind,
    'devices': str(jax.device_count()),
    'processes': str(jax.process_count()),
    **environment_variables.recorded_variables(os.environ),
  }
