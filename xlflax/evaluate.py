"""`evaluate`: checkpoints of a run + evaluation tasks -> results on disk."""

import logging
import time
from collections.abc import Sequence

import jax

from xlflax import bucket_checks, errors, paths
from xlflax.evaluation import base, checkpoint_choice, results
from xlflax.evaluation import evaluator as evaluator_lib
from xlflax.training import partitioning
from xlflax.training import run as run_lib

Report = evaluator_lib.Report

_LOG = logging.getLogger(__name__)


def evaluate(
  *,
  model_dir: str,
  tasks: Sequence[base.EvalTask],
  steps: str | Sequence[int] = 'last',
  best_metric: str | None = None,
  untrained: bool = False,
  watch: bool = False,
  poll_seconds: float = 20.0,
  timeout_seconds: float | None = None,
  seed: int = 0,
  batch_size: int = 64,
  partitioner: partitioning.Partitioner | None = None,
) -> Report:
  """Evaluates checkpoints of a run by some tasks.

  Each result is written to `MODEL_DIR/eval/<task>/<step>.json` when it is
  there, and is not computed again while task, text, vocabulary, seed and
  checkpoint stay the same: a call that was killed goes on where it stopped.
  `MODEL_DIR/eval/summary.csv` and PNG files beside it show all results of the
  tasks so far. What fails is collected; the rest is evaluated.

  Args:
    model_dir: the run's directory.
    tasks: what to evaluate; their names must differ.
    steps: 'last', 'all', 'best', 'none' or a list of steps.
    best_metric: for 'best': an evaluation metric that training recorded, such
      as 'retrieval/accuracy/mean'.
    untrained: also evaluate the run's model as freshly initialised, the
      baseline; its step is called 'untrained'.
    watch: evaluate also the checkpoints to come, until training has finished
      or `timeout_seconds` have passed without a new one.
    poll_seconds: how often to look for new checkpoints.
    timeout_seconds: see `watch`; None waits without end.
    seed: of the tasks' random choices and the untrained parameters.
    batch_size: sentences a batch, where it does not change results.
    partitioner: shards parameters and batches; None splits batches over all
      devices.

  Returns:
    All results and failures.

  Raises:
    XlflaxError: the settings are wrong, or the directory is no run, or in a
      bucket that can't be written.
  """
  check_tasks(tasks)
  checkpoint_choice.check(steps)
  bucket_checks.check_usable(paths.of(model_dir))
  if watch:
    run = _wait_for_run(model_dir, poll_seconds, timeout_seconds)
  else:
    run = run_lib.open_run(model_dir)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  evaluator = evaluator_lib.Evaluator(
    run, tuple(tasks), partitioner, seed=seed, batch_size=batch_size
  )
  before = run.steps
  if untrained:
    evaluator.evaluate(results.UNTRAINED)
  for step in checkpoint_choice.choose(
    run, steps, best_metric=best_metric, may_be_none=watch or untrained
  ):
    evaluator.evaluate(step)
  if watch:
    evaluator.seen.update(before)
    _watch(run, evaluator, poll_seconds, timeout_seconds)
  return evaluator.report()


def _watch(
  run: run_lib.SavedRun,
  evaluator: evaluator_lib.Evaluator,
  poll_seconds: float,
  timeout_seconds: float | None,
) -> None:
  """Evaluates new checkpoints, oldest first, until training has finished."""
  last_new = time.monotonic()
  while True:
    finished = run.is_finished()  # asked first: nothing comes after it
    new = [step for step in run.steps if step not in evaluator.seen]
    for step in new:
      evaluator.evaluate(step)
    if new:
      evaluator.report()
      last_new = time.monotonic()
    elif finished:
      return
    elif _timed_out(last_new, timeout_seconds):
      _LOG.warning(
        'No new checkpoint in %s for %g seconds: watching ends.',
        run.directory,
        timeout_seconds,
      )
      return
    else:
      time.sleep(poll_seconds)


def _wait_for_run(
  model_dir: str, poll_seconds: float, timeout_seconds: float | None
) -> run_lib.SavedRun:
  """Opens a run as soon as training has made its directory."""
  start = time.monotonic()
  while True:
    try:
      return run_lib.open_run(model_dir)
    except (errors.RunDirectoryError, errors.VocabularyError):
      if _timed_out(start, timeout_seconds):
        raise
    time.sleep(poll_seconds)


def _timed_out(start: float, timeout_seconds: float | None) -> bool:
  return (
    timeout_seconds is not None and time.monotonic() - start >= timeout_seconds
  )


def check_tasks(tasks: Sequence[base.EvalTask]) -> None:
  """Raises ConfigError unless there are tasks, all of different names."""
  names = [task.name for task in tasks]
  if not names:
    raise errors.ConfigError(
      'There is no task to evaluate',
      expected='one or more tasks',
      where='evaluate.tasks',
      fix='name some with --tasks, or in a gin file',
    )
  if len(set(names)) < len(names):
    raise errors.ConfigError(
      'Two evaluation tasks have the same name, so their results would '
      'overwrite each other',
      got=', '.join(names),
      where='evaluate.tasks',
      fix='give one of them another name',
    )
