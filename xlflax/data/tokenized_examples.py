"""Batches of tokenised examples of different lengths, as flat arrays."""

from typing import NamedTuple

import numpy as np

# The features that hold the sides of an example, by its number of languages.
SIDES = {1: ('targets',), 2: ('inputs', 'targets')}


class Ragged(NamedTuple):
  """Texts one after the other.

  Attributes:
    tokens: ids of all texts, int [sum of lengths].
    lengths: tokens of each text, int64 [examples].
  """

  tokens: np.ndarray
  lengths: np.ndarray

  def select(self, keep: np.ndarray) -> 'Ragged':
    """The texts where `keep`, bool [examples], is true."""
    return Ragged(
      self.tokens[np.repeat(keep, self.lengths)], self.lengths[keep]
    )

  def texts(self, lengths: np.ndarray | None = None) -> list[np.ndarray]:
    """Each text as ids [n], cut off at `lengths` [examples] if given."""
    starts = np.cumsum(self.lengths) - self.lengths
    ends = starts + (self.lengths if lengths is None else lengths)
    return [
      self.tokens[s:e]
      for s, e in zip(starts.tolist(), ends.tolist(), strict=True)
    ]

  def with_eos(self, eos_id: int, dtype) -> np.ndarray:
    """`a b </s> c </s>` from the texts `a b` and `c`; [ids and examples]."""
    out = np.full(self.tokens.size + self.lengths.size, eos_id, dtype)
    is_text = np.ones(out.size, bool)
    is_text[np.cumsum(self.lengths + 1) - 1] = False
    out[is_text] = self.tokens
    return out


class Examples(NamedTuple):
  """Some consecutive examples of a task.

  Attributes:
    sides: one `Ragged` for a monolingual task, two for a parallel one.
    starts_document: whether the example begins a document, bool [examples].
  """

  sides: tuple[Ragged, ...]
  starts_document: np.ndarray

  def __len__(self) -> int:
    return self.starts_document.size


def drop_empty(examples: Examples, begins: bool) -> tuple[Examples, bool]:
  """Leaves out examples with a side of no tokens.

  A document's beginning passes from a dropped example to the next kept one.

  Args:
    examples: as read.
    begins: whether dropped examples just before these began a document.

  Returns:
    The kept examples, and `begins` for those that follow.
  """
  keep = np.logical_and.reduce([s.lengths > 0 for s in examples.sides])
  if keep.all() and not begins:
    return examples, False
  # Beginnings before or at each kept example, since the one kept before it.
  starts_so_far = np.cumsum(examples.starts_document) + int(begins)
  kept_seen = starts_so_far[keep]
  starts = np.diff(np.concatenate([[0], kept_seen])) > 0
  last = int(kept_seen[-1]) if kept_seen.size else 0
  num_starts = int(starts_so_far[-1]) if starts_so_far.size else int(begins)
  return (
    Examples(tuple(s.select(keep) for s in examples.sides), starts),
    num_starts > last,
  )
