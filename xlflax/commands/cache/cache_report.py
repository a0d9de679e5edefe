"""What `xlflax cache` tells while it writes, and of what it has written."""

import logging
from collections.abc import Sequence

_MANY_UNKNOWN = 0.01  # share of the pieces of a language


def warn_of_unknown(metas: Sequence) -> None:
  """Logs languages of which the vocabulary does not know the characters."""
  for meta in metas:
    for side in meta.statistics:
      if side.unknown_rate > _MANY_UNKNOWN:
        logging.warning(
          '%.1f %% of the pieces of %s in %s are unknown: train the vocabulary '
          'on this text, with a higher --character_coverage or with '
          '--byte_fallback.',
          100 * side.unknown_rate,
          side.language,
          meta.task,
        )


def show(metas: Sequence) -> None:
  """Prints a table with one row for each side of each task."""
  import rich.console

  console = rich.console.Console()
  if not console.is_terminal:  # A file or a pipe has no width.
    console = rich.console.Console(width=160)
  console.print(_table(metas))
  empty = sum(meta.empty for meta in metas)
  if empty:
    print(f'{empty:,} examples without tokens were left out.')


def _table(metas):
  import rich.box

  from xlflax.foundation import console_tables

  table = console_tables.made(
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
