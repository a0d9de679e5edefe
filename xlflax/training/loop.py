"""The training loop: feed, step, evaluate, save, go back, stop."""

import contextlib
import logging
import os
import time
from typing import Any

import jax

from xlflax.data import prefetch
from xlflax.foundation import errors
from xlflax.storage import lease as lease_lib
from xlflax.training import (
  compiling_ahead,
  in_flight,
  metric_accumulator,
  profiling,
  replay,
  reporting,
  train_step,
)
from xlflax.training import setup as setup_lib
from xlflax.training.checkpointing import checkpoints as checkpoints_lib
from xlflax.training.checkpointing import (
  metrics_file,
  run_directory,
  saved_checkpoints,
)
from xlflax.training.checkpointing import run as run_lib
from xlflax.training.metric_writers import base as writers
from xlflax.training.optimization import soundness, spikes
from xlflax.training.processes import (
  activities,
  distributed,
  preemption,
  restarts,
  step_times,
  watchdog,
)


class Loop:
  """One call of `train`, from opening checkpoints to closing them."""

  def __init__(
    self,
    setup: setup_lib.Setup,
    loaders,
    inputs: dict[str, Any],
    lease: lease_lib.Lease | None,
    report: writers.Report | None = None,
  ):
    self._setup = setup
    self._lease = lease
    self._inputs = inputs
    self._settings = setup.settings
    self._loaders = loaders
    self._checkpoints = checkpoints_lib.Checkpoints(
      setup.model_dir, setup.settings.checkpoints
    )
    distributed.at_failure_of_others(
      self._last_words, lambda: self._watchdog.now()
    )
    self._steps: dict[tuple[int, ...], Any] = {}
    finished = saved_checkpoints.finished_steps(setup.model_dir)
    self._ahead = compiling_ahead.Ahead(setup, max(finished, default=0))
    self._accumulator = _accumulated(None)
    self._spikes = spikes.Watch(setup.settings.spikes)
    self._replay = replay.Replay(setup, self._last_good)
    self._interrupted = False
    self._activities = activities.Activities()
    self._times = step_times.StepTimes()
    self._reporter = reporting.Reporter(
      setup, self._activities, self._times, report
    )
    self._watchdog = watchdog.Watchdog(
      self._activities, setup.settings.hang_timeout
    )
    self._stop = preemption.StopRequest(self._watchdog.stopping)
    self._in_flight = in_flight.InFlight(self._made)
    self._profiler = profiling.Profiler(
      profiling.Steps.of(setup.settings.profile_steps),
      setup.model_dir,
      memory=setup.settings.profile_memory,
    )

  def run(self) -> dict[str, Any]:
    # Signals are heard from here until the last checkpoint is whole.
    with self._stop, self._ahead, self._watchdog:
      return self._train()

  def _last_words(self) -> str:
    """What to say when the failure of another process ends this one."""
    doing = f'This process has been {self._watchdog.now()}.'
    return f'{doing} {self._checkpoints.describe_last()}'

  def _train(self) -> dict[str, Any]:
    state = self._restore_or_start()
    first = int(state.step)
    self._reporter.open_metrics(first_time=not first)
    # It reads the loaders, which are the feeds' own afterwards.
    self._reporter.open_progress(self._loaders, first)
    self._feeds = self._open_feeds(first)
    try:
      state = self._steps_until(state, first)
      if int(state.step) != first:
        self._save(state)
    finally:
      self._close()
    return self._result(int(state.step))

  def _close(self) -> None:
    """Closes all, the checkpoints last, whatever fails before."""
    with contextlib.ExitStack() as stack:
      stack.callback(self._checkpoints.close)
      stack.callback(self._reporter.close)
      stack.callback(self._profiler.close)
      for feed in self._feeds.values():
        stack.callback(feed.close)

  def _result(self, step: int) -> dict[str, Any]:
    if step >= self._settings.steps and distributed.is_lead():
      run_lib.mark_finished(self._setup.model_dir, step)
    return self._reporter.result(
      step,
      last=self._checkpoints.describe_last(),
      interrupted=self._interrupted,
    )

  def _restore_or_start(self):
    restored = self._checkpoints.restore_last(self._setup.factory)
    written, records = 0.0, []
    if distributed.is_lead():
      records = metrics_file.records(self._setup.model_dir)
      written = metrics_file.seconds_written(self._setup.model_dir)
    self._reporter.drop_after(restored)
    saved = restored.meta['seconds'] if restored else {}
    self._activities.go_on_from(saved, written)
    self._restart = restarts.Restart(os.environ, self._activities, records)
    if restored is None:
      self._ahead.wait_lowered()
      return self._setup.initial_state(
        report_dir=self._setup.model_dir / run_directory.REPORT
      )
    logging.info('Continuing from the checkpoint of step %d.', restored.step)
    self._accumulator = _accumulated(restored)
    self._spikes = spikes.Watch(self._settings.spikes, restored.meta['spikes'])
    return restored.state

  def _open_feeds(self, step: int):
    """Stream name -> prefetched device batches from this step on."""
    objectives = self._settings.objectives
    return {
      name: prefetch.Prefetcher(
        loader,
        sharding=self._settings.partitioner.batch_sharding,
        first_step=objectives.stream_step(name, step)
        + self._spikes.passed.get(name, 0),
        size=self._settings.prefetch,
      )
      for name, loader in self._loaders.items()
    }

  def _steps_until(self, state, step: int):
    last = self._settings.last_step
    first, begun = step, time.perf_counter()
    while step < last:
      if self._stop.should_stop():
        self._interrupted = True
        break
      self._profiler.before(step)
      state, output = self._one_step(state, step)
      step += 1
      self._profiler.after(step, output)
      self._accumulator.add(output)
      self._in_flight.add(step, output.loss)
      self._spikes.add(step, self._settings.objectives.active(step - 1), output)
      if step == first + 1:
        loss = float(jax.block_until_ready(output.loss))
        self._reporter.first_step(step, loss, time.perf_counter() - begun)
      if self._is_due(step) and self._spikes.to_undo() is not None:
        state = self._rewind(state, step)
        step = int(state.step)
        continue
      logged = step % self._settings.log_every_steps == 0
      if logged or step == self._settings.steps:
        self._report(step)
      self._maybe_evaluate(state, step)
      if step % self._settings.checkpoints.every_steps == 0:
        self._save(state)
    return state

  def _made(self, step: int) -> None:
    """Notes that the devices have finished a step."""
    self._watchdog.progress()
    self._reporter.advance(step)
    costs = self._restart.costs(step)
    if costs and distributed.is_lead():
      self._reporter.restarted(step, costs)

  def _is_due(self, step: int) -> bool:
    """Whether something is written at this step, or it is the last one."""
    settings = self._settings
    return (
      step % settings.log_every_steps == 0
      or step % settings.checkpoints.every_steps == 0
      or step == settings.last_step
      or bool(
        settings.evaluation and settings.evaluation.is_due(step, settings.steps)
      )
    )

  def _rewind(self, state, step: int):
    """The state of the last checkpoint, from which other batches follow."""
    spike = self._spikes.to_undo()
    self._in_flight.finish()
    self._checkpoints.wait()
    for leaf in jax.tree.leaves(state):  # the devices may not hold two
      leaf.delete()
    restored = self._checkpoints.restore_last(self._setup.factory)
    to = restored.step if restored else 0
    at = self._settings.objectives.stream_step
    passed = {name: at(name, step) - at(name, to) for name in self._loaders}
    self._spikes.rewound(
      to, restored.meta['spikes'] if restored else None, passed
    )
    logging.warning(
      'The loss of step %d has risen suddenly: the run goes on from step %d, '
      'past the batches that were read since then (%s).',
      spike,
      to,
      ', '.join(f'{count} of {name}' for name, count in passed.items()),
    )
    self._accumulator = _accumulated(restored)
    self._reporter.go_back(restored)
    for feed in self._feeds.values():
      feed.close()
    self._feeds = self._open_feeds(to)
    self._reporter.restart_clocks(to)
    return restored.state if restored else self._setup.initial_state()

  def _one_step(self, state, step: int):
    active = self._settings.objectives.active(step)
    is_new = active not in self._steps
    batches = {}
    for name in self._setup.streams_of(active):
      self._watchdog.begin(activities.Activity.BATCH, f'of stream {name!r}')
      with self._times.loading():
        batches[name] = self._feeds[name].next()
    self._checkpoints.check()
    self._watchdog.background_write(lambda: self._checkpoints.is_writing)
    at = activities.Activity
    kind = at.COMPILATION if is_new else at.STEP
    self._watchdog.begin(kind, f'(step {step + 1})')
    if is_new:
      self._steps[active] = self._ahead.step_of(active)
    with self._times.waiting():
      self._in_flight.make_room()
      limits = self._spikes.arguments(active)
      return self._replay.take(
        self._steps[active], active, step + 1, state, batches, *limits
      )

  def _report(self, step: int) -> None:
    """Takes the accumulated sums, checks them, writes and prints them."""
    if self._lease:
      self._lease.check()
    with self._times.waiting():
      self._in_flight.finish()
      sums = self._accumulator.take()
    soundness.check(sums, step, self._settings, self._last_good)
    self._spikes.update()
    self._reporter.report(step, sums)

  def _last_good(self) -> int | None:
    """The last checkpoint, once it is written."""
    self._checkpoints.wait()
    return self._checkpoints.last_step

  def _maybe_evaluate(self, state, step: int) -> None:
    evaluation = self._settings.evaluation
    if evaluation is None or not evaluation.is_due(step, self._settings.steps):
      return
    self._watchdog.begin(activities.Activity.EVALUATION, f'step {step}')
    metrics = evaluation.run(self._setup, state)
    self._reporter.report_evaluation(step, metrics)
    self._reporter.restart_clocks(step)
    best = self._settings.checkpoints.best_metric
    if best is None:
      return
    if best not in metrics:
      self._save(state)
      raise errors.ConfigError(
        'The metric that selects the best checkpoint was not evaluated',
        got=best,
        expected='one of ' + ', '.join(sorted(metrics)),
        where='CheckpointOptions.best_metric',
      )
    self._save(state, metrics)

  def _save(self, state, metrics: dict[str, float] | None = None) -> None:
    """Saves a state that only finite updates have made, and its `metrics`."""
    if self._lease:
      self._lease.check()
    if self._spikes.to_undo() is not None:
      logging.warning(
        'Step %d is not saved: the loss of step %d has risen suddenly. The '
        'run goes on from the checkpoint before.',
        int(state.step),
        self._spikes.to_undo(),
      )
      return
    self._in_flight.finish()
    sums = self._accumulator.peek()
    if sums.unsound or self._settings.non_finite is train_step.NonFinite.STOP:
      soundness.check(sums, int(state.step), self._settings, self._last_good)
    self._replay.check(state)
    self._reporter.hasten()
    self._watchdog.begin(activities.Activity.SAVE, f'of step {int(state.step)}')
    self._checkpoints.save(
      state,
      {
        'metrics': self._accumulator.to_json(),
        'spikes': self._spikes.to_json(),
        'seed': self._settings.seed,
        'inputs': self._inputs,
        'metrics_file': self._reporter.digest(),
        'seconds': self._activities.seconds(),
      },
      metrics,
    )


def _accumulated(
  restored: checkpoints_lib.Restored | None,
) -> metric_accumulator.MetricAccumulator:
  """The sums since the last report, as a checkpoint has them."""
  kind = metric_accumulator.MetricAccumulator
  return kind.from_json(restored.meta['metrics']) if restored else kind()
