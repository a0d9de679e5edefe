"""`xlflax inspect`: what is in a corpus, and what is odd about it."""

import argparse
import dataclasses
import json

from xlflax.cli import output_paths

HELP = (
  'Reads all text of a corpus directory and says what is in it: sizes, lengths, '
  'repeated lines, languages by file, equal sides, ids and columns, broken '
  'encodings, and training text that held-out or evaluation text is in. '
  'Nothing is changed.'
)
_NOTHING = 'Nothing is odd about this text.'
_COLUMNS = (
  ('lines', 'lines'),
  ('documents', 'documents'),
  ('characters', 'characters'),
  ('longest', 'longest'),
  ('repeated', 'repeated'),
  ('without_letters', 'no letters'),
  ('equal_sides', 'equal sides'),
  ('held_out', 'in test'),
)


FLAGS = """
corpus CORPUS: corpus directory
--against FILES: comma-separated files of evaluation texts (.txt, .tsv with a
  text in each column, .jsonl …) that training lines should not have 13 words in
  a row in common with
--json (switch): print JSON instead of a table
--page FILE.html: write it as a page, too
"""


def run(args: argparse.Namespace) -> int:
  """Prints a table of the files, and a sentence on each oddity."""
  from xlflax.data.corpus.directory import Corpus
  from xlflax.data.preparation import inspection
  from xlflax.data.preparation.decontamination import Decontamination

  output_paths.check_outside_corpus(
    args.corpus, args.page, content='page', option='page'
  )
  corpus = Corpus(args.corpus)
  files = [name for name in (args.against or '').split(',') if name]
  found = inspection.inspect(corpus, Decontamination(files=files))
  said = inspection.findings(corpus, found)
  rows = [['file', *(title for _, title in _COLUMNS), 'other language']]
  rows += map(_row, found)
  if args.page:
    _write_page(args, rows, said)
  if args.json:
    value = {'files': list(map(dataclasses.asdict, found)), 'findings': said}
    print(json.dumps(value, indent=2, ensure_ascii=False))
    return 0
  _show(rows, args.corpus)
  for sentence in said or [_NOTHING]:
    print(f'- {sentence}' if said else sentence)
  return 0


def _row(one) -> list[str]:
  share = f'{one.another / one.asked:.0%}' if one.asked else '–'
  return [one.path, *(f'{getattr(one, name):,}' for name, _ in _COLUMNS), share]


def _show(rows: list[list[str]], corpus: str) -> None:
  import rich.console

  from xlflax.foundation import console_tables

  table = console_tables.made(
    rows[0][:1], rows[0][1:], title=f'Text of {corpus}', title_justify='left'
  )
  for row in rows[1:]:
    table.add_row(*row)
  console_tables.show(table, rich.console.Console())


def _write_page(args, rows: list[list[str]], said: list[str]) -> None:
  from xlflax.evaluation.reports import page, text
  from xlflax.storage import paths

  content = page.render(
    f'Text of {args.corpus}',
    'Lines and characters by file; what is odd is below the table.',
    [text.Table('Files', rows[0], rows[1:])],
    {},
    said or [_NOTHING],
    command=args.command_line,
  )
  paths.write_atomically(paths.of(args.page), content)
