"""Files, runs and results of tests that print the papers' tables."""

import csv
import json
import pathlib
import shutil
from collections.abc import Iterable

from xlflax import cli

# The synthetic language that is written as one of the languages of a table.
SYNTHETIC_LANGUAGE = 'aa'


def read_lines(path: pathlib.Path) -> list[str]:
  """Returns the lines of a file."""
  return path.read_text(encoding='utf-8').splitlines()


def write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
  """Writes lines to a file, and creates its folder."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text('\n'.join(lines) + '\n', encoding='utf-8')


def copy_file(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies a file, and creates the folder of the copy."""
  target.parent.mkdir(parents=True, exist_ok=True)
  shutil.copy(source, target)


def word_labels(path: pathlib.Path, *, label_column: int) -> list[str]:
  """Returns the lines `word<TAB>label` of a file in a CoNLL format.

  Args:
    path: File with comments and tab-separated columns, of which the second is
      the word.
    label_column: Index of the column of the label.
  """
  lines = []
  for line in read_lines(path):
    columns = line.split('\t')
    if line.startswith('#'):
      continue
    lines.append(
      f'{columns[1]}\t{columns[label_column]}' if line.strip() else ''
    )
  return lines


def copy_runs(
  pretrained: pathlib.Path, directory: pathlib.Path, *names: str
) -> str:
  """Returns a directory in which copies of a run have the names of a table."""
  directory.mkdir(parents=True, exist_ok=True)
  for name in names:
    shutil.copytree(pretrained, directory / name)
  return str(directory)


def evaluate_suite(
  suite: str, data: pathlib.Path, runs: str, output: pathlib.Path, *flags: str
) -> pathlib.Path:
  """Runs a suite with tiny sizes, and returns its output directory."""
  arguments = [
    'evaluate',
    f'--suite={suite}',
    f'--data={data}',
    f'--model_dir={runs}',
    f'--output={output}',
    *flags,
  ]
  assert not cli.main(arguments)
  return output


def read_table(output: pathlib.Path) -> dict[tuple[str, str], dict[str, str]]:
  """Returns the lines of table.csv by row and column."""
  with (output / 'table.csv').open(encoding='utf-8') as file:
    return {
      (line['row'], line['column']): line for line in csv.DictReader(file)
    }


def read_scores(folder: pathlib.Path, task: str, metric: str) -> list[float]:
  """Returns the scores on a test set that the result files in a run contain."""
  return [
    json.loads(path.read_text())['metrics'][metric]
    for path in folder.glob(f'eval/{task}/*/*.json')
  ]
