"""Forgetting reports: scores before and after languages are added to a model.

The scores of the start model are compared with those of one or more models that
were trained further, on the same test sets. Differences have the confidence
intervals and p-values of the paired bootstrap (`metrics.bootstrap`).
"""

import dataclasses
import enum
import json
import math
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlflax.data.corpus import language_codes
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
from xlflax.evaluation.reports import run_pages, text
from xlflax.storage import checksums, paths
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, plurals

JSON = 'forgetting.json'
CSV = 'forgetting.csv'
MARKDOWN = 'forgetting.md'
OLD_MEAN = 'mean of old languages'
_SIGNIFICANT = 0.05
# Metrics of tokens, whose values depend on the vocabulary, and metrics of the
# same tasks that do not.
_TOKEN_METRICS = ('perplexity', 'loss')
_TEXT_METRICS = ('bits_per_byte', 'word_perplexity')


class StoredResult(NamedTuple):
  """Evaluation result of a checkpoint and the folder of its statistics files.

  Attributes:
    result: Evaluation result.
    folder: Folder with the per-example statistics.
  """

  result: eval_task.EvalResult
  folder: pathlib.Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelResults:
  """Evaluation results of a model before or after languages are added to it.

  Attributes:
    name: Display name of the model.
    vocabularies: Vocabularies of the model's runs, each identified by its size
      and hash. None stands for a run without a recorded vocabulary.
    results: Evaluation results by task, split and settings. They belong to the
      last checkpoint, or to the checkpoint that was selected in fine-tuning. A
      group has several results if there are fine-tuning runs with different
      seeds.
    languages: Languages of the vocabulary and the training data of the model's
      first run. Empty if they are unknown.
  """

  name: str
  vocabularies: frozenset[str | None]
  results: Mapping[result_store.Group, tuple[StoredResult, ...]]
  languages: tuple[str, ...] = ()


class LanguageGroup(enum.Enum):
  """Category of a test set's language: new, old or neither.

  Attributes:
    NEW: A new language, or a pair with a new language.
    OLD: A language or language pair of the start model, or a test set that is
      not named after languages. If the languages of the start model are
      unknown, all languages that are not new.
    OTHER: A language that is not new and on which the start model was not
      trained, or a pair with such a language.
  """

  NEW = 'new'
  OLD = 'old'
  OTHER = 'other'


