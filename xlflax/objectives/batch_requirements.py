"""Whether a stream has the rows that an objective reads."""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.data import batch_keys
from xlflax.data.dataset_config import Layout
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.utils import errors

_SECOND = batch_keys.PAIRED + batch_keys.TOKEN_IDS
_SHAPES = {1: '[B]', 2: '[B, T]'}
_SIZES = vocabulary_spec.make_dummy_spec(
  128
)  # the keys of a batch depend on none


class Rows(enum.Enum):
  """The rows that an objective reads."""

  ANY = 'any'  # single ones, and each side of a pair as one of its own
  SINGLE = 'single'  # one for each example; a second side would not be read
  PAIR = 'pair'  # both sides of a pair in one row
  SIDES = 'sides'  # the sides of a pair in two rows
  TRANSLATIONS = 'translations'  # the same, of two languages


_EXPECTED = {
  Rows.SINGLE: 'one row for each example',
  Rows.PAIR: 'rows such as <s> text </s> </s> translation </s>',
  Rows.SIDES: f'batches with {_SECOND} too',
  Rows.TRANSLATIONS: f'batches with {_SECOND} of another language',
}
_WRONG: Mapping[Rows, tuple[str, str]] = {
  Rows.SINGLE: (
    'An objective would not read the second side of each pair',
    'use a stream with Layout.BLOCKS, SENTENCES or PAIRS',
  ),
  Rows.PAIR: (
    'An objective needs both sides of a pair in one row',
    'use a stream of a parallel mixture with Layout.PAIRS, or train '
    'MaskedLM on monolingual text',
  ),
  Rows.SIDES: (
    'An objective needs the two sides of a pair as separate rows',
    'use a stream with Layout.SIDES or Layout.ADJACENT, or PairedRows of '
    'labelled examples',
  ),
  Rows.TRANSLATIONS: (
    'An objective needs a text and its translation as separate rows',
    'use a stream of a parallel mixture with Layout.SIDES',
  ),
}


def check_batches(
  stream: Any, rows: Rows, labels: Mapping[str, int], *, objective: str
) -> None:
  """Compares the batches of a stream with what an objective reads.

  Args:
    stream: as `Trainer.streams` has it.
    rows: what the objective reads.
    labels: keys of gold labels that it reads, and the rank of their arrays: 1
      for [B], 2 for [B, T].
    objective: its name.

  Raises:
    ConfigError: the stream has other rows, or no such labels.
  """
  shapes = {
    key: len(array_spec.shape)
    for key, array_spec in stream.batch_spec(_SIZES).items()
  }
  where = f'objective {objective!r}, stream {stream.name!r}'
  if not _has(stream, shapes, rows):
    requirement, fix = _WRONG[rows]
    raise errors.ConfigError(
      requirement,
      got=_told(stream),
      expected=_EXPECTED[rows],
      where=where,
      fix=fix,
    )
  missing = [key for key, rank in labels.items() if shapes.get(key) != rank]
  if missing:
    raise errors.ConfigError(
      'An objective needs labels that a stream has not',
      got=_told(stream),
      expected='batches with '
      + ', '.join(f'{key} {_SHAPES[rank]}' for key, rank in labels.items()),
      where=where,
      fix='use a LabelledStream with the rows of this family of tasks',
    )


def check_same(
  stream: Any, field: str, wanted: Sequence[str], *, objective: str
) -> None:
  """Compares the classes of a stream's rows with an objective's.

  Raises:
    ConfigError: they are others, or in another order.
  """
  maker = getattr(stream, 'rows', None)
  maker = getattr(maker, 'rows', maker)  # of `PairedRows`
  row_classes = getattr(maker, field, None)
  if row_classes is not None and tuple(row_classes) != tuple(wanted):
    raise errors.ConfigError(
      f'The {field} of an objective are not those of the rows that it reads',
      got=f'{", ".join(wanted)}, and {", ".join(row_classes)} of the rows',
      expected='the same, in the same order',
      where=f'objective {objective!r}, stream {stream.name!r}',
      fix='give both the same tuple',
    )


def _has(stream: Any, shapes: Mapping[str, int], rows: Rows) -> bool:
  """Whether batches have such rows."""
  if rows is Rows.ANY:
    return True
  if rows is Rows.PAIR:
    return getattr(stream, 'layout', None) is Layout.PAIRS
  if rows is Rows.SINGLE:
    return _SECOND not in shapes
  adjacent = getattr(stream, 'layout', None) is Layout.ADJACENT
  return _SECOND in shapes and not (adjacent and rows is Rows.TRANSLATIONS)


def _told(stream: Any) -> str:
  """What a stream reads, in words."""
  layout = getattr(stream, 'layout', None)
  if isinstance(layout, Layout):
    return f'Layout.{layout.name} of {stream.mixture!r}'
  rows = type(getattr(stream, 'rows', stream)).__name__
  return f'labelled rows ({rows})'
