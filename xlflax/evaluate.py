"""`evaluate`: checkpoints of a run + evaluation tasks -> results on disk."""

import dataclasses
import logging
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax

from xlflax import errors
from xlflax.evaluation import base, checkpoint_choice, results, summary
from xlflax.training import distributed, partitioning
from xlflax.training import run as run_lib

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Report:
  """What `evaluate` found.

  Attributes:
    tasks: what was evaluated.
    results: task name -> step ('untrained' for the fresh model) -> result,
      of this call, whether computed or read back.
    failures: everything that could not be evaluated.
    computed: how many results were not there before.
  """

  tasks: tuple[base.EvalTask, ...]
  results: dict[str, dict[results.Step, base.EvalResult]]
  failures: tuple[base.Failure, ...]
  computed: int


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
  `MODEL_DIR/eval/summary.csv` has the numbers of all results so far. What
  fails is collected; the rest is evaluated.

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
    XlflaxError: the settings are wrong, or the directory is no run.
  """
  _check_tasks(tasks)
  checkpoint_choice.check(steps)
  if watch:
    run = _wait_for_run(model_dir, poll_seconds, timeout_seconds)
  else:
    run = run_lib.open_run(model_dir)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  evaluator = _Evaluator(run, tuple(tasks), partitioner, seed=seed,
                         batch_size=batch_size)
  before = run.steps
  if untrained:
    evaluator.evaluate(results.UNTRAINED)
  for step in checkpoint_choice.choose(
      run, steps, best_metric=best_metric, may_be_none=watch or untrained):
    evaluator.evaluate(step)
  if watch:
    evaluator.seen.update(before)
    _watch(run, evaluator, poll_seconds, timeout_seconds)
  return evaluator.report()


class _Evaluator:
  """Runs all tasks on one checkpoint after the other."""

  def __init__(self, run: run_lib.Run, tasks: tuple[base.EvalTask, ...],
               partitioner, *, seed: int, batch_size: int):
    self._run = run
    self._tasks = tasks
    self._partitioner = partitioner
    self._seed = seed
    self._batch_size = batch_size
    self._identities: dict[str, dict[str, Any]] = {}
    self._results: dict[str, dict] = {task.name: {} for task in tasks}
    self._failures: list[base.Failure] = []
    self._computed = 0
    self.seen: set[results.Step] = set()

  def evaluate(self, step: results.Step) -> None:
    """Evaluates all tasks that have no result of this checkpoint yet."""
    self.seen.add(step)
    identities = {task.name: self._identity(task, step)
                  for task in self._tasks}
    missing = []
    for task in self._tasks:
      found = results.read_finished(self._file(task, step),
                                    identities[task.name])
      if found is None:
        missing.append(task)
      else:
        _LOG.info('step %s | %s (was there)', step, summary.line(task, found))
        self._results[task.name][step] = found
    subject = self._subject(step) if missing else None
    if subject is not None:
      for task in missing:
        self._compute(task, step, subject, identities[task.name])

  def report(self) -> Report:
    """Writes the CSV of all results of the run, and returns those seen."""
    if distributed.is_lead():
      summary.write_csv(self._run.directory, {
          task.name: results.find(self._run.directory, task.name)
          for task in self._tasks})
    ordered = {name: {step: found[step]
                      for step in sorted(found, key=results.order)}
               for name, found in self._results.items()}
    return Report(self._tasks, ordered, tuple(self._failures), self._computed)

  def _compute(self, task, step, subject, identity) -> None:
    start = time.monotonic()
    result = base.evaluate_task(task, subject)
    self._computed += 1
    self._results[task.name][step] = result
    self._fail(step, result.failures)
    if distributed.is_lead():
      results.write(self._file(task, step), result, step=step,
                    identity=identity)
    _LOG.info('step %s | %s (%.1f s)', step, summary.line(task, result),
              time.monotonic() - start)

  def _fail(self, step: results.Step, failures) -> None:
    for failure in failures:
      _LOG.error('step %s | %s', step, failure)
      self._failures.append(dataclasses.replace(
          failure, part=' '.join(filter(None, (failure.part,
                                               f'at step {step}')))))

  def _subject(self, step: results.Step) -> base.Subject | None:
    """None, with a failure recorded, if the checkpoint can't be read."""
    restoring = base.Failures('checkpoint')
    with restoring.guard():
      if step == results.UNTRAINED:
        params = self._run.untrained_params(
            seed=self._seed, partitioner=self._partitioner)
      else:
        params = self._run.restore_params(
            step, partitioner=self._partitioner)
      return base.Subject(
          model=self._run.model, params=params,
          vocabulary=self._run.vocabulary, partitioner=self._partitioner,
          seed=self._seed, batch_size=self._batch_size)
    if step != results.UNTRAINED and step not in self._run.steps:
      _LOG.warning('step %s | the checkpoint was deleted before it could be '
                   'evaluated', step)
    else:
      self._fail(step, restoring.collected())
    return None

  def _identity(self, task: base.EvalTask, step: results.Step
                ) -> dict[str, Any]:
    if task.name not in self._identities:  # reads the task's text
      self._identities[task.name] = results.identity(
          task, model=self._run.model,
          vocabulary_hash=self._run.vocabulary.hash, seed=self._seed)
    checkpoint = results.checkpoint_identity(self._run.directory, step)
    return self._identities[task.name] | {'checkpoint': checkpoint}

  def _file(self, task: base.EvalTask, step: results.Step) -> pathlib.Path:
    return results.path(self._run.directory, task.name, step)


def _watch(run: run_lib.Run, evaluator: _Evaluator, poll_seconds: float,
           timeout_seconds: float | None) -> None:
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
      _LOG.warning('No new checkpoint in %s for %g seconds: watching ends.',
                   run.directory, timeout_seconds)
      return
    else:
      time.sleep(poll_seconds)


def _wait_for_run(model_dir: str, poll_seconds: float,
                  timeout_seconds: float | None) -> run_lib.Run:
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
  return (timeout_seconds is not None
          and time.monotonic() - start >= timeout_seconds)


def _check_tasks(tasks: Sequence[base.EvalTask]) -> None:
  names = [task.name for task in tasks]
  if not names:
    raise errors.ConfigError(
        'There is no task to evaluate', expected='one or more tasks',
        where='evaluate.tasks', fix='name some with --tasks, or in a gin file')
  if len(set(names)) < len(names):
    raise errors.ConfigError(
        'Two evaluation tasks have the same name, so their results would '
        'overwrite each other', got=', '.join(names), where='evaluate.tasks',
        fix='give one of them another name')
