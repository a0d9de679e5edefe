"""Tables that compare scores of runs, with counts and confidence intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlflax.evaluation import (
  eval_task,
  result_store,
  result_tables,
  score_format,
  task_families,
  unknown_tokens,
)
from xlflax.evaluation.metrics import bootstrap
from xlflax.evaluation.metrics.metric import Better
from xlflax.evaluation.reports import score_table, text
from xlflax.training.checkpointing import run_directory

_MAX_CHECKPOINTS = 6  # of a single run
# Metric that depends on the tokens into which a vocabulary splits text.
_TOKEN_METRIC = 'perplexity'
# Metrics of the same tasks that do not depend on the tokens.
_TEXT_METRICS = ('bits_per_byte', 'word_perplexity')
_UNKNOWN_MARK = ' (not in the vocabulary)'
# Key of the mean over the languages in the vocabularies of all runs.
_KNOWN_MEAN = 'mean over known languages'


# Difference of two runs by language, language pair or file.
Differences = Mapping[str, bootstrap.Significance]


def compared_metrics(
  group: result_store.Group, runs: Sequence[Any]
) -> list[str]:
  """Returns the metrics by which a report compares runs on an evaluation task.

  The first is the primary metric. If it is a perplexity of tokens that cannot
  be compared between the runs, the metrics of the results that do not depend on
  the vocabulary follow. The metric by which a run was selected on a development
  set of the task is also included.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
  """
  shown_runs = [run for run in runs if run.results.get(group)]
  results = _last_results(group, shown_runs)
  metric = find_primary_metric(
    [result for run in shown_runs for result in run.results[group].values()]
  )
  metrics = [metric]
  if len(shown_runs) > 1 and _find_vocabulary_problem(metric, shown_runs):
    metrics += [
      text_metric
      for text_metric in _TEXT_METRICS
      if any(
        result_tables.parts_of(text_metric, {0: result}) for result in results
      )
    ]
  metrics += [
    selection_metric
    for selection_metric in _selection_metrics(group, shown_runs)
    if any(
      result_tables.parts_of(selection_metric, {0: result})
      for result in results
    )
  ]
  return list(dict.fromkeys(metrics))


def _selection_metrics(
  group: result_store.Group, runs: Sequence[Any]
) -> list[str]:
  """Returns the metrics by which runs were selected on a task.

  `xlflax finetune` evaluates a test set as the task '<name>_test' if the task
  of the development set has the same name.
  """
  metrics = []
  for run in runs:
    task, _, metric = (run.selection_metric or '').partition('/')
    if metric and group.task in (task, f'{task}_test'):
      metrics.append(metric.partition('/')[0])
  return metrics


def build_table(
  group: result_store.Group,
  runs: Sequence[Any],
  differences: Differences,
  *,
  display_name: str | None = None,
  metric: str | None = None,
) -> text.Table:
  """Returns a table of a metric's scores by language (or file) and run.

  The table contains the untrained model and, for a single run, its last
  checkpoints, or, for several runs, the last checkpoint of each run. For two
  runs, the table also contains the difference between their last checkpoints,
  with the interval of the paired bootstrap. Scores have 95 % confidence
  intervals if per-example scores are stored. Scores of baselines are shown if
  they are stored. The title lists the languages of the runs without a score.
  Languages outside of the vocabulary of a run are marked, and the last row is a
  second mean that excludes them. Runs without results in the group are not
  shown.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
    differences: Differences between two runs, as returned by `compare_runs`.
    display_name: Name of the group in the title. If None, the name of the task
      is used.
    metric: Metric to show. If None, the primary metric is shown.
  """
  max_checkpoints = 1 if len(runs) > 1 else _MAX_CHECKPOINTS
  shown_runs = [run for run in runs if run.results.get(group)]
  columns = {}
  results_by_run: dict[str, list[eval_task.EvalResult]] = {}
  for run in shown_runs:
    for name, step, result in _select_results(
      run.results[group], max_checkpoints
    ):
      intervals = result_intervals(run, group, step)
      columns[f'{run.name}, {name}'] = (result, intervals)
      results_by_run.setdefault(run.name, []).append(result)
  results = [result for result, _ in columns.values()]
  metric = metric or find_primary_metric(results)
  parts = result_tables.parts_of(metric, dict(enumerate(results)))
  languages_by_run = {run.name: run.languages for run in shown_runs}
  marks = _mark_unknown_parts(parts, languages_by_run)
  known_parts = [part for part in parts if part not in (*marks, 'mean')]

  notes = _collect_notes(metric, results_by_run, known_parts)
  has_baseline = any(
    result_tables.baseline_scores(metric, result) for result in results
  )

  explanation = task_families.find_metric(metric).explained
  title = [
    f'{display_name or group.task}: {explanation}'
    f'{result_tables.label_split(group.split)}'
    f'{result_tables.label_development(results, group.split)}'
  ]
  if not has_baseline and score_table.is_bounded(metric):
    title.append('chance level unknown')
  if len(shown_runs) > 1 and (
    problem := _find_vocabulary_problem(metric, shown_runs)
  ):
    title.append(
      f'the perplexities of the runs cannot be compared, because {problem}'
    )
  layers = [result_tables.describe_layers(result) for result in results]
  headers = list(columns)
  if len(set(layers)) == 1:
    title.append(layers[0])
  else:
    headers = [
      ', '.join(filter(None, pair))
      for pair in zip(headers, layers, strict=True)
    ]
  if differences:
    headers.append(f'{label_difference(runs)} [95 % interval]')
  title.append(_describe_coverage(metric, results_by_run, languages_by_run))
  names = [name for _, intervals in columns.values() for name in intervals]
  title.append(result_tables.label_intervals(metric, names))
  rows = [
    [
      part + marks.get(part, ''),
      *(texts.get(part, '') for texts in notes.values()),
      *(
        score_format.format_score(result.metrics.get(f'{metric}/{part}'))
        + result_tables.format_interval(
          metric, intervals.get(f'{metric}/{part}')
        )
        for result, intervals in columns.values()
      ),
      *([_format_difference(differences.get(part))] if differences else []),
    ]
    for part in parts
  ]
  if marks and known_parts and 'mean' in parts:
    is_in_none = {*marks.values()} == {_UNKNOWN_MARK}
    vocabularies = 'the vocabulary' if is_in_none else 'all vocabularies'
    rows.append(
      [
        f'mean over {len(known_parts)} in {vocabularies}',
        *(texts.get(_KNOWN_MEAN, '') for texts in notes.values()),
        *(
          score_format.format_score(_mean_of_parts(metric, result, known_parts))
          for result, _ in columns.values()
        ),
        *(['-'] if differences else []),
      ]
    )
  return text.Table(
    ', '.join(filter(None, title)), ['', *notes, *headers], rows
  )


def _mark_unknown_parts(
  parts: Sequence[str], languages_by_run: Mapping[str, Sequence[str]]
) -> dict[str, str]:
  """Returns the marks of languages outside of the vocabulary of a run.

  Args:
    parts: Languages, language pairs or files in the table.
    languages_by_run: Languages of the vocabulary by name of the run.
  """
  runs_by_part: dict[str, list[str]] = {}
  for run, languages in languages_by_run.items():
    for part in result_tables.find_unknown_parts(parts, languages):
      runs_by_part.setdefault(part, []).append(run)
  return {
    part: _UNKNOWN_MARK
    if len(runs) == len(languages_by_run)
    else f' (not in the vocabulary of {", ".join(runs)})'
    for part, runs in runs_by_part.items()
  }


def _mean_of_parts(
  metric: str, result: eval_task.EvalResult, parts: Sequence[str]
) -> float | None:
  """Returns the mean score over languages, or None if a score is missing."""
  return result_tables.mean_of_parts(
    [result.metrics.get(f'{metric}/{part}') for part in parts],
    geometric=metric.endswith('perplexity'),
  )


def _collect_notes(
  metric: str,
  results_by_run: Mapping[str, Sequence[eval_task.EvalResult]],
  known_parts: Sequence[str],
) -> dict[str, dict[str, str]]:
  """Returns counts and scores of baselines by column name and language.

  A column, such as 'tokens', contains the values of all runs. If the values of
  the runs differ, each run has a column, such as 'mlm, tokens'.

  Args:
    metric: Primary metric of the table.
    results_by_run: Results in the table by name of the run.
    known_parts: Languages over which baseline scores are averaged. The mean is
      returned under the key `_KNOWN_MEAN`.
  """
  notes_by_run: dict[str, dict[str, dict[str, str]]] = {}
  for run, results in results_by_run.items():
    for result in results:
      unit, counts = result_tables.count_items(result)
      baselines = result_tables.baseline_scores(metric, result)
      for scores in baselines.values():
        mean = (
          result_tables.mean_of_parts(
            [scores.get(part) for part in known_parts]
          )
          if known_parts
          else None
        )
        if mean is not None:
          scores[_KNOWN_MEAN] = mean
      notes = {unit: counts} | baselines
      for name, values in notes.items():
        texts = notes_by_run.setdefault(name, {}).setdefault(run, {})
        for part, value in values.items():
          texts[part] = result_tables.score_note(name, value)
  columns: dict[str, dict[str, str]] = {}
  for name, texts_by_run in notes_by_run.items():
    joined: dict[str, str] = {}
    for texts in texts_by_run.values():
      joined.update(texts)
    if all(
      joined[part] == text
      for texts in texts_by_run.values()
      for part, text in texts.items()
    ):
      columns[name] = joined
    else:
      columns |= {
        f'{run}, {name}': texts for run, texts in texts_by_run.items()
      }
  return {name: texts for name, texts in columns.items() if texts}


def _describe_coverage(
  metric: str,
  results_by_run: Mapping[str, Sequence[eval_task.EvalResult]],
  languages_by_run: Mapping[str, Sequence[str]],
) -> str:
  """Describes which of its languages each run has a score for.

  Args:
    metric: Primary metric of the table.
    results_by_run: Results in the table by name of the run.
    languages_by_run: Languages of the vocabulary by name of the run.
  """
  coverages = {}
  for run, results in results_by_run.items():
    parts = result_tables.parts_of(metric, dict(enumerate(results)))
    coverages[run] = result_tables.describe_coverage(
      parts, languages_by_run[run], results[-1]
    )
  if len(set(coverages.values())) == 1:
    return next(iter(coverages.values()))
  return ', '.join(
    f'{name}: {coverage}' for name, coverage in coverages.items() if coverage
  )


def shown_metrics(group: result_store.Group, runs: Sequence[Any]) -> list[str]:
  """Returns the metrics, baselines and counts that the page shows.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
  """
  names: list[str] = []
  for run in runs:
    by_step = run.results.get(group, {})
    task = result_tables.summarize_group(group, by_step, is_one_of_many=False)
    if task is not None:
      names += result_tables.shown_metrics(task, by_step)
  names += compared_metrics(group, runs)
  for result in _last_results(
    group, [run for run in runs if run.results.get(group)]
  ):
    names += result_tables.compared_metrics_and_baselines(result)
  return list(dict.fromkeys(filter(None, names)))


def _find_vocabulary_problem(metric: str, runs: Sequence[Any]) -> str:
  """Returns the reason perplexities are not comparable, or '' if they are."""
  if metric != _TOKEN_METRIC:
    return ''
  vocabularies = {run.settings.get('vocabulary') for run in runs}
  if None in vocabularies:
    return 'the vocabulary of a run is not recorded'
  if len(set(map(str, vocabularies))) > 1:
    return 'their vocabularies differ'
  return ''


def summarize(
  group: result_store.Group,
  runs: Sequence[Any],
  differences: Differences,
  *,
  display_name: str | None = None,
  metric: str | None = None,
) -> list[str]:
  """Returns sentences that compare the last checkpoints of two runs.

  The list is empty for other numbers of runs, and if the scores of the runs
  cannot be compared.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
    differences: Differences between two runs, as returned by `compare_runs`.
    display_name: Name of the group. If None, the name of the task is used.
    metric: Metric to compare. If None, the primary metric is compared.
  """
  metric = metric or find_primary_metric(_last_results(group, runs))
  better = task_families.find_metric(metric).better
  if not differences or better is Better.NEITHER:
    return []
  first, second = (run.name for run in runs)
  better_parts: list[str] = []
  worse_parts: list[str] = []
  similar_parts: list[str] = []
  for part, comparison in differences.items():
    if comparison.low <= 0 <= comparison.high:
      similar_parts.append(part)
    elif (comparison.difference > 0) == (better is Better.HIGHER):
      better_parts.append(part)
    else:
      worse_parts.append(part)
  sentences = [
    f'{sentence} for {result_tables.join_parts(parts)}.'
    for sentence, parts in (
      (f'{second} is significantly better than {first}', better_parts),
      (f'{second} is significantly worse than {first}', worse_parts),
      (f'{first} and {second} do not differ significantly', similar_parts),
    )
    if parts
  ]
  return [f'{display_name or group.task}, {metric}: {" ".join(sentences)}']


def _format_difference(comparison: bootstrap.Significance | None) -> str:
  """Formats a difference of scores and its interval, with signs."""
  if comparison is None:
    return '-'
  difference, low, high = (
    score_format.format_score(value, signed=True)
    for value in (comparison.difference, comparison.low, comparison.high)
  )
  return f'{difference} [{low} … {high}]'


def label_difference(runs: Sequence[Any]) -> str:
  """Returns the label of the scores of the second run minus the first.

  Args:
    runs: `RunRecord` of each of the two runs.
  """
  return f'{runs[1].name} - {runs[0].name}'


def compare_runs(
  group: result_store.Group, runs: Sequence[Any], *, metric: str | None = None
) -> dict[str, bootstrap.Significance]:
  """Compares the scores of two runs' last checkpoints by language or file.

  Both runs are scored on the same resampled test sets. Parts without
  per-example statistics are omitted, and so are likelihoods of text with many
  unknown tokens and means over such text. The result is empty unless there are
  two runs with comparable scores.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
    metric: Metric to compare. If None, the primary metric is compared.
  """
  results = _last_results(group, runs)
  metric = metric or find_primary_metric(results)
  if len(runs) != 2 or _find_vocabulary_problem(metric, runs):
    return {}
  draws = []
  for run in runs:
    by_step = run.results.get(group, {})
    steps = [step for step in by_step if isinstance(step, int)]
    task = result_tables.summarize_group(group, by_step, is_one_of_many=False)
    if task is None or not steps:
      return {}
    folder = run.directory / run_directory.EVALUATION / group.folder
    step = max(steps)
    draws.append(
      result_tables.bootstrap_result(task, by_step[step], folder / str(step))
    )
  incomparable_parts = {*unknown_tokens.find_high_rates(metric, results)}
  if incomparable_parts:
    incomparable_parts.add('mean')
  differences = {}
  for part in result_tables.parts_of(metric, dict(enumerate(results))):
    if part in incomparable_parts:
      continue
    first, second = (draw.get(f'{metric}/{part}') for draw in draws)
    if first is None or second is None or first.size != second.size:
      continue
    differences[part] = bootstrap.score_difference(first, second)
  return differences


def describe_vocabulary_problem(
  group: result_store.Group,
  runs: Sequence[Any],
  *,
  display_name: str | None = None,
) -> list[str]:
  """Explains why the perplexities of the given runs cannot be compared.

  The sentence names a metric that can be compared instead.

  The list is empty if perplexities can be compared, or if the results contain
  metrics that do not depend on the vocabulary.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
    display_name: Name of the group. If None, the name of the task is used.
  """
  shown_runs = [run for run in runs if run.results.get(group)]
  metric, *other_metrics = compared_metrics(group, runs)
  if len(shown_runs) < 2 or not set(_TEXT_METRICS).isdisjoint(other_metrics):
    return []
  problem = _find_vocabulary_problem(metric, shown_runs)
  if not problem:
    return []
  return [
    f'{result_tables.add_split(display_name or group.task, group.split)}: The '
    f'perplexities of the runs cannot be compared, because {problem}. For '
    'masked language models, compare bits_per_byte of the task '
    'pseudo_perplexity, which does not depend on the vocabulary.'
  ]


def describe_unknown_tokens(
  group: result_store.Group,
  runs: Sequence[Any],
  *,
  display_name: str | None = None,
  metric: str | None = None,
) -> list[str]:
  """Explains which scores are not compared because of unknown tokens.

  The scores of a language are not compared if they are likelihoods and if a run
  has many unknown tokens in the text of this language. The result contains one
  sentence for each such language and run. It is empty for a single run.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
    display_name: Name of the group. If None, the name of the task is used.
    metric: Name of the metric to compare. If None, the primary metric is used.
  """
  if len(runs) < 2:
    return []
  metric = metric or find_primary_metric(_last_results(group, runs))
  return [
    f'{result_tables.add_split(display_name or group.task, group.split)}: '
    + unknown_tokens.describe_high_rate(metric, part, run.name, rate)
    for run in runs
    for part, rate in unknown_tokens.find_high_rates(
      metric, _last_results(group, [run])
    ).items()
  ]


def _last_results(
  group: result_store.Group, runs: Sequence[Any]
) -> list[eval_task.EvalResult]:
  """Returns the results of the last checkpoints of the runs that have any."""
  return [
    by_step[max(steps)]
    for by_step in (run.results.get(group, {}) for run in runs)
    if (steps := [step for step in by_step if isinstance(step, int)])
  ]


def result_intervals(
  run, group: result_store.Group, step: result_store.Step
) -> dict[str, result_tables.Interval]:
  """Returns the confidence interval of each metric in a result."""
  task = result_tables.summarize_group(
    group, run.results[group], is_one_of_many=False
  )
  if task is None:
    return {}
  folder = run.directory / run_directory.EVALUATION / group.folder / str(step)
  return result_tables.result_intervals(task, run.results[group][step], folder)


def describe_code_versions(
  group: result_store.Group, runs: Sequence[Any]
) -> str:
  """Describes which results in a table come from different task versions.

  Args:
    group: Group of results with the same task, split and settings.
    runs: `RunRecord` of each run to compare.
  """
  max_checkpoints = 1 if len(runs) > 1 else _MAX_CHECKPOINTS
  return result_store.describe_code_versions(
    {
      f'{run.name}, {name}': run.directory
      / run_directory.EVALUATION
      / group.folder
      / f'{step}.json'
      for run in runs
      if run.results.get(group)
      for name, step, _ in _select_results(run.results[group], max_checkpoints)
    }
  )


def _select_results(
  results: Mapping[result_store.Step, eval_task.EvalResult],
  max_checkpoints: int,
) -> Iterator[tuple[str, result_store.Step, eval_task.EvalResult]]:
  """Yields the results of the untrained model and of the last checkpoints."""
  if result_store.UNTRAINED in results:
    untrained = result_store.UNTRAINED
    yield 'untrained', untrained, results[untrained]
  steps = sorted(step for step in results if isinstance(step, int))
  for step in steps[-max_checkpoints:]:
    yield f'step {step:,}', step, results[step]


def find_primary_metric(results: Sequence[eval_task.EvalResult]) -> str:
  """Returns the name of the primary metric in a task's results.

  It is the first metric that contributes to a score, or else the first metric.
  """
  for result in results:
    if names := (*result.score_metrics, *result.metrics):
      return names[0].partition('/')[0]
  return ''
