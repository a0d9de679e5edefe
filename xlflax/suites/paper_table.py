"""Tables from papers, which compare published scores with suite scores."""

import collections
import csv
import dataclasses
import functools
import io
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xlflax.config import config_files
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors, name_suggestions, validation

# Columns of the file of published scores that do not contain scores.
_ROW_COLUMNS = ('row', 'section', 'name', 'run', 'setting', 'reference')

# Maps a row and a column of the table to a score.
Scores = Mapping[tuple[str, str], float]


class ScoreSource(NamedTuple):
  """Source of a measured score: a suite task, a metric and a run.

  Attributes:
    task: Name of the suite task.
    metric: Name of the metric and code of the language, such as 'accuracy/fr'.
      The language 'mean' denotes the mean over the languages of the test set.
    run: Name of the run that is evaluated. `{run}` is replaced by the name in
      the column `run` of the row.
  """

  task: str
  metric: str
  run: str = '{run}'


class PublishedRow(NamedTuple):
  """A row of a paper's table, with its published scores.

  Attributes:
    row: Identifier of the row, which is unique in the table.
    section: Heading under which the row is printed, or ''.
    name: Name of the row in the paper.
    run: Directory name of the run that is measured, or '' for a row without
      measured scores, such as a baseline that the paper quotes.
    setting: Key of `PaperTable.scores` that selects where the row's measured
      scores come from.
    reference: Identifier of the row with which this row is compared, or '' if
      there is none.
    scores: Mapping from column names to published scores. Columns without a
      score are left out.
  """

  row: str
  section: str
  name: str
  run: str
  setting: str
  reference: str
  scores: Mapping[str, float]


