"""Storage of suite results, which are merged with results of later calls."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from xlflax.evaluation import eval_task
from xlflax.evaluation.reports import score_table
from xlflax.storage import checksums, manifests, paths
from xlflax.suites import suite_config, suite_report
from xlflax.utils import errors

FOLDER = 'results'
# Maps a suite's task, and label and step of a checkpoint, to evaluation tasks.
LoadTests = Callable[
  [suite_config.SuiteTask, str, int], Sequence[eval_task.EvalTask]
]


def write(
  result: suite_report.TaskResult,
  output: pathlib.Path,
  *,
  is_shared: bool = False,
) -> None:
  """Writes `OUTPUT/results/<label>@<step>/<task>.json`.

  Args:
    result: Result of a suite task.
    output: Output directory of the suite.
    is_shared: Whether other machines also write to the directory. If True, the
      result is not added to the manifest until the final report is written.
  """
  record = {
    'task': result.task,
    'family': result.family,
    'label': result.label,
    'step': result.step,
    'run': result.run,
    'recipe': result.recipe,
    'setting': result.setting,
    'main': result.metrics,
    'values': result.values,
    'evaluated': [
      {'folder': str(evaluated.folder), 'seed': evaluated.seed}
      for evaluated in result.evaluated
    ],
    'languages': result.languages,
    'notes': result.notes,
    'cost': None if result.cost is None else dataclasses.asdict(result.cost),
    'failures': [dataclasses.asdict(failure) for failure in result.failures],
  }
  text = json.dumps(checksums.add_digest(record), indent=2, ensure_ascii=False)
  name = _file_name(result)
  if is_shared:
    paths.write_atomically(output / name, text + '\n')
  else:
    manifests.write_files(output, manifests.Kind.SUITE, {name: text + '\n'})


def _file_name(result: suite_report.TaskResult) -> str:
  return f'{FOLDER}/{result.model}/{result.task}.json'


def record_results(
  report: suite_report.SuiteReport, output: pathlib.Path
) -> None:
  """Adds the result files from all machines to the suite's manifest."""
  names = [_file_name(result) for result in report.results]
  manifests.record_files(output, manifests.Kind.SUITE, names)


def check_run(model: str, run: str, recipe: str, output: pathlib.Path) -> None:
  """Checks that stored results come from the given run and recipe.

  Args:
    model: Name of the checkpoint, such as 'mlm@1000'.
    run: Identifier of the pretrained run.
    recipe: Name of the suite's recipe.
    output: Output directory of the suite.

  Raises:
    RunDirectoryError: If the results belong to a different run or recipe.
  """
  for path in sorted((output / FOLDER / model).glob('*.json')):
    stored_run, stored_recipe = _read_record(
      path, lambda record: (record['run'], record['recipe'])
    )
    if stored_recipe != recipe:
      raise errors.RunDirectoryError(
        f'The suite uses the recipe {recipe!r}, but the output directory '
        f'contains results of the recipe {stored_recipe!r}',
        where=str(path),
        fix='Pass a separate --output for each recipe.',
      )
    if stored_run != run:
      raise errors.RunDirectoryError(
        f'The runs {stored_run} and {run} have the same name {model!r}, and '
        'the output directory already contains results of the first run',
        where=str(path),
        fix='Pass a different --output, or rename one of the two model '
        'directories.',
      )


def earlier_cost(
  task: str, model: str, output: pathlib.Path
) -> score_table.Cost | None:
  """Returns the task cost that an earlier evaluation recorded, or None."""
  path = output / FOLDER / model / f'{task}.json'
  if not path.exists():
    return None
  return _read_record(
    path,
    lambda record: (
      None if record['cost'] is None else score_table.Cost(**record['cost'])
    ),
  )


def has_result(task: str, model: str, output: pathlib.Path) -> bool:
  """Returns whether the result of a task and checkpoint is stored.

  A result in which a part of the task failed does not count, because the next
  call of the suite computes the missing scores.
  """
  path = output / FOLDER / model / f'{task}.json'
  if not path.exists():
    return False
  return _read_record(path, lambda record: not record['failures'])


def _read_record(path: pathlib.Path, into: Callable[[Any], Any]) -> Any:
  return checksums.read_json(
    path,
    error=errors.RunDirectoryError,
    message='The file with a result of the suite is damaged',
    has_digest=True,
    fix='Delete the file and run the suite again.',
    convert=into,
  )


def merge_results(
  results: Sequence[suite_report.TaskResult],
  *,
  suite: suite_config.Suite,
  output: pathlib.Path,
  load_tests: LoadTests,
) -> tuple[suite_report.TaskResult, ...]:
  """Combines new results of a suite with the results of earlier calls.

  Args:
    results: Results of this call. They replace earlier results for the same
      task and checkpoint.
    suite: Suite whose task results are read. The results are in the order of
      its tasks.
    output: Output directory of the suite.
    load_tests: Function that takes a suite task, a model's label and a step,
      and creates the evaluation tasks with which an earlier result was
      computed.

  Returns:
    The results of models in this call, followed by the results of models in
    earlier calls. A model's results are in the order of the suite's tasks.
  """
  results_by_key = {(result.model, result.task): result for result in results}
  for folder in sorted(paths.list_directory(output / FOLDER)):
    for task in suite.tasks:
      path = folder / f'{task.name}.json'
      if (folder.name, task.name) not in results_by_key and path.exists():
        results_by_key[folder.name, task.name] = _read_record(
          path,
          functools.partial(_parse_result, task=task, load_tests=load_tests),
        )
  models = dict.fromkeys(model for model, _ in results_by_key)
  return tuple(
    results_by_key[model, task.name]
    for model in models
    for task in suite.tasks
    if (model, task.name) in results_by_key
  )


def _parse_result(
  record: dict[str, Any], task: suite_config.SuiteTask, load_tests: LoadTests
) -> suite_report.TaskResult:
  """Reads a stored result of a suite task.

  The result does not have evaluation tasks if they cannot be created.
  """
  try:
    tests = load_tests(task, record['label'], record['step'])
  except errors.XlflaxError:
    tests = ()  # Single examples are then not compared.
  cost = record['cost']
  return suite_report.TaskResult(
    **record
    | {
      'main': tuple(record['main']),
      'values': {k: tuple(v) for k, v in record['values'].items()},
      'languages': {k: tuple(v) for k, v in record['languages'].items()},
      'notes': tuple(record['notes']),
      'failures': tuple(
        eval_task.Failure(**failure) for failure in record['failures']
      ),
      # Each seed has one folder per test task.
      'evaluated': tuple(
        suite_report.Evaluated(
          paths.to_path(evaluated['folder']),
          tests[index % len(tests)] if tests else None,
          evaluated['seed'],
        )
        for index, evaluated in enumerate(record['evaluated'])
      ),
      'is_earlier': True,
      'cost': None if cost is None else score_table.Cost(**cost),
    }
  )
