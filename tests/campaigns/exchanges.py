"""Campaign that exchanges artifacts between two runs.

A case copies a workspace (`two_runs`), replaces one or two kinds of its
artifacts with those of another workspace, and lets a command read it. The
outcome is *noticed* if the command raises an error, logs a warning or skips
the artifact. It is *unread* if the result is unchanged, and *whole* if the
result is entirely that of the other run. Any other result is a silent mixture.
"""

import itertools
import logging
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator

from tests.campaigns import counts, two_runs
from xlflax.utils import errors

NOTICED, UNREAD, WHOLE = 'noticed', 'unread', 'entirely the other run'
SILENT, TRACEBACK = 'silent', 'traceback'

# Kind -> exchanged path, relative to a workspace.
KINDS = {
  "the run's vocabulary": 'run/vocabulary',
  "the command's vocabulary": 'vocabulary',
  'token cache': 'cache',
  'corpus': 'corpus',
  'labeled examples': 'labeled.tsv',
  'checkpoint': 'run/checkpoints/2',
  'item params': 'run/checkpoints/2/params',
  'item train': 'run/checkpoints/2/train',
  'item meta': 'run/checkpoints/2/meta',
  'model.json': 'run/model.json',
  'trainer.json': 'run/trainer.json',
  'objectives.json (labels)': 'run/objectives.json',
  'inputs.json': 'run/inputs.json',
  'config.gin': 'run/config.gin',
  'metrics.jsonl': 'run/metrics.jsonl',
  'results': 'run/eval',
  "an export's weights": 'hf/model.safetensors',
  "an export's tokenizer": 'hf/tokenizer.json',
  "an export's config.json": 'hf/config.json',
}

Case = tuple[tuple[str, ...], str]


class Workspaces:
  """Two workspaces, the expected results of readers, and modified copies."""

  def __init__(
    self,
    directory: pathlib.Path,
    readers: Iterable[str] = tuple(two_runs.READERS),
  ):
    self._directory = directory
    for number, name in enumerate(('a', 'b')):
      # Both are written at the same path, because artifacts record paths.
      two_runs.write_workspace(self.path, number)
      self.path.rename(directory / name)
    # Warnings that always occur do not show that an exchange was noticed.
    with _WarningCollector() as baseline_warnings:
      self._expected = {
        name: (self._read(name, ()), self._read_other_run(name))
        for name in readers
      }
    self._baseline_warnings = {
      _without_numbers(line) for line in baseline_warnings.lines
    }

  @property
  def path(self) -> pathlib.Path:
    """Path at which a workspace is read."""
    return self._directory / 'workspace'

  def outcome(self, kinds: tuple[str, ...], reader: str) -> tuple[str, str]:
    """Returns the outcome and a description of the problem of a case."""
    with _WarningCollector() as warnings:
      try:
        result = self._read(reader, kinds)
      except errors.XlflaxError:
        return NOTICED, ''
      except Exception as error:
        return TRACEBACK, f'{type(error).__name__}: {error}'
    expected, other_result = self._expected[reader]
    if result is None or not self._baseline_warnings.issuperset(
      map(_without_numbers, warnings.lines)
    ):
      return NOTICED, ''
    if result == expected:
      return UNREAD, ''
    return (
      (WHOLE, '') if result == other_result else (SILENT, str(result)[:300])
    )

  def _read_other_run(self, reader: str):
    """Returns the reader's result on the other run, or the error it raises."""
    try:
      return self._read(reader, tuple(KINDS))
    except errors.XlflaxError as error:
      return error  # the settings are those of the first run

  def _read(self, reader: str, kinds: tuple[str, ...]):
    shutil.rmtree(self.path, ignore_errors=True)
    is_other_run = kinds == tuple(KINDS)
    shutil.copytree(self._directory / ('b' if is_other_run else 'a'), self.path)
    for path in () if is_other_run else (KINDS[kind] for kind in kinds):
      source, target = self._directory / 'b' / path, self.path / path
      assert source.exists() and target.exists(), path
      if target.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
      else:
        shutil.copy2(source, target)
    return two_runs.READERS[reader](self.path)


def _without_numbers(line: str) -> str:
  return re.sub(r'\d+', '#', line)


class _WarningCollector(logging.Handler):
  """Handler that collects warnings, even if logging is disabled."""

  def __init__(self):
    super().__init__(logging.WARNING)
    self.lines: list[str] = []

  def emit(self, record: logging.LogRecord) -> None:
    self.lines.append(record.getMessage())

  def __enter__(self):
    self._disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    logging.getLogger().addHandler(self)
    return self

  def __exit__(self, *_):
    logging.getLogger().removeHandler(self)
    logging.disable(self._disabled)


def single_exchanges() -> Iterator[Case]:
  """Yields outcomes kind with outcomes reader."""
  for kind in KINDS:
    for reader in two_runs.READERS:
      yield (kind,), reader


def paired_exchanges() -> Iterator[Case]:
  """Yields pairs of kinds that do not contain each other, per reader."""
  for kinds in itertools.combinations(KINDS, 2):
    first, second = (KINDS[kind] for kind in kinds)
    if not second.startswith(f'{first}/'):
      for reader in two_runs.READERS:
        yield kinds, reader


def run_campaign(
  directory: pathlib.Path, cases: Iterable[Case]
) -> tuple[counts.Counts, dict[Case, str]]:
  """Runs the cases; returns the total counts and the outcome of outcomes case.

  Args:
    directory: Working directory.
    cases: Cases in order.
  """
  directory.mkdir(parents=True, exist_ok=True)
  cases = list(cases)
  workspaces = Workspaces(
    directory, dict.fromkeys(reader for _, reader in cases)
  )
  totals, outcomes = counts.Counts(), dict[Case, str]()
  for kinds, reader in cases:
    outcome, problem = workspaces.outcome(kinds, reader)
    outcomes[kinds, reader] = outcome
    is_violation = outcome in (SILENT, TRACEBACK)
    description = f'{" and ".join(kinds)} by {reader}: {problem}'
    totals.add(outcome, description if is_violation else '')
  return totals, outcomes


def format_table(outcomes: dict[Case, str]) -> str:
  """Returns a Markdown table of the outcome per kind and command."""
  readers = list(two_runs.READERS)
  lines = [
    '| exchanged | ' + ' | '.join(readers) + ' |',
    '| --- |' + ' --- |' * len(readers),
  ]
  marks = {NOTICED: 'noticed', UNREAD: '-'}
  for kind in KINDS:
    cells = [outcomes.get(((kind,), reader), '') for reader in readers]
    cells = [marks.get(cell, cell) for cell in cells]
    lines.append(f'| {kind} | ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)
