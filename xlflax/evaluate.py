"""`evaluate`: checkpoints of a run + evaluation tasks -> results on disk."""

from collections.abc import Sequence
from typing import Any

import jax

from xlflax.evaluation import (
  base,
  checkpoint_choice,
  outputs,
  results,
  watching,
)
from xlflax.evaluation import evaluator as evaluator_lib
from xlflax.foundation import errors, validation
from xlflax.training.checkpointing import run as run_lib
from xlflax.training.devices import partitioning

Report = evaluator_lib.Report


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
  """Evaluates checkpoints of a run by some tasks.

  Each result is written to `MODEL_DIR/eval/<task>/<split>-<settings>/<step>.json` when it is
  there, and is not computed again while task, text, vocabulary, seed and
  checkpoint stay the same: a call that was killed goes on where it stopped.
  `MODEL_DIR/eval/summary.csv`, PNG files and the page `report.html` beside it
  show all results of the tasks so far. What fails is collected; the rest is evaluated.
  With `output`, all of it lies in that folder instead, and the run is only read.

  Args:
    model_dir: the run's directory.
    tasks: what to evaluate; their names must differ.
    output: folder for `eval/`, of this run only; None: the run's directory,
      which then must be one that can be written.
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
    command: the words of the command line, for the page of results.

  Returns:
    All results and failures.

  Raises:
    XlflaxError: the settings are wrong, the directory is no run, or results
      cannot be written.
  """
  check_tasks(tasks)
  checkpoint_choice.check(steps)
  outputs.check(model_dir, output)
  patience: dict[str, Any] = {
    'poll_seconds': poll_seconds,
    'timeout_seconds': timeout_seconds,
  }
  if watch:
    run = watching.open_run(model_dir, **patience)
  else:
    run = run_lib.open_run(model_dir)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  evaluator = evaluator_lib.Evaluator(
    run,
    tuple(tasks),
    partitioner,
    seed=seed,
    batch_size=batch_size,
    output=output,
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
    for new in watching.new_checkpoints(run, evaluator.seen, **patience):
      for step in new:
        evaluator.evaluate(step)
      evaluator.report(command)
  return evaluator.report(command)


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