class Comparison(NamedTuple):
  """Published and measured scores of a paper's table.

  Attributes:
    published: Mapping from pairs (row, column) to published scores, in points.
    measured: Mapping from pairs (row, column) to measured scores, in points.
      The columns of `PaperTable.means` are computed from the measured scores.
    differences: Measured score minus published score, by row and column.
    published_changes: Published score minus the published score of the
      reference row, by row and column.
    measured_changes: Measured score minus the measured score of the reference
      row, by row and column.
  """

  published: Scores
  measured: Scores
  differences: Scores
  published_changes: Scores
  measured_changes: Scores


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperTable:
  """A paper's table that a suite reproduces.

  Attributes:
    source: Paper and number of the table, such as 'Pan et al. (2021), table 2'.
    published: Path of the CSV file with the published scores. It can be
      relative to the working directory or to `gin_configs/`. The columns `row`,
      `section`, `name`, `run`, `setting` and `reference` describe each row
      (`PublishedRow`). The other columns are the columns of the table. An empty
      cell means that the paper contains no such score.
    scores: Source of each measured score. It maps each setting to a mapping
      from columns to tuples. A tuple has the form (task, metric) or
      (task, metric, run), as in `ScoreSource`.
    means: Mapping from each column that is a mean to the columns that it
      averages. If one of them is a tuple of columns, the mean of the tuple is
      used, as in {'Avg': ('XNLI', ('XQuAD F1', 'XQuAD EM'))}.
    summary: Columns for which the changes from the reference rows are printed.
      If empty, the columns in `means` are printed, or all columns if `means` is
      empty, too.
  """

  source: str
  published: str
  scores: Mapping[str, Mapping[str, tuple[str, ...]]]
  means: Mapping[str, tuple[str | tuple[str, ...], ...]] = dataclasses.field(
    default_factory=dict
  )
  summary: tuple[str, ...] = ()

  @functools.cached_property
  def _file(self) -> tuple[tuple[str, ...], tuple[PublishedRow, ...]]:
    """Columns and rows of the file of published scores."""
    return _read_published(_find_file(self.published))

  @property
  def columns(self) -> tuple[str, ...]:
    """Names of the table's columns that contain scores."""
    return self._file[0]

  @property
  def rows(self) -> tuple[PublishedRow, ...]:
    """Rows of the table, in the order of the paper."""
    return self._file[1]

  @property
  def change_columns(self) -> tuple[str, ...]:
    """Names of the columns for which changes from reference rows are shown."""
    return self.summary or tuple(self.means) or self.columns

  @functools.cached_property
  def sources(self) -> dict[tuple[str, str], ScoreSource]:
    """Source of each measured score, by row and column."""
    return {
      (row.row, column): _resolve(source, row)
      for row in self.rows
      if row.run
      for column, source in self.scores[row.setting].items()
    }

  @functools.cached_property
  def tasks_by_run(self) -> dict[str, frozenset[str]]:
    """Names of the suite tasks on which each run is evaluated."""
    tasks = collections.defaultdict(set)
    for source in self.sources.values():
      tasks[source.run].add(source.task)
    return {run: frozenset(names) for run, names in tasks.items()}

  def check(self, tasks: Sequence[str]) -> None:
    """Checks the table's references to columns, settings, rows and suite tasks.

    Args:
      tasks: Names of the suite's tasks.

    Raises:
      ConfigError: If the table refers to a column, setting, row or suite task
        that does not exist.
    """
    row_names = [row.row for row in self.rows]
    for name, count in collections.Counter(row_names).items():
      if count > 1:
        raise errors.ConfigError(
          'The values in the column `row` of the published scores must be '
          'unique',
          got=name,
          where=self.published,
        )
    for row in self.rows:
      if row.run:
        self._check_names(
          [row.setting], self.scores, f'the setting of row {row.row!r}'
        )
      if row.reference:
        self._check_names(
          [row.reference], row_names, f'the reference of row {row.row!r}'
        )
    for setting, sources in self.scores.items():
      self._check_names(
        sources, self.columns, f'the columns of setting {setting!r}'
      )
      for column, source in sources.items():
        if not 2 <= len(source) <= len(ScoreSource._fields):
          raise errors.ConfigError(
            f'The score in column {column!r} must consist of a task, a metric '
            "and optionally a run, such as ('xnli', 'accuracy/fr')",
            got=source,
            where=errors.field_location(self, 'scores'),
          )
      names = [source[0] for source in sources.values()]
      self._check_names(names, tasks, f'the tasks of setting {setting!r}')
    for column, parts in self.means.items():
      names = [column, *(name for part in parts for name in _to_tuple(part))]
      self._check_names(names, self.columns, f'the mean {column!r}')
    self._check_names(self.summary, self.columns, 'the summary')

  def _check_names(
    self, names: Iterable[str], valid: Iterable[str], place: str
  ) -> None:
    """Raises ConfigError if a name is not valid."""
    valid_names = list(valid)
    for name in names:
      if name not in valid_names:
        raise errors.ConfigError(
          f'The PaperTable {self.source!r} refers to an unknown name '
          f'in {place}',
          got=name,
          expected='one of ' + ', '.join(valid_names),
          fix=name_suggestions.did_you_mean(name, valid_names),
        )

  def find_runs(self, model_dirs: Sequence[str]) -> list[str]:
    """Returns the directories of the runs that the table compares.

    Args:
      model_dirs: Directories of runs, and directories that contain runs. The
        name of a run's directory is the name of the run in the table.

    Raises:
      ConfigError: If a directory contains no run that the table compares, or if
        two directories have the same name.
    """
    directories: list[str] = []
    for directory in model_dirs:
      # The directory of the runs may have the name of one of the runs.
      is_run = (paths.to_path(directory) / run_directory.MODEL).exists()
      candidates = (
        [pathlib.Path(directory)]
        if is_run
        else paths.list_directory(paths.to_path(directory))
      )
      runs = [path for path in candidates if path.name in self.tasks_by_run]
      if not runs:
        raise errors.ConfigError(
          '--model_dir must contain at least one of the runs that the '
          'PaperTable specifies',
          got=directory,
          expected='one of the runs ' + ', '.join(self.tasks_by_run),
          fix='Pass the directory of one of these runs, or its parent '
          'directory.',
        )
      directories += [directory] if is_run else [os.fspath(run) for run in runs]
    names = [pathlib.Path(directory).name for directory in directories]
    for name, count in collections.Counter(names).items():
      if count > 1:
        raise errors.ConfigError(
          '--model_dir must contain one directory for each run of the table, '
          'but two directories have the same name',
          got=name,
        )
    return directories

  def compare(
    self, measured: Mapping[tuple[str, str, str], float]
  ) -> Comparison:
    """Compares measured scores with the published scores.

    Args:
      measured: Measured scores in points by (run, task, metric). The metric
        includes the language, such as 'accuracy/fr'.

    Returns:
      The comparison. Scores that have not been measured or published are left
      out.
    """
    published = {
      (row.row, column): score
      for row in self.rows
      for column, score in row.scores.items()
    }
    scores = {
      cell: measured[source.run, source.task, source.metric]
      for cell, source in self.sources.items()
      if (source.run, source.task, source.metric) in measured
    }
    for row in self.rows:
      for column, parts in self.means.items():
        mean = _mean_of_parts(scores, row.row, parts)
        if mean is not None:
          scores[row.row, column] = mean
    return Comparison(
      published=published,
      measured=scores,
      differences={
        cell: score - published[cell]
        for cell, score in scores.items()
        if cell in published
      },
      published_changes=self._changes(published),
      measured_changes=self._changes(scores),
    )

  def _changes(self, scores: Scores) -> Scores:
    """Returns the differences between rows and their reference rows."""
    return {
      (row.row, column): scores[row.row, column] - scores[row.reference, column]
      for row in self.rows
      for column in self.columns
      if (row.row, column) in scores and (row.reference, column) in scores
    }


