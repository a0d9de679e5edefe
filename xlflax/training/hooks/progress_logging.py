"""Hook that logs the run summary, the speed and the remaining time."""

import time

import jax
import numpy as np

from xlflax.training import progress_lines, run_header
from xlflax.training.devices import device_rates
from xlflax.training.distributed import distributed_job
from xlflax.training.hooks import hook_base


class ProgressHook(hook_base.Hook):
  """Hook that logs a run's progress in the first process."""

  _progress: progress_lines.Progress | None = None
  _is_first_step = True

  def before_training(self, run):
    """See base class."""
    if distributed_job.is_lead():
      run_header.log_run_header(run.setup, run.loaders, first_step=run.step)
    peak = device_rates.peak_flops(jax.devices()[0])
    self._progress = progress_lines.Progress(
      first_step=run.step,
      total_steps=run.trainer.last_step,
      flops_per_step=_flops_per_step(run) if peak else None,
      peak_flops=peak and peak * run.trainer.partitioner.mesh.size,
      enabled=distributed_job.is_lead(),
    )
    run.clocks.append(self._progress)
    self._start = time.perf_counter()

  def after_step(self, run, step, output):
    """See base class."""
    assert self._progress is not None
    if self._is_first_step:
      self._is_first_step = False
      loss = float(jax.block_until_ready(output.loss))
      self._progress.begin(step, loss, time.perf_counter() - self._start)
      run.restart_clocks()
    else:
      self._progress.advance(run.finished_on_devices)

  def after_training(self, run):
    """See base class."""
    if self._progress:
      self._progress.close()

  def report(
    self, step: int, loss: float, tokens_per_step: float
  ) -> dict[str, float]:
    """Logs a progress line and returns the speed since the last report.

    Args:
      step: Number of completed steps.
      loss: Mean loss since the last report.
      tokens_per_step: Mean number of tokens per step since the last report.
    """
    assert self._progress is not None
    return self._progress.report(step, loss, tokens_per_step)


def _flops_per_step(run) -> float:
  """Returns the mean number of FLOPs per step over the objectives' schedule."""
  objectives = run.trainer.objectives
  groups = list(objectives.groups)
  if len(groups) > 1:
    groups = [objectives.active(step) for step in range(256)]
  flops = {active: run.setup.flops(active) for active in set(groups)}
  return float(np.mean([flops[active] for active in groups]))
