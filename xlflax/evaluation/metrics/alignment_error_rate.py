"""Word alignment: error rate with sure and possible links, Pharaoh strings.

Source: Och and Ney (2003), section 3.3. With links A, sure gold links S and
possible ones P (which include S): precision |A & P| / |A|, recall
|A & S| / |S|, AER 1 - (|A & S| + |A & P|) / (|A| + |S|).
"""

import dataclasses
import re
from collections.abc import Collection, Sequence

import numpy as np

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.evaluation.metrics import corpus_statistics, metric_checks
from xlflax.utils import errors

Link = tuple[int, int]
_LINK = re.compile(r'(\d+)([-p])(\d+)')


@dataclasses.dataclass(frozen=True)
class GoldLinks:
  """The gold links of one sentence pair; places count from 0.

  Attributes:
    sure: must be found.
    possible: may be found; sure links need not be repeated here.
  """

  sure: Collection[Link]
  possible: Collection[Link] = frozenset()


@dataclasses.dataclass(frozen=True, eq=False)
class AlignmentScores:
  """Scores over all links of a corpus, fractions.

  Attributes:
    precision: NaN if no links were found.
    recall: NaN if there are no sure links.
    error_rate: AER; lower is better.
    statistics: (found & sure, found & possible, found, sure) links of each
      sentence.
  """

  precision: float
  recall: float
  error_rate: float
  statistics: corpus_statistics.Statistics


def alignment_scores(
  gold: Sequence[GoldLinks], found: Sequence[Collection[Link]]
) -> AlignmentScores:
  """Scores found links.

  Args:
    gold: of N sentence pairs: anything with `sure` and `possible`, such as an
      AlignedSentence.
    found: the N sets of links (i, j) of an aligner.

  Raises:
    CorpusError: nothing to score, or not as many of both.
  """
  metric_checks.same_length(gold, found, what='sentence pairs')
  metric_checks.not_empty(gold, what='sentence pairs')
  rows = []
  for right, links in zip(gold, found, strict=True):
    sure, chosen = set(right.sure), set(links)
    possible = sure | set(right.possible)
    rows.append(
      (len(chosen & sure), len(chosen & possible), len(chosen), len(sure))
    )
  statistics = corpus_statistics.Statistics(
    np.array(rows), corpus_statistics.Aggregate.AER
  )
  in_sure, in_possible, size, num_sure = statistics.rows.sum(0)
  return AlignmentScores(
    precision=float(corpus_statistics.safe_divide(in_possible, size)),
    recall=float(corpus_statistics.safe_divide(in_sure, num_sure)),
    error_rate=statistics.value,
    statistics=statistics,
  )


def round_trip_words(
  links: Sequence[np.ndarray], *, most: int = 5
) -> np.ndarray:
  """Which words of a sentence come back to themselves; bool [M].

  Args:
    links: of a word to words of the next sentence, bool [M, N], [N, ...], …,
      [..., M]: from each to the next, and from the last to the first.
    most: a word that comes back as more words than these does not count.
  """
  reached = np.eye(len(links[0]), dtype=bool)
  for step in links:
    reached = reached @ step
  return reached.diagonal() & (reached.sum(1) <= most)


def read_pharaoh(
  line: str, *, first: int = 0, where: str | None = None
) -> GoldLinks:
  """Reads `0-0 1-2 3p1`: i-j is a sure link, ipj one that is only possible.

  Args:
    line: links, separated by white space.
    first: the number that the file gives the first word, 0 or 1.
    where: file and line, for messages.

  Raises:
    CorpusError: something else stands there.
  """
  links: dict[str, set[Link]] = {'-': set(), 'p': set()}
  for item in corpus_lines.split_tokens(line):
    match = _LINK.fullmatch(item)
    if not match or min(int(match[1]), int(match[3])) < first:
      raise errors.CorpusError(
        'A word alignment has a malformed link',
        got=repr(item),
        expected=f'i-j or ipj with places from {first}',
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
  """The line that `read_pharaoh` reads: links in order, `3p1` if not sure."""
  sure = set(sure)
  return ' '.join(
    f'{i + first}{"-" if (i, j) in sure else "p"}{j + first}'
    for i, j in sorted(sure | set(possible))
  )
