"""Bitext mining: which sentences of two collections translate each other.

Source: BUCC 2018 (Zweigenbaum et al., 2018), as LASER (Artetxe and Schwenk,
2019) and XTREME (Hu et al., 2020) evaluate it: nearest neighbours among
sentence vectors, scored by cosine or by a margin, and a threshold on the score
that is best on development data.
"""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, text_sources
from xlflax.evaluation.metrics import mining_metrics
from xlflax.evaluation.metrics.metric import (
  F1,
  PRECISION,
  RECALL,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import sentence_task
from xlflax.similarity import margin_scoring
from xlflax.similarity.margin_scoring import Direction, Margin
from xlflax.utils import errors, validation

Scored = dict[tuple[str, str], float]  # ids of both sides: score


class _Collections(NamedTuple):
  """Two collections in which every sentence is there once.

  Attributes:
    languages: of the two sides.
    texts: the sentences of either side, each once.
    ids: the id of each; None if it is there several times.
    gold: the published pairs of ids; None if not known.
    repeated: how many sentences are there several times.
  """

  languages: tuple[str, str]
  texts: tuple[list[str], list[str]]
  ids: tuple[list[str | None], list[str | None]]
  gold: frozenset[tuple[str, str]] | None
  repeated: int


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class BitextMining(sentence_task.CollectionTask):
  """F1 of the pairs whose score is above a threshold.

  Metrics, for each language pair (named by its other language where one side
  is English; failures are named by the source's part): `f1/<pair>`,
  `precision/<pair>`, `recall/<pair>`, `threshold/<pair>`, and `f1/mean` over
  pairs. The files `<pair>.tsv` have the found pairs, `id<TAB>id` a line, in
  the order of ids: what BUCC and XTREME take as a submission. A pair without
  gold (a blind test set) has the file only.

  The threshold is that of the best F1 on `development`; without it, on the
  scored pairs themselves, which flatters (a note says so). A sentence that a
  collection has several times is compared once and is in no found pair, as in
  XTREME's `bucc_eval`; its gold pairs count as missed, as in `evaluate.py`.

  Attributes:
    source: collections to score.
    development: collections of the same pairs, with gold, to choose the
      threshold on; None: `source`.
    margin: how a pair is scored: 'absolute' (cosine), 'distance', 'ratio'.
    direction: which pairs are candidates; see `xlflax.similarity.margin_scoring`.
    k: neighbours that a score is relative to.
  """

  METRICS = (
    F1,
    PRECISION,
    RECALL,
    Metric('threshold', Better.NEITHER, Unit.UNBOUNDED),
  )
  name: str = 'bitext_mining'
  source: example_source.MinedSource
  development: example_source.MinedSource | None = None
  margin: Margin = Margin.RATIO
  direction: Direction = Direction.MAX
  k: validation.PositiveInt = 4

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    failures = eval_task.Failures(self.name)
    notes: list[str] = []
    metrics: dict[str, float] = {}
    files: dict[str, str] = {}
    rows: list[eval_task.Row] = []
    parts = self.source.languages()
    pairs = [(p.partition('-')[0], p.partition('-')[2]) for p in parts]
    text_sources.check_directions(tuple(pairs), self.name)
    for part in parts:
      with failures.guard(part):
        mined = self.source.load(part)
        name = text_sources.pair_name(mined.languages)
        mined_pairs, row = self._score(subject, part, mined, notes)
        files[f'{name}.tsv'] = mined.write_pairs(mined_pairs)
        if mined.gold is not None:
          files |= eval_task.statistics_files(
            name,
            {
              'f1': mining_metrics.of_sentences(
                mined.first, mined_pairs, mined.gold
              )
            },
          )
        rows.append({'pair': name} | row)
        metrics |= {
          f'{key}/{name}': row[key]
          for key in ('f1', 'precision', 'recall', 'threshold')
          if key in row
        }
    scores = [row['f1'] for row in rows if 'f1' in row]
    if scores:
      metrics['f1/mean'] = float(np.mean(scores))
    return eval_task.EvalResult(
      metrics=metrics,
      tables={'pairs': rows},
      notes=tuple(dict.fromkeys(notes)),
      failures=failures.collected(),
      files=files,
    )

  def _score(
    self, subject, part, mined, notes
  ) -> tuple[list[tuple[str, str]], eval_task.Row]:
    """(the pairs above the threshold, a row of numbers) of a part."""
    collections = _once_each(mined)
    if collections.repeated:
      notes.append(
        f'{collections.repeated} sentences of {part} are there several '
        'times and in no found pair'
      )
    scored = self._candidates(subject, collections, notes)
    threshold, tuned_on = self._threshold(
      subject, part, collections, scored, notes
    )
    mined_pairs = [pair for pair, score in scored.items() if score >= threshold]
    row = {
      'candidates': len(scored),
      'found': len(mined_pairs),
      'threshold': threshold,
      'tuned_on': tuned_on,
    }
    if collections.gold is not None:
      scores = mining_metrics.mining_scores(mined_pairs, collections.gold)
      row |= {
        'gold': len(collections.gold),
        'f1': scores.f1,
        'precision': scores.precision,
        'recall': scores.recall,
      }
    return mined_pairs, row

  def _threshold(
    self, subject, part, collections, scored, notes
  ) -> tuple[float, str]:
    """(threshold, 'development' or 'itself')."""
    tuned_on = 'itself'
    if self.development is not None:
      tuned_on = 'development'
      collections = _once_each(self.development.load(part))
    if collections.gold is None:
      raise errors.CorpusError(
        'The threshold cannot be chosen without gold pairs',
        where=f'{part}, {tuned_on}',
        fix='give development data with gold pairs',
      )
    if self.development is not None:
      scored = self._candidates(subject, collections, notes)
    else:
      notes.append(
        f'the threshold of {part} is the best for the scored pairs '
        'themselves: there is no development data'
      )
    return mining_metrics.best_threshold(
      scored, collections.gold
    ).value, tuned_on

  def _candidates(self, subject, collections: _Collections, notes) -> Scored:
    """Scored pairs of ids, best first."""
    codes = []
    for code, texts in zip(
      collections.languages, collections.texts, strict=True
    ):
      if not texts:
        raise errors.CorpusError('A collection has no sentence', where=code)
      codes.append([code] * len(texts))
    sides = self.sides(subject, codes, collections.texts, notes)
    candidate_pairs = margin_scoring.find_candidates(
      *sides, k=self.k, margin=self.margin, direction=self.direction
    )
    first, second = collections.ids
    pairs = zip(*(column.tolist() for column in candidate_pairs), strict=True)
    return {
      (first_id, other): score
      for i, j, score in pairs
      if (first_id := first[i]) is not None and (other := second[j]) is not None
    }


def _once_each(mined: labeled_examples.MinedSentences) -> _Collections:
  """Both collections without repetitions.

  Raises:
    CorpusError: a gold pair is of a sentence that is not there.
  """
  for pair in mined.gold or ():
    if pair[0] not in mined.first or pair[1] not in mined.second:
      raise errors.CorpusError(
        'A gold pair is of a sentence that is not there',
        got=' and '.join(pair),
        where='-'.join(mined.languages),
      )
  sides: list[dict[str, str | None]] = []
  repeated = 0
  for side in (mined.first, mined.second):
    counts = collections.Counter(side.values())
    repeated += sum(count for count in counts.values() if count > 1)
    sides.append(
      {text: key if counts[text] == 1 else None for key, text in side.items()}
    )
  first, second = sides
  return _Collections(
    mined.languages,
    (list(first), list(second)),
    (list(first.values()), list(second.values())),
    mined.gold,
    repeated,
  )
