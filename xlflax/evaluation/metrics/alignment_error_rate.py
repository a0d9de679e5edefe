"""Alignment error rate for sure and possible links, and the Pharaoh format.

Source: Och and Ney (2003), section 3.3. For predicted links A, sure gold links
S and possible gold links P (a superset of S), precision is |A & P| / |A|,
recall is |A & S| / |S|, and AER is 1 - (|A & S| + |A & P|) / (|A| + |S|).
"""

import dataclasses
import re
from collections.abc import Collection, Sequence

import numpy as np

from xlflax.data.corpus import line_reader
from xlflax.evaluation.metrics import example_statistics, metric_checks
from xlflax.utils import errors

Link = tuple[int, int]
_LINK = re.compile(r'(\d+)([-p])(\d+)')


@dataclasses.dataclass(frozen=True)
class GoldLinks:
  """Gold links of a sentence pair, with zero-based word positions.

  Attributes:
    sure: Links that annotators marked as sure.
    possible: Links that annotators marked as possible. They need not repeat the
      sure links.
  """

  sure: Collection[Link]
  possible: Collection[Link] = frozenset()


@dataclasses.dataclass(frozen=True, eq=False)
class AlignmentScores:
  """Alignment scores over all links in a corpus, as fractions.

  Attributes:
    precision: Fraction of the predicted links that are possible or sure. NaN if
      no links are predicted.
    recall: Fraction of the sure links that are predicted. NaN if there are no
      sure links.
    error_rate: Alignment error rate (AER). Lower is better.
    statistics: Counts for each sentence pair: predicted links that are sure,
      predicted links that are sure or possible, all predicted links, and sure
      gold links.
  """

  precision: float
  recall: float
  error_rate: float
  statistics: example_statistics.Statistics


def alignment_scores(
  gold: Sequence[GoldLinks], predicted: Sequence[Collection[Link]]
) -> AlignmentScores:
  """Computes precision, recall and alignment error rate of predicted links.

  Args:
    gold: Gold links of N sentence pairs. The items may be any objects with
      `sure` and `possible`, such as an AlignedSentence.
    predicted: N sets of predicted links (i, j).

  Raises:
    CorpusError: If there are no sentence pairs, or if the numbers of gold and
      predicted sentence pairs differ.
  """
  metric_checks.same_length(gold, predicted, what='sentence pairs')
  metric_checks.not_empty(gold, what='sentence pairs')
  rows = []
  for gold_links, predicted_links in zip(gold, predicted, strict=True):
    links, sure = set(predicted_links), set(gold_links.sure)
    possible = sure | set(gold_links.possible)
    rows.append(
      (len(links & sure), len(links & possible), len(links), len(sure))
    )
  statistics = example_statistics.Statistics(
    np.array(rows), example_statistics.Aggregate.AER
  )
  in_sure, in_possible, num_predicted, num_sure = statistics.rows.sum(0)
  return AlignmentScores(
    precision=float(example_statistics.safe_divide(in_possible, num_predicted)),
    recall=float(example_statistics.safe_divide(in_sure, num_sure)),
    error_rate=statistics.value,
    statistics=statistics,
  )


def round_trip_words(
  links: Sequence[np.ndarray], *, max_words: int = 5
) -> np.ndarray:
  """Finds words that are linked to themselves through a cycle of alignments.

  Args:
    links: Links between the words of each sentence and those of the next, as
      bool arrays of shape [M, N], [N, ...], …, [..., M]. The last sentence is
      linked back to the first.
    max_words: Maximum number of words that a word reaches through the cycle.
      Words that reach more words are excluded.

  Returns:
    Bool array of shape [M].
  """
  reached = np.eye(len(links[0]), dtype=bool)
  for step in links:
    reached = reached @ step
  return reached.diagonal() & (reached.sum(1) <= max_words)


def read_pharaoh(
  line: str, *, first: int = 0, where: str | None = None
) -> GoldLinks:
  """Parses a line in Pharaoh format, such as `0-0 1-2 3p1`.

  `i-j` is a sure link, `ipj` is a link that is only possible.

  Args:
    line: Alignment links separated by white space.
    first: Number that the file assigns to a sentence's first word, 0 or 1.
    where: File and line to report in error messages.

  Raises:
    CorpusError: If a link is malformed.
  """
  links: dict[str, set[Link]] = {'-': set(), 'p': set()}
  for item in line_reader.split_tokens(line):
    match = _LINK.fullmatch(item)
    if not match or min(int(match[1]), int(match[3])) < first:
      raise errors.CorpusError(
        'Each link of a word alignment must have the format i-j (sure) or ipj '
        f'(possible), where i and j are word numbers that start at {first}',
        got=repr(item),
        where=where,
      )
    links[match[2]].add((int(match[1]) - first, int(match[3]) - first))
  return GoldLinks(frozenset(links['-']), frozenset(links['-'] | links['p']))


def write_pharaoh(
  sure: Collection[Link],
  possible: Collection[Link] = frozenset(),
  *,
  first: int = 0,
) -> str:
  """Formats alignment links as a line in Pharaoh format, in ascending order.

  Args:
    sure: Links (i, j) that are marked as sure.
    possible: Links (i, j) that are marked as possible. A link that is also sure
      is written once.
    first: Number that the file assigns to a sentence's first word, 0 or 1.
  """
  sure = set(sure)
  return ' '.join(
    f'{i + first}{"-" if (i, j) in sure else "p"}{j + first}'
    for i, j in sorted(sure | set(possible))
  )
