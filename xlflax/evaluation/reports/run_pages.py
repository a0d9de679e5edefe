"""Report pages that show one run or compare several runs."""

import dataclasses
import json
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import rich.table

from xlflax.evaluation import (
  checkpoint_selection,
  eval_task,
  plots,
  result_store,
  result_tables,
)
from xlflax.evaluation.reports import page, run_scores, text
from xlflax.storage import paths
from xlflax.training.checkpointing import (
  checkpoint_reader,
  config_serialization,
  data_fingerprint,
  metrics_file,
  run_directory,
)
from xlflax.utils import errors

_LOG = logging.getLogger(__name__)
PAGE = 'report.html'
CSV = 'report.csv'
_DPI = 150
_MAX_DIFFERENCES = 60  # rows of the table of settings that differ
_ENVIRONMENT = [
  'device',
  'devices',
  'processes',
  'python',
  'xlflax',
  'jax',
  'jaxlib',
]
_LOSS = 'loss, lower is better'
# Settings that change the meaning of the loss, by prefixes of their field paths.
_LOSS_SETTINGS = {
  'vocabularies': ('vocabulary',),
  'objectives': ('objectives.',),
}
_NO_LOSS_SETTINGS = ('.seed', '.chunk_size')


def convert_rich_table(table: rich.table.Table) -> text.Table:
  """Converts a terminal table to a table for an HTML page."""
  columns = [list(column.cells) for column in table.columns]
  return text.Table(
    str(table.title or ''),
    [str(column.header) for column in table.columns],
    [[str(cell) for cell in row] for row in zip(*columns, strict=True)],
  )


