"""From logits of start and end to the text of an answer."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlflax.data.labelled import question_rows


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
  """How answers are found (Devlin et al. 2019, 4.2).

  Attributes:
    n_best: answers kept of a question, and of each window.
    max_answer_length: tokens of an answer, at most.
  """

  n_best: int = 20
  max_answer_length: int = 30


def n_best(context: str, windows: Sequence[question_rows.Window],
           logits: Sequence[tuple[np.ndarray, np.ndarray]], *,
           decoding: Decoding = Decoding()) -> list[Candidate]:
  """The best answers of all windows of a question, the best first.

  All spans of a window are compared, not those of its best starts and ends
  only. An answer starts in the window where its first token has the most
  context on its shorter side. Of the same text the best span counts.

  Args:
    context: the text.
    windows: of the question.
    logits: (start [T], end [T]) of each window.
    decoding: see `Decoding`.
  """
  owner = _owners(windows)
  found: list[Candidate] = []
  for number, (window, (start, end)) in enumerate(
      zip(windows, logits, strict=True)):
    scores = _spans(window, np.asarray(start), np.asarray(end),
                    owner == number, decoding.max_answer_length)
    for index in _largest(scores.ravel(), decoding.n_best):
      first, extra = divmod(int(index), scores.shape[1])
      place = window.offset + first
      left, right = window.characters(place, place + extra)
      text = context[left:right]
      found.append(Candidate(
          float(scores[first, extra]), text.strip(),
          left + len(text) - len(text.lstrip())))
  best: dict[str, Candidate] = {}
  for candidate in sorted(found, key=lambda c: (-c.score, c.start)):
    if candidate.text:
      best.setdefault(candidate.text, candidate)
  return list(best.values())[:decoding.n_best]


def _owners(windows: Sequence[question_rows.Window]) -> np.ndarray:
  """The window in which each token of the context has the most context.

  As much as there is on the shorter side, plus a hundredth of the window's
  length (BERT's measure): int [tokens].
  """
  total = max((w.first + w.count for w in windows), default=0)
  best = np.full(total, -np.inf)
  owner = np.zeros(total, np.int64)
  for number, window in enumerate(windows):
    places = np.arange(window.count)
    score = np.minimum(places, places[::-1]) + 0.01 * window.count
    here = slice(window.first, window.first + window.count)
    better = score > best[here]
    owner[here][better] = number
    best[here] = np.maximum(best[here], score)
  return owner


def _spans(window, start, end, owned, longest) -> np.ndarray:
  """Scores of spans: [context tokens, tokens after the first], -inf for none.
  """
  count = window.count
  here = slice(window.offset, window.offset + count)
  mine = owned[window.first:window.first + count]
  padded = np.concatenate([
      end[here].astype(np.float64), np.full(longest, -np.inf)])
  ends = np.lib.stride_tricks.sliding_window_view(padded, longest)[:count]
  return np.where(mine, start[here], -np.inf)[:, None] + ends


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
  """Indices of the largest finite scores, ties in the order of indices."""
  usable = np.flatnonzero(scores > -np.inf)
  if len(usable) > count:
    least = np.partition(scores[usable], -count)[-count]
    usable = usable[scores[usable] >= least]
  return usable[np.argsort(-scores[usable], kind='stable')][:count]
