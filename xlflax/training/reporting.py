"""What a run tells while it trains: metrics on disk, progress, its result."""

import logging
import platform
from typing import Any

import jax
import numpy as np

from xlflax.objectives import base
from xlflax.objectives import metrics as metrics_lib
from xlflax.training import announcement, metric_accumulator, plateau
from xlflax.training import progress as progress_lib
from xlflax.training import setup as setup_lib
from xlflax.training.checkpointing import checkpoints as checkpoints_lib
from xlflax.training.checkpointing import metrics_file
from xlflax.training.devices import devices
from xlflax.training.metric_writers import base as writers
from xlflax.training.metric_writers import run_metrics
from xlflax.training.processes import activities as activities_lib
from xlflax.training.processes import distributed, restarts, step_times


class Reporter:
  """Writes and prints what the loop finds; only the lead process does.

  Args:
    setup: of the run.
    activities: what the run has been at.
    times: how long its steps take.
    report: is called with the step and the metrics of each report.
  """

  def __init__(
    self,
    setup: setup_lib.Setup,
    activities: activities_lib.Activities,
    times: step_times.StepTimes,
    report: writers.Report | None = None,
  ):
    self._report = report
    self._setup = setup
    self._settings = setup.settings
    self._activities = activities
    self._times = times
    self._losses: dict[str, float] = {}
    self._plateaus = plateau.Plateaus({})
    self._writer: run_metrics.RunMetrics | None = None
    self._environment = {'environment': _environment()}

  def drop_after(self, restored: checkpoints_lib.Restored | None) -> None:
    """Drops metrics of steps past a checkpoint; all of them for None."""
    if distributed.is_lead():
      metrics_file.truncate_metrics(
        self._setup.model_dir,
        restored.step if restored else -1,
        written=restored.meta['metrics_file'] if restored else '',
      )

  def open_metrics(self, *, first_time: bool) -> None:
    """Opens the file of metrics and what else they are written to."""
    if distributed.is_lead():
      self._writer = run_metrics.RunMetrics(
        self._setup.model_dir,
        self._settings.log_to,
        description=self._setup.description,
        first_time=first_time,
        report=self._report,
      )

  def go_back(self, restored: checkpoints_lib.Restored | None) -> None:
    """Goes on from an earlier checkpoint, with the metrics until then."""
    if self._writer:
      self._writer.close()
      self.drop_after(restored)
      self.open_metrics(first_time=False)
      self._plateaus.go_on(metrics_file.records(self._setup.model_dir))

  def open_progress(self, loaders, step: int) -> None:
    """Announces the run, which begins after `step`, and starts its clocks."""
    if distributed.is_lead():
      announcement.announce(self._setup, loaders, first_step=step)
      self._plateaus = plateau.Plateaus(
        plateau.entropies(self._settings.objectives, loaders, self._setup.spec)
      )
      self._plateaus.go_on(metrics_file.records(self._setup.model_dir))
    peak = devices.peak_flops(jax.devices()[0])
    self._progress = progress_lib.Progress(
      first_step=step,
      total_steps=self._settings.last_step,
      flops_per_step=self._flops_per_step() if peak else None,
      peak_flops=peak and peak * self._settings.partitioner.mesh.size,
      enabled=distributed.is_lead(),
    )

  def _flops_per_step(self) -> float:
    """The mean over the kinds of steps, as often as they come."""
    objectives = self._settings.objectives
    kinds = list(objectives.groups)
    if len(kinds) > 1:
      kinds = [objectives.active(step) for step in range(256)]
    each = {active: self._setup.flops(active) for active in set(kinds)}
    return float(np.mean([each[active] for active in kinds]))

  def first_step(self, step: int, loss: float, seconds: float) -> None:
    """Prints the line of the first step, and restarts the clocks."""
    self._progress.begin(step, loss, seconds)
    self.restart_clocks(step)

  def advance(self, step: int) -> None:
    """Moves the bar of progress."""
    self._progress.advance(step)

  def restart_clocks(self, step: int) -> None:
    """Leaves compilation and evaluation out of what a step takes."""
    self._progress.leave_out(step)
    self._times.restart(step)

  def report(self, step: int, sums: metric_accumulator.Sums) -> None:
    """Writes and prints what the steps since the last report have summed."""
    metrics = self._metrics(step, sums)
    speed = self._speed(step, sums)
    self._plateaus.add(step, metrics, step * sums.tokens / sums.steps)
    if self._writer:
      self._writer.write(step, train=metrics, speed=speed, **self._environment)
    self._environment = {}

  def _metrics(
    self, step: int, sums: metric_accumulator.Sums
  ) -> dict[str, float]:
    self._losses = {
      'loss': sums.loss,
      'grad_norm': sums.grad_norm,
      'learning_rate': float(self._settings.optimizer.rate_at(step - 1)),
    }
    means = {k: base.WeightedMean(*v) for k, v in sums.metrics.items()}
    metrics = self._losses | metrics_lib.finalize(
      means, self._setup.spec.languages
    )
    if sums.skipped:
      metrics['skipped_steps'] = sums.skipped
    if sums.spikes:
      metrics['skipped_spikes'] = sums.spikes
    return metrics

  def _speed(
    self, step: int, sums: metric_accumulator.Sums
  ) -> dict[str, float]:
    speed = self._progress.report(step, sums.loss, sums.tokens / sums.steps)
    times = self._times.take(step)
    if times:
      self._times.report(times)
      speed |= times.metrics()
    seconds = self._activities.seconds()
    return speed | {
      'goodput': self._activities.goodput(),
      'run_seconds': sum(seconds.values()),
      **{f'run_seconds/{name}': spent for name, spent in seconds.items()},
    }

  def restarted(self, step: int, costs: dict[str, float | str]) -> None:
    """Tells what a failure of earlier processes has cost, until a step."""
    logging.info('At step %d: %s.', step, restarts.summary(costs))
    if self._writer:
      self._writer.write(step, restart=costs)

  def report_evaluation(self, step: int, metrics: dict[str, float]) -> None:
    """Writes what tasks have found."""
    if self._writer:
      self._writer.write(step, eval=metrics)

  def hasten(self) -> None:
    """Has what was written reach its destinations now."""
    if self._writer:
      self._writer.hasten()

  def digest(self) -> str:
    """Of the file of metrics; '' where another process writes it."""
    return self._writer.digest() if self._writer else ''

  def result(
    self, step: int, *, last: str, interrupted: bool
  ) -> dict[str, Any]:
    """Logs how the run ended; returns what `train` does.

    Args:
      step: finished steps.
      last: a sentence that names the last checkpoint.
      interrupted: whether a signal ended the run.
    """
    finished = step >= self._settings.steps
    seconds = self._activities.seconds()
    logging.info('The run until now: %s.', activities_lib.summary(seconds))
    logging.info(
      '%s at step %d of %d. %s',
      'Finished' if finished else 'Stopped',
      step,
      self._settings.steps,
      last,
    )
    plateaus = self._plateaus.result()
    return {
      'step': step,
      'loss': run_metrics.json_number(self._losses.get('loss')),
      'model_dir': str(self._setup.model_dir),
      'finished': finished,
      'interrupted': interrupted,
      'seconds': {name: round(spent, 1) for name, spent in seconds.items()},
    } | ({'plateau': plateaus} if plateaus else {})

  def close(self) -> None:
    """Ends the bar of progress, and all writing of metrics."""
    self._progress.close()
    if self._writer:
      self._writer.close()


def _environment() -> dict[str, str]:
  """What a process runs on and with, for its first report."""
  return {
    'python': platform.python_version(),
    **distributed.versions(),
    'device': jax.devices()[0].device_kind,
    'devices': str(jax.device_count()),
    'processes': str(jax.process_count()),
  }
