"""`evaluate`: evaluates the checkpoints of a run on evaluation tasks.

For each checkpoint, the parameters are restored once, and each task scores
the model. The results are stored on disk (`evaluation.results`).
"""

import dataclasses
import logging
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from xlflax.evaluation import (
  base,
  checkpoint_choice,
  results,
  sentence_encoding,
  summary,
  watching,
)
from xlflax.evaluation.reports import evaluation_report
from xlflax.foundation import errors, progress, registry, stopping, validation
from xlflax.training.checkpointing import run as run_lib
from xlflax.training.devices import partitioning
from xlflax.training.processes import distributed

_LOG = logging.getLogger(__name__)


@registry.register('report')
@dataclasses.dataclass(frozen=True)
class Report:
  """Results of `evaluate`.

  Attributes:
    tasks: Tasks that were evaluated.
    results: Task name -> step ('untrained' for the randomly initialized model)
      -> result, computed by this call or read from the store.
    failures: Tasks, parts of tasks and checkpoints that could not be
      evaluated.
    computed: Number of results that were not stored before.
    folders: Task name -> folder of its results.
  """

  tasks: tuple[base.EvalTask, ...]
  results: dict[str, dict[results.Step, base.EvalResult]]
  failures: tuple[base.Failure, ...]
  computed: validation.NonNegativeInt
  folders: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)


class CheckpointResults(NamedTuple):
  """Results of all tasks at one checkpoint.

  Attributes:
    results: Task name -> result.
    failures: Failures of this call, with the step.
    num_computed: Number of results that were not stored before.
  """

  results: dict[str, base.EvalResult]
  failures: tuple[base.Failure, ...] = ()
  num_computed: int = 0


@validation.validate_call
def evaluate(
  *,
  model_dir: validation.FilePath,
  tasks: Sequence[base.EvalTask],
  output: validation.FilePath | None = None,
  steps: str | Sequence[validation.NonNegativeInt] = 'last',
  best_metric: str | None = None,
  untrained: bool = False,
  watch: bool = False,
  poll_seconds: validation.NonNegativeFloat = 20.0,
  timeout_seconds: validation.NonNegativeFloat | None = None,
  seed: validation.Seed = 0,
  batch_size: validation.PositiveInt = 64,
  partitioner: partitioning.Partitioner | None = None,
  command: Sequence[str] = (),
) -> Report:
  """Evaluates checkpoints of a run on tasks.

  Each result is stored in
  `MODEL_DIR/eval/<task>/<split>-<settings>/<step>.json` as soon as it is
  computed. It is not computed again while the task, its text, the vocabulary,
  the seed and the checkpoint stay the same, so a call that was killed resumes.
  `MODEL_DIR/eval/summary.csv`, plots and the page `report.html` show all
  stored results. Failures are collected, and the other tasks are evaluated.

  Args:
    model_dir: Directory of the run.
    tasks: Evaluation tasks. Their names must differ.
    output: Directory for `eval/`, used by this run only. If None, the run's
      directory, which must then be writable.
    steps: 'last', 'all', 'best', 'none' or a list of steps.
    best_metric: Metric that selects the checkpoint of 'best': an evaluation
      metric recorded during training, such as 'retrieval/accuracy/mean'.
    untrained: Whether to evaluate the randomly initialized model as well. Its
      step is called 'untrained'.
    watch: Whether to evaluate new checkpoints as well, until training has
      finished or no checkpoint was written for `timeout_seconds`.
    poll_seconds: Seconds between searches for new checkpoints.
    timeout_seconds: See `watch`. If None, there is no timeout.
    seed: Seed of the tasks' random choices and of the randomly initialized
      model.
    batch_size: Number of sentences per batch. It does not change results.
    partitioner: Shards parameters and batches. If None, batches are split over
      all devices.
    command: Words of the command line, for the page of results.

  Returns:
    All results and failures.

  Raises:
    XlflaxError: If the arguments are invalid, the directory is no run, or
      results cannot be written.
  """
  check_tasks(tasks)
  checkpoint_choice.check_checkpoint_steps(steps)
  results.check_writable(model_dir, output)
  if watch:
    run = watching.open_run(
      model_dir, poll_seconds=poll_seconds, timeout_seconds=timeout_seconds
    )
  else:
    run = run_lib.open_run(model_dir)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  store = results.ResultStore(run, seed=seed, output=output)

  def checkpoints() -> Iterator[Sequence[results.Step]]:
    """Yields the steps to evaluate, then those of new checkpoints."""
    existing = run.steps
    chosen: list[results.Step] = [results.UNTRAINED] if untrained else []
    chosen += checkpoint_choice.select_checkpoints(
      run, steps, best_metric=best_metric, may_be_none=watch or untrained
    )
    yield chosen
    if watch:
      yield from watching.new_checkpoints(
        run,
        {*existing, *chosen},
        poll_seconds=poll_seconds,
        timeout_seconds=timeout_seconds,
      )

  evaluated: dict[results.Step, CheckpointResults] = {}
  for new_steps in checkpoints():
    for step in new_steps:
      evaluated[step] = evaluate_checkpoint(
        run, step, tasks, store, batch_size=batch_size, partitioner=partitioner
      )
    report = _make_report(tasks, evaluated, store)
    if distributed.is_lead():
      evaluation_report.write(
        store, tasks, failures=report.failures, command_line=command
      )
  return report


