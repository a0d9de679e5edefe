"""`evaluate_suite`: a suite of tasks on one pretrained model, or several."""

import logging
import os
from collections.abc import Collection, Sequence

from xlflax.evaluation import checkpoint_polling
from xlflax.storage import bucket_access, paths
from xlflax.suites import (
  suite_config,
  suite_export,
  suite_result_store,
  suite_runner,
)
from xlflax.suites import suite_report as suite_results
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors, validation

_LOG = logging.getLogger(__name__)


@validation.validate_call
def evaluate_suite(
  *,
  suite: suite_config.Suite,
  model_dirs: Sequence[str],
  data: validation.FilePath,
  output: validation.FilePath,
  names: Sequence[str] | None = None,
  steps: Sequence[int] | None = None,
  watch: bool = False,
  poll_seconds: validation.PositiveFloat = 60.0,
  timeout_seconds: validation.NonNegativeFloat | None = None,
  bindings: Sequence[str] = (),
  search_paths: Sequence[str] = (),
  batch_size: validation.PositiveInt = 64,
  baseline: str | None = None,
  only: Collection[tuple[str, str]] | None = None,
) -> suite_results.SuiteReport:
  """Fine-tunes what needs it, evaluates all languages, writes reports.

  What a call that was killed had finished is not computed again. A task or a
  language that fails is recorded, and the others go on.

  Args:
    suite: the tasks.
    model_dirs: runs of pretrained models, side by side in the reports.
    data: the directory that the suite's tasks read.
    output: where fine-tuned runs and reports are written.
    names: of the tasks to run; None for all.
    steps: of the checkpoints; None for the newest.
    watch: follow one run: each checkpoint it has and will have, until its
      training has finished; curves show scores by step.
    poll_seconds: how often `watch` looks for new checkpoints.
    timeout_seconds: `watch` ends after so long without one; None never.
    bindings: gin bindings for all tasks with fine-tuning.
    search_paths: folders to look gin files up in.
    batch_size: sentences a batch of evaluations.
    baseline: the checkpoint that the others are compared with, such as
      'mlm@1000'; None: the first.
    only: (checkpoint, task) that this call does, such as ('mlm@1000',
      'xnli'), the shard of one of several machines (`suite_runner.shard`). The
      reports are written by the call that finds all results there. None: all.

  Raises:
    XlflaxError: the suite or a model directory is wrong.
  """
  suite.chosen(names)
  bucket_access.check_usable(paths.to_path(output))
  runner = suite_runner.SuiteRunner(
    suite=suite,
    output=paths.to_path(output),
    data=os.fspath(data),
    names=None if names is None else tuple(names),
    bindings=tuple(bindings),
    search_paths=tuple(search_paths),
    batch_size=batch_size,
    only=only,
  )
  found: list[suite_results.TaskResult] = []

  def tests_of(task, label, step):
    return runner.tests(task, suite_runner.Model(label, '', step))

  def evaluate(models) -> suite_results.SuiteReport:
    for model in models:
      found.extend(runner.run(model))
    report = suite_results.SuiteReport(
      suite=suite.name,
      source_language=suite.source_language,
      results=suite_result_store.merged(
        found, suite=suite, output=runner.output, tests=tests_of
      ),
      tasks=tuple(task.name for task in suite.tasks),
    )
    missing = runner.missing(models, report)
    if missing:
      _LOG.info('The report waits for %s of other shares.', missing)
    else:
      suite_result_store.note(report, runner.output)
      suite_export.write(report, runner.output, baseline=baseline)
    return report

  if watch:
    return _watch(model_dirs, evaluate, poll_seconds, timeout_seconds)
  return evaluate(suite_runner.models_at(model_dirs, steps))


def _watch(model_dirs, evaluate, poll_seconds, timeout_seconds):
  """Evaluates the checkpoints of a run as they come."""
  if len(model_dirs) != 1:
    raise errors.ConfigError(
      'One run can be watched', where='--continuous', got=', '.join(model_dirs)
    )
  run = saved_run.open_run(model_dirs[0])
  report = None
  for new in checkpoint_polling.new_checkpoints(
    run, set(), poll_seconds=poll_seconds, timeout_seconds=timeout_seconds
  ):
    for step in new:
      report = evaluate(suite_runner.models(model_dirs, step))
  return report if report is not None else evaluate([])
