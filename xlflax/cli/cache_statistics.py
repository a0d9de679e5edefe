"""Statistics of a written token cache, per task and language."""

import logging
from collections.abc import Sequence

_MAX_UNKNOWN_RATE = 0.01


def log_unknown_tokens(metas: Sequence) -> None:
  """Warns of languages with many unknown tokens."""
  for meta in metas:
    for side in meta.statistics:
      if side.unknown_rate > _MAX_UNKNOWN_RATE:
        logging.warning(
          '%.1f %% of the tokens of %s in %s are unknown. Train the vocabulary '
          'on this text, with a higher --character_coverage or with '
          '--byte_fallback.',
          100 * side.unknown_rate,
          side.language,
          meta.task,
        )


def print_table(metas: Sequence) -> None:
  """Prints a table with one row per task and language."""
  import rich.console

  console = rich.console.Console()
  if not console.is_terminal:  # A file or a pipe has no width.
    console = rich.console.Console(width=160)
  console.print(_table(metas))
  empty = sum(meta.empty for meta in metas)
  if empty:
    print(f'Skipped {empty:,} examples without tokens.')


def _table(metas):
  import rich.box

  from xlflax.utils import rich_tables

  table = rich_tables.make_table(
    ('task', 'split', 'language'),
    ('sentences', 'tokens', 'tokens/sentence', 'unknown'),
    box=rich.box.SIMPLE_HEAD,
  )
  for meta in metas:
    for side in meta.statistics:
      table.add_row(
        meta.task,
        meta.split,
        side.language,
        f'{side.sentences:,}',
        f'{side.tokens:,}',
        f'{side.tokens_per_sentence:.1f}',
        f'{side.unknown_rate:.3%}',
      )
  sides = [side for meta in metas for side in meta.statistics]
  table.add_section()
  sentences = sum(s.sentences for s in sides)
  tokens = sum(s.tokens for s in sides)
  table.add_row('all', '', '', f'{sentences:,}', f'{tokens:,}', '', '')
  return table
