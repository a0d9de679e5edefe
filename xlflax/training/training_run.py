"""A run during training, with its state, resources and hooks."""

import contextlib
import copy
import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from xlflax.data import prefetch
from xlflax.storage import directory_lease
from xlflax.training import (
  dispatch_queue,
  metric_accumulator,
  objective_checks,
  param_tree,
  source_checks,
  step_compilation,
  train_state,
  train_step,
  training_setup,
  untrained_head,
)
from xlflax.training.checkpointing import (
  checkpoint_reader,
  checkpoints,
  metrics_file,
  run_directory,
  saved_run,
)
from xlflax.training.distributed import distributed_job, goodput, stragglers
from xlflax.training.hooks import (
  duplicate_metrics,
  hook_base,
  hook_results,
  unsaved_state,
)
from xlflax.training.metric_writers import metric_writer, run_metrics
from xlflax.utils import errors, user_modules

Activity = goodput.Activity


class TrainingRun:
  """A run during training, which is passed to its hooks.

  Attributes:
    setup: Model, vocabulary, state factory and step functions.
    trainer: Settings of the run, which are the fields of its `Trainer`. The
      number of steps is set.
    loaders: Data loaders by dataset name.
    lease: Lease of the run directory, which excludes other writers. None in all
      processes but the first.
    state: Train state after `step`. The next step reuses its memory.
    step: Number of completed steps.
    first_step: Number of steps that were completed before this process started.
    previous_records: Lines of `metrics.jsonl` that earlier processes wrote.
    stop_requested: Whether training ends after this step.
    checkpoints: Reader and writer for the checkpoints in the run directory.
    accumulator: Sums of the steps' losses and metrics since the last report.
    skipped_batches: Number of batches skipped by rewinds, by dataset name.
    activities: Current activity of this process, and time spent on each activity.
    clock: `StepTimes` that measures this process's step times.
    clocks: Objects with a method `restart(step)`, which excludes the time up to
      now from the measured speed.
    results: Additional entries of the dictionary that `train` returns.
    hooks: Hooks in the order in which they are called.
  """

  state: train_state.TrainState

  def __init__(
    self,
    setup: training_setup.Setup,
    loaders: Mapping[str, Any],
    data_fingerprint: Mapping[str, Any],
    *,
    lease: directory_lease.Lease | None = None,
    report: metric_writer.Report | None = None,
  ):
    """Prepares a run without reading data or restoring its state.

    Args:
      setup: Model, vocabulary, settings and step functions of the run.
      loaders: Data loaders by dataset name.
      data_fingerprint: Hashes of the vocabulary and the datasets, which are
        saved with each checkpoint.
      lease: Lease of the run directory.
      report: Function called with the step and the metrics of each report.
    """
    self.setup, self.trainer = setup, setup.settings
    self.loaders, self.lease = loaders, lease
    self.step = self.first_step = 0
    self.stop_requested = False
    self.checkpoints = checkpoints.Checkpoints(
      setup.model_dir, self.trainer.checkpoints
    )
    self.accumulator = metric_accumulator.MetricAccumulator()
    self.skipped_batches: dict[str, int] = {}
    self.previous_records: list[dict[str, Any]] = []
    self.activities = goodput.Activities()
    self.clock = stragglers.StepTimes()
    self.clocks: list[Any] = [self.clock]
    self.results: dict[str, Any] = {}
    self.hooks: list[hook_base.Hook] = []
    self._data_fingerprint = data_fingerprint
    self._report = report
    self._initial_states: dict[str, Any] = {}
    self._unsaved_state_check = unsaved_state.UnsavedStateCheck()
    self._duplicate_metrics_check = duplicate_metrics.DuplicateMetricsCheck()
    # Hook that rejected the state at the last attempt to save it.
    self._rejecting_hook: hook_base.Hook | None = None
    self._prefetchers: dict[str, prefetch.Prefetcher] = {}
    self._writer: run_metrics.RunMetrics | None = None
    self._queue = dispatch_queue.DispatchQueue(
      lambda step: self.activities.progress()
    )
    finished = checkpoint_reader.finished_steps(setup.model_dir)
    self._compiler = step_compilation.StepCompiler(
      setup, max(finished, default=0)
    )
    distributed_job.set_exit_messages(self._describe, self.activities.describe)

  # Opening and closing.

  def add_hooks(self, hooks: Sequence[hook_base.Hook]) -> None:
    """Adds hooks that the training loop calls after the existing hooks.

    Raises:
      ConfigError: If two hooks have the same key for their state in
        checkpoints, or if the state of a hook is not JSON data.
    """
    self.hooks += hooks
    states = [(hook, hook_results.read_state(hook)) for hook in self.hooks]
    keys = [hook.state_key for hook, state in states if state is not None]
    if len(set(keys)) != len(keys):
      raise errors.ConfigError(
        'Each hook in `Trainer.hooks` that saves a state must have a unique '
        '`state_key`',
        got=sorted(keys),
      )
    self._initial_states = {
      hook.state_key: copy.deepcopy(state) for hook, state in states
    }
    for hook, state in states[len(states) - len(hooks) :]:
      hook_results.check_overrides(hook)
      if state is not None:
        hook_results.warn_of_unloaded_state(hook)

  @contextlib.contextmanager
  def open(self) -> Iterator[None]:
    """Context in which the run is restored, trained and saved.

    It enters the contexts of the compiler and of all hooks.
    """
    with self._compiler, contextlib.ExitStack() as stack:
      for hook in self.hooks:
        context = hook_results.check_context(hook, hook.running(self))
        stack.enter_context(context)
      yield

  def restore_or_initialize(self) -> None:
    """Restores the last checkpoint, or initializes the state."""
    restored = self.checkpoints.restore_last(self.setup.factory)
    seconds_written = 0.0
    if distributed_job.is_lead():
      self.previous_records = metrics_file.read_metrics(self.setup.model_dir)
      seconds_written = metrics_file.recorded_seconds(self.setup.model_dir)
    self._truncate_metrics(restored)
    self.activities.add_earlier_processes(
      restored.meta['seconds'] if restored else {}, seconds_written
    )
    if restored is None:
      self._compiler.wait_lowered()
      self.state = self.setup.initial_state(
        report_dir=self.setup.model_dir / run_directory.REPORT
      )
    else:
      logging.info('Resuming from the checkpoint of step %d.', restored.step)
      if restored.step > self.trainer.steps:
        logging.warning(
          'The run has already been trained for %s steps, but the number of '
          'training steps is %s, so no step is trained. To train on, set '
          'TRAIN_STEPS to the total number of steps. To train for fewer steps, '
          'use another --model_dir.',
          f'{restored.step:,}',
          f'{self.trainer.steps:,}',
        )
      self.state = restored.state
      self.skipped_batches = dict(restored.meta['skipped_batches'])
      self._load_meta(restored)
    self.step = self.first_step = int(self.state.step)

  def before_training(self) -> None:
    """Opens metric writers and data, and calls the hooks' `before_training`."""
    self._open_metrics(first_time=not self.step)
    results = [
      hook_results.check_request(
        hook, 'before_training', hook.before_training(self)
      )
      for hook in self.hooks
    ]
    self._unsaved_state_check.record_initial_values(self.hooks)
    if not self.step and distributed_job.is_lead():
      objective_checks.warn_of_wrong_losses(
        self.trainer.objectives,
        self.loaders,
        model=self.setup.model,
        vocabulary=self.setup.spec,
      )
    # The loaders may be read directly only before the prefetchers use them.
    self._open_prefetchers()
    self.carry_out(
      [
        (hook, request)
        for hook, request in zip(self.hooks, results, strict=True)
        if request is not None
      ]
    )

  def close(self) -> None:
    """Closes all resources, the checkpoints last, even if an error occurs."""
    with contextlib.ExitStack() as stack:
      stack.callback(self.checkpoints.close)
      if self._writer:
        stack.callback(self._writer.close)
      for hook in reversed(self.hooks):
        stack.callback(
          hook_results.call_without_request, hook, 'after_training', self
        )
      for prefetcher in self._prefetchers.values():
        stack.callback(prefetcher.close)

  def summary(self) -> dict[str, Any]:
    """Logs how training ended, and returns a summary of the run.

    If the run has reached its last step and has a checkpoint, it is also
    recorded as finished.
    """
    self._report_rejection()
    finished = self.is_finished and not self._has_no_checkpoint
    if finished and distributed_job.is_lead():
      saved_run.mark_finished(self.setup.model_dir, self.step)
    seconds = self.activities.seconds()
    earlier_seconds = self.activities.earlier_seconds
    logging.info(
      'Time spent%s: %s.',
      ' in all starts of the run' if earlier_seconds else '',
      goodput.format_goodput(seconds),
    )
    logging.info(
      '%s at step %d of %d%s. %s',
      'Finished' if finished else 'Stopped',
      self.step,
      self.trainer.steps,
      f', as requested by the hook {self.results["stopped_by"]}'
      if 'stopped_by' in self.results
      else '',
      self.checkpoints.describe_last(),
    )
    return {
      'step': self.step,
      'first_step': self.first_step,
      'checkpoint': self.checkpoints.last_step,
      'loss': self._last_loss(),
      'model_dir': str(self.setup.model_dir),
      'finished': finished,
      'interrupted': False,
      'has_untrained_mlm_head': untrained_head.has_untrained_head(
        self.setup.model,
        param_tree.flatten_params(self.state.params),
        model_dir=self.setup.model_dir,
        step=self.step,
      ),
      'seconds': {name: round(value, 1) for name, value in seconds.items()},
      'earlier_seconds': round(earlier_seconds, 1),
    } | self.results

  @property
  def _has_no_checkpoint(self) -> bool:
    """True if a hook rejected the last state and no checkpoint exists."""
    return (
      self._rejecting_hook is not None and self.checkpoints.last_step is None
    )

  def _report_rejection(self) -> None:
    """Logs a warning if a hook rejected the state of the run's last step.

    The hooks of xlflax log a warning themselves when they reject a state.
    """
    last_step, hook = self.checkpoints.last_step, self._rejecting_hook
    if hook is None or last_step == self.step:
      return
    is_user_defined = user_modules.is_user_extension(type(hook))
    name = type(hook).__name__
    if last_step is None:
      consequence = 'The run has no checkpoint, so it cannot be evaluated.'
      if is_user_defined:
        self.results['rejected_by'] = name
    elif is_user_defined:
      consequence = f'The last checkpoint is that of step {last_step}.'
    else:
      return
    if is_user_defined:
      consequence += ' A state is saved only if the method returns True.'
    logging.warning(
      'The state of step %d was not saved, because `%s.before_checkpoint` '
      'returned False. %s',
      self.step,
      name,
      consequence,
    )

  @property
  def is_finished(self) -> bool:
    """True if the run has reached its last step."""
    return self.step >= self.trainer.steps

  def _last_loss(self) -> float | None:
    """Returns the mean loss of the last report.

    If the run ended before its first report, it is the mean loss of all steps.
    """
    reported_losses = [
      record['train']['loss']
      for record in self.previous_records
      # User-defined hooks may write other metrics to the group 'train'.
      if 'loss' in record.get('train', {}) and record['step'] <= self.first_step
    ]
    if reported_losses:
      return reported_losses[-1]
    return run_metrics.json_number(self.accumulator.peek().loss)

  # Steps.

  def next_batches(self, active: tuple[int, ...]) -> dict[str, Any]:
    """Waits for the next step's batches and returns them by dataset name."""
    batches = {}
    for name in self.setup.datasets_of(active):
      self.activities.start(Activity.BATCH, f'of dataset {name!r}')
      with self.clock.loading():
        batches[name] = self._prefetchers[name].next()
    return batches

  def step_function(self, active: tuple[int, ...]):
    """Returns the compiled step function for the given objectives.

    Args:
      active: Objectives that the step trains, as indices into the objective
        mixture.

    Returns:
      A function `(state, batches) -> (state, StepOutput)`.
    """
    self.activities.start(
      Activity.STEP
      if self._compiler.is_compiled(active)
      else Activity.COMPILATION,
      f'(step {self.step + 1})',
    )
    step_function = self._compiler.step_of(active)
    for hook in self.hooks:
      step_function = hook_results.check_step_function(
        hook, hook.wrap_train_step(self, step_function, active), step_function
      )
    return step_function

  def after_step(
    self, output: train_step.StepOutput
  ) -> list[tuple[hook_base.Hook, hook_base.Request]]:
    """Counts a step, calls the hooks and returns them with their requests."""
    self.step += 1
    self.accumulator.add(output)
    self._queue.add(self.step, output.loss)
    requests = []
    for hook in self.hooks:
      if self.step == self.first_step + 1:
        source_checks.warn_of_unknown_metrics(hook, output.metrics)
      request = hook_results.call_after_step(hook, self, self.step, output)
      if request is not None:
        requests.append((hook, request))
        if request.rewind:
          return requests
    with self.clock.waiting():
      self._queue.make_room()
    return requests

  def carry_out(
    self, requests: Sequence[tuple[hook_base.Hook, hook_base.Request]]
  ) -> None:
    """Rewinds, saves and stops the run as requested by the hooks.

    Args:
      requests: Hooks with their requests, in the order of the calls.
    """
    for _, request in requests:
      if request.rewind:
        self._rewind(request.reason)
        return
    if any(request.save for _, request in requests):
      metrics: dict[str, float] = {}
      for _, request in requests:
        metrics.update(request.metrics or {})
      self.save(metrics or None)
    for _, request in requests:
      if request.error is not None:
        raise request.error
    for hook, request in requests:
      if request.stop:
        self.stop_requested = True
        if user_modules.is_user_extension(type(hook)) and not self.is_finished:
          self.results.setdefault('stopped_by', type(hook).__name__)

  def save(self, metrics: dict[str, float] | None = None) -> None:
    """Saves a checkpoint, unless a hook rejects the state.

    Args:
      metrics: Evaluation metrics of this step.
    """
    self.wait_for_steps()
    for hook in self.hooks:
      result = hook.before_checkpoint(self)
      if not hook_results.check_may_save(hook, result):
        self._rejecting_hook = hook
        return
    self._rejecting_hook = None
    self._unsaved_state_check.warn_of_changes()
    self.activities.start(Activity.SAVE, f'of step {self.step}')
    if self._writer:
      self._writer.hasten()
    self.checkpoints.save(
      self.state,
      {
        'metrics': self.accumulator.to_json(),
        'hooks': {
          hook.state_key: state
          for hook in self.hooks
          if (state := hook_results.read_state(hook)) is not None
        },
        'skipped_batches': self.skipped_batches,
        'seed': self.trainer.seed,
        'inputs': self._data_fingerprint,
        'metrics_file': self._writer.digest() if self._writer else '',
        'seconds': self.activities.seconds(),
      },
      metrics,
    )
    for hook in self.hooks:
      hook_results.call_without_request(
        hook, 'after_checkpoint', self, self.step
      )

  def _rewind(self, reason: str) -> None:
    """Restores the last checkpoint and skips the batches read since then."""
    from_step = self.step
    self.wait_for_steps()
    self.checkpoints.wait()
    # The devices may not have the memory for two states.
    for leaf in jax.tree.leaves(self.state):
      leaf.delete()
    restored = self.checkpoints.restore_last(self.setup.factory)
    self.step = restored.step if restored else 0
    dataset_step = self.trainer.objectives.dataset_step
    skipped = {
      name: dataset_step(name, from_step) - dataset_step(name, self.step)
      for name in self.loaders
    }
    for name, count in skipped.items():
      self.skipped_batches[name] = self.skipped_batches.get(name, 0) + count
    logging.warning(
      '%s Rewinding to step %d and skipping the batches read since then (%s).',
      reason,
      self.step,
      ', '.join(f'{count} of {name}' for name, count in skipped.items()),
    )
    self._load_meta(restored)
    if self._writer:
      self._writer.close()
      self._truncate_metrics(restored)
      self._open_metrics(first_time=False)
    for prefetcher in self._prefetchers.values():
      prefetcher.close()
    self._open_prefetchers()
    self.restart_clocks()
    self.state = restored.state if restored else self.setup.initial_state()
    for hook in self.hooks:
      hook_results.call_without_request(hook, 'after_rewind', self, from_step)

  # Services for hooks.

  @property
  def finished_on_devices(self) -> int:
    """Last step that the devices are known to have finished."""
    return self._queue.finished

  @property
  def is_report_step(self) -> bool:
    """True if metrics are reported after this step."""
    return (
      self.step % self.trainer.log_metrics_every == 0
      or self.step == self.trainer.steps
    )

  def is_output_step(self) -> bool:
    """Returns whether a report, evaluation or checkpoint follows this step."""
    trainer = self.trainer
    evaluation = trainer.evaluation
    return (
      self.step % trainer.log_metrics_every == 0
      or self.step % trainer.checkpoints.save_interval_steps == 0
      or self.step == trainer.last_step
      or bool(evaluation and evaluation.is_due(self.step, trainer.steps))
    )

  def wait_for_steps(self) -> None:
    """Waits until the devices have finished all dispatched steps."""
    with self.clock.waiting():
      self._queue.finish()

  def write_metrics(
    self, step: int, *args: Any, **metrics: Mapping[str, Any]
  ) -> None:
    """Writes scalars of a user-defined hook to `metrics.jsonl` and all trackers.

    Only the first process writes. A resumed run drops the lines after its
    checkpoint, so that its metrics equal those of an uninterrupted run.

    Args:
      step: Number of completed steps.
      *args: Not supported. An error is raised if there are any.
      **metrics: Values by name for each group, such as `norms={'layer_0': 1.0}`.
        A value is a number, an array of shape [], text or None. A warning is
        logged if training writes a metric of the same group and name.

    Raises:
      ConfigError: If a group is not a dictionary of such values or is reserved
        for training, or if there are positional arguments after the step.
    """
    _check_metrics(args, metrics)
    duplicate_metrics.check_groups(metrics)
    if self._writer:
      self._duplicate_metrics_check.add_hook_metrics(metrics)
      self._writer.write(step, **metrics)

  def write_training_metrics(
    self, step: int, **metrics: Mapping[str, Any]
  ) -> None:
    """Writes scalars of the hooks of xlflax, as `write_metrics` does.

    Args:
      step: Number of completed steps.
      **metrics: Values by name for each group, see `write_metrics`.
    """
    _check_metrics((), metrics)
    if self._writer:
      self._duplicate_metrics_check.add_training_metrics(metrics)
      self._writer.write(step, **metrics)

  def restart_clocks(self) -> None:
    """Restarts all speed measurements after a compilation or an evaluation."""
    for clock in self.clocks:
      clock.restart(self.step)

  def last_good_checkpoint(self) -> int | None:
    """Waits for pending writes and returns the step of the last checkpoint."""
    self.checkpoints.wait()
    return self.checkpoints.last_step

  @property
  def model_dir(self) -> pathlib.Path:
    """Directory in which the run is stored."""
    return self.setup.model_dir

  def _describe(self) -> str:
    """Returns the text that this process prints if another process fails."""
    activity = f'This process has been {self.activities.describe()}.'
    return f'{activity} {self.checkpoints.describe_last()}'

  def _load_meta(self, restored: checkpoints.Restored | None) -> None:
    """Restores the accumulated metrics and the state of the hooks."""
    if restored:
      self.accumulator = metric_accumulator.MetricAccumulator.from_json(
        restored.meta['metrics']
      )
    else:
      self.accumulator = metric_accumulator.MetricAccumulator()
    states = restored.meta['hooks'] if restored else self._initial_states
    for hook in self.hooks:
      state = states.get(hook.state_key)
      if state is not None:
        hook.load_state_dict(copy.deepcopy(state))

  def _truncate_metrics(self, restored: checkpoints.Restored | None) -> None:
    """Drops the lines of `metrics.jsonl` that follow a checkpoint."""
    if distributed_job.is_lead():
      metrics_file.truncate_metrics(
        self.setup.model_dir,
        restored.step if restored else -1,
        written=restored.meta['metrics_file'] if restored else '',
      )

  def _open_metrics(self, *, first_time: bool) -> None:
    """Opens the metric writers in the first process."""
    if distributed_job.is_lead():
      self._writer = run_metrics.RunMetrics(
        self.setup.model_dir,
        self.trainer.trackers,
        description=self.setup.description,
        first_time=first_time,
        report=self._report,
      )

  def _open_prefetchers(self) -> None:
    """Starts prefetching batches from the current step on."""
    dataset_step = self.trainer.objectives.dataset_step
    self._prefetchers = {
      name: prefetch.Prefetcher(
        loader,
        sharding=self.trainer.partitioner.batch_sharding,
        first_step=dataset_step(name, self.step)
        + self.skipped_batches.get(name, 0),
        size=self.trainer.prefetch,
      )
      for name, loader in self.loaders.items()
    }


