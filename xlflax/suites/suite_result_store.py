"""Results of a suite's tasks on disk: later calls put them beside their own."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from xlflax.evaluation import eval_task
from xlflax.evaluation.reports import score_table
from xlflax.storage import checksums, manifests, paths
from xlflax.suites import suite_config
from xlflax.suites import suite_report as suite_results
from xlflax.utils import errors

FOLDER = 'results'
# A suite's task and the checkpoint's label and step -> its evaluation tasks.
Tests = Callable[
  [suite_config.SuiteTask, str, int], Sequence[eval_task.EvalTask]
]


def write(
  result: suite_results.TaskResult,
  output: pathlib.Path,
  *,
  is_shared: bool = False,
) -> None:
  """Writes `OUTPUT/results/<label>@<step>/<task>.json`.

  Args:
    result: of the task.
    output: of the suite.
    is_shared: whether other machines write to the folder as well, so that the
      manifest must wait for the last one's report.
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
    'folders': [str(one.folder) for one in result.evaluated],
    'notes': result.notes,
    'cost': None if result.cost is None else dataclasses.asdict(result.cost),
    'failures': [dataclasses.asdict(one) for one in result.failures],
  }
  text = json.dumps(checksums.add_digest(record), indent=2, ensure_ascii=False)
  name = _name(result)
  if is_shared:
    paths.write_atomically(output / name, text + '\n')
  else:
    manifests.write_files(output, manifests.Kind.SUITE, {name: text + '\n'})


def _name(result: suite_results.TaskResult) -> str:
  return f'{FOLDER}/{result.model}/{result.task}.json'


def note(report: suite_results.SuiteReport, output: pathlib.Path) -> None:
  """Puts the records of all machines into the manifest of their folder."""
  names = [_name(one) for one in report.results]
  manifests.record_files(output, manifests.Kind.SUITE, names)


def check_run(model: str, run: str, recipe: str, output: pathlib.Path) -> None:
  """Refuses a folder whose results of this name are another run's.

  Args:
    model: the checkpoint's name, 'mlm@1000'.
    run: what tells its run from others.
    recipe: of the suite.
    output: of the suite.

  Raises:
    RunDirectoryError: they are, or of another recipe.
  """
  for path in sorted((output / FOLDER / model).glob('*.json')):
    theirs, other = _record(path, lambda found: (found['run'], found['recipe']))
    if other != recipe:
      raise errors.RunDirectoryError(
        'The folder has results of another recipe',
        got=f'recipe {recipe}',
        expected=f'recipe {other}',
        where=str(path),
        fix='give each recipe an --output of its own',
      )
    if theirs != run:
      raise errors.RunDirectoryError(
        f'The folder has results of another run that is called {model}, too',
        got=f'run {run}',
        expected=f'run {theirs}',
        where=str(path),
        fix='give another --output, or another name to one of the two model '
        'directories',
      )


def earlier_cost(
  task: str, model: str, output: pathlib.Path
) -> score_table.Cost | None:
  """What earlier calls have spent on a task of a checkpoint, if any."""
  path = output / FOLDER / model / f'{task}.json'
  if not path.exists():
    return None
  return _record(
    path,
    lambda record: (
      None if record['cost'] is None else score_table.Cost(**record['cost'])
    ),
  )


def _record(path: pathlib.Path, into: Callable[[Any], Any]) -> Any:
  return checksums.read_json(
    path,
    error=errors.RunDirectoryError,
    what="A suite's record is damaged",
    own=True,
    fix='delete it, and run the suite again',
    into=into,
  )


def merged(
  found: Sequence[suite_results.TaskResult],
  *,
  suite: suite_config.Suite,
  output: pathlib.Path,
  tests: Tests,
) -> tuple[suite_results.TaskResult, ...]:
  """This call's results and those that earlier calls have written.

  Args:
    found: this call's; they replace those of earlier calls.
    suite: its tasks are looked for, and give the order.
    output: of the suite.
    tests: makes the evaluation tasks of an earlier result.

  Returns:
    Models of this call first; of each the tasks in the suite's order.
  """
  known = {(one.model, one.task): one for one in found}
  for folder in sorted(paths.list_directory(output / FOLDER)):
    for task in suite.tasks:
      path = folder / f'{task.name}.json'
      if (folder.name, task.name) not in known and path.exists():
        known[folder.name, task.name] = _record(
          path, functools.partial(_read, task=task, tests=tests)
        )
  models = dict.fromkeys(model for model, _ in known)
  return tuple(
    known[model, task.name]
    for model in models
    for task in suite.tasks
    if (model, task.name) in known
  )


def _read(
  record: dict[str, Any], task: suite_config.SuiteTask, tests: Tests
) -> suite_results.TaskResult:
  """A written result; without evaluation tasks where they cannot be made."""
  try:
    made = tests(task, record['label'], record['step'])
  except errors.XlflaxError:
    made = ()  # Single examples are then not compared.
  folders = [paths.to_path(folder) for folder in record.pop('folders')]
  cost = record['cost']
  return suite_results.TaskResult(
    **record
    | {
      'main': tuple(record['main']),
      'values': {k: tuple(v) for k, v in record['values'].items()},
      'notes': tuple(record['notes']),
      'failures': tuple(eval_task.Failure(**one) for one in record['failures']),
      'evaluated': tuple(
        suite_results.Evaluated(
          folder, made[number % len(made)] if made else None
        )
        for number, folder in enumerate(folders)
      ),
      'is_earlier': True,
      'cost': None if cost is None else score_table.Cost(**cost),
    }
  )
