"""Bitext mining: retrieval of translation pairs from two sets of sentences.

Source: BUCC 2018 (Zweigenbaum et al., 2018), as LASER (Artetxe and Schwenk,
2019) and XTREME (Hu et al., 2020) evaluate it. Candidates are nearest neighbors
among sentence vectors, scored by cosine or by a margin. Pairs above a threshold
are retrieved. The threshold has the best F1 on development data.
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

Scored = dict[tuple[str, str], float]  # Score by the ids of both sentences.


class _Collections(NamedTuple):
  """Two collections of distinct sentences.

  Attributes:
    languages: Language codes of the two collections.
    texts: Distinct sentences in each collection.
    ids: Id of each sentence, or None for a sentence that occurs repeatedly.
    gold: Published gold pairs of ids, or None if they are unknown.
    repeated: Number of sentences that occur repeatedly, counting every
      occurrence.
  """

  languages: tuple[str, str]
  texts: tuple[list[str], list[str]]
  ids: tuple[list[str | None], list[str | None]]
  gold: frozenset[tuple[str, str]] | None
  repeated: int


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class BitextMining(sentence_task.CollectionTask):
  """F1 of the sentence pairs whose similarity score is above a threshold.

  The metrics of each language pair are `f1/<pair>`, `precision/<pair>`,
  `recall/<pair>` and `threshold/<pair>`, with the mean `f1/mean` over pairs. A
  pair with English is named by its other language. Failures are reported under
  the name of the pair in the source. The files `<pair>.tsv` contain the
  retrieved pairs, one `id<TAB>id` per line and sorted by ids, which is the
  submission format of BUCC and XTREME. A pair without gold pairs (a blind test
  set) only yields the file.

  The threshold has the best F1 on `development`. Without development data, it
  has the best F1 on the scored pairs themselves, which overestimates the F1,
  and a note reports this. A sentence that is repeated in a collection is
  compared once and is in no retrieved pair, as in XTREME's `bucc_eval`. Its
  gold pairs count as missed, as in `evaluate.py`.

  Attributes:
    source: Sentence collections to mine.
    development: Sentence collections with gold pairs, on which the threshold is
      chosen. They have the same language pairs as `source`. If None, the
      threshold is chosen on `source`.
    margin: Margin score by which sentence pairs are ranked: 'absolute' (cosine
      similarity), 'distance' or 'ratio'.
    direction: Method that selects candidates (see
      `xlflax.similarity.margin_scoring`).
    num_neighbors: Number of nearest neighbors over which the margin score
      averages similarities.
  """

  METRICS = (
    F1,
    PRECISION,
    RECALL,
    Metric(
      'threshold',
      Better.NEITHER,
      Unit.UNBOUNDED,
      description='Minimum similarity score of the pairs that are retrieved.',
    ),
  )
  name: str = 'bitext_mining'
  source: example_source.BitextMiningSource
  development: example_source.BitextMiningSource | None = None
  margin: Margin = Margin.RATIO
  direction: Direction = Direction.MAX
  num_neighbors: validation.PositiveInt = 4

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    failures = eval_task.Failures(self.name)
    notes: list[str] = []
    metrics: dict[str, float] = {}
    files: dict[str, str] = {}
    rows: list[eval_task.Row] = []
    parts = self.source.languages()
    pairs = []
    for part in parts:
      first, _, second = part.partition('-')
      pairs.append((first, second))
    text_sources.check_directions(tuple(pairs), self.name)
    for part in parts:
      with failures.guard(part):
        mined = self.source.load(part)
        name = text_sources.pair_name(mined.languages)
        mined_pairs, row = self._score(eval_model, part, mined, notes)
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
    self, eval_model, part, mined, notes
  ) -> tuple[list[tuple[str, str]], eval_task.Row]:
    """Returns a language pair's retrieved pairs, and its row in the table."""
    collections = _deduplicate(mined)
    if collections.repeated:
      notes.append(
        f'{collections.repeated} sentences of {part} occur repeatedly and are '
        'not part of any retrieved pair'
      )
    scored = self._score_candidates(eval_model, collections, notes)
    threshold, tuned_on = self._choose_threshold(
      eval_model, part, collections, scored, notes
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

  def _choose_threshold(
    self, eval_model, part, collections, scored, notes
  ) -> tuple[float, str]:
    """Returns the threshold and the data on which the threshold was chosen."""
    tuned_on = 'itself'
    if self.development is not None:
      tuned_on = 'development'
      collections = _deduplicate(self.development.load(part))
    if collections.gold is None:
      split = 'test' if self.development is None else 'development'
      raise errors.CorpusError(
        f'The similarity threshold for {part!r} cannot be chosen, because the '
        f'{split} data does not contain gold pairs',
        fix='Set BitextMining.development to sentence collections with gold '
        'pairs.',
      )
    if self.development is not None:
      scored = self._score_candidates(eval_model, collections, notes)
    else:
      notes.append(
        f'the threshold of {part} is the best one on the scored pairs '
        'themselves, because there is no development data'
      )
    threshold = mining_metrics.best_threshold(scored, collections.gold)
    return threshold.value, tuned_on

  def _score_candidates(
    self, eval_model, collections: _Collections, notes
  ) -> Scored:
    """Returns the scores of candidate pairs of ids, the best first."""
    codes = []
    for code, texts in zip(
      collections.languages, collections.texts, strict=True
    ):
      if not texts:
        raise errors.CorpusError(
          f'The sentence collection in the language {code!r} is empty'
        )
      codes.append([code] * len(texts))
    sides = self.sides(eval_model, codes, collections.texts, notes)
    candidate_pairs = margin_scoring.find_candidates(
      *sides, k=self.num_neighbors, margin=self.margin, direction=self.direction
    )
    first_ids, second_ids = collections.ids
    scored = {}
    for i, j, score in zip(
      *(column.tolist() for column in candidate_pairs), strict=True
    ):
      first_id = first_ids[i]
      second_id = second_ids[j]
      if first_id is not None and second_id is not None:
        scored[first_id, second_id] = score
    return scored


def _deduplicate(mined: labeled_examples.BitextSentences) -> _Collections:
  """Returns both collections with each distinct sentence once.

  Raises:
    CorpusError: If a gold pair contains the id of a sentence that does not
      exist.
  """
  for first_id, second_id in mined.gold or ():
    if first_id not in mined.first or second_id not in mined.second:
      raise errors.CorpusError(
        f'The gold pair of {first_id!r} and {second_id!r} refers to a sentence '
        'that does not exist',
        where='-'.join(mined.languages),
      )
  sides: list[dict[str, str | None]] = []
  repeated = 0
  for side in (mined.first, mined.second):
    counts = collections.Counter(side.values())
    repeated += sum(count for count in counts.values() if count > 1)
    sides.append(
      {
        text: sentence_id if counts[text] == 1 else None
        for sentence_id, text in side.items()
      }
    )
  first, second = sides
  return _Collections(
    mined.languages,
    (list(first), list(second)),
    (list(first.values()), list(second.values())),
    mined.gold,
    repeated,
  )
