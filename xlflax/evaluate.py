"""Evaluation of a run's checkpoints on evaluation tasks.

The parameters of each checkpoint are restored once, and each task scores the
model. The results are stored on disk (`evaluation.result_store`).
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import example_source, identical_files
from xlflax.evaluation import (
  checkpoint_polling,
  checkpoint_selection,
  eval_task,
  label_checks,
  result_store,
  result_tables,
  sentence_embedding,
  task_sources,
  text_sources,
  unknown_tokens,
)
from xlflax.evaluation.reports import evaluation_report
from xlflax.evaluation.tasks import classification_task, head_task
from xlflax.training import param_tree, untrained_head
from xlflax.training.checkpointing import (
  config_serialization,
  run_directory,
  saved_run,
)
from xlflax.training.devices import partitioning
from xlflax.training.distributed import distributed_job
from xlflax.utils import (
  class_registry,
  environment_variables,
  errors,
  logs,
  progress_reporting,
  signals,
  validation,
)

_LOG = logging.getLogger(__name__)

# The location of the gin binding is added to this name.
_TASKS_LOCATION = 'evaluate.tasks'


@class_registry.register('report')
@dataclasses.dataclass(frozen=True)
class Report:
  """Results and failures returned by `evaluate`.

  Attributes:
    tasks: Tasks that were evaluated.
    results: Evaluation results by task name and step, computed by this call or
      read from the store. The step of the randomly initialized model is
      'untrained'.
    failures: Checkpoints, tasks, languages and splits that could not be
      evaluated, with the error of each.
    computed: Number of results that this call computed.
    folders: Mapping from task names to the folders with the tasks' results.
  """

  tasks: tuple[eval_task.EvalTask, ...]
  results: dict[str, dict[result_store.Step, eval_task.EvalResult]]
  failures: tuple[eval_task.Failure, ...]
  computed: validation.NonNegativeInt
  folders: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)


class CheckpointResults(NamedTuple):
  """Results of all evaluation tasks at one checkpoint.

  Attributes:
    results: Results by task name.
    failures: Errors that occurred in this call. Their locations include the
      step of the checkpoint.
    num_computed: Number of results that this call computed.
  """

  results: dict[str, eval_task.EvalResult]
  failures: tuple[eval_task.Failure, ...] = ()
  num_computed: int = 0


@validation.validate_call
def evaluate(
  *,
  model_dir: validation.FilePath,
  tasks: Sequence[eval_task.EvalTask],
  output: validation.FilePath | None = None,
  steps: str | Sequence[validation.NonNegativeInt] = 'last',
  metric_for_best_model: str | None = None,
  untrained: bool = False,
  watch: bool = False,
  poll_seconds: validation.NonNegativeFloat = 20.0,
  timeout_seconds: validation.NonNegativeFloat | None = None,
  seed: validation.Seed = 0,
  batch_size: validation.PositiveInt = 64,
  partitioner: partitioning.Partitioner | None = None,
  command: Sequence[str] = (),
) -> Report:
  """Evaluates a run's checkpoints on evaluation tasks.

  Each result is stored in
  `MODEL_DIR/eval/<task>/<split>-<settings>/<step>.json` as soon as it is
  computed. The result is reused as long as the task, its text, the vocabulary,
  the seed and the checkpoint do not change. A call that was interrupted can
  therefore be repeated to resume it. `MODEL_DIR/eval/summary.csv`, plots and
  the page `report.html` show all stored results. If a task fails, the failure
  is recorded and the remaining tasks are evaluated.

  Args:
    model_dir: Run directory.
    tasks: Evaluation tasks, which must have different names.
    output: Directory in which `eval/` is created. It must not be used for other
      runs. If None, the run's directory is used, which must be writable.
    steps: Checkpoints to evaluate: 'last', 'all', 'best', 'none' or a list of
      training steps.
    metric_for_best_model: Metric that selects the checkpoint for 'best'. It
      must be an evaluation metric that was recorded during training, such as
      'retrieval/accuracy/mean'.
    untrained: Whether to also evaluate a randomly initialized model. Its
      step is called 'untrained'.
    watch: Whether to evaluate new checkpoints as well, until training has
      finished or no checkpoint was written for `timeout_seconds`.
    poll_seconds: Seconds between checks for new checkpoints.
    timeout_seconds: Maximum number of seconds without a new checkpoint; see
      `watch`. If None, there is no timeout.
    seed: Random seed for the tasks' random choices and for the randomly
      initialized model.
    batch_size: Number of sentences per batch. It does not affect the results.
    partitioner: Partitioner for parameters and batches. If None, batches are
      split over all devices.
    command: Words of the command line, which are displayed on the results page.

  Returns:
    All results and failures.

  Raises:
    XlflaxError: If the arguments are invalid, the directory does not contain a
      run, or results cannot be written.
  """
  environment_variables.check_variables(os.environ)
  check_tasks(tasks)
  checkpoint_selection.check_checkpoint_steps(steps)
  result_store.check_writable(model_dir, output)
  if watch:
    run = checkpoint_polling.load_run(
      model_dir, poll_seconds=poll_seconds, timeout_seconds=timeout_seconds
    )
  else:
    run = saved_run.load_run(model_dir)
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  store = result_store.ResultStore(run, seed=seed, output=output)
  if distributed_job.is_lead():
    _warn_of_unseen_languages(run, tasks)
    sources = [getattr(task, 'source', None) for task in tasks]
    identical_files.warn_of_identical_files(sources)
    training_sources = _load_training_sources(run)
    _warn_of_training_files(training_sources, tasks)
    _warn_of_other_inputs(training_sources, tasks)
    task_sources.warn_of_split_problems(sources)
    unknown_tokens.warn_of_unknown_tokens(tasks, run.vocabulary)

  def checkpoints() -> Iterator[Sequence[result_store.Step]]:
    """Yields the selected steps and, if `watch` is set, steps saved later."""
    existing_steps = run.steps
    selected_steps: list[result_store.Step] = (
      [result_store.UNTRAINED] if untrained else []
    )
    selected_steps += checkpoint_selection.select_checkpoints(
      run,
      steps,
      metric_for_best_model=metric_for_best_model,
      may_be_none=watch or untrained,
    )
    yield selected_steps
    if watch:
      yield from checkpoint_polling.new_checkpoints(
        run,
        {*existing_steps, *selected_steps},
        poll_seconds=poll_seconds,
        timeout_seconds=timeout_seconds,
      )

  evaluated: dict[result_store.Step, CheckpointResults] = {}
  logged_notes: set[str] = set()
  for new_steps in checkpoints():
    for step in new_steps:
      evaluated[step] = evaluate_checkpoint(
        run, step, tasks, store, batch_size=batch_size, partitioner=partitioner
      )
      if distributed_job.is_lead():
        _log_important_notes(evaluated[step].results, logged_notes)
    report = _make_report(tasks, evaluated, store)
    if distributed_job.is_lead():
      evaluation_report.write_report(
        store, tasks, failures=report.failures, command_line=command
      )
  return report


def evaluate_checkpoint(
  run: saved_run.SavedRun,
  step: result_store.Step,
  tasks: Sequence[eval_task.EvalTask],
  store: result_store.ResultStore,
  *,
  batch_size: int,
  partitioner: partitioning.Partitioner | None,
) -> CheckpointResults:
  """Evaluates a checkpoint on the tasks whose results are not stored yet.

  Args:
    run: Run whose checkpoint is evaluated.
    step: Step of the checkpoint, or 'untrained'.
    tasks: Evaluation tasks.
    store: Store from which results are read and to which they are written.
    batch_size: Number of sentences per batch.
    partitioner: Partitioner for parameters and batches. If None, one device is
      used.

  Returns:
    The results of all tasks, and the failures.
  """
  name = _checkpoint_name(run, step)
  task_results: dict[str, eval_task.EvalResult] = {}
  for task in tasks:
    if (stored := store.read(task, step)) is not None:
      task_results[task.name] = stored
      eval_task.warn_of_unexpected_metrics(task, stored.metrics)
      _LOG.info(
        '%s | %s (stored)', name, result_tables.summary_line(task, stored)
      )
  missing = [task for task in tasks if task.name not in task_results]
  if not missing:
    return CheckpointResults(task_results)
  signals.check_stop_request()
  failures = eval_task.Failures('checkpoint')
  with (
    failures.guard(),
    progress_reporting.progress_name(f'reading checkpoint {step}'),
  ):
    model = _restore_model(run, step, store.seed, batch_size, partitioner)
  if failures.collected():
    if step != result_store.UNTRAINED and step not in run.steps:
      _LOG.warning(
        '%s | the checkpoint was deleted before it could be evaluated', name
      )
      return CheckpointResults(task_results)
    return CheckpointResults(
      task_results, _at_step(step, name, failures.collected())
    )
  head_notes = _untrained_head_notes(run, step, missing, model)
  task_failures: list[eval_task.Failure] = []
  for task in missing:
    start = time.monotonic()
    result = eval_task.evaluate_task(task, model)
    if task.USES_MLM_HEAD:
      result = dataclasses.replace(result, notes=result.notes + head_notes)
    if distributed_job.is_lead():
      store.write(task, step, result)
    task_results[task.name] = result
    task_failures += _at_step(step, name, result.failures)
    seconds = time.monotonic() - start
    _LOG.info(
      '%s | %s (%.1f s)',
      name,
      result_tables.summary_line(task, result),
      seconds,
    )
  return CheckpointResults(task_results, tuple(task_failures), len(missing))


def _untrained_head_notes(
  run: saved_run.SavedRun,
  step: result_store.Step,
  tasks: Sequence[eval_task.EvalTask],
  model: eval_task.EvalModel,
) -> tuple[str, ...]:
  """Returns a note if tasks use a masked LM head that was not trained."""
  if isinstance(step, str) or not any(task.USES_MLM_HEAD for task in tasks):
    return ()
  if not untrained_head.has_untrained_head(
    run.model,
    param_tree.flatten_params(model.params),
    model_dir=run.directory,
    step=step,
  ):
    return ()
  return (
    f'{untrained_head.describe_untrained_head(run.objectives)}. Do not compare '
    'the scores of this task with those of other runs. To train the head, add '
    'an objective that uses it, such as @masked_lm.MaskedLM()',
  )


def _load_training_sources(
  run: saved_run.SavedRun,
) -> list[example_source.FileDataset]:
  """Returns the labeled files on which a run was fine-tuned."""
  # A damaged record is reported by the commands that require it.
  with contextlib.suppress(errors.XlflaxError, LookupError, TypeError):
    settings = run_directory.read_trainer(run.directory)
    if settings:
      datasets = settings[config_serialization.FIELDS]['datasets']
      return list(_find_labeled_files(datasets))
  return []


def _find_labeled_files(
  description: Any,
) -> Iterator[example_source.FileDataset]:
  """Yields the sources of labeled files in the JSON description of a run."""
  if isinstance(description, list):
    for item in description:
      yield from _find_labeled_files(item)
  elif isinstance(description, dict):
    if description.get(config_serialization.CLASS) == 'file_dataset':
      yield config_serialization.from_json_config(description)
    else:
      fields = description.get(config_serialization.FIELDS, {})
      yield from _find_labeled_files(list(fields.values()))


def _warn_of_training_files(
  training_sources: Sequence[example_source.FileDataset],
  tasks: Sequence[eval_task.EvalTask],
) -> None:
  """Logs a warning if a test file is a training file of a fine-tuned run.

  Files that were moved or copied are compared by their content, if the training
  files still exist at their recorded paths.
  """
  training_paths = dict.fromkeys(
    path
    for source in training_sources
    for names in source.files.values()
    for path in ((names,) if isinstance(names, str) else names)
  )
  for task in tasks:
    if task.split.startswith('train'):
      continue
    source = getattr(task, 'source', None)
    for path, training_path in identical_files.find_copies(
      source, training_paths
    ):
      _LOG.warning(
        '%s: The file %s is a training file of the run%s. Scores on training '
        'examples do not measure generalization.',
        task.name,
        path,
        '' if path == training_path else f' ({training_path})',
        extra=logs.ONCE,
      )


def _warn_of_other_inputs(
  training_sources: Sequence[example_source.FileDataset],
  tasks: Sequence[eval_task.EvalTask],
) -> None:
  """Logs a warning if a head trained on single texts gets pairs, or vice versa.

  Runs that were trained on both are not checked.
  """
  training_columns = _list_columns(training_sources)
  if len({'paired_text' in columns for columns in training_columns}) != 1:
    return
  trained_on_pairs = 'paired_text' in training_columns[0]
  names = 'single texts', 'pairs of texts'
  for task in tasks:
    if not isinstance(task, classification_task.Classification):
      continue
    for columns in _list_columns([task.source]):
      reads_pairs = 'paired_text' in columns
      if reads_pairs != trained_on_pairs:
        _LOG.warning(
          '%s: The test files are read as %s, but the run was fine-tuned on '
          '%s, so the classes are predicted from inputs that differ from '
          'training. Read the same fields as in training, for example with '
          '--gin.OPTIONS="{\'columns\': %s}". %s',
          task.name,
          names[reads_pairs],
          names[trained_on_pairs],
          dict(training_columns[0]),
          file_reading.OPTION_MACROS,
          extra=logs.ONCE,
        )


def _list_columns(sources: Iterable[Any]) -> list[Mapping[str, Any]]:
  """Returns the columns of the texts with classes that sources read."""
  return [
    columns
    for source in sources
    if isinstance(source, example_source.FileDataset)
    for part in source.languages()
    if (columns := source.get_columns(part)) is not None
  ]


def _warn_of_unseen_languages(
  run: saved_run.SavedRun, tasks: Sequence[eval_task.EvalTask]
) -> None:
  """Logs a warning about languages on which the vocabulary was not trained."""
  vocabulary_languages = run.vocabulary.spec.languages
  if not vocabulary_languages:
    return
  evaluated: set[str] = set()
  for task in tasks:
    source = getattr(task, 'source', None)
    with contextlib.suppress(errors.XlflaxError):  # The task reports it.
      if isinstance(source, text_sources.TextSource):
        evaluated.update(source.languages_found())
      elif isinstance(source, text_sources.PairSource):
        evaluated.update(code for pair in source.pairs() for code in pair)
      elif isinstance(source, example_source.ExampleSource):
        evaluated.update(
          code for part in source.languages() for code in part.split('-')
        )
  known_languages = {
    language_codes.parse_language_code(code).language
    for code in vocabulary_languages
  }
  unseen = sorted(
    code
    for code in evaluated
    if not language_codes.match_language(code, vocabulary_languages)
    and language_codes.parse_language_code(code).language not in known_languages
  )
  if unseen:
    _LOG.warning(
      'The vocabulary was not trained on text in %s. Its languages are %s.',
      ', '.join(unseen),
      ', '.join(vocabulary_languages),
      extra=logs.ONCE,
    )


def _log_important_notes(
  results: Mapping[str, eval_task.EvalResult], logged_notes: set[str]
) -> None:
  """Logs the notes on gold labels, unseen labels and untrained heads.

  Args:
    results: Results by task name.
    logged_notes: Notes that were logged for an earlier checkpoint. They are not
      logged again.
  """
  for name, result in results.items():
    for note in result.notes:
      message = f'{name}: {note}.'
      if (
        note.endswith(head_task.UNLABELED)
        or label_checks.UNSEEN in note
        or untrained_head.UNTRAINED in note
      ) and message not in logged_notes:
        logged_notes.add(message)
        _LOG.warning('%s', message, extra=logs.ONCE)


def check_tasks(tasks: Sequence[eval_task.EvalTask]) -> None:
  """Checks that the tasks have unique names and that their text exists.

  Raises:
    ConfigError: If there is no task, or two tasks have the same name.
    CorpusError: If a task requires monolingual or parallel text, and the corpus
      contains none in the split of the task.
  """
  names = [task.name for task in tasks]
  if not names:
    raise errors.ConfigError(
      '`tasks` must contain at least one evaluation task',
      where=_TASKS_LOCATION,
      fix='Select tasks with --tasks or in a gin file.',
    )
  if len(set(names)) < len(names):
    raise errors.ConfigError(
      'The evaluation tasks must have different names',
      got=', '.join(names),
      where=_TASKS_LOCATION,
      fix='Set a different `name` for one of the tasks.',
    )
  unusable_tasks = [task for task in tasks if not _has_text(task)]
  if unusable_tasks:
    [task, *_] = unusable_tasks
    other_names = [task.name for task in tasks if task not in unusable_tasks]
    raise text_sources.missing_text_error(
      task.source,  # type: ignore[attr-defined]
      task.name,
      other_names,
    )


def _has_text(task: eval_task.EvalTask) -> bool:
  """Returns False if a task reads a kind of text that its corpus lacks."""
  source = getattr(task, 'source', None)
  if isinstance(source, text_sources.CorpusText | text_sources.ParallelCorpus):
    with contextlib.suppress(errors.XlflaxError):  # The task reports it.
      return source.has_text()
  return True


def _restore_model(
  run: saved_run.SavedRun,
  step: result_store.Step,
  seed: int,
  batch_size: int,
  partitioner: partitioning.Partitioner | None,
) -> eval_task.EvalModel:
  """Returns the model with the parameters of a checkpoint."""
  if isinstance(step, str):  # `result_store.UNTRAINED`
    params = run.untrained_params(seed=seed, partitioner=partitioner)
  else:
    params = run.restore_params(step, partitioner=partitioner)
  return eval_task.EvalModel(
    model=run.model,
    params=params,
    vocabulary=run.vocabulary,
    partitioner=partitioner,
    seed=seed,
    batch_size=batch_size,
    objectives=run.objectives,
    inputs=run.inputs,
    sentence=sentence_embedding.of_run(run.directory, params),
  )


def _checkpoint_name(run: saved_run.SavedRun, step: result_store.Step) -> str:
  """Returns the name of a checkpoint in logs, such as 'base, step 100'."""
  return f'{run.directory.name}, ' + (
    step if isinstance(step, str) else f'step {step}'
  )


def _at_step(
  step: result_store.Step, name: str, failures: Sequence[eval_task.Failure]
) -> tuple[eval_task.Failure, ...]:
  """Logs failures and returns them with the step as part of the location."""
  located = []
  for failure in failures:
    _LOG.error('%s | %s', name, failure)
    part = ' '.join(filter(None, (failure.part, f'at step {step}')))
    located.append(dataclasses.replace(failure, part=part))
  return tuple(located)


def _make_report(
  tasks: Sequence[eval_task.EvalTask],
  evaluated: dict[result_store.Step, CheckpointResults],
  store: result_store.ResultStore,
) -> Report:
  """Returns the report of all evaluated checkpoints."""
  steps = sorted(evaluated, key=result_store.step_sort_key)
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
