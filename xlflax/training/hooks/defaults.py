"""The default hooks of a training run."""

from xlflax.training import training_run
from xlflax.training.hooks import (
  checkpoint_hook,
  evaluation_hook,
  hook_base,
  loss_spike_hook,
  metrics_logging,
  non_finite_hook,
  profiler_hook,
  progress_logging,
  restart_cost_hook,
  run_lease_hook,
  sdc_hook,
  step_time_logging,
  stop_request_hook,
  watchdog_hook,
)


def default_hooks(run: training_run.TrainingRun) -> list[hook_base.Hook]:
  """Returns the default hooks of a run, in the order in which they are called.

  Hooks that check a step precede hooks that write results. A state that is
  about to be discarded is therefore not reported, evaluated or saved.

  Args:
    run: Run to which the hooks are attached.
  """
  trainer = run.trainer
  hang_watchdog = watchdog_hook.WatchdogHook(
    run.activities, trainer.watchdog_timeout
  )
  step_time_monitor = step_time_logging.StepTimeHook(run.clock)
  progress_lines = progress_logging.ProgressHook()
  hooks: list[hook_base.Hook] = [
    run_lease_hook.RunLeaseHook(),
    hang_watchdog,
    restart_cost_hook.RestartCostHook(),
  ]
  if trainer.sdc_check_every:
    hooks.append(
      sdc_hook.SilentDataCorruptionHook(run.setup, run.last_good_checkpoint)
    )
  traced_steps = profiler_hook.Steps.of(trainer.profile_steps)
  if traced_steps:
    hooks.append(
      profiler_hook.ProfilerHook(
        traced_steps, run.model_dir, memory=trainer.profile_memory
      )
    )
  hooks.append(progress_lines)
  if trainer.loss_spike_guard:
    hooks.append(loss_spike_hook.LossSpikeHook(trainer.loss_spike_guard))
  hooks += [
    non_finite_hook.NonFiniteHook(),
    step_time_monitor,
    metrics_logging.MetricsHook(progress_lines, step_time_monitor),
  ]
  if trainer.evaluation:
    hooks.append(evaluation_hook.EvaluationHook(trainer.evaluation))
  return [
    *hooks,
    checkpoint_hook.CheckpointHook(),
    stop_request_hook.StopRequestHook(hang_watchdog.stopping),
  ]
