"""Bitext mining: which sentences of two collections translate each other.

Source: BUCC 2018 (Zweigenbaum et al., 2018), as LASER (Artetxe and Schwenk,
2019) and XTREME (Hu et al., 2020) evaluate it: nearest neighbours among
sentence vectors, scored by cosine or by a margin, and a threshold on the score
that is best on development data.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled.sources import source as source_lib
from xlflax.evaluation import base
from xlflax.evaluation import sources as sources_lib
from xlflax.evaluation.metrics import mining as metrics_lib
from xlflax.evaluation.metrics.declaration import (
  F1,
  PRECISION,
  RECALL,
  Better,
  Metric,
  Unit,
)
from xlflax.evaluation.tasks import sentence_task
from xlflax.foundation import errors, ranges, schema
from xlflax.similarity import margin as margin_lib
from xlflax.similarity.margin import Direction, Margin

Scored = dict[tuple[str, str], float]  # ids of both sides: score


class _Collections(NamedTuple):
  """Two collections in which every sentence is there once.

  Attributes:
    languages: of the two sides.
    texts: the sentences of either side, each once.
    ids: the id of each, the first if it is there several times.
    gold: pairs of such ids; None if not known.
    repeated: how many sentences were left out.
  """

  languages: tuple[str, str]
  texts: tuple[list[str], list[str]]
  ids: tuple[list[str], list[str]]
  gold: frozenset[tuple[str, str]] | None
  repeated: int


@schema.checked
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
  collection has several times counts once, by its first id.

  Attributes:
    source: collections to score.
    development: collections of the same pairs, with gold, to choose the
      threshold on; None: `source`.
    margin: how a pair is scored: 'absolute' (cosine), 'distance', 'ratio'.
    direction: which pairs are candidates; see `xlflax.similarity.margin`.
    k: neighbours that a score is relative to.
  """

  METRICS = (
    F1,
    PRECISION,
    RECALL,
    Metric('threshold', Better.NEITHER, Unit.UNBOUNDED),
  )
  name: str = 'bitext_mining'
  source: source_lib.MinedSource
  development: source_lib.MinedSource | None = None
  margin: Margin = Margin.RATIO
  direction: Direction = Direction.MAX
  k: ranges.Count = 4

  def evaluate(self, subject: base.Subject) -> base.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    failures = base.Failures(self.name)
    notes: list[str] = []
    metrics: dict[str, float] = {}
    files: dict[str, str] = {}
    rows: list[base.Row] = []
    for part in self.source.languages():
      with failures.guard(part):
        mined = self.source.load(part)
        name = sources_lib.pair_name(mined.languages)
        found, row = self._score(subject, part, mined, notes)
        files[f'{name}.tsv'] = mined.write_pairs(found)
        rows.append({'pair': name} | row)
        metrics |= {
          f'{key}/{name}': row[key]
          for key in ('f1', 'precision', 'recall', 'threshold')
          if key in row
        }
    scores = [row['f1'] for row in rows if 'f1' in row]
    if scores:
      metrics['f1/mean'] = float(np.mean(scores))
    return base.EvalResult(
      metrics=metrics,
      tables={'pairs': rows},
      notes=tuple(dict.fromkeys(notes)),
      failures=failures.collected(),
      files=files,
    )

  def _score(
    self, subject, part, mined, notes
  ) -> tuple[list[tuple[str, str]], base.Row]:
    """(the pairs above the threshold, a row of numbers) of a part."""
    collections = _once_each(mined)
    if collections.repeated:
      notes.append(
        f'{collections.repeated} sentences of {part} are '
        'repetitions, which count once'
      )
    scored = self._candidates(subject, collections, notes)
    threshold, tuned_on = self._threshold(
      subject, part, collections, scored, notes
    )
    found = [pair for pair, score in scored.items() if score >= threshold]
    row = {
      'candidates': len(scored),
      'found': len(found),
      'threshold': threshold,
      'tuned_on': tuned_on,
    }
    if collections.gold is not None:
      scores = metrics_lib.evaluate(found, collections.gold)
      row |= {
        'gold': len(collections.gold),
        'f1': scores.f1,
        'precision': scores.precision,
        'recall': scores.recall,
      }
    return found, row

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
    return metrics_lib.best_threshold(scored, collections.gold).value, tuned_on

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
    found = margin_lib.candidates(
      *sides, k=self.k, margin=self.margin, direction=self.direction
    )
    first, second = collections.ids
    return {
      (first[i], second[j]): score
      for i, j, score in zip(
        found.first.tolist(),
        found.second.tolist(),
        found.scores.tolist(),
        strict=True,
      )
    }


def _once_each(mined: examples_lib.MinedSentences) -> _Collections:
  """Both collections without repetitions; gold pairs are of first ids.

  Raises:
    CorpusError: a gold pair is of a sentence that is not there.
  """
  ids_of_texts: list[dict[str, str]] = []
  first_ids: list[dict[str, str]] = []
  for side in (mined.first, mined.second):
    first: dict[str, str] = {}
    for key, text in side.items():
      first.setdefault(text, key)
    ids_of_texts.append(first)
    first_ids.append({key: first[text] for key, text in side.items()})
  gold = mined.gold
  if gold is not None:
    for pair in gold:
      if any(key not in ids for key, ids in zip(pair, first_ids, strict=True)):
        raise errors.CorpusError(
          'A gold pair is of a sentence that is not there',
          got=' and '.join(pair),
          where='-'.join(mined.languages),
        )
    gold = frozenset((first_ids[0][x], first_ids[1][y]) for x, y in gold)
  first, second = ids_of_texts
  return _Collections(
    mined.languages,
    (list(first), list(second)),
    (list(first.values()), list(second.values())),
    gold,
    len(mined.first) + len(mined.second) - len(first) - len(second),
  )
