"""From logits of start and end to the text of an answer."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.supervised.featurizers import question_featurizer
from xlflax.utils import class_registry, validation


class Candidate(NamedTuple):
  """An answer that a model might give.

  Attributes:
    score: logit of start plus logit of end.
    text: the context's characters, without white space around.
    start: the first of them in the context.
  """

  score: float
  text: str
  start: int


@class_registry.register('decoding')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
  """How answers are found (Devlin et al. 2019, 4.2).

  Attributes:
    n_best: answers kept of a question, and of each window.
    max_answer_length: tokens of an answer, at most.
  """

  n_best: validation.PositiveInt = 20
  max_answer_length: validation.PositiveInt = 30


def n_best(
  context: str,
  windows: Sequence[question_featurizer.Window],
  logits: Sequence[tuple[np.ndarray, np.ndarray]],
  *,
  decoding: Decoding = Decoding(),
) -> list[Candidate]:
  """The best answers of all windows of a question, the best first.

  All spans of a window are compared, not those of its best starts and ends
  only. Of several windows that hold a span, that one counts in which the
  span's first token has the most context on its shorter side. Of the same text
  the best span counts.

  Args:
    context: the text.
    windows: of the question.
    logits: (start [T], end [T]) of each window.
    decoding: see `Decoding`.
  """
  candidates: list[Candidate] = []
  for number, (window, (start, end)) in enumerate(
    zip(windows, logits, strict=True)
  ):
    longest = decoding.max_answer_length
    scores = np.where(
      _is_best(windows, number, longest),
      _spans(window, np.asarray(start), np.asarray(end), longest),
      -np.inf,
    )
    for index in _largest(scores.ravel(), decoding.n_best):
      first, extra = divmod(int(index), scores.shape[1])
      token = window.offset + first
      text_start, right = window.characters(token, token + extra)
      text = context[text_start:right]
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
  return list(best.values())[: decoding.n_best]


def null_score(logits: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
  """The score of no answer: the lowest of a question's windows.

  Each window's is the logit of start plus that of end at the first position
  (Devlin et al. 2019, 4.3). One window that has an answer is enough.
  """
  return min(float(start[0] + end[0]) for start, end in logits)


def _is_best(
  windows: Sequence[question_featurizer.Window], number: int, longest: int
) -> np.ndarray:
  """Whether no other window is better for a span: bool [tokens, longest].

  The measure is BERT's: the context on the shorter side of the first token,
  plus a hundredth of the window's length; of equal windows the first counts.
  """
  own = windows[number]
  first = own.first + np.arange(own.num_tokens)  # [tokens]
  last = first[:, None] + np.arange(longest)[None]  # [tokens, longest]
  best = np.ones(last.shape, bool)
  for other, window in enumerate(windows):
    if other == number or not (
      first[0] < window.first + window.num_tokens and window.first <= first[-1]
    ):
      continue
    better = _context(window, first) - _context(own, first)
    preferred = better >= 0 if other < number else better > 0
    inside = (first >= window.first)[:, None] & (
      last < window.first + window.num_tokens
    )
    best &= ~(inside & preferred[:, None])
  return best


def _context(window, token: np.ndarray) -> np.ndarray:
  """How much context a window has around a token of it."""
  left_context = token - window.first
  size = window.num_tokens
  return np.minimum(left_context, size - 1 - left_context) + 0.01 * size


def _spans(window, start, end, longest) -> np.ndarray:
  """Scores of spans: [context tokens, tokens after the first], -inf for none."""
  here = slice(window.offset, window.offset + window.num_tokens)
  padded = np.concatenate(
    [end[here].astype(np.float64), np.full(longest, -np.inf)]
  )
  ends = np.lib.stride_tricks.sliding_window_view(padded, longest)
  return start[here].astype(np.float64)[:, None] + ends[: window.num_tokens]


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
  """Indices of the largest finite scores, ties in the order of indices."""
  usable = np.flatnonzero(scores > -np.inf)
  if len(usable) > count:
    smallest_kept = np.partition(scores[usable], -count)[-count]
    usable = usable[scores[usable] >= smallest_kept]
  return usable[np.argsort(-scores[usable], kind='stable')][:count]
