"""Files that summarize a run's stored results: CSV, plots and an HTML page."""

import collections
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlflax.evaluation import eval_task, plots, result_store, result_tables
from xlflax.evaluation.reports import run_pages
from xlflax.training.checkpointing import run_directory

_Results = Mapping[
  result_store.Group, Mapping[result_store.Step, eval_task.EvalResult]
]
_Task = eval_task.EvalTask | result_tables.Recorded


def write_report(
  store: result_store.ResultStore,
  tasks: Sequence[eval_task.EvalTask],
  *,
  failures: Sequence[eval_task.Failure] = (),
  command_line: Sequence[str] = (),
) -> None:
  """Writes `eval/summary.csv`, plots and `eval/report.html`.

  The files show all stored results of the run, including those of earlier
  calls.

  Args:
    store: Store that contains the run's results.
    tasks: Tasks that this call evaluated. Their declarations determine how
      their results are displayed. The stored results of other tasks are
      displayed according to the metadata in their files.
    failures: Failures of this evaluation. The HTML page lists them and those
      of earlier calls.
    command_line: Command-line arguments to show on the HTML page.
  """
  stored = store.read_all()
  result_tables.write_csv(store.directory, stored)
  directory = store.directory / run_directory.EVALUATION
  languages = store.run.vocabulary.spec.languages
  tables = []
  comparisons: list[str] = []
  figures: dict[str, pathlib.Path] = {}
  metrics: list[str] = []
  tasks_by_group = _tasks_by_group(store, tasks, stored)
  results_by_group = {
    group: [*stored[group].values()] for group in tasks_by_group
  }
  names = result_store.name_groups(results_by_group)
  names_in_tables = result_store.name_groups(results_by_group, has_split=False)
  for group, task in tasks_by_group.items():
    table = result_tables.result_table(
      task,
      stored[group],
      display_name=names_in_tables[group],
      languages=languages,
      folder=store.folder(group),
    )
    tables.append(run_pages.convert_rich_table(table))
    metrics += result_tables.shown_metrics(task, stored[group])
    folder = store.folder(group)
    best = result_tables.describe_best(task.primary_metric, stored[group])
    if best:
      comparisons.append(f'{names[group]}, {task.primary_metric}: {best}')
    comparisons += [
      f'{names[group]}, {task.primary_metric} at {comparison}'
      for comparison in _compare_with_untrained(task, stored[group], folder)
    ]
    comparisons += [
      f'{names[group]}, {metric} at {comparison}'
      for metric, comparison in _compare_with_baselines(
        task, stored[group], folder
      )
    ]
    metrics += _compared_baselines(stored[group])
    files = plots.write_task_plots(
      directory, task, stored[group], folder=folder
    )
    figures |= {
      names_in_tables[group] + file.stem.removeprefix(task.name): file
      for file in files
    }
  if not tables:
    return
  run_pages.write_page(
    directory,
    f'Evaluation of {store.run.directory.name}',
    'Each table shows the scores of one task by checkpoint and by language or '
    'language pair. "untrained" is a randomly initialized model of the same '
    'architecture. "development set" and "evaluated during training" mark '
    'results of evaluations during training. "layer 8 of 12" names the layer '
    'whose hidden states are scored, where layer 0 is the embedding output. '
    'Scores of tasks that store per-example scores have 95 % confidence '
    'intervals: half of the width after ±, or [lower … upper] for metrics '
    'without a range, such as the perplexity. Vertical lines in figures show '
    'the same intervals. ' + result_tables.EXPLAINED_BASELINES,
    tables,
    figures,
    summary=comparisons,
    metrics=list(dict.fromkeys(metrics)),
    notes=[
      *_describe_code_versions(store, stored, names),
      *_describe_settings(store, stored, names_in_tables),
      *_notes(stored, names),
      *_describe_failures(stored, names, failures),
    ],
    command=command_line,
  )


def _tasks_by_group(
  store: result_store.ResultStore,
  tasks: Sequence[eval_task.EvalTask],
  stored: _Results,
) -> dict[result_store.Group, _Task]:
  """Returns the task for each group of results, this call's groups first."""
  requested = {store.group(task): task for task in tasks}
  tasks_by_group: dict[result_store.Group, _Task] = {
    group: task for group, task in requested.items() if group in stored
  }
  num_settings = collections.Counter(group[:2] for group in stored)
  for group, by_step in stored.items():
    if group not in tasks_by_group:
      task = result_tables.summarize_group(
        group, by_step, is_one_of_many=num_settings[group[:2]] > 1
      )
      if task is not None:
        tasks_by_group[group] = task
  return tasks_by_group