def _check_metrics(args: tuple[Any, ...], metrics: Mapping[str, Any]) -> None:
  """Checks the metrics that a hook writes.

  Args:
    args: Positional arguments after the step. An error is raised if there are
      any.
    metrics: Mapping from each group to its values by name, as in
      `write_metrics`.

  Raises:
    ConfigError: If the metrics are not dictionaries of numbers and text.
  """
  if args:
    problem: str | None = (
      f'the positional argument {user_modules.describe_value(args[0])}'
    )
  else:
    problem = next(_find_invalid_metrics(metrics), None)
  if problem is not None:
    raise errors.ConfigError(
      'The metrics passed to `run.write_metrics` are invalid',
      got=problem,
      expected='run.write_metrics(step, GROUP={NAME: number})',
      where=user_modules.find_calling_line(),
      fix=hook_results.METRIC_HINT
      if any(map(hook_results.has_weighted_means, metrics.values()))
      else "For example, write run.write_metrics(step, norms={'my_norm': x}), "
      'which logs norms/my_norm. A number is a Python number or an array of '
      'shape [].',
    )


def _find_invalid_metrics(metrics: Mapping[str, Any]) -> Iterator[str]:
  """Yields a description of each invalid group, name or value of metrics."""
  for group, values in metrics.items():
    if not isinstance(values, Mapping):
      description = user_modules.describe_value(values)
      yield f'{group}={description}, which is not a dictionary'
      continue
    for name, value in values.items():
      if not isinstance(name, str):
        yield f'{group}={{{name!r}: …}}, whose name is not text'
      elif not (
        value is None or isinstance(value, str) or hook_results.is_number(value)
      ):
        description = user_modules.describe_value(value)
        yield (
          f'{group}={{{name!r}: {description}}}, whose value is not a number'
        )
