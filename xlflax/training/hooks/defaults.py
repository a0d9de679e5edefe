"""The default hooks of a run."""

from xlflax.training import training_run
from xlflax.training.hooks import (
  base,
  checkpointing,
  evaluation,
  loss_spikes,
  metrics,
  non_finite,
  profiler,
  progress,
  restart_costs,
  run_lease,
  silent_data_corruption,
  step_times,
  stop_requests,
  watchdog,
)


def default_hooks(run: training_run.TrainingRun) -> list[base.Hook]:
  """Returns the hooks of a run in the order in which they run.

  The checks of a step come before the hooks that write something: a state that
  is about to be discarded is neither reported nor evaluated nor saved.

  Args:
    run: The run.
  """
  trainer = run.trainer
  hang_watchdog = watchdog.WatchdogHook(run.activities, trainer.hang_timeout)
  step_time_monitor = step_times.StepTimeHook(run.clock)
  progress_lines = progress.ProgressHook()
  hooks: list[base.Hook] = [
    run_lease.RunLeaseHook(),
    hang_watchdog,
    restart_costs.RestartCostHook(),
  ]
  if trainer.replay_every:
    hooks.append(
      silent_data_corruption.SilentDataCorruptionHook(
        run.setup, run.last_good_checkpoint
      )
    )
  traced_steps = profiler.Steps.of(trainer.profile_steps)
  if traced_steps:
    hooks.append(
      profiler.ProfilerHook(
        traced_steps, run.model_dir, memory=trainer.profile_memory
      )
    )
  hooks.append(progress_lines)
  if trainer.spikes:
    hooks.append(loss_spikes.LossSpikeHook(trainer.spikes))
  hooks += [
    non_finite.NonFiniteHook(),
    step_time_monitor,
    metrics.MetricsHook(progress_lines, step_time_monitor),
  ]
  if trainer.evaluation:
    hooks.append(evaluation.EvaluationHook(trainer.evaluation))
  return [
    *hooks,
    checkpointing.CheckpointHook(),
    stop_requests.StopRequestHook(hang_watchdog.stopping),
  ]
