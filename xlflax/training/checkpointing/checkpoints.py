"""Checkpoints that are written asynchronously and atomically.

A checkpoint has three items, so that a reader loads only what it needs:
`params` (read by evaluation and initialization), `train` (step, optimizer
state, EMA and states of the objectives) and `meta` (plain JSON). The parameters
of adapters are stored in a fourth item, `adapters`, instead of `params`. Each
item contains digests of its files (`checkpoint_items`), which every reader
verifies.
"""

import dataclasses
import logging
import math
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from xlflax.storage import paths
from xlflax.training import train_state
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  run_directory,
  saved_run,
)
from xlflax.training.distributed import failures
from xlflax.utils import class_registry, errors, validation

REJECTED = 'rejected_checkpoints'


@class_registry.register('checkpoint_options')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
  """Options that determine when checkpoints are written and which are kept.

  Attributes:
    save_interval_steps: Number of steps between checkpoints. The last step is
      always saved.
    max_to_keep: Number of newest checkpoints to keep. If None, all are kept.
    keep_period: If a step is a multiple of this number, its checkpoint is
      always kept.
    metric_for_best_model: Evaluation metric, for example
      'retrieval/accuracy/mean'. The checkpoint with the best value is also
      kept. A checkpoint is written when the metric is evaluated.
    greater_is_better: Whether higher values of `metric_for_best_model` are
      better. If None, the direction that the evaluation task declares for the
      metric is used. `xlflax evaluate --checkpoint_steps=best` always uses the
      declared direction.
    enable_async_checkpointing: Whether to write checkpoints in the background
      while training proceeds.
    save_concurrent_gb: Maximum total size of the parameters that are written at
      the same time, in units of 10^9 bytes. It must be at least the size of the
      largest parameter. A limit saves memory. It also disables compression,
      whose buffers are as large as the parameters. If None, all parameters are
      written at once.
  """

  save_interval_steps: validation.PositiveInt = 1000
  max_to_keep: validation.PositiveInt | None = 3
  keep_period: validation.PositiveInt | None = None
  metric_for_best_model: str | None = None
  greater_is_better: bool | None = None
  enable_async_checkpointing: bool = True
  save_concurrent_gb: validation.PositiveInt | None = None

  def score(self, metrics: dict[str, float]) -> float:
    """Computes a checkpoint's score from its metrics. Larger scores are better.

    Args:
      metrics: Evaluation metrics of the checkpoint by name.

    Returns:
      The score, or -inf without a finite value of `metric_for_best_model`.
    """
    value = metrics.get(self.metric_for_best_model or '', math.nan)
    if not math.isfinite(value):
      return -math.inf
    return -value if self.greater_is_better is False else value

  def preservation_policy(self):
    """Creates the Orbax policy that selects the checkpoints to keep."""
    policies: list[Any] = [checkpoint_managers.LatestN(self.max_to_keep)]
    if self.keep_period:
      policies.append(checkpoint_managers.EveryNSteps(self.keep_period))
    if self.metric_for_best_model:
      policies.append(checkpoint_managers.BestN(get_metric_fn=self.score, n=1))
    return checkpoint_managers.AnyPreservationPolicy(policies)


@dataclasses.dataclass(frozen=True)
class Restored:
  """Contents of a restored checkpoint.

  Attributes:
    step: Step at which the checkpoint was written.
    state: Restored train state.
    meta: JSON metadata that was saved with the state.
  """

  step: int
  state: train_state.TrainState
  meta: dict[str, Any]


