"""Sentence retrieval predictions for test sets without public answers.

The English sentences of XTREME's Tatoeba data are sorted, which hides the
translation pairs. Predictions can therefore only be scored by the benchmark's
organizers. The submission requires a line for each English sentence
(`evaluate.py` and `mock_test_data` of github.com/google-research/xtreme).
"""

import dataclasses
import functools

import numpy as np

from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.metrics.metric import ACCURACY
from xlflax.evaluation.tasks import sentence_task
from xlflax.similarity import cosine
from xlflax.utils import validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalPredictions(sentence_task.CollectionTask):
  """Nearest first-language sentence for each second-language sentence.

  The second language is English in XTREME's parts, such as 'fr-en'. If the
  source has gold pairs, the metrics are `accuracy/<part>`, the fraction of
  sentences of the second language whose nearest sentence is a gold translation,
  and the mean `accuracy/mean`. The files `<part>.tsv` contain a line for each
  sentence of the second language, with the zero-based line number of the
  nearest sentence of the first language. This is the format of XTREME's
  submissions.

  Attributes:
    source: Source of two sentence collections for each language pair.
  """

  METRICS = (ACCURACY,)
  name: str = 'nearest_sentences'
  source: example_source.BitextMiningSource

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    return self.score_parts(
      self.source.languages(), functools.partial(self._score, eval_model)
    )

  def _score(self, eval_model, part, result, notes):
    """Adds the predictions of a part, and returns its statistics."""
    mined = self.source.load(part)
    nearest = self._find_nearest(eval_model, mined, notes)
    result.files[f'{part}.tsv'] = mined.write_nearest(nearest)
    if mined.gold is None:
      notes.append(f'{part}: there are no gold pairs, so it is not scored')
      return {}
    first_ids = list(mined.first)
    is_correct = [
      (first_ids[index], second_id) in mined.gold
      for second_id, index in zip(mined.second, nearest, strict=True)
    ]
    return {'accuracy': example_statistics.Statistics(np.array(is_correct))}

  def _find_nearest(self, eval_model, mined, notes) -> list[int]:
    """Returns the index in `mined.first` of each second sentence's neighbor."""
    texts = [list(side.values()) for side in (mined.first, mined.second)]
    codes = [
      [code] * len(side)
      for code, side in zip(mined.languages, texts, strict=True)
    ]
    sides = self.sides(eval_model, codes, texts, notes)
    return cosine.find_nearest(*sides).backward.tolist()
