"""Evaluation of one or more pretrained models on a suite of tasks."""

import logging
import os
from collections.abc import Collection, Sequence
from typing import Literal

from xlflax.data.supervised.sources import xtreme
from xlflax.evaluation import checkpoint_polling
from xlflax.storage import bucket_access, paths
from xlflax.suites import (
  suite_config,
  suite_export,
  suite_plan,
  suite_report,
  suite_result_store,
  suite_runner,
)
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors, logs, validation

_LOG = logging.getLogger(__name__)


@validation.validate_call
def evaluate_suite(
  *,
  suite: suite_config.Suite,
  model_dirs: Sequence[str],
  data: validation.FilePath,
  output: validation.FilePath,
  names: Sequence[str] | None = None,
  steps: Sequence[int] | Literal['best'] | None = None,
  metric_for_best_model: str | None = None,
  watch: bool = False,
  poll_seconds: validation.PositiveFloat = 60.0,
  timeout_seconds: validation.NonNegativeFloat | None = None,
  bindings: Sequence[str] = (),
  search_paths: Sequence[str] = (),
  batch_size: validation.PositiveInt = 64,
  baseline: str | None = None,
  only: Collection[tuple[str, str]] | None = None,
) -> suite_report.SuiteReport:
  """Fine-tunes and evaluates models on a suite, and writes comparison reports.

  Results of an interrupted call are reused. If a task or a language fails, the
  failure is recorded, and the remaining tasks and languages are evaluated.

  Args:
    suite: Suite of tasks to evaluate.
    model_dirs: Directories of the pretrained runs to compare. If the suite has
      a table, they are directories of the table's runs, or directories that
      contain these runs (`PaperTable.find_runs`).
    data: Directory that contains the tasks' data.
    output: Directory for fine-tuned runs and reports.
    names: Names of the tasks to run. If None, all tasks of the suite are run.
    steps: Checkpoint steps to evaluate. If None, the last checkpoint of each
      run is evaluated. If 'best', the best checkpoint of each run is evaluated.
    metric_for_best_model: Metric by which the best checkpoints are selected,
      such as 'perplexity/perplexity/en'. It must be recorded during
      pretraining.
    watch: Whether to evaluate all existing and future checkpoints of a single
      run until its training has finished. Learning curves then show the scores
      by step.
    poll_seconds: Number of seconds between checks for new checkpoints if
      `watch` is True.
    timeout_seconds: Number of seconds without a new checkpoint after which
      `watch` ends. If None, there is no limit.
    bindings: Gin bindings for all tasks that require fine-tuning.
    search_paths: Folders in which to search for gin files.
    batch_size: Number of sentences per evaluation batch.
    baseline: Checkpoint with which the other checkpoints are compared, such as
      'mlm@1000'. If None, the first checkpoint is used.
    only: Pairs (checkpoint, task), such as ('mlm@1000', 'xnli'), to which this
      call is restricted. They form the shard of one of several machines (see
      `suite_runner.shard`). The call that finds the results of all shards
      writes the reports. If None, all pairs are evaluated.

  Returns:
    The results of this call and of earlier calls with the same output.

  Raises:
    XlflaxError: If the suite or a model directory is invalid.
  """
  model_dirs = suite.find_runs(model_dirs, names)
  bucket_access.check_usable(paths.to_path(output))
  runner = suite_runner.SuiteRunner(
    suite=suite,
    output=paths.to_path(output),
    data=os.fspath(data),
    task_names=None if names is None else tuple(names),
    bindings=tuple(bindings),
    search_paths=tuple(search_paths),
    batch_size=batch_size,
    task_filter=only,
  )
  runner.check_bindings()
  results: list[suite_report.TaskResult] = []

  def load_tests(task, label, step):
    return runner.load_tests(task, suite_runner.Model(label, '', step))

  def evaluate(models) -> suite_report.SuiteReport:
    if not results:
      runner.check_test_data(models)
    for model in models:
      results.extend(runner.run(model))
    report = suite_report.SuiteReport(
      suite=suite.name,
      source_language=suite.source_language,
      results=suite_result_store.merge_results(
        results, suite=suite, output=runner.output, load_tests=load_tests
      ),
      tasks=tuple(task.name for task in suite.tasks),
      head_languages=suite.head_languages,
    )
    missing = runner.missing(models, report)
    if missing:
      _LOG.info('The report is missing results of other shards: %s.', missing)
    else:
      suite_result_store.record_results(report, runner.output)
      suite_export.write(
        report, runner.output, baseline=baseline, table=suite.table
      )
    return report

  # The sources of a task are created for each model, and to read its results.
  with logs.skip_repeated_messages(xtreme.__name__):
    if watch:
      return _watch(model_dirs, evaluate, poll_seconds, timeout_seconds)
    return evaluate(
      suite_runner.models_at(model_dirs, steps, metric_for_best_model)
    )


@validation.validate_call
def plan_suite(
  *,
  suite: suite_config.Suite,
  model_dirs: Sequence[str],
  data: validation.FilePath,
  output: validation.FilePath,
  names: Sequence[str] | None = None,
  steps: Sequence[int] | Literal['best'] | None = None,
  metric_for_best_model: str | None = None,
  bindings: Sequence[str] = (),
  search_paths: Sequence[str] = (),
  only: Collection[tuple[str, str]] | None = None,
) -> suite_plan.SuitePlan:
  """Plans the evaluation that `evaluate_suite` runs with the same arguments.

  All files are read, but nothing is trained, evaluated or written.

  Args:
    suite: Suite of tasks to plan.
    model_dirs: Directories of the pretrained runs to compare.
    data: Directory that contains the tasks' data.
    output: Directory for fine-tuned runs and reports.
    names: Names of the tasks to run. If None, all tasks of the suite are run.
    steps: Checkpoint steps to evaluate, as in `evaluate_suite`.
    metric_for_best_model: Metric that selects the best checkpoints.
    bindings: Gin bindings for all tasks that require fine-tuning.
    search_paths: Folders in which to search for gin files.
    only: Pairs (checkpoint, task) to which the plan is restricted.

  Returns:
    Plan of the suite, with the errors that the call would report.

  Raises:
    XlflaxError: If the suite or a model directory is invalid.
  """
  model_dirs = suite.find_runs(model_dirs, names)
  runner = suite_runner.SuiteRunner(
    suite=suite,
    output=paths.to_path(output),
    data=os.fspath(data),
    task_names=None if names is None else tuple(names),
    bindings=tuple(bindings),
    search_paths=tuple(search_paths),
    task_filter=only,
  )
  runner.check_bindings()
  models = suite_runner.models_at(model_dirs, steps, metric_for_best_model)
  with logs.skip_repeated_messages(xtreme.__name__):
    return suite_plan.make_plan(runner, models)


def _watch(model_dirs, evaluate, poll_seconds, timeout_seconds):
  """Evaluates the checkpoints of a run as they are written."""
  if len(model_dirs) != 1:
    raise errors.ConfigError(
      'The flag --continuous supports only a single run',
      got=', '.join(model_dirs),
    )
  run = saved_run.load_run(model_dirs[0])
  report = None
  for new_steps in checkpoint_polling.new_checkpoints(
    run, set(), poll_seconds=poll_seconds, timeout_seconds=timeout_seconds
  ):
    for step in new_steps:
      report = evaluate(suite_runner.models(model_dirs, step))
  return report if report is not None else evaluate([])