# Resampled scores by group, metric and part. None without statistics.
_Draws = dict[tuple[result_store.Group, str, str], bootstrap.Drawn | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreChange:
  """Change in a test score after the start model is trained further.

  Attributes:
    task: Name of the evaluation task.
    split: Data split of the test set.
    settings: Hash of the task's settings, its text and the random seed.
    metric: Name of the metric.
    language: Language, language pair or file of the score, or `OLD_MEAN` for
      the mean over old languages.
    group: Group of the language: new, old or neither.
    model: Name of the model that was initialized from the start model and
      trained further.
    before: Mean score of the start model over its runs.
    after: Mean score of `model` over its runs.
    better: Whether the change is an improvement. None if the scores are equal
      or not comparable.
    significance: Confidence interval and p-value of the difference. None if
      per-example statistics are not available, or if the scores are not
      comparable.
    adjusted_p: p-value, adjusted by Holm's method for all changes of the
      report.
    is_comparable: Whether the scores can be compared. False for likelihoods of
      text with many unknown tokens, and for means over such text.
    is_development: Whether one of the scores was computed during training, so
      that it is not a test score.
  """

  task: str
  split: str
  settings: str
  metric: str
  language: str
  group: LanguageGroup
  model: str
  before: float
  after: float
  better: bool | None
  significance: bootstrap.Significance | None
  adjusted_p: float | None = None
  is_comparable: bool = True
  is_development: bool = False

  @property
  def difference(self) -> float | None:
    """Change in the score, `after - before`. None if not comparable."""
    return self.after - self.before if self.is_comparable else None


def read_model(name: str, directories: Sequence[pathlib.Path]) -> ModelResults:
  """Reads the evaluation results of a model.

  Args:
    name: Display name of the model.
    directories: Run directories, outputs of `xlflax evaluate --output`, and
      outputs of `xlflax finetune`, all of the same model. An output of
      `xlflax finetune` contributes the selected checkpoints of the trials of
      the selected setting. Other directories contribute the last checkpoint.

  Raises:
    RunDirectoryError: If a directory contains no evaluation results, or if a
      grid has no selected setting.
  """
  results: dict[result_store.Group, list[StoredResult]] = {}
  vocabularies: set[str | None] = set()
  languages: tuple[str, ...] | None = None
  for directory in directories:
    has_results = False
    for run, selected_step in _list_runs(directory):
      for group, by_step in result_store.find_results(run).items():
        step = selected_step
        if step is None:
          steps = [step for step in by_step if isinstance(step, int)]
          step = max(steps, default=None)
        if step is None or step not in by_step:
          continue
        has_results = True
        folder = run / run_directory.EVALUATION / group.folder
        results.setdefault(group, []).append(
          StoredResult(by_step[step], folder / str(step))
        )
      model_dir = result_store.run_of(run)
      if languages is None:
        languages = run_pages.read_languages(model_dir)
      identity = run_directory.read_vocabulary_identity(model_dir)
      vocabularies.add(None if identity is None else str(identity))
    if not has_results:
      raise errors.RunDirectoryError(
        f'The directory of the model {name!r} does not contain evaluation '
        'results of a checkpoint. It must be a run directory with eval/, or an '
        'output directory of `xlflax finetune` with --eval_gin_file',
        got=str(directory),
        fix='Run `xlflax evaluate` with the same tasks and texts for each '
        'model.',
      )
  return ModelResults(
    name=name,
    vocabularies=frozenset(vocabularies),
    results={group: tuple(stored) for group, stored in results.items()},
    languages=languages or (),
  )


def _list_runs(
  directory: pathlib.Path,
) -> list[tuple[pathlib.Path, int | None]]:
  """Returns run directories, and the step that is selected in each of them.

  The runs of an output of `xlflax finetune` are the trials of the setting that
  was selected on the development set. Any other directory is a single run
  without a selected step.

  Raises:
    RunDirectoryError: If the report of a grid is missing or damaged, or if no
      setting is selected.
  """
  trials = directory / run_directory.GRID_TRIALS
  if not trials.is_dir():
    return [(directory, None)]

  def find_selected(grid: dict[str, Any]) -> list[tuple[pathlib.Path, int]]:
    return [
      (trials / trial['directory'], trial['step'])
      for trial in grid['trials']
      if trial['setting'] == grid['selected']
    ]

  selected_runs = checksums.read_json(
    directory / run_directory.GRID_RESULTS,
    error=errors.RunDirectoryError,
    message='The report of a hyperparameter grid cannot be read',
    fix='Run the same `xlflax finetune` command again.',
    convert=find_selected,
  )
  if not selected_runs:
    raise errors.RunDirectoryError(
      'No setting of the hyperparameter grid has been selected, because no '
      'setting has a finished trial for every seed',
      where=str(directory),
      fix='Run the same `xlflax finetune` command again to finish the trials.',
    )
  return selected_runs


def compare_results(
  models: Sequence[ModelResults],
  new_languages: Sequence[str],
  *,
  samples: int = 1000,
  seed: int = 0,
) -> tuple[list[ScoreChange], list[str]]:
  """Compares a start model's scores with those of models initialized from it.

  Args:
    models: Results of the start model, followed by those of the models that
      were trained further.
    new_languages: Codes of the added languages. A pair with one of them is a
      test set of a new language.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.

  Returns:
    The changes of the scores that both models have, and notes on results that
    cannot be compared.

  Raises:
    ConfigError: If there are fewer than two models, if the models have no test
      set in common, or if none of the test sets has text in a new language.
  """
  if len(models) < 2:
    raise errors.ConfigError(
      'The argument DIRECTORIES must list the start model, followed by one or '
      'more models that were initialized from it and trained further',
      got=', '.join(model.name for model in models) or 'no model',
    )
  start, *others = models
  start_draws: _Draws = {}  # Computed once for all compared models.
  changes: list[ScoreChange] = []
  notes: list[str] = []
  names = _name_groups(models)
  for model in others:
    for group, stored in model.results.items():
      name = result_tables.add_split(names[group], group.split)
      if group not in start.results:
        notes.append(
          f'"{model.name}": {name} is not compared, because the model '
          f'"{start.name}" has no result with the same text and settings.'
        )
        continue
      metric = _comparable_metric(
        name, stored, start.vocabularies | model.vocabularies, notes
      )
      if metric:
        incomparable_parts = _find_incomparable_parts(
          group, name, metric, (start, model), notes
        )
        changes += _compare_group(
          group,
          metric,
          (start.results[group], stored),
          model.name,
          (new_languages, start.languages),
          start_draws,
          incomparable_parts,
          samples=samples,
          seed=seed,
        )
  if not any(change.group is LanguageGroup.NEW for change in changes):
    raise errors.ConfigError(
      'The compared results do not include any of the languages given with '
      '--new_languages',
      got=', '.join(new_languages),
      expected='one of '
      + (
        ', '.join(sorted({c.language for c in changes}))
        or 'the languages of all models'
      ),
      fix='Evaluate all models on the same texts, including texts in the new '
      'languages.',
    )
  return _adjust_p_values(changes), list(dict.fromkeys(notes))


def _comparable_metric(
  name: str,
  stored: Sequence[StoredResult],
  vocabularies: frozenset[str | None],
  notes: list[str],
) -> str:
  """Returns the primary metric, or one that is independent of tokenization.

  Perplexities of tokens can only be compared if all runs have the same recorded
  vocabulary. Otherwise, a note is added. If the result has no metric of the
  same text that can be compared, the returned name is ''.
  """
  result = stored[0].result
  names = [
    name.partition('/')[0] for name in (*result.score_metrics, *result.metrics)
  ]
  primary = next(iter(names), '')
  if primary not in _TOKEN_METRICS or (
    len(vocabularies) == 1 and None not in vocabularies
  ):
    return primary
  reason = 'the vocabularies of the models differ'
  if None in vocabularies:
    reason = 'the vocabulary of a model is not recorded in its run directory'
  for metric in _TEXT_METRICS:
    if metric in names:
      notes.append(
        f'{name}: {metric} is compared instead of {primary}, because {reason}.'
      )
      return metric
  notes.append(
    f'{name} is not compared, because {reason}. Use the '
    'task pseudo_perplexity, whose bits per byte do not depend on the '
    'vocabulary.'
  )
  return ''


def _find_incomparable_parts(
  group: result_store.Group,
  name: str,
  metric: str,
  models: Sequence[ModelResults],
  notes: list[str],
) -> set[str]:
  """Returns the languages in which a model has many unknown tokens.

  A note is added for each of them.
  """
  parts: set[str] = set()
  for model in models:
    results = [stored.result for stored in model.results[group]]
    rates = unknown_tokens.find_high_rates(metric, results)
    notes += [
      f'{name}: '
      + unknown_tokens.describe_high_rate(metric, part, model.name, rate)
      for part, rate in rates.items()
    ]
    parts.update(rates)
  return parts


def _compare_group(
  group: result_store.Group,
  metric: str,
  stored: tuple[Sequence[StoredResult], Sequence[StoredResult]],
  model: str,
  languages: tuple[Sequence[str], Sequence[str]],
  start_draws: _Draws,
  incomparable_parts: Collection[str],
  *,
  samples: int,
  seed: int,
) -> list[ScoreChange]:
  """Compares two models on the test sets of one task.

  Args:
    group: Task, split and settings of the compared results.
    metric: Metric to compare.
    stored: Pair of the start model's results and the results of the model that
      was trained further.
    model: Name of the model that was initialized from the start model and
      trained further.
    languages: Pair of the codes of the added languages and the codes of the
      start model's languages.
    start_draws: Resampled scores of the start model that earlier comparisons
      computed with the same samples and seed. The function adds missing scores.
    incomparable_parts: Languages, language pairs or files whose scores cannot
      be compared. These scores, and means that include them, are listed without
      a difference.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.
  """
  parts = [
    part
    for part in result_tables.parts_of(metric, {0: stored[1][0].result})
    if part != 'mean'
    and all(
      f'{metric}/{part}' in result.metrics
      for runs in stored
      for result, _ in runs
    )
  ]

  def draw_scores(part: str, runs: Sequence[StoredResult]):
    return _bootstrap_runs(
      group, metric, part, runs, samples=samples, seed=seed
    )

  draws: dict[str, tuple[bootstrap.Drawn | None, bootstrap.Drawn | None]] = {}
  for part in parts:
    if part in incomparable_parts:
      draws[part] = (None, None)
      continue
    key = (group, metric, part)
    if key not in start_draws:
      start_draws[key] = draw_scores(part, stored[0])
    draws[part] = (start_draws[key], draw_scores(part, stored[1]))

  def compare(
    language: str,
    language_group: LanguageGroup,
    scores: tuple[float, float],
    drawn,
    is_comparable: bool,
  ) -> ScoreChange:
    before, after = scores
    lower_is_better = task_families.find_metric(metric).better is Better.LOWER
    better = None
    if is_comparable and before != after:
      better = (after < before) == lower_is_better
    return ScoreChange(
      task=group.task,
      split=group.split,
      settings=group.settings,
      metric=metric,
      language=language,
      group=language_group,
      model=model,
      before=before,
      after=after,
      better=better,
      significance=_test_difference(*drawn),
      is_comparable=is_comparable,
      is_development=any(
        result.is_development for runs in stored for result, _ in runs
      ),
    )

  changes = []
  old_parts = []
  for part in parts:
    language_group = _find_language_group(part, *languages)
    if language_group is LanguageGroup.OLD:
      old_parts.append(part)
    changes.append(
      compare(
        part,
        language_group,
        _mean_scores(metric, part, stored),
        draws[part],
        part not in incomparable_parts,
      )
    )
  if len(old_parts) > 1:
    geometric = metric.endswith('perplexity')
    scores = np.array(
      [_mean_scores(metric, part, stored) for part in old_parts]
    )
    means = (
      np.exp(np.log(scores).mean(0)) if geometric else scores.mean(0)
    ).tolist()
    drawn = []
    for side in (0, 1):
      part_draws = [
        draw for part in old_parts if (draw := draws[part][side]) is not None
      ]
      drawn.append(
        result_tables.mean_draws(part_draws, geometric=geometric)
        if len(part_draws) == len(old_parts)
        else None
      )
    changes.append(
      compare(
        OLD_MEAN,
        LanguageGroup.OLD,
        tuple(means),
        drawn,
        not set(old_parts).intersection(incomparable_parts),
      )
    )
  return changes


def _find_language_group(
  part: str, new_languages: Sequence[str], start_languages: Sequence[str]
) -> LanguageGroup:
  """Returns the group of a language, language pair or file.

  Args:
    part: Language, language pair or file of a test set.
    new_languages: Codes of the added languages.
    start_languages: Languages of the model before the further training. Empty
      if they are unknown.
  """
  codes = part.split('-')
  if not set(codes).isdisjoint(new_languages):
    return LanguageGroup.NEW
  is_language = all(map(language_codes.is_registered, codes))
  if (
    not start_languages
    or not is_language
    or result_tables.is_known_part(part, start_languages)
  ):
    return LanguageGroup.OLD
  return LanguageGroup.OTHER


def _mean_scores(metric: str, part: str, stored) -> tuple[float, float]:
  """Returns the score of both models, as the mean over their runs."""
  before, after = (
    float(np.mean([result.metrics[f'{metric}/{part}'] for result, _ in runs]))
    for runs in stored
  )
  return before, after


def _bootstrap_runs(
  group: result_store.Group,
  metric: str,
  part: str,
  runs: Sequence[StoredResult],
  *,
  samples: int,
  seed: int,
) -> bootstrap.Drawn | None:
  """Returns scores on resampled test sets, or None if they are unavailable."""
  task = result_tables.Recorded(group.task, group.split, metric)
  try:
    statistics = [task.statistics(part, folder)[metric] for _, folder in runs]
    if statistics[0].by_cluster().size < 2:
      return None
    drawn = bootstrap.bootstrap_scores(statistics, samples=samples, seed=seed)
  except (OSError, ValueError, LookupError, errors.XlflaxError):
    return None
  scores = [result.metrics[f'{metric}/{part}'] for result, _ in runs]
  return drawn if np.allclose(drawn.scores, scores) else None


def _test_difference(
  before: bootstrap.Drawn | None, after: bootstrap.Drawn | None
) -> bootstrap.Significance | None:
  """Compares resampled scores, or returns None if they are not comparable."""
  if before is None or after is None or before.size != after.size:
    return None
  return bootstrap.score_difference(before, after)


def _adjust_p_values(changes: Sequence[ScoreChange]) -> list[ScoreChange]:
  """Returns the changes with p-values adjusted by Holm's method."""
  p_values = [
    change.significance.p_value for change in changes if change.significance
  ]
  adjusted = iter(bootstrap.holm_correction(p_values))
  return [
    dataclasses.replace(change, adjusted_p=next(adjusted))
    if change.significance
    else change
    for change in changes
  ]


def write_report(
  directory: pathlib.Path,
  models: Sequence[ModelResults],
  new_languages: Sequence[str],
  *,
  samples: int = 1000,
  command: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `report.html`, `forgetting.json`, `.csv` and `.md`.

  Args:
    directory: Directory for the report. It is created if necessary.
    models: Results of the start model, followed by those of the other models.
    new_languages: Codes of the added languages.
    samples: Number of bootstrap samples to draw.
    command: Command-line arguments with which the report was created.

  Returns:
    Path to the HTML page.

  Raises:
    ConfigError: If the results cannot be compared; see `compare_results`.
  """
  changes, notes = compare_results(models, new_languages, samples=samples)
  tables = _build_tables(changes, models)
  directory.mkdir(parents=True, exist_ok=True)
  records = [_to_record(change) for change in changes]
  content = {
    'start': models[0].name,
    'new_languages': list(new_languages),
    'changes': records,
    'notes': notes,
  }
  paths.write_atomically(
    directory / JSON, json.dumps(content, indent=2, ensure_ascii=False) + '\n'
  )
  paths.write_atomically(
    directory / CSV,
    text.to_csv([*records[0]], (list(record.values()) for record in records)),
  )
  paths.write_atomically(
    directory / MARKDOWN,
    '\n'.join(table.to_markdown() for table in tables)
    + ''.join(f'\n{note}\n' for note in notes),
  )
  return run_pages.write_page(
    directory,
    'Forgetting report',
    f'{_explain_models(models, new_languages)} {_explain_other(changes)}'
    '"development set" and "evaluated during training" mark results of '
    'evaluations during training. Differences have 95 % intervals of '
    'the paired bootstrap. *: the difference is significant (p < 0.05, '
    "adjusted for all comparisons of the page by Holm's method).",
    tables,
    {},
    notes=notes,
    metrics=list(dict.fromkeys(change.metric for change in changes)),
    command=command,
  )


def _explain_models(
  models: Sequence[ModelResults], new_languages: Sequence[str]
) -> str:
  """Returns a sentence on the models that the page compares."""
  start, *others = (f'"{model.name}"' for model in models)
  languages = plurals.pluralize('language', len(new_languages))
  verb = 'was' if len(new_languages) == 1 else 'were'
  return (
    f'The tables compare the scores of the model {start}, before the new '
    f'{languages} ({", ".join(new_languages)}) {verb} added, with the scores '
    f'of the {plurals.pluralize("model", len(others))} {", ".join(others)}, '
    f'after the {languages} {verb} added.'
  )


def _explain_other(changes: Sequence[ScoreChange]) -> str:
  """Returns a sentence on languages that are not new and not old, or ''."""
  if not any(change.group is LanguageGroup.OTHER for change in changes):
    return ''
  return (
    'The group "other" contains the languages that are not new, but on which '
    'the first model was not trained. The mean of old languages excludes them. '
  )


def _to_record(change: ScoreChange) -> dict[str, object]:
  """Returns a change as flat JSON values. NaN becomes None."""
  significance = change.significance
  record: dict[str, object] = {
    'task': change.task,
    'split': change.split,
    'settings': change.settings,
    'metric': change.metric,
    'language': change.language,
    'is_new': change.group is LanguageGroup.NEW,
    'group': change.group.value,
    'is_development': change.is_development,
    'model': change.model,
    'before': change.before,
    'after': change.after,
    'difference': change.difference,
    'better': change.better,
    'low': significance and significance.low,
    'high': significance and significance.high,
    'p_value': significance and significance.p_value,
    'adjusted_p': change.adjusted_p,
    'runs_before': significance and significance.runs[0],
    'runs_after': significance and significance.runs[1],
  }
  return {
    name: None if isinstance(value, float) and math.isnan(value) else value
    for name, value in record.items()
  }


def _build_tables(
  changes: Sequence[ScoreChange], models: Sequence[ModelResults]
) -> list[text.Table]:
  """Returns a table for each group and metric.

  Each table lists new languages, old languages, other languages, and the mean
  of the old languages.
  """
  tables = []
  groups = list(LanguageGroup)
  names_by_group = _name_groups(models)
  changes_by_key: dict[tuple[result_store.Group, str], list[ScoreChange]] = {}
  for change in changes:
    group = result_store.Group(change.task, change.split, change.settings)
    changes_by_key.setdefault((group, change.metric), []).append(change)
  for (group, metric), group_changes in changes_by_key.items():
    by_cell = {(c.language, c.model): c for c in group_changes}
    languages = dict.fromkeys(
      c.language
      for c in sorted(
        group_changes,
        key=lambda c: (c.language == OLD_MEAN, groups.index(c.group)),
      )
    )
    names = [
      model.name
      for model in models[1:]
      if any(change.model == model.name for change in group_changes)
    ]
    rows = []
    for language in languages:
      first = next(c for c in group_changes if c.language == language)
      row = [
        language,
        first.group.value,
        score_format.format_score(first.before),
      ]
      for name in names:
        row += _format_change(by_cell.get((language, name)))
      rows.append(row)
    explained = task_families.find_metric(metric).explained
    head = ['language', 'group', models[0].name]
    for name in names:
      head += [name, f'{name} - {models[0].name}']
    results = [
      stored.result
      for model in models
      for stored in model.results.get(group, ())
    ]
    title = (
      f'{names_by_group[group]}: {explained}'
      f'{result_tables.label_split(group.split)}'
      f'{result_tables.label_development(results, group.split)}'
    )
    tables.append(text.Table(title, head, rows))
  return tables


def _name_groups(
  models: Sequence[ModelResults],
) -> dict[result_store.Group, str]:
  """Returns the name of each group of results of the models."""
  results: dict[result_store.Group, list[eval_task.EvalResult]] = {}
  for model in models:
    for group, stored in model.results.items():
      results.setdefault(group, []).extend(item.result for item in stored)
  return result_store.name_groups(results, has_split=False)


def _format_change(change: ScoreChange | None) -> list[str]:
  """Formats the score after training, and the difference with its interval."""
  if change is None:
    return ['-', '-']
  difference = score_format.format_score(change.difference, signed=True)
  if change.significance is not None:
    low, high = (
      score_format.format_score(bound, signed=True)
      for bound in (change.significance.low, change.significance.high)
    )
    difference += f' [{low} … {high}]'
  if change.adjusted_p is not None and change.adjusted_p < _SIGNIFICANT:
    difference += ' *'
  return [score_format.format_score(change.after), difference]
