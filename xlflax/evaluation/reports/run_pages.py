"""Pages of runs: the results of one, and several runs side by side."""

import dataclasses
import json
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import rich.table

from xlflax.evaluation import eval_task, plots, result_store
from xlflax.evaluation.reports import page, run_scores, text
from xlflax.storage import paths
from xlflax.training.checkpointing import (
  checkpoint_reader,
  config_serialization,
  metrics_file,
  run_directory,
)
from xlflax.utils import errors

_LOG = logging.getLogger(__name__)
PAGE = 'report.html'
CSV = 'report.csv'
_DPI = 150
_MANY = 60  # settings that differ, at most
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


def of_rich(table: rich.table.Table) -> text.Table:
  """A table of a terminal as one of a page."""
  columns = [list(column.cells) for column in table.columns]
  return text.Table(
    str(table.title or ''),
    [str(column.header) for column in table.columns],
    [[str(cell) for cell in row] for row in zip(*columns, strict=True)],
  )


def write(
  directory: pathlib.Path,
  title: str,
  explanation: str,
  tables: Sequence[text.Table],
  drawn: Mapping[str, pathlib.Path],
  *,
  notes: Sequence[str] = (),
  command: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `report.html`, a page that needs no other file.

  Args:
    directory: of the page.
    title: of the page.
    explanation: the paragraph below it.
    tables: in their order; empty ones are left out.
    drawn: title of a picture -> its PNG file.
    notes: a list at the end.
    command: the words of the command that made it.

  Returns:
    The page.
  """
  content = page.render(
    title,
    explanation,
    [table for table in tables if table.rows],
    drawn,
    notes,
    command=command,
  )
  paths.write_atomically(directory / PAGE, content)
  return directory / PAGE


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
  """What a model directory says about its run.

  Attributes:
    name: for people.
    settings: 'path.to.field' -> value of what makes the run what it is.
    losses: name -> step -> loss: 'loss', the weighted sum of all objectives',
      'mlm/loss' and 'mlm/loss/en'.
    tokens: objective -> language -> tokens read; '' for all languages.
    environments: versions, devices and processes, of the first report of each
      start, with its step.
    speed: of the last report: 'tokens_per_second', 'run_seconds', ...
    restarts: what failed, and the seconds that it cost, by generation.
    steps: of its checkpoints.
    results: by task, split and settings, then by step.
    directory: with the results' files.
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


def read(directory: pathlib.Path, *, name: str) -> RunRecord:
  """Reads what is known of a run.

  Args:
    directory: of the run, or `--output` of its evaluation: then what training
      wrote is read from the run itself, where that is still in its place.
    name: for people.

  Raises:
    RunDirectoryError: the directory holds no run.
  """
  run = result_store.run_of(directory)
  steps = tuple(checkpoint_reader.finished_steps(run))
  losses, tokens, speed = _metrics(run)
  records = metrics_file.read_metrics(run)
  found = result_store.find_results(directory)
  if not (steps or losses or (found and run != directory)):
    raise errors.RunDirectoryError(
      'There is no run to report on',
      got=str(directory),
      expected='a model directory with checkpoints or metrics.jsonl',
      where='xlflax report',
    )
  return RunRecord(
    name=name,
    settings=_settings(run),
    losses=losses,
    tokens=tokens,
    environments=[
      {'step': x['step']} | x['environment']
      for x in records
      if 'environment' in x
    ],
    speed=speed,
    restarts=[x['restart'] for x in records if 'restart' in x],
    steps=steps,
    results=found,
    directory=directory,
  )


def _metrics(
  directory: pathlib.Path,
) -> tuple[
  dict[str, dict[int, float]], dict[str, dict[str, float]], dict[str, float]
]:
  """Losses by name and step, tokens, and the last record of speed.

  A cut last line is left.
  """
  losses: dict[str, dict[int, float]] = {}
  tokens: dict[str, dict[str, float]] = {}
  speed: dict[str, float] = {}
  try:
    lines = metrics_file.read_verified(directory).splitlines()
  except errors.RunDirectoryError as error:
    _LOG.warning('The losses of %s are left out. %s', directory, error)
    lines = []
  for line in lines:
    try:
      record = json.loads(line)
      step = int(record['step'])
      for name, value in record.get('train', {}).items():
        first, kind, language = (*name.split('/'), '', '')[:3]
        if value is not None and 'loss' in (first, kind):
          losses.setdefault(name, {})[step] = float(value)
        elif value is not None and kind == 'tokens':
          read = tokens.setdefault(first, {})
          read[language] = read.get(language, 0) + value
      speed = {**(record.get('speed') or speed)}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
      continue
  return losses, tokens, speed


def _settings(directory: pathlib.Path) -> dict[str, Any]:
  if not (directory / run_directory.TRAINER).exists():
    return {}
  record = run_directory.read_run_file(directory, run_directory.TRAINER)
  return config_serialization.identity_of_description(record)


def side_by_side(
  directory: pathlib.Path,
  runs: Sequence[RunRecord],
  *,
  command: Sequence[str] = (),
) -> pathlib.Path:
  """Writes `report.html`, `report.csv` and pictures of several runs.

  Results stand in one table only where task, split, text and settings are the
  same.

  Args:
    directory: is created.
    runs: what is compared, in order; their names differ.
    command: the words of the command.

  Returns:
    The page.
  """
  directory.mkdir(parents=True, exist_ok=True)
  groups = list(dict.fromkeys(group for run in runs for group in run.results))
  drawn = {}
  for title, found in {
    'Training loss': _losses(runs),
    'Training loss by language': _language_losses(runs),
  }.items():
    if any(found.values()):
      canvas = plots.line_panels(
        title, _LOSS, found, xlabel=plots.STEP, one_scale=False
      )
      file = f'{title.lower().replace(" ", "_")}.png'
      drawn[title] = plots.save_figure(canvas, directory / file, dpi=_DPI)
  tables = [
    _overview(runs),
    _tokens(runs),
    _environments(runs),
    _restarts(runs),
    *(run_scores.table(group, runs) for group in groups),
    _differences(runs),
  ]
  paths.write_atomically(directory / CSV, _csv(runs))
  return write(
    directory,
    'Runs side by side' if len(runs) > 1 else runs[0].name,
    'The last evaluated checkpoint of each run; a table holds results of one '
    'task, split and text. Untrained: the model before its first step.',
    tables,
    drawn,
    command=command,
  )


def _overview(runs: Sequence[RunRecord]) -> text.Table:
  def row(run: RunRecord) -> list[str]:
    losses = run.losses.get('loss', {})
    last = max(losses, default=None)
    seconds = run.speed.get('run_seconds')
    return [
      run.name,
      f'{max([*run.steps, *losses], default=0):,}',
      '-' if last is None else f'{losses[last]:.4f}',
      _number(run.speed.get('tokens_per_second')),
      '-' if seconds is None else f'{seconds / 3600:.2f}',
    ]

  head = ['run', 'steps', _LOSS, 'tokens/s', 'hours']
  return text.Table('Training', head, map(row, runs))


def _tokens(runs: Sequence[RunRecord]) -> text.Table:
  """How much was read of each language."""
  languages = dict.fromkeys(
    code for run in runs for one in run.tokens.values() for code in one
  )
  rows = [
    [run.name, objective, *(_number(found.get(code)) for code in languages)]
    for run in runs
    for objective, found in run.tokens.items()
  ]
  head = ['run', 'objective', *(code or 'all' for code in languages)]
  return text.Table('Tokens read', head, rows)


def _environments(runs: Sequence[RunRecord]) -> text.Table:
  """Versions and devices, where they are other than before."""
  rows: list[list[str]] = []
  for run in runs:
    before: list[str] = []
    for one in run.environments:
      found = [str(one.get(name, '-')) for name in _ENVIRONMENT]
      if found != before:
        rows.append([run.name, f'{one["step"]:,}', *found])
      before = found
  return text.Table('Environment', ['run', 'at step', *_ENVIRONMENT], rows)


def _restarts(runs: Sequence[RunRecord]) -> text.Table:
  names = ('lost', 'agree', 'start', 'restore', 'compile', 'repeat')
  rows = [
    [
      run.name,
      str(one['generation']),
      one['failure'],
      *(f'{one[name]:.1f}' for name in names),
    ]
    for run in runs
    for one in run.restarts
  ]
  head = ['run', 'restart', 'failure', *names]
  return text.Table('Restarts, and the seconds that they cost', head, rows)


def _differences(runs: Sequence[RunRecord]) -> text.Table:
  """Settings that are not the same in all runs."""
  names = sorted({name for run in runs for name in run.settings})
  rows = []
  for name in names:
    whole = [run.settings.get(name, '-') for run in runs]
    if all(value == whole[0] for value in whole):
      continue
    values = [_short(value) for value in whole]
    if len(set(values)) == 1:  # paths of other content, ends of long texts
      values = [f'{value} ({i})' for i, value in enumerate(values, start=1)]
    rows.append([name, *values])
  if len(rows) > _MANY:
    more = f'and {len(rows) - _MANY + 1} more'
    rows[_MANY - 1 :] = [[more, *['…'] * len(runs)]]
  return text.Table(
    'Settings that differ', ['', *(run.name for run in runs)], rows
  )


def _csv(runs: Sequence[RunRecord]) -> str:
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


def _losses(runs: Sequence[RunRecord]) -> plots.Panels:
  """A panel of the whole loss, and one of each objective's of several."""
  objectives = list(dict.fromkeys(x for run in runs for x in _objectives(run)))
  names = ['loss', *(f'{x}/loss' for x in objectives if len(objectives) > 1)]
  return {
    'all objectives' if name == 'loss' else name.removesuffix('/loss'): {
      run.name: list(run.losses[name].items())
      for run in runs
      if name in run.losses
    }
    for name in names
  }


def _language_losses(runs: Sequence[RunRecord]) -> plots.Panels:
  """A panel of each run's objective that has several languages."""
  found = {}
  for run in runs:
    for name in _objectives(run):
      start = f'{name}/loss/'
      lines = {
        one.removeprefix(start): list(losses.items())
        for one, losses in run.losses.items()
        if one.startswith(start)
      }
      if len(lines) > 1:
        found[f'{name}, {run.name}' if len(runs) > 1 else name] = lines
  return found


def _objectives(run: RunRecord) -> list[str]:
  names = (name.split('/') for name in run.losses)
  return [first for first, *rest in names if rest == ['loss']]


def _number(value: float | None) -> str:
  return '-' if value is None else f'{value:,.0f}'


def _short(value: Any) -> str:
  value = getattr(value, 'spelled', value)  # of paths, not what lies there
  shown = value if isinstance(value, str) else json.dumps(value)
  return shown if len(shown) <= 40 else f'{shown[:37]}…'