class Checkpoints:
  """Reader and writer for the checkpoints in a model directory.

  Args:
    model_dir: Model directory, on disk or in a bucket.
    options: Options that determine when checkpoints are written and which are
      kept. If None, the default options are used.
  """

  def __init__(
    self,
    model_dir: str | pathlib.Path,
    options: CheckpointOptions | None = None,
  ):
    self._model_dir = paths.to_absolute_path(model_dir)
    self._options = options or CheckpointOptions()
    self.directory = self._model_dir / checkpoint_reader.DIRECTORY
    self._handlers = checkpoint_items.make_handlers(
      self._options.save_concurrent_gb
    )
    self._manager = self._open()
    self._last_written_step: int | None = None
    self._has_unchecked_write = False

  def _open(self) -> ocp.CheckpointManager:
    if self._options.metric_for_best_model:
      self._check_scores()
    return ocp.CheckpointManager(
      self.directory,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=self._options.preservation_policy(),
        # Without `best_fn`, the manager does not write metrics.
        best_fn=self._options.score
        if self._options.metric_for_best_model
        else None,
        enable_async_checkpointing=self._options.enable_async_checkpointing,
        cleanup_tmp_directories=True,
      ),
      item_names=tuple(self._handlers),
      item_handlers=self._handlers,
    )

  def _check_scores(self) -> None:
    """Checks the scores by which the best checkpoint is selected.

    Raises:
      CheckpointError: If the score file of a checkpoint is damaged.
    """
    for step in checkpoint_reader.finished_steps(self._model_dir):
      problem = checkpoint_items.find_score_problem(self.directory / str(step))
      if problem:
        raise errors.CheckpointError(
          'The file with the score of the checkpoint is damaged',
          got=problem,
          where=str(self.directory / str(step)),
          fix=f'Run `xlflax verify {self._model_dir} --repair`.',
        )

  @property
  def last_step(self) -> int | None:
    """Step of the newest finished checkpoint, or None if none exists."""
    return max(checkpoint_reader.finished_steps(self._model_dir), default=None)

  def describe_last(self) -> str:
    """Returns a sentence with the path of the newest finished checkpoint."""
    if self.last_step is None:
      return f'No checkpoint exists in {self.directory}.'
    return f'The last checkpoint is {self.directory / str(self.last_step)}.'

  def save(
    self,
    state: train_state.TrainState,
    meta: dict[str, Any],
    metrics: dict[str, float] | None = None,
  ) -> None:
    """Starts writing a train state as the checkpoint of its step.

    Args:
      state: Train state, whose step becomes the checkpoint's name.
      meta: Plain JSON metadata that is saved with the state.
      metrics: Evaluation metrics at this step, for `metric_for_best_model`.

    Raises:
      CheckpointError: If this write or the previous one failed, for example
        because the disk is full. The message names the last valid checkpoint.
    """
    step = int(state.step)
    if step in self._manager.all_steps():
      return
    scored = None
    if metric_for_best_model := self._options.metric_for_best_model:
      scored = {
        metric_for_best_model: (metrics or {}).get(
          metric_for_best_model, math.nan
        )
      }
    save = (
      checkpoint_items.SaveArrays
      if self._options.save_concurrent_gb is None
      else checkpoint_items.SaveTree
    )
    meta = meta | checkpoint_items.make_meta(self._model_dir, scored)
    about: dict[str, Any] = {
      'step': step,
      'run': run_directory.run_id(self._model_dir),
    }
    parts = checkpoint_items.split_params(state.params)
    adapters = {}
    if checkpoint_items.ADAPTERS in parts:
      about[checkpoint_items.ADAPTERS] = True
      adapters[checkpoint_items.ADAPTERS] = checkpoint_items.SaveArrays(
        parts[checkpoint_items.ADAPTERS]
      )
    self.wait()
    self._last_written_step = step
    self._has_unchecked_write = True
    with self._report_failure():
      for handler in self._handlers.values():
        handler.about = about
      self._manager.save(
        step,
        metrics=scored,
        args=ocp.args.Composite(
          params=save(parts[checkpoint_items.PARAMS]),
          train=checkpoint_items.SaveArrays(
            checkpoint_reader.make_train_item(state)
          ),
          meta=checkpoint_items.SaveJson(meta),
          **adapters,
        ),
      )

  @property
  def is_writing(self) -> bool:
    """True while a checkpoint is being written in the background."""
    return self._manager.is_saving_in_progress()

  def check(self) -> None:
    """Raises an error if a background write has failed.

    The function does not wait for an unfinished write, which may still fail.

    Raises:
      CheckpointError: If a background write failed (see `save`).
    """
    if self._has_unchecked_write and not self.is_writing:
      self.wait()

  def wait(self) -> None:
    """Waits until all writes that were started have finished.

    Raises:
      CheckpointError: If a background write failed (see `save`).
    """
    self._has_unchecked_write = False
    with self._report_failure():
      self._manager.wait_until_finished()

  def close(self) -> None:
    """Waits for unfinished writes and closes the checkpoint manager."""
    self.wait()
    self._manager.close()

  def restore_last(self, factory: train_state.StateFactory) -> Restored | None:
    """Restores the newest checkpoint that can be read.

    Unreadable checkpoints are skipped. After an older checkpoint was restored,
    they are moved to `rejected_checkpoints/` with a warning. If no checkpoint
    can be read, none is moved, because something other than the checkpoints may
    be at fault.

    Args:
      factory: Factory that provides the abstract train state and its shardings.

    Returns:
      The restored checkpoint, or None if there are no checkpoints.

    Raises:
      CheckpointError: If checkpoints exist but none is readable, or the newest
        one does not match the model or the optimizer. The exit status is
        `ExitStatus.FAILURE` if the file system or the bucket does not respond,
        or another process failed.
    """
    failed: dict[int, Exception] = {}
    for step in sorted(self._manager.all_steps(), reverse=True):
      try:
        checkpoint_reader.verify_checkpoint(
          self.directory / str(step), *checkpoint_items.NAMES
        )
      except errors.CheckpointError as error:
        _raise_if_unavailable(error)
        failed[step] = error
        continue
      checkpoint_reader.check_fit(self.directory / str(step), factory.abstract)
      try:
        restored = self._restore(step, factory)
      except Exception as error:
        _raise_if_unavailable(error)
        failed[step] = error
        continue
      for bad_step, reason in failed.items():
        self._reject(bad_step, reason)
      return restored
    if failed:
      raise errors.CheckpointError(
        'None of the checkpoints can be read',
        got='; '.join(
          f'step {step}: {checkpoint_reader.summarize_error(error)}'
          for step, error in failed.items()
        ),
        where=str(self.directory),
        fix='Resolve the cause of the errors, or use a different model '
        'directory.',
      )
    return None

  def _restore(self, step: int, factory) -> Restored:
    abstract = factory.abstract_sharded
    checkpoint = self.directory / str(step)
    train = checkpoint_items.read_arrays(
      checkpoint,
      checkpoint_items.TRAIN,
      checkpoint_reader.make_train_item(abstract),
    )
    params = checkpoint_items.join_params(
      *(
        checkpoint_items.read_arrays(checkpoint, item, part)
        for item, part in checkpoint_items.split_params(abstract.params).items()
      )
    )
    return Restored(
      step,
      train_state.TrainState(params=params, **train),
      checkpoint_items.strip_meta(checkpoint_items.read_meta(checkpoint)),
    )

  def _reject(self, step: int, error: Exception) -> None:
    """Moves an unreadable checkpoint to `rejected_checkpoints/`."""
    source = self.directory / str(step)
    target = self._model_dir / REJECTED / f'{step}-{int(time.time())}'
    logging.warning(
      'Checkpoint %s is unreadable (%s). Moving it to %s and using the '
      'previous one.',
      source,
      checkpoint_reader.summarize_error(error),
      target,
    )
    if jax.process_index() == 0:
      paths.move_directory(source, target)
    if jax.process_count() > 1:
      from jax.experimental import multihost_utils

      multihost_utils.sync_global_devices(f'rejected_{step}')
    self._manager.reload()

  def _report_failure(self):
    return _FailureReport(self._model_dir, self._last_written_step)