def evaluate_checkpoint(
  run: run_lib.SavedRun,
  step: results.Step,
  tasks: Sequence[base.EvalTask],
  store: results.ResultStore,
  *,
  batch_size: int,
  partitioner: partitioning.Partitioner | None,
) -> CheckpointResults:
  """Evaluates the tasks whose result at a checkpoint is not stored yet.

  Args:
    run: The run.
    step: Step of the checkpoint, or 'untrained'.
    tasks: Evaluation tasks.
    store: Store that results are read from and written to.
    batch_size: Number of sentences per batch.
    partitioner: Shards parameters and batches. If None, one device is used.
  """
  task_results: dict[str, base.EvalResult] = {}
  for task in tasks:
    if (stored := store.read(task, step)) is not None:
      task_results[task.name] = stored
      _LOG.info(
        'step %s | %s (stored)', step, summary.summary_line(task, stored)
      )
  missing = [task for task in tasks if task.name not in task_results]
  if not missing:
    return CheckpointResults(task_results)
  stopping.check_stop_request()
  failures = base.Failures('checkpoint')
  with failures.guard(), progress.progress_name(f'reading checkpoint {step}'):
    model = _restore_model(run, step, store.seed, batch_size, partitioner)
  if failures.collected():
    if step != results.UNTRAINED and step not in run.steps:
      _LOG.warning(
        'step %s | the checkpoint was deleted before it could be evaluated',
        step,
      )
      return CheckpointResults(task_results)
    return CheckpointResults(task_results, _at_step(step, failures.collected()))
  task_failures: list[base.Failure] = []
  for task in missing:
    start = time.monotonic()
    result = base.evaluate_task(task, model)
    if distributed.is_lead():
      store.write(task, step, result)
    task_results[task.name] = result
    task_failures += _at_step(step, result.failures)
    seconds = time.monotonic() - start
    _LOG.info(
      'step %s | %s (%.1f s)', step, summary.summary_line(task, result), seconds
    )
  return CheckpointResults(task_results, tuple(task_failures), len(missing))


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


def _restore_model(
  run: run_lib.SavedRun,
  step: results.Step,
  seed: int,
  batch_size: int,
  partitioner: partitioning.Partitioner | None,
) -> base.Subject:
  """Returns the model with the parameters of a checkpoint."""
  if isinstance(step, str):  # results.UNTRAINED
    params = run.untrained_params(seed=seed, partitioner=partitioner)
  else:
    params = run.restore_params(step, partitioner=partitioner)
  return base.Subject(
    model=run.model,
    params=params,
    vocabulary=run.vocabulary,
    partitioner=partitioner,
    seed=seed,
    batch_size=batch_size,
    objectives=run.objectives,
    inputs=run.inputs,
    sentence=sentence_encoding.of_run(run.directory, params),
  )


def _at_step(
  step: results.Step, failures: Sequence[base.Failure]
) -> tuple[base.Failure, ...]:
  """Logs failures, and returns them with the step as part of the location."""
  located = []
  for failure in failures:
    _LOG.error('step %s | %s', step, failure)
    part = ' '.join(filter(None, (failure.part, f'at step {step}')))
    located.append(dataclasses.replace(failure, part=part))
  return tuple(located)


def _make_report(
  tasks: Sequence[base.EvalTask],
  evaluated: dict[results.Step, CheckpointResults],
  store: results.ResultStore,
) -> Report:
  steps = sorted(evaluated, key=results.step_sort_key)
  return Report(
    tasks=tuple(tasks),
    results={
      task.name: {
        step: evaluated[step].results[task.name]
        for step in steps
        if task.name in evaluated[step].results
      }
      for task in tasks
    },
    failures=tuple(
      failure
      for checkpoint in evaluated.values()
      for failure in checkpoint.failures
    ),
    computed=sum(checkpoint.num_computed for checkpoint in evaluated.values()),
    folders={task.name: store.folder(store.group(task)) for task in tasks},
  )
