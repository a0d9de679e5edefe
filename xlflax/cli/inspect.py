"""`xlflax inspect`: computes statistics and data warnings of a corpus."""

import dataclasses
import json
from typing import Any

from xlflax.cli import options as shared_options
from xlflax.cli import output_paths
from xlflax.utils import errors

# Number of identified texts below which counts are shown, not a percentage.
_MIN_TEXTS_FOR_PERCENTAGE = 100
_NO_ANOMALIES = 'No data warnings.'
# Attributes of a file's statistics and the titles of their columns.
_COLUMNS = (
  ('lines', 'lines'),
  ('bad_records', 'bad'),
  ('documents', 'documents'),
  ('characters', 'characters'),
  ('longest', 'longest'),
  ('repeated', 'repeated'),
  ('without_letters', 'no letters'),
  ('with_markup', 'markup'),
  ('with_code', 'code'),
  ('equal_sides', 'equal sides'),
  ('held_out', 'in held-out text'),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectOptions:
  """Computes statistics of a corpus and reports data warnings.

  Reads all text in a corpus directory and prints sizes, lengths, repeated
  lines, the detected language of each file, equal source and target texts,
  columns that contain ids, HTML markup and code, broken encodings, and training
  text that overlaps with held-out or evaluation text. Lines and records that
  cannot be used are counted in all files. The exit code is 2 if there are any,
  or if a file is damaged or contains no text. The corpus is not changed.

  Attributes:
    corpus: Corpus directory.
    decontaminate_against: Files with evaluation texts, separated by commas. The
      formats include .txt, .jsonl, and .tsv with a text in each column.
      Training lines that have 13 consecutive words in common with these texts,
      or that equal a shorter text, are counted.
    json: Print JSON instead of a table.
    html: HTML file to which the statistics are also written.
  """

  corpus: str = dataclasses.field(kw_only=False)
  decontaminate_against: shared_options.CommaSeparatedText | None = None
  json: bool = False
  html: str | None = None
  command_line: shared_options.CommandLine = ()


EXAMPLES = r"""
Print the statistics and data warnings of a corpus:
  xlflax inspect corpus
  xlflax inspect corpus --json

Check whether the training text contains examples of these test sets:
  xlflax inspect corpus --decontaminate_against=xnli.tsv,sib200.txt

Write a self-contained HTML page as well:
  xlflax inspect corpus --html=corpus.html
"""


def main(options: InspectOptions) -> errors.ExitStatus:
  """Prints a table of the files and the data warnings.

  Returns:
    `MISTAKE` if a file is damaged, contains bad records or contains no text.
  """
  from xlflax.data.corpus.corpus_directory import Corpus
  from xlflax.data.preprocessing import corpus_statistics
  from xlflax.data.preprocessing.contamination import Decontamination

  output_paths.check_outside_corpus(
    options.corpus, options.html, content='page', option='html'
  )
  corpus = Corpus(options.corpus, skip_bad_records=True)
  evaluation_files = [
    name for name in (options.decontaminate_against or '').split(',') if name
  ]
  statistics = corpus_statistics.compute_statistics(
    corpus, Decontamination(files=evaluation_files)
  )
  warnings = corpus_statistics.describe_findings(corpus, statistics)
  status = errors.ExitStatus.DONE
  if not all(file_counts.is_usable for file_counts in statistics):
    status = errors.ExitStatus.MISTAKE
  rows = [['file', *(title for _, title in _COLUMNS), 'other language']]
  rows += map(_format_row, statistics)
  if options.html:
    _write_html(options, options.html, rows, warnings)
  if options.json:
    result = {
      'files': list(map(dataclasses.asdict, statistics)),
      'findings': warnings,
    }
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return status
  _print_table(rows, options.corpus)
  for warning in warnings:
    print(f'- {warning}')
  if not warnings:
    print(_NO_ANOMALIES)
  return status


def _format_row(statistics: Any) -> list[str]:
  """Returns the table row of one file."""
  counts = [f'{getattr(statistics, name):,}' for name, _ in _COLUMNS]
  return [statistics.path, *counts, _format_other_language(statistics)]


def _format_other_language(statistics: Any) -> str:
  """Returns the fraction of a file's texts that are in another language.

  Returns counts if a percentage would be misleading because few texts were
  identified, and '–' if none were.
  """
  num_identified = statistics.num_identified
  if not num_identified:
    return '–'
  if num_identified < _MIN_TEXTS_FOR_PERCENTAGE:
    return f'{statistics.num_other_language} of {num_identified}'
  return f'{statistics.num_other_language / num_identified:.0%}'


def _print_table(rows: list[list[str]], corpus: str) -> None:
  """Prints the table of the files."""
  import rich.console

  from xlflax.utils import rich_tables

  table = rich_tables.make_table(
    rows[0][:1], rows[0][1:], title=f'Text of {corpus}', title_justify='left'
  )
  for row in rows[1:]:
    table.add_row(*row)
  rich_tables.print_table(table, rich.console.Console())


def _write_html(
  options: InspectOptions, path: str, rows: list[list[str]], warnings: list[str]
) -> None:
  """Writes the statistics as an HTML page."""
  from xlflax.evaluation.reports import page, text
  from xlflax.storage import paths

  content = page.render_page(
    f'Text of {options.corpus}',
    'Lines and characters by file. Data warnings are listed below the table.',
    [text.Table('Files', rows[0], rows[1:])],
    {},
    warnings or [_NO_ANOMALIES],
    command=options.command_line,
  )
  paths.write_atomically(paths.to_path(path), content)
