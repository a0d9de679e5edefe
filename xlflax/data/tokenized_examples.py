"""Batches of tokenized examples of different lengths, stored as flat arrays."""

from typing import NamedTuple

import numpy as np

# Names of the features of the sides of an example, by number of languages.
SIDES = {1: ('targets',), 2: ('inputs', 'targets')}


class Ragged(NamedTuple):
  """Texts of different lengths, stored as concatenated token ids.

  Attributes:
    tokens: Token ids of all texts, int of shape [sum of lengths].
    lengths: Number of tokens in each text, int64 of shape [examples]. Each
      example has one text.
  """

  tokens: np.ndarray
  lengths: np.ndarray

  def select(self, keep: np.ndarray) -> 'Ragged':
    """Returns the texts selected by a boolean mask of shape [examples]."""
    return Ragged(
      self.tokens[np.repeat(keep, self.lengths)], self.lengths[keep]
    )

  def texts(self, lengths: np.ndarray | None = None) -> list[np.ndarray]:
    """Returns the token ids of each text.

    Args:
      lengths: Maximum length of each text, of shape [examples]. Longer texts
        are truncated. If None, the texts are complete.
    """
    starts = np.cumsum(self.lengths) - self.lengths
    ends = starts + (self.lengths if lengths is None else lengths)
    return [
      self.tokens[start:end]
      for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]

  def with_eos(self, eos_id: int, dtype) -> np.ndarray:
    """Returns the token ids of all texts, with an eos token after each text.

    For example, the texts `a b` and `c` become `a b </s> c </s>`.

    Args:
      eos_id: Id of the eos token.
      dtype: Data type of the result.

    Returns:
      Token ids of shape [sum of lengths + examples].
    """
    out = np.full(self.tokens.size + self.lengths.size, eos_id, dtype)
    is_text = np.ones(out.size, bool)
    is_text[np.cumsum(self.lengths + 1) - 1] = False
    out[is_text] = self.tokens
    return out


class Examples(NamedTuple):
  """Batch of consecutive examples from a task.

  Attributes:
    sides: Token ids of the texts: one `Ragged` for a monolingual task, or two
      (source and target) for a parallel task.
    starts_document: Whether each example is the first in its document, bool of
      shape [examples].
  """

  sides: tuple[Ragged, ...]
  starts_document: np.ndarray

  def __len__(self) -> int:
    return self.starts_document.size


def drop_empty(
  examples: Examples, pending_start: bool
) -> tuple[Examples, bool]:
  """Drops examples with an empty text, such as a pair without a target.

  If the first example of a document is dropped, the next remaining example
  starts the document.

  Args:
    examples: Examples to filter.
    pending_start: Whether the examples that were dropped at the end of the
      previous batch include the start of a document.

  Returns:
    The remaining examples, and the `pending_start` value for the next batch.
  """
  keep = np.logical_and.reduce([side.lengths > 0 for side in examples.sides])
  if keep.all() and not pending_start:
    return examples, False

  # A remaining example starts a document if a document started at this example
  # or at one of the dropped examples between it and its predecessor.
  cumulative_starts = np.cumsum(examples.starts_document) + int(pending_start)
  remaining_starts = cumulative_starts[keep]
  starts_document = np.diff(np.concatenate([[0], remaining_starts])) > 0
  last = int(remaining_starts[-1]) if remaining_starts.size else 0
  total = (
    int(cumulative_starts[-1]) if cumulative_starts.size else int(pending_start)
  )
  sides = tuple(side.select(keep) for side in examples.sides)
  return Examples(sides, starts_document), total > last