class _FailureReport:
  """Context manager that raises a CheckpointError for a failed write."""

  def __init__(self, model_dir, step):
    self._model_dir = model_dir
    self._step = step

  def __enter__(self):
    return self

  def __exit__(self, kind, error, trace):
    if error is None or not isinstance(error, Exception):
      return
    if isinstance(error, errors.XlflaxError):  # Its message is complete.
      return
    last = max(checkpoint_reader.finished_steps(self._model_dir), default=None)
    raise errors.CheckpointError(
      'The checkpoint could not be written',
      got=errors.system_reason(error)
      or checkpoint_reader.summarize_error(error),
      where=str(self._model_dir / checkpoint_reader.DIRECTORY)
      + (f'/{self._step}' if self._step is not None else ''),
      fix=f'{_suggest_fix(error)} '
      + (
        'No valid checkpoint exists.'
        if last is None
        else f'The last valid checkpoint is step {last}.'
      ),
      status=errors.ExitStatus.FAILURE,
    ) from error


def _raise_if_unavailable(error: Exception) -> None:
  """Raises an error if a checkpoint is unavailable rather than damaged.

  Raises:
    CheckpointError: If the storage does not respond, or if another process of
      the job failed.
  """
  if errors.is_unavailable(error) or failures.is_lost_process(error):
    raise errors.CheckpointError(
      'The checkpoint is temporarily unavailable',
      got=checkpoint_reader.summarize_error(error),
      fix='Check that the file system or bucket of the checkpoint responds, '
      'and run the same command again.',
      status=errors.ExitStatus.FAILURE,
    ) from error


def _suggest_fix(error: Exception) -> str:
  """Returns a hint on how to recover from a failed write."""
  if failures.is_lost_process(error):
    return 'Another process of the job was lost. Start the job again.'
  return 'Check free space and permissions, and start again.'


def write_parameters(
  directory: pathlib.Path,
  params: Any,
  *,
  step: int = 0,
  meta: dict[str, Any] | None = None,
  **options: Any,
) -> None:
  """Writes a single checkpoint with parameters that were imported or averaged.

  Args:
    directory: Model directory, which already contains all other files.
    params: Parameters `{'model': ..., 'heads': ...}` to write.
    step: Training step under which the checkpoint is saved.
    meta: Plain JSON metadata that is saved with the parameters.
    **options: Fields of `CheckpointOptions`.
  """
  checkpoints = Checkpoints(
    directory, CheckpointOptions(enable_async_checkpointing=False, **options)
  )
  state = train_state.TrainState(
    step=jnp.int32(step),
    params=params,
    opt_state=(),
    ema=(),
    objective_state={},
  )
  checkpoints.save(state, meta or {})
  checkpoints.close()
  saved_run.mark_finished(directory, step)
