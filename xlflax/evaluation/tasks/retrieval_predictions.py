"""Retrieval where the right answers are not known: predictions only.

XTREME's Tatoeba has its English sentences sorted, so that which is whose
translation can only be scored by who keeps the answers. It wants a line for
each English sentence (`evaluate.py` and `mock_test_data` of
github.com/google-research/xtreme).
"""

import dataclasses
import functools

import numpy as np

from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics import corpus_statistics
from xlflax.evaluation.metrics.metric import ACCURACY
from xlflax.evaluation.tasks import sentence_task
from xlflax.similarity import cosine as similarity
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class NearestSentences(sentence_task.CollectionTask):
  """For each sentence of the second side, the nearest of the first.

  The second side is English in XTREME's parts, such as 'fr-en'. Where the
  source has gold pairs, `accuracy/<part>` and `accuracy/mean` are the shares
  of the second side's sentences whose nearest is a gold pair of theirs. The
  files `<part>.tsv` have a line for each of these sentences, with the line of
  the nearest sentence of the first side, counted from 0: XTREME's form of a
  submission.

  Attributes:
    source: two collections for each part.
  """

  METRICS = (ACCURACY,)
  name: str = 'nearest_sentences'
  source: example_source.MinedSource

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    return self.scored(
      self.source.languages(), functools.partial(self._score, subject)
    )

  def _score(self, subject, part, result, notes):
    mined = self.source.load(part)
    nearest = self._nearest(subject, mined, notes)
    result.files[f'{part}.tsv'] = mined.write_nearest(nearest)
    if mined.gold is None:
      notes.append(f'{part}: no gold pairs; predictions only')
      return {}
    ids = list(mined.first)
    right = [
      (ids[index], name) in mined.gold
      for name, index in zip(mined.second, nearest, strict=True)
    ]
    return {'accuracy': corpus_statistics.Statistics(np.array(right))}

  def _nearest(self, subject, mined, notes) -> list[int]:
    """Place in the first collection, for each sentence of the second."""
    texts = [list(side.values()) for side in (mined.first, mined.second)]
    codes = [
      [code] * len(side)
      for code, side in zip(mined.languages, texts, strict=True)
    ]
    sides = self.sides(subject, codes, texts, notes)
    return similarity.find_nearest(*sides).backward.tolist()
