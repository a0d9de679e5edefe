"""Statistics of a token cache for each task and language."""

import logging
from collections.abc import Sequence

from xlflax.utils import plurals


def log_unknown_tokens(metas: Sequence) -> None:
  """Logs a warning for each language with many unknown tokens in a task."""
  from xlflax.data import corpus_checks

  for message in corpus_checks.find_unknown_tokens(
    (meta.task, statistics.language, statistics.unknown_rate)
    for meta in metas
    for statistics in meta.statistics
  ):
    logging.warning('%s', message)


def print_table(metas: Sequence) -> None:
  """Prints a table with one row per task and language."""
  import rich.console

  console = rich.console.Console()
  if not console.is_terminal:  # A file or a pipe has no width.
    console = rich.console.Console(width=160)
  console.print(_table(metas))
  empty = sum(meta.empty for meta in metas)
  if empty:
    print(f'Skipped {plurals.format_count(empty, "example")} without tokens.')


def _table(metas):
  """Returns the statistics table as text."""
  import rich.box

  from xlflax.utils import rich_tables

  table = rich_tables.make_table(
    ('task', 'split', 'language'),
    ('sentences', 'tokens', 'tokens/sentence', 'unknown'),
    box=rich.box.SIMPLE_HEAD,
  )
  for meta in metas:
    for statistics in meta.statistics:
      table.add_row(
        meta.task,
        meta.split,
        statistics.language,
        f'{statistics.sentences:,}',
        f'{statistics.tokens:,}',
        f'{statistics.tokens_per_sentence:.1f}',
        f'{statistics.unknown_rate:.3%}',
      )
  all_statistics = [
    statistics for meta in metas for statistics in meta.statistics
  ]
  table.add_section()
  sentences = sum(s.sentences for s in all_statistics)
  tokens = sum(s.tokens for s in all_statistics)
  table.add_row('total', '', '', f'{sentences:,}', f'{tokens:,}', '', '')
  return table