def _resolve(source: tuple[str, ...], row: PublishedRow) -> ScoreSource:
  """Returns the source of a score, with the run of the given row."""
  resolved = ScoreSource(*source)
  return resolved._replace(run=resolved.run.replace('{run}', row.run))


def _to_tuple(part: str | tuple[str, ...]) -> tuple[str, ...]:
  return (part,) if isinstance(part, str) else part


def _mean_of_parts(
  scores: Scores, row: str, parts: Sequence[str | tuple[str, ...]]
) -> float | None:
  """Returns the mean of columns, or None if one of them has no score."""
  means = []
  for part in parts:
    values = [scores.get((row, column)) for column in _to_tuple(part)]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
      return None
    means.append(math.fsum(numbers) / len(numbers))
  return math.fsum(means) / len(means)


def _find_file(name: str) -> pathlib.Path:
  """Returns the path of the file of published scores."""
  for path in (pathlib.Path(name), config_files.SHIPPED / name):
    if path.is_file():
      return path
  raise errors.ConfigError(
    'The file of published scores does not exist. The name must be the path of '
    'a CSV file, or a path relative to gin_configs/',
    got=name,
    where=errors.field_location(PaperTable, 'published'),
  )


def _read_published(
  path: pathlib.Path,
) -> tuple[tuple[str, ...], tuple[PublishedRow, ...]]:
  """Reads the columns and rows of a file of published scores."""
  try:
    text = path.read_text(encoding='utf-8-sig')
  except ValueError as error:
    raise errors.ConfigError(
      'The file of published scores must be encoded in UTF-8', where=str(path)
    ) from error
  with io.StringIO(text, newline='') as file:
    reader = csv.DictReader(file)
    names = tuple(reader.fieldnames or ())
    if names[: len(_ROW_COLUMNS)] != _ROW_COLUMNS:
      raise errors.ConfigError(
        'The header of the published scores must start with the columns '
        f'{",".join(_ROW_COLUMNS)}, followed by the columns of the table',
        got=','.join(names),
        where=errors.line_location(path, 1),
      )
    columns = names[len(_ROW_COLUMNS) :]
    rows = tuple(
      _parse_row(record, columns, errors.line_location(path, reader.line_num))
      for record in reader
    )
  return columns, rows


def _parse_row(
  record: Mapping[str, str], columns: Sequence[str], location: str
) -> PublishedRow:
  """Returns a row of the published table."""
  scores = {}
  if None in record or None in record.values():
    raise errors.ConfigError(
      'Every row of the published scores must have as many columns as the '
      f'header, which has {len(_ROW_COLUMNS) + len(columns)} columns',
      where=location,
    )
  for column in columns:
    text = record[column]
    if not text:
      continue
    try:
      scores[column] = float(text)
    except ValueError:
      raise errors.ConfigError(
        f'The published score in column {column!r} must be a number',
        got=text,
        where=location,
      ) from None
  return PublishedRow(
    **{name: record[name] for name in _ROW_COLUMNS}, scores=scores
  )
