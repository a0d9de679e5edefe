"""Checkpoints: asynchronous, atomic, the last good one found by itself.

A checkpoint has three items, so that a reader takes only what it needs:
`params` (what evaluation and initialisation read), `train` (step, optimizer
state, running average, objectives' states) and `meta` (plain JSON). Each is
sealed by digests (`checkpoint_items`), which every reader checks.
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
  """When checkpoints are written and which are kept.

  Attributes:
    every_steps: write after each multiple of this (and after the last step).
    keep_last: how many of the newest are kept; None keeps all.
    keep_every_steps: those at multiples of this are kept for ever.
    best_metric: evaluation metric whose best checkpoint is kept too, such as
      'retrieval/mean'; written when that metric is evaluated.
    best_is_highest: whether more of `best_metric` is better; None: as the
      task declares its metric.
    asynchronous: write in the background while training goes on.
    write_concurrent_gb: writes the parameters with little memory: only so
      many 10^9 bytes at a time (at least the largest of them) and without
      compression, whose buffers are as large again. None: as fast as may be.
  """

  every_steps: validation.PositiveInt = 1000
  keep_last: validation.PositiveInt | None = 3
  keep_every_steps: validation.PositiveInt | None = None
  best_metric: str | None = None
  best_is_highest: bool | None = None
  asynchronous: bool = True
  write_concurrent_gb: validation.PositiveInt | None = None

  def score(self, metrics: dict[str, float]) -> float:
    """Larger is better; -inf without a finite `best_metric`."""
    value = metrics.get(self.best_metric or '', math.nan)
    if not math.isfinite(value):
      return -math.inf
    return -value if self.best_is_highest is False else value

  def preservation_policy(self):
    policies: list[Any] = [checkpoint_managers.LatestN(self.keep_last)]
    if self.keep_every_steps:
      policies.append(checkpoint_managers.EveryNSteps(self.keep_every_steps))
    if self.best_metric:
      policies.append(checkpoint_managers.BestN(get_metric_fn=self.score, n=1))
    return checkpoint_managers.AnyPreservationPolicy(policies)


@dataclasses.dataclass(frozen=True)
class Restored:
  """A restored checkpoint: its step, state, and JSON meta data."""

  step: int
  state: train_state.TrainState
  meta: dict[str, Any]


class Checkpoints:
  """Reads and writes the checkpoints of one model directory."""

  def __init__(
    self,
    model_dir: str | pathlib.Path,
    options: CheckpointOptions | None = None,
  ):
    self._model_dir = paths.to_absolute_path(model_dir)
    self._options = options or CheckpointOptions()
    self.directory = self._model_dir / checkpoint_reader.DIRECTORY
    self._handlers = checkpoint_items.make_handlers(
      self._options.write_concurrent_gb
    )
    self._manager = self._open()
    self._writing: int | None = None  # the step of the last write
    self._is_open = False  # whether how it ended is not known

  def _open(self) -> ocp.CheckpointManager:
    if self._options.best_metric:
      self._check_scores()
    return ocp.CheckpointManager(
      self.directory,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=self._options.preservation_policy(),
        # Without `best_fn` the manager does not keep metrics on disk.
        best_fn=self._options.score if self._options.best_metric else None,
        enable_async_checkpointing=self._options.asynchronous,
        cleanup_tmp_directories=True,
      ),
      item_names=checkpoint_items.NAMES,
      item_handlers=self._handlers,
    )

  def _check_scores(self) -> None:
    """Refuses to choose the best checkpoint by damaged scores."""
    for step in checkpoint_reader.finished_steps(self._model_dir):
      problem = checkpoint_items.score_problem(self.directory / str(step))
      if problem:
        raise errors.CheckpointError(
          'The score of a checkpoint is damaged',
          got=problem,
          where=str(self.directory / str(step)),
          fix=f'xlflax verify {self._model_dir} --repair',
        )

  @property
  def last_step(self) -> int | None:
    """The newest finished checkpoint."""
    return max(checkpoint_reader.finished_steps(self._model_dir), default=None)

  def describe_last(self) -> str:
    """A sentence that names the newest finished checkpoint."""
    if self.last_step is None:
      return f'There is no checkpoint in {self.directory} yet.'
    return f'The last checkpoint is {self.directory / str(self.last_step)}.'

  def save(
    self,
    state: train_state.TrainState,
    meta: dict[str, Any],
    metrics: dict[str, float] | None = None,
  ) -> None:
    """Starts writing the state as the checkpoint of its step.

    Args:
      state: the state; its step names the checkpoint.
      meta: plain JSON kept beside it.
      metrics: evaluation metrics at this step, for `best_metric`.

    Raises:
      CheckpointError: this or the previous write failed (full disk); names
        the last good checkpoint.
    """
    step = int(state.step)
    if step in self._manager.all_steps():
      return
    best = self._options.best_metric
    scored = {best: (metrics or {}).get(best, math.nan)} if best else None
    save = (
      checkpoint_items.SaveArrays
      if self._options.write_concurrent_gb is None
      else checkpoint_items.SaveTree
    )
    meta = meta | checkpoint_items.own_meta(self._model_dir, scored)
    self.wait()
    self._writing, self._is_open = step, True
    with self._report_failure():
      for handler in self._handlers.values():
        handler.about = {
          'step': step,
          'run': run_directory.run_id(self._model_dir),
        }
      self._manager.save(
        step,
        metrics=scored,
        args=ocp.args.Composite(
          params=save(state.params),
          train=checkpoint_items.SaveArrays(
            checkpoint_reader.train_item(state)
          ),
          meta=checkpoint_items.SaveJson(meta),
        ),
      )

  @property
  def is_writing(self) -> bool:
    """Whether a checkpoint is being written in the background."""
    return self._manager.is_saving_in_progress()

  def check(self) -> None:
    """Raises as `save` does if what was written beside the training failed.

    It does not wait: a write that goes on may still fail.
    """
    if self._is_open and not self.is_writing:
      self.wait()

  def wait(self) -> None:
    """Blocks until what was started is on disk; raises as `save` does."""
    self._is_open = False
    with self._report_failure():
      self._manager.wait_until_finished()

  def close(self) -> None:
    self.wait()
    self._manager.close()

  def restore_last(self, factory: train_state.StateFactory) -> Restored | None:
    """The newest checkpoint that can be read, or None without any.

    Unreadable ones are passed over; once an older one was read, they are
    moved to `rejected_checkpoints/` with a warning. If none can be read, all
    stay where they are, as the reason may lie elsewhere.

    Args:
      factory: makes the abstract state and its shardings.

    Raises:
      CheckpointError: there are checkpoints, but none can be read, or the
        newest does not fit the model or optimizer; with the status FAILURE
        where the file system or bucket does not answer, or a process is gone.
    """
    failed: dict[int, Exception] = {}
    for step in sorted(self._manager.all_steps(), reverse=True):
      try:
        checkpoint_reader.verify_checkpoint(
          self.directory / str(step), *checkpoint_items.NAMES
        )
      except errors.CheckpointError as error:
        _check_answers(error)
        failed[step] = error
        continue
      checkpoint_reader.check_fit(self.directory / str(step), factory.abstract)
      try:
        restored = self._restore(step, factory)
      except Exception as error:
        _check_answers(error)
        failed[step] = error
        continue
      for bad_step, reason in failed.items():
        self._reject(bad_step, reason)
      return restored
    if failed:
      raise errors.CheckpointError(
        'No checkpoint can be read',
        got='; '.join(
          f'step {step}: {checkpoint_reader.first_line(error)}'
          for step, error in failed.items()
        ),
        where=str(self.directory),
        fix='mend the reason, or start in another model directory',
      )
    return None

  def _restore(self, step: int, factory) -> Restored:
    abstract = factory.abstract_sharded
    checkpoint = self.directory / str(step)
    train = checkpoint_items.read_arrays(
      checkpoint, checkpoint_items.TRAIN, checkpoint_reader.train_item(abstract)
    )
    params = checkpoint_items.read_arrays(
      checkpoint, checkpoint_items.PARAMS, abstract.params
    )
    return Restored(
      step,
      train_state.TrainState(params=params, **train),
      checkpoint_items.given_meta(checkpoint_items.read_meta(checkpoint)),
    )

  def _reject(self, step: int, error: Exception) -> None:
    source = self.directory / str(step)
    target = self._model_dir / REJECTED / f'{step}-{int(time.time())}'
    logging.warning(
      'Checkpoint %s cannot be read (%s); it is moved to %s and the one '
      'before it is used.',
      source,
      checkpoint_reader.first_line(error),
      target,
    )
    if jax.process_index() == 0:
      paths.move_directory(source, target)
    if jax.process_count() > 1:
      from jax.experimental import multihost_utils

      multihost_utils.sync_global_devices(f'rejected_{step}')
    self._manager.reload()

  def _report_failure(self):
    return _FailureReport(self._model_dir, self._writing)


class _FailureReport:
  """Turns a failed write into one CheckpointError."""

  def __init__(self, model_dir, step):
    self._model_dir = model_dir
    self._step = step

  def __enter__(self):
    return self

  def __exit__(self, kind, error, trace):
    if error is None or not isinstance(error, Exception):
      return
    if isinstance(error, errors.XlflaxError):  # says itself what is wrong
      return
    last = max(checkpoint_reader.finished_steps(self._model_dir), default=None)
    raise errors.CheckpointError(
      'A checkpoint could not be written',
      got=errors.system_reason(error) or checkpoint_reader.first_line(error),
      where=str(self._model_dir / checkpoint_reader.DIRECTORY)
      + (f'/{self._step}' if self._step is not None else ''),
      fix=f'{_remedy(error)}: the last good checkpoint is '
      f'{"none" if last is None else f"step {last}"}',
      status=errors.ExitStatus.FAILURE,
    ) from error


def _check_answers(error: Exception) -> None:
  """Raises where what keeps a checkpoint from being read is not the file."""
  if errors.is_away(error) or failures.is_lost_peer(error):
    raise errors.CheckpointError(
      'A checkpoint cannot be read now',
      got=checkpoint_reader.first_line(error),
      fix='see whether its file system or bucket answers, and start again',
      status=errors.ExitStatus.FAILURE,
    ) from error


def _remedy(error: Exception) -> str:
  """What to do about a failed write."""
  if failures.is_lost_peer(error):
    return 'another process of the job was lost; start the job again'
  return 'free space or permissions there and start again'


def write_parameters(
  directory: pathlib.Path,
  params: Any,
  *,
  step: int = 0,
  meta: dict[str, Any] | None = None,
  **options: Any,
) -> None:
  """Writes the one checkpoint of a model directory that no training made.

  Args:
    directory: with everything else in it.
    params: `{'model': ..., 'heads': ...}`.
    step: of the checkpoint.
    meta: plain JSON kept beside it.
    **options: of `CheckpointOptions`.
  """
  checkpoints = Checkpoints(
    directory, CheckpointOptions(asynchronous=False, **options)
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