def _compare_with_untrained(
  task: _Task, by_step, folder: pathlib.Path
) -> list[str]:
  """Returns a note if training did not improve the primary metric."""
  steps = [step for step in by_step if isinstance(step, int)]
  if not steps:
    return []
  comparison = result_tables.compare_with_untrained(
    task.primary_metric,
    by_step.get(result_store.UNTRAINED),
    by_step[max(steps)],
    *(
      result_tables.result_intervals(task, by_step[step], folder / str(step))
      for step in (result_store.UNTRAINED, max(steps))
      if result_store.UNTRAINED in by_step
    ),
  )
  if not comparison:
    if not result_tables.is_better_everywhere(
      task.primary_metric,
      by_step.get(result_store.UNTRAINED),
      by_step[max(steps)],
    ):
      return []
    comparison = 'The untrained model is worse in all languages.'
  return [f'step {max(steps):,}: {comparison}']


def _compare_with_baselines(
  task: _Task, by_step, folder: pathlib.Path
) -> list[tuple[str, str]]:
  """Compares the last checkpoint's scores with those of the baselines.

  Returns:
    Name of each metric that has baselines, with a sentence.
  """
  steps = [step for step in by_step if isinstance(step, int)]
  if not steps:
    return []
  step = max(steps)
  intervals = result_tables.result_intervals(
    task, by_step[step], folder / str(step)
  )
  comparisons = {
    metric: result_tables.compare_with_baselines(
      metric, by_step[step], intervals
    )
    for metric in result_tables.metrics_with_baselines(by_step[step])
  }
  return [
    (metric, f'step {step:,}: {comparison}')
    for metric, comparison in comparisons.items()
    if comparison
  ]


def _compared_baselines(by_step) -> list[str]:
  """Returns the metrics of the last checkpoint and their baselines."""
  steps = [step for step in by_step if isinstance(step, int)]
  if not steps:
    return []
  return result_tables.compared_metrics_and_baselines(by_step[max(steps)])


def _notes(
  stored: _Results, names: Mapping[result_store.Group, str]
) -> list[str]:
  """Returns the distinct notes of all results."""
  notes = (
    f'{names.get(group, group.task)}: {note}'
    for group, by_step in stored.items()
    for result in by_step.values()
    for note in result.notes
  )
  return list(dict.fromkeys(notes))


def _describe_failures(
  stored: _Results,
  names: Mapping[result_store.Group, str],
  failures: Sequence[eval_task.Failure],
) -> list[str]:
  """Returns the failures of this call, and those stored by earlier calls.

  Args:
    stored: All stored results of the run.
    names: Displayed name of each group of results.
    failures: Failures of this call. Their locations include the step.
  """
  notes = [f'failed: {failure}' for failure in failures]
  reported = {(failure.task, failure.message) for failure in failures}
  for group, by_step in stored.items():
    for step, result in by_step.items():
      notes += [
        f'failed: {names.get(group, group.task)}: '
        + ' '.join(filter(None, (failure.part, f'at step {step}')))
        + f': {failure.message}'
        for failure in result.failures
        if (failure.task, failure.message) not in reported
      ]
  return list(dict.fromkeys(notes))


def _describe_code_versions(
  store: result_store.ResultStore,
  stored: _Results,
  names: Mapping[result_store.Group, str],
) -> list[str]:
  """Returns notes on tables with results of different versions of a task."""
  notes = []
  for group, name in names.items():
    description = result_store.describe_code_versions(
      {
        f'step {step:,}' if isinstance(step, int) else step: (
          store.folder(group) / f'{step}.json'
        )
        for step in stored[group]
      }
    )
    if description:
      notes.append(f'{name}: {description}')
  return notes


def _describe_settings(
  store: result_store.ResultStore,
  stored: _Results,
  names: Mapping[result_store.Group, str],
) -> list[str]:
  """Returns the settings in which results of the same task differ."""
  notes = []
  first_groups: dict[tuple[str, str], result_store.Group] = {}
  for group in names:
    first = first_groups.setdefault(group[:2], group)
    if first == group:
      continue
    settings, first_settings = (
      dict(
        _read_settings(
          store.folder(other) / f'{next(iter(stored[other]))}.json'
        )
      )
      for other in (group, first)
    )
    differences = [
      'the text' if name.endswith('fingerprint') else name
      for name in settings | first_settings
      if settings.get(name) != first_settings.get(name)
    ]
    if differences:
      notes.append(
        f'{names[group]} and {names[first]} differ in '
        f'{", ".join(dict.fromkeys(differences))}'
      )
  return notes


def _read_settings(file: pathlib.Path) -> Iterator[tuple[str, Any]]:
  """Yields the settings of a stored result, such as ('task.layer', 8)."""
  settings = json.loads(file.read_text('utf-8'))['settings']
  for key in ('task', 'seed', 'parameters', 'sentence'):
    yield from _flatten(key, settings.get(key))


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
  """Yields the leaves of nested JSON objects with their names."""
  if isinstance(value, Mapping):
    for key, item in value.items():
      yield from _flatten(f'{name}.{key}', item)
  else:
    yield name, value
