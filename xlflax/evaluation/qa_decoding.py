"""Decoding of answer texts from start and end logits."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.supervised.featurizers import question_featurizer
from xlflax.utils import class_registry, validation


class Candidate(NamedTuple):
  """Candidate answer to a question.

  Attributes:
    score: Sum of the start logit and the end logit.
    text: Answer text from the context, without surrounding white space.
    start: Offset of the answer's first character in the context.
  """

  score: float
  text: str
  start: int


@class_registry.register('decoding')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
  """Settings for answer decoding (Devlin et al. 2019, section 4.2).

  Attributes:
    n_best_size: Maximum number of candidate answers, both per context window
      and per question.
    max_answer_length: Maximum number of tokens per candidate answer.
  """

  n_best_size: validation.PositiveInt = 20
  max_answer_length: validation.PositiveInt = 30


def n_best(
  context: str,
  windows: Sequence[question_featurizer.Window],
  logits: Sequence[tuple[np.ndarray, np.ndarray]],
  *,
  decoding: Decoding = Decoding(),
) -> list[Candidate]:
  """Returns a question's best answers over all windows, best answer first.

  All spans of a window are compared, not only those of the best start and end
  positions. If several windows contain a span, the span is scored in the window
  with the most context on the shorter side of its first token. If several spans
  have the same text, the best one is kept.

  Args:
    context: Text that contains the answer.
    windows: Overlapping windows into which the context is divided.
    logits: Pair of start logits and end logits, each of shape [T], for each
      window.
    decoding: Settings for answer decoding.
  """
  candidates: list[Candidate] = []
  max_span = decoding.max_answer_length
  for number, (window, (start, end)) in enumerate(
    zip(windows, logits, strict=True)
  ):
    scores = np.where(
      _is_best_window(windows, number, max_span),
      _span_scores(window, np.asarray(start), np.asarray(end), max_span),
      -np.inf,
    )
    for index in _largest_indices(scores.ravel(), decoding.n_best_size):
      first, extra = divmod(int(index), scores.shape[1])
      token = window.offset + first
      text_start, text_end = window.characters(token, token + extra)
      text = context[text_start:text_end]
      candidates.append(
        Candidate(
          float(scores[first, extra]),
          text.strip(),
          text_start + len(text) - len(text.lstrip()),
        )
      )

  best: dict[str, Candidate] = {}
  for candidate in sorted(candidates, key=lambda c: (-c.score, c.start)):
    if candidate.text:
      best.setdefault(candidate.text, candidate)
  return list(best.values())[: decoding.n_best_size]


def null_score(logits: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
  """Returns the score for "no answer", the minimum over a question's windows.

  The score of a window is the sum of the start and the end logit at the first
  position (Devlin et al. 2019, section 4.3). The minimum is used because one
  window that contains an answer is sufficient.
  """
  return min(float(start[0] + end[0]) for start, end in logits)


def _is_best_window(
  windows: Sequence[question_featurizer.Window], number: int, max_span: int
) -> np.ndarray:
  """Returns a mask of the spans for which a window is the best window.

  As in BERT, the best window maximizes the context on the shorter side of the
  first token, plus a hundredth of the window's length. The first of several
  equal windows is the best.

  Returns:
    Bool array of shape [tokens, max_span].
  """
  window = windows[number]
  first = window.first + np.arange(window.num_tokens)  # [tokens]
  last = first[:, None] + np.arange(max_span)[None]  # [tokens, max_span]
  is_best = np.ones(last.shape, bool)
  for other_number, other in enumerate(windows):
    other_end = other.first + other.num_tokens
    overlaps = first[0] < other_end and other.first <= first[-1]
    if other_number == number or not overlaps:
      continue
    difference = _context_size(other, first) - _context_size(window, first)
    is_preferred = difference >= 0 if other_number < number else difference > 0
    contains = (first >= other.first)[:, None] & (last < other_end)
    is_best &= ~(contains & is_preferred[:, None])
  return is_best


def _context_size(window, token: np.ndarray) -> np.ndarray:
  """Returns a measure of a window's context around the given tokens."""
  left_context = token - window.first
  size = window.num_tokens
  return np.minimum(left_context, size - 1 - left_context) + 0.01 * size


def _span_scores(window, start, end, max_span) -> np.ndarray:
  """Returns span scores by first token and number of additional tokens.

  Spans that leave the context have the score -inf.

  Args:
    window: Window that contains the context tokens.
    start: Start logits of the window's tokens, of shape [T].
    end: End logits of the window's tokens, of shape [T].
    max_span: Maximum number of tokens per answer span.

  Returns:
    Float64 array of shape [context tokens, max_span].
  """
  context = slice(window.offset, window.offset + window.num_tokens)
  padded = np.concatenate(
    [end[context].astype(np.float64), np.full(max_span, -np.inf)]
  )
  ends = np.lib.stride_tricks.sliding_window_view(padded, max_span)
  return start[context].astype(np.float64)[:, None] + ends[: window.num_tokens]


def _largest_indices(scores: np.ndarray, count: int) -> np.ndarray:
  """Returns indices of the largest finite scores, with ties in index order."""
  indices = np.flatnonzero(scores > -np.inf)
  if len(indices) > count:
    threshold = np.partition(scores[indices], -count)[-count]
    indices = indices[scores[indices] >= threshold]
  return indices[np.argsort(-scores[indices], kind='stable')][:count]
