"""Artifacts exchanged between two runs: every reader notices, or reads none.

A case copies a workspace (`two_runs`), puts one or two kinds of artifacts of
another one in the place of its own, and lets a command read it. The exchange is
*noticed* if that is refused, warned of, or left out; *unread* if what is read
is what it was, and *whole* if all of it is the other run's. Anything else is a
mixture that nobody would know of.
"""

import itertools
import logging
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator

from tests.campaigns import counts as counts_lib
from tests.campaigns import two_runs
from xlflax.utils import errors

NOTICED, UNREAD, WHOLE = 'noticed', 'unread', 'entirely the other run'
SILENT, TRACEBACK = 'silent', 'traceback'

# Kind -> what is exchanged, below a workspace.
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
  """Two workspaces, what each reader reads in them, and copies to spoil."""

  def __init__(
    self,
    directory: pathlib.Path,
    readers: Iterable[str] = tuple(two_runs.READERS),
  ):
    self._directory = directory
    for number, name in enumerate(('a', 'b')):
      # All is made in one place, for paths that are written down.
      two_runs.make(self.place, number)
      self.place.rename(directory / name)
    # What is warned of in any case is no sign that an exchange was noticed.
    with _Warnings() as usual:
      self._wanted = {
        name: (self._read(name, ()), self._theirs(name)) for name in readers
      }
    self._usual = {_without_numbers(line) for line in usual.lines}

  @property
  def place(self) -> pathlib.Path:
    """Where a workspace is read."""
    return self._directory / 'workspace'

  def outcome(self, kinds: tuple[str, ...], reader: str) -> tuple[str, str]:
    """(outcome, what went wrong) of a case."""
    with _Warnings() as warned:
      try:
        found = self._read(reader, kinds)
      except errors.XlflaxError:
        return NOTICED, ''
      except Exception as error:
        return TRACEBACK, f'{type(error).__name__}: {error}'
    ours, theirs = self._wanted[reader]
    if found is None or not self._usual.issuperset(
      map(_without_numbers, warned.lines)
    ):
      return NOTICED, ''
    if found == ours:
      return UNREAD, ''
    return (WHOLE, '') if found == theirs else (SILENT, str(found)[:300])

  def _theirs(self, reader: str):
    """What it reads of the other run; itself where that is refused."""
    try:
      return self._read(reader, tuple(KINDS))
    except errors.XlflaxError as error:
      return error  # the settings are ours

  def _read(self, reader: str, kinds: tuple[str, ...]):
    shutil.rmtree(self.place, ignore_errors=True)
    whole = kinds == tuple(KINDS)
    shutil.copytree(self._directory / ('b' if whole else 'a'), self.place)
    for path in () if whole else (KINDS[kind] for kind in kinds):
      source, target = self._directory / 'b' / path, self.place / path
      assert source.exists() and target.exists(), path
      if target.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
      else:
        shutil.copy2(source, target)
    return two_runs.READERS[reader](self.place)


def _without_numbers(line: str) -> str:
  return re.sub(r'\d+', '#', line)


class _Warnings(logging.Handler):
  """Collects warnings, also where logging is off otherwise."""

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


def singles() -> Iterator[Case]:
  """One kind, each reader."""
  for kind in KINDS:
    for reader in two_runs.READERS:
      yield (kind,), reader


def pairs() -> Iterator[Case]:
  """Every two kinds of which none holds the other, each reader."""
  for two in itertools.combinations(KINDS, 2):
    first, second = (KINDS[kind] for kind in two)
    if not second.startswith(f'{first}/'):
      for reader in two_runs.READERS:
        yield two, reader


def campaign(
  directory: pathlib.Path, cases: Iterable[Case]
) -> tuple[counts_lib.Counts, dict[Case, str]]:
  """Tries cases; returns what became of them, in sum and one by one.

  Args:
    directory: to work in.
    cases: in order.
  """
  directory.mkdir(parents=True, exist_ok=True)
  cases = list(cases)
  spaces = Workspaces(directory, dict.fromkeys(reader for _, reader in cases))
  found, each = counts_lib.Counts(), dict[Case, str]()
  for kinds, reader in cases:
    outcome, problem = spaces.outcome(kinds, reader)
    each[kinds, reader] = outcome
    bad = outcome in (SILENT, TRACEBACK)
    where = f'{" and ".join(kinds)} by {reader}: {problem}'
    found.add(outcome, where if bad else '')
  return found, each


def table(each: dict[Case, str]) -> str:
  """Markdown: which command notices which exchange of one kind."""
  readers = list(two_runs.READERS)
  lines = [
    '| exchanged | ' + ' | '.join(readers) + ' |',
    '| --- |' + ' --- |' * len(readers),
  ]
  marks = {NOTICED: 'noticed', UNREAD: '-'}
  for kind in KINDS:
    cells = [each.get(((kind,), reader), '') for reader in readers]
    cells = [marks.get(cell, cell) for cell in cells]
    lines.append(f'| {kind} | ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)