def write_page(
  directory: pathlib.Path,
  title: str,
  explanation: str,
  tables: Sequence[text.Table],
  figures: Mapping[str, pathlib.Path],
  *,
  notes: Sequence[str] = (),
  command: Sequence[str] = (),
  summary: Sequence[str] = (),
  metrics: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `report.html`, a page that does not depend on other files.

  Args:
    directory: Directory to which the page is written.
    title: Page title.
    explanation: Explanatory paragraph below the title.
    tables: Tables in display order. Empty tables are omitted.
    figures: PNG files by figure title.
    notes: Notes to list at the end of the page.
    command: Command-line arguments that produced the page.
    summary: Main results to list below the title.
    metrics: Names of the metrics in the tables. The page lists their
      descriptions.

  Returns:
    Path to the HTML page.
  """
  content = page.render_page(
    title,
    explanation,
    [table for table in tables if table.rows],
    figures,
    notes,
    command=command,
    summary=summary,
    metrics=metrics,
  )
  paths.write_atomically(directory / PAGE, content)
  return directory / PAGE


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
  """A run's settings, losses and results, as read from its directory.

  Attributes:
    name: Display name for the run in tables and figures.
    settings: Settings that identify the run, as a flat mapping from the path of
      each field, such as 'a.b.c', to its value.
    losses: Training losses by name and step. The name is 'loss' for the
      weighted sum over all objectives, or has the form 'mlm/loss' or
      'mlm/loss/en'.
    tokens: Number of training tokens by objective and language. The language ''
      stands for the sum over all languages.
    environments: Software versions, devices and processes of the training job,
      in the order of logging. They are logged with the first metrics, and again
      if they have changed after a restart. The key 'step' is the step of
      logging.
    speed: Last logged values of the training speed, such as 'tokens_per_second'
      and 'run_seconds'.
    restarts: Records of training restarts, with the failure that caused each
      restart and the time lost in each phase, in seconds.
    steps: Steps of the available checkpoints.
    results: Evaluation results by group and step.
    directory: Directory that contains the result files.
    languages: Languages of the run's vocabulary, or its training languages if
      the vocabulary does not specify languages.
    selection_metric: Metric by which the best checkpoint of the run was
      selected, such as 'tagging/accuracy/en', or None.
  """

  name: str
  settings: Mapping[str, Any]
  losses: Mapping[str, Mapping[int, float]]
  tokens: Mapping[str, Mapping[str, float]]
  environments: Sequence[Mapping[str, Any]]
  speed: Mapping[str, float]
  restarts: Sequence[Mapping[str, Any]]
  steps: tuple[int, ...]
  results: Mapping[
    result_store.Group, Mapping[result_store.Step, eval_task.EvalResult]
  ]
  directory: pathlib.Path
  languages: tuple[str, ...] = ()
  selection_metric: str | None = None


def read_run(directory: pathlib.Path, *, name: str) -> RunRecord:
  """Reads a run's settings, losses and results.

  Args:
    directory: Run directory, or the `--output` directory of its evaluation. In
      the latter case, the files of training are read from the run directory if
      it still exists.
    name: Display name for the run in tables and figures.

  Raises:
    RunDirectoryError: If the directory does not contain a run.
  """
  run = result_store.run_of(directory)
  steps = tuple(checkpoint_reader.finished_steps(run))
  losses, tokens, speed = _read_metrics(run)
  records = metrics_file.read_metrics(run)
  results = result_store.find_results(directory)
  if not (steps or losses or (results and run != directory)):
    raise errors.RunDirectoryError(
      '`xlflax report` requires a run with checkpoints or metrics.jsonl',
      got=str(directory),
      fix=run_directory.suggest_model_directory(paths.to_path(directory))
      or 'Pass the directory of a run.',
    )
  return RunRecord(
    name=name,
    settings=_read_settings(run) | _describe_vocabulary(run),
    losses=losses,
    tokens=tokens,
    environments=[
      {'step': record['step']} | record['environment']
      for record in records
      if 'environment' in record
    ],
    speed=speed,
    restarts=[record['restart'] for record in records if 'restart' in record],
    steps=steps,
    results=results,
    directory=directory,
    languages=data_fingerprint.read_vocabulary_languages(run)
    or _training_languages(losses),
    selection_metric=checkpoint_selection.read_selection_metric(run),
  )


def read_languages(directory: pathlib.Path) -> tuple[str, ...]:
  """Returns the languages of a run's vocabulary and of its training data.

  The result is empty if the run directory does not specify any languages.
  """
  losses, _, _ = _read_metrics(directory)
  languages = (
    *data_fingerprint.read_vocabulary_languages(directory),
    *_training_languages(losses),
  )
  return tuple(dict.fromkeys(languages))


def _training_languages(losses: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the languages with a loss named 'objective/loss/language'."""
  names = (name.split('/') for name in losses)
  return tuple(dict.fromkeys(parts[-1] for parts in names if len(parts) == 3))


def _read_metrics(
  directory: pathlib.Path,
) -> tuple[
  dict[str, dict[int, float]], dict[str, dict[str, float]], dict[str, float]
]:
  """Returns losses by name and step, token counts, and the last logged speed.

  Lines that are damaged or incomplete are skipped.
  """
  losses: dict[str, dict[int, float]] = {}
  tokens: dict[str, dict[str, float]] = {}
  speed: dict[str, float] = {}
  try:
    lines = metrics_file.read_verified(directory).splitlines()
  except errors.RunDirectoryError as error:
    _LOG.warning('Omitting the losses of %s. %s', directory, error)
    lines = []

  for line in lines:
    try:
      record = json.loads(line)
      step = int(record['step'])
      for name, value in record.get('train', {}).items():
        # Names are 'loss', 'objective/metric' or 'objective/metric/language'.
        objective, metric, language = (*name.split('/'), '', '')[:3]
        if value is not None and 'loss' in (objective, metric):
          losses.setdefault(name, {})[step] = float(value)
        elif value is not None and metric == 'tokens':
          counts = tokens.setdefault(objective, {})
          counts[language] = counts.get(language, 0) + value
      speed = speed | (record.get('speed') or {})
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
      continue
  return losses, tokens, speed


def _read_settings(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the settings that identify a run, or {} if none are recorded."""
  if not (directory / run_directory.TRAINER).exists():
    return {}
  record = run_directory.read_run_file(directory, run_directory.TRAINER)
  return config_serialization.identity_of_description(record)


def _describe_vocabulary(directory: pathlib.Path) -> dict[str, str]:
  """Returns a run's vocabulary size and hash, or {} if they are unknown."""
  identity = run_directory.read_vocabulary_identity(directory)
  if identity is None:
    return {}
  return {'vocabulary': str(identity)}


def write_comparison(
  directory: pathlib.Path,
  runs: Sequence[RunRecord],
  *,
  command: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `report.html`, `report.csv` and figures for one or more runs.

  Each table contains only results with the same task, split, text and settings.

  Args:
    directory: Directory for the report. It is created if necessary.
    runs: Settings and results of each run, in display order. The names of the
      runs must differ.
    command: Command-line arguments with which the report was created.

  Returns:
    Path to the HTML page.
  """
  directory.mkdir(parents=True, exist_ok=True)
  groups = list(dict.fromkeys(group for run in runs for group in run.results))
  names = _name_groups(runs)
  names_in_tables = _name_groups(runs, has_split=False)
  loss_differences = _loss_differences(runs)
  loss_label = 'loss' if loss_differences else _LOSS
  figures = {}
  for title, panels in {
    'Training loss': _loss_panels(runs),
    'Training loss by language': _language_loss_panels(runs),
  }.items():
    if any(panels.values()):
      canvas = plots.line_panels(
        title, loss_label, panels, xlabel=plots.STEP, one_scale=False
      )
      file = f'{title.lower().replace(" ", "_")}.png'
      figures[title] = plots.save_figure(canvas, directory / file, dpi=_DPI)

  compared = [
    (group, metric)
    for group in groups
    for metric in run_scores.compared_metrics(group, runs)
  ]
  differences = {
    (group, metric): run_scores.compare_runs(group, runs, metric=metric)
    for group, metric in compared
  }
  tables = [
    _training_table(runs, loss_differences),
    _tokens_table(runs),
    _environments_table(runs),
    _restarts_table(runs),
    *(
      run_scores.build_table(
        group,
        runs,
        differences[group, metric],
        display_name=names_in_tables[group],
        metric=metric,
      )
      for group, metric in compared
    ),
    _differences_table(runs),
  ]
  paths.write_atomically(directory / CSV, _results_csv(runs))
  return write_page(
    directory,
    'Comparison of runs' if len(runs) > 1 else runs[0].name,
    _explain_tables(
      len(runs),
      run_scores.label_difference(runs) if any(differences.values()) else None,
    ),
    tables,
    figures,
    summary=[
      *(
        line
        for group, metric in compared
        for line in run_scores.summarize(
          group,
          runs,
          differences[group, metric],
          display_name=names[group],
          metric=metric,
        )
      ),
      *_baseline_notes(runs, names),
    ],
    notes=[
      *(
        f'{names[group]}: {note}'
        for group in groups
        if (note := run_scores.describe_code_versions(group, runs))
      ),
      *(
        note
        for group in groups
        for note in run_scores.describe_vocabulary_problem(
          group, runs, display_name=names_in_tables[group]
        )
      ),
      *(
        note
        for group, metric in compared
        for note in run_scores.describe_unknown_tokens(
          group, runs, display_name=names_in_tables[group], metric=metric
        )
      ),
    ],
    metrics=list(
      dict.fromkeys(
        metric
        for group in groups
        for metric in run_scores.shown_metrics(group, runs)
      )
    ),
    command=command,
  )


def _explain_tables(num_runs: int, difference: str | None) -> str:
  """Returns the paragraph that explains the tables of a page.

  Args:
    num_runs: Number of runs on the page.
    difference: Label of the differences between two runs in the tables, or None
      if the tables contain no differences. A wide table is transposed, so that
      its differences are in a row.
  """
  checkpoints = 'the last evaluated checkpoint of each run'
  if num_runs == 1:
    checkpoints = 'the last evaluated checkpoints of the run'
  explanation = (
    f'The tables of scores show {checkpoints}. Each table has the results of '
    'one task, split and text. "untrained" is a randomly initialized model of '
    'the same architecture. "development set" and "evaluated during training" '
    'mark results of evaluations during training. "layer 8 of 12" names the layer whose hidden '
    'states are scored, where layer 0 is the embedding output. '
  )
  if difference:
    explanation += (
      f'The column or row "{difference}" contains the differences between the '
      'scores of the last checkpoints of the two runs, with intervals from the '
      'paired bootstrap on the same examples. A difference is significant if '
      'its 95 % interval does not contain 0. '
    )
  return explanation + result_tables.EXPLAINED_BASELINES


def _name_groups(
  runs: Sequence[RunRecord], *, has_split: bool = True
) -> dict[result_store.Group, str]:
  """Returns the name of each group of results of the runs on the page.

  Args:
    runs: Settings and results of each run on the page.
    has_split: Whether group names contain the split. If True, they contain it
      if groups of the same task have different splits.
  """
  results: dict[result_store.Group, list[eval_task.EvalResult]] = {}
  for run in runs:
    for group, by_step in run.results.items():
      results.setdefault(group, []).extend(by_step.values())
  return result_store.name_groups(results, has_split=has_split)


def _baseline_notes(
  runs: Sequence[RunRecord], names: Mapping[result_store.Group, str]
) -> list[str]:
  """Returns notes on results that are not better than a baseline.

  The baselines are the untrained model and those that do not depend on the
  model, such as string_overlap.

  Args:
    runs: Settings and results of each run on the page.
    names: Mapping from each group of results to its name on the page.
  """
  notes = []
  for run in runs:
    for group, by_step in run.results.items():
      steps = [step for step in by_step if isinstance(step, int)]
      if not steps:
        continue
      last = by_step[max(steps)]
      metric = run_scores.find_primary_metric([last])
      comparison = result_tables.compare_with_untrained(
        metric, by_step.get(result_store.UNTRAINED), last
      )
      sentences = [(metric, comparison)]
      intervals = run_scores.result_intervals(run, group, max(steps))
      for compared in result_tables.metrics_with_baselines(last):
        baselines = result_tables.compare_with_baselines(
          compared, last, intervals, only_if_not_better=True
        )
        sentences.append((compared, baselines))
      notes += [
        f'{run.name}, {names[group]}, {name} at step {max(steps):,}: {note}'
        for name, note in sentences
        if note
      ]
  return notes


def _loss_differences(runs: Sequence[RunRecord]) -> list[str]:
  """Returns the differing settings that make losses incomparable."""
  names = sorted({name for run in runs for name in run.settings})
  return [
    label
    for label, prefixes in _LOSS_SETTINGS.items()
    if any(
      name.startswith(prefixes)
      and not name.endswith(_NO_LOSS_SETTINGS)
      and any(
        run.settings.get(name) != runs[0].settings.get(name) for run in runs
      )
      for name in names
    )
  ]


def _training_table(
  runs: Sequence[RunRecord], differences: Sequence[str] = ()
) -> text.Table:
  """Returns the steps, last loss and speed of each run.

  Args:
    runs: Settings and results of each run on the page.
    differences: Names of the settings that differ between the runs. If there
      are any, the losses of the runs cannot be compared.
  """

  def run_row(run: RunRecord) -> list[str]:
    losses = run.losses.get('loss', {})
    last = max(losses, default=None)
    seconds = run.speed.get('run_seconds')
    return [
      run.name,
      f'{max([*run.steps, *losses], default=0):,}',
      '-' if last is None else f'{losses[last]:.4f}',
      _format_count(run.speed.get('tokens_per_second')),
      '-' if seconds is None else f'{seconds / 3600:.2f}',
    ]

  title, loss = 'Training', _LOSS
  if differences:
    title += (
      '. The losses of the runs cannot be compared, because their '
      f'{" and ".join(differences)} differ. The loss of a run is the weighted '
      'sum of the losses of its objectives'
    )
    loss = 'loss'
  head = ['run', 'steps', loss, 'tokens/s', 'hours']
  return text.Table(title, head, map(run_row, runs))


def _tokens_table(runs: Sequence[RunRecord]) -> text.Table:
  """Returns a table of the tokens read, by run, objective and language."""
  languages = dict.fromkeys(
    code for run in runs for counts in run.tokens.values() for code in counts
  )
  rows = [
    [
      f'{run.name}, {objective}',
      *(_format_count(counts.get(code)) for code in languages),
    ]
    for run in runs
    for objective, counts in run.tokens.items()
  ]
  head = ['run', *(code or 'all' for code in languages)]
  return text.Table('Tokens read', head, rows)


def _environments_table(runs: Sequence[RunRecord]) -> text.Table:
  """Returns a table of each run's versions and devices, one row per change."""
  rows: list[list[str]] = []
  for run in runs:
    previous: list[str] = []
    for environment in run.environments:
      values = [str(environment.get(name, '-')) for name in _ENVIRONMENT]
      if values != previous:
        rows.append([run.name, f'{environment["step"]:,}', *values])
      previous = values
  return text.Table('Environment', ['run', 'at step', *_ENVIRONMENT], rows)


def _restarts_table(runs: Sequence[RunRecord]) -> text.Table:
  """Returns the failure and the cost of each restart."""
  phases = ('lost', 'agree', 'start', 'restore', 'compile', 'repeat')
  rows = [
    [
      run.name,
      str(restart['generation']),
      restart['failure'],
      *(f'{restart[phase]:.1f}' for phase in phases),
    ]
    for run in runs
    for restart in run.restarts
  ]
  head = ['run', 'restart', 'failure', *phases]
  return text.Table('Restarts and their cost in seconds', head, rows)


def _differences_table(runs: Sequence[RunRecord]) -> text.Table:
  """Returns the settings that differ between runs."""
  names = sorted({name for run in runs for name in run.settings})
  rows = []
  for name in names:
    values = [run.settings.get(name, '-') for run in runs]
    if all(value == values[0] for value in values):
      continue
    # A setting that is not set in one run and does not exist in another, such
    # as that of a dataset of one run, does not matter.
    if all(value in ('-', None) for value in values):
      continue
    labels = [_abbreviate(value) for value in values]
    # Different values have the same label if the path is the same and the
    # content of the file differs, or if only the ends of long texts differ.
    if len(set(labels)) == 1:
      labels = [f'{label} ({i})' for i, label in enumerate(labels, start=1)]
    rows.append([name, *labels])
  if len(rows) > _MAX_DIFFERENCES:
    num_hidden = len(rows) - _MAX_DIFFERENCES + 1
    last_row = [f'and {num_hidden} more', *['…'] * len(runs)]
    rows[_MAX_DIFFERENCES - 1 :] = [last_row]
  return text.Table(
    'Settings that differ', ['', *(run.name for run in runs)], rows
  )


def _results_csv(runs: Sequence[RunRecord]) -> str:
  """Returns all results of the runs as CSV, one line per number."""
  return text.to_csv(
    ['run', *result_store.Group._fields, 'step', 'metric', 'value'],
    (
      (run.name, *group, step, name, value)
      for run in runs
      for group, by_step in run.results.items()
      for step, result in by_step.items()
      for name, value in result.metrics.items()
    ),
  )


def _loss_panels(runs: Sequence[RunRecord]) -> plots.Panels:
  """Returns a panel of the total loss, and one per objective if several."""
  objectives = list(
    dict.fromkeys(objective for run in runs for objective in _objectives(run))
  )
  names = ['loss']
  if len(objectives) > 1:
    names += [f'{objective}/loss' for objective in objectives]
  return {
    'all objectives'
    if name == 'loss'
    else f'objective {name.removesuffix("/loss")}': {
      run.name: list(run.losses[name].items())
      for run in runs
      if name in run.losses
    }
    for name in names
  }


def _language_loss_panels(runs: Sequence[RunRecord]) -> plots.Panels:
  """Returns a panel for each run and objective with several languages."""
  panels = {}
  for run in runs:
    for objective in _objectives(run):
      prefix = f'{objective}/loss/'
      lines = {
        name.removeprefix(prefix): list(losses.items())
        for name, losses in run.losses.items()
        if name.startswith(prefix)
      }
      if len(lines) > 1:
        title = f'objective {objective}'
        if len(runs) > 1:
          title += f', run {run.name}'
        panels[title] = lines
  return panels


def _objectives(run: RunRecord) -> list[str]:
  """Returns the objectives for which a metric 'objective/loss' exists."""
  names = (name.split('/') for name in run.losses)
  return [parts[0] for parts in names if parts[1:] == ['loss']]


def _format_count(value: float | None) -> str:
  return '-' if value is None else f'{value:,.0f}'


def _abbreviate(value: Any) -> str:
  """Returns the first characters of a setting's value."""
  # A path is shown as it was spelled, although it is compared by its content.
  value = getattr(value, 'spelled', value)
  label = value if isinstance(value, str) else json.dumps(value)
  return label if len(label) <= 40 else f'{label[:37]}…'
