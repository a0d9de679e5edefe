"""FLORES' similarity search: how often a translation is not the nearest.

xsim: Artetxe and Schwenk (2019), as LASER computes it; xsim++: Chen et al.
(2023), "xsim++: An Improved Proxy to Bitext Mining Performance".
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from xlflax.data.supervised.readers import file_reading
from xlflax.evaluation import eval_task, sentence_embedding, text_sources
from xlflax.evaluation.metrics import corpus_statistics
from xlflax.evaluation.metrics.metric import Better, Metric
from xlflax.evaluation.tasks import sentence_task
from xlflax.similarity import margin_scoring
from xlflax.storage import content_hash
from xlflax.utils import class_registry, errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SimilaritySearch(sentence_task.SentenceTask):
  """The share of sentences whose nearest by margin is no translation.

  Metrics, for each pair of the source, lower is better: `xsim/<pair>` among
  the second side's sentences; `xsim++/<pair>` among these and the altered
  sentences of `altered`, where there are some; and their means. A translation
  is a sentence of the same text as the right one.

  Attributes:
    source: sentence pairs, such as FilePairs of FLORES-200.
    margin: 'ratio', 'distance' or 'absolute'.
    k: neighbours of the margin.
    altered: language of the second side -> file of altered sentences of it,
      one a line (a number, a name or a word is another).
  """

  METRICS = (
    Metric('xsim', Better.LOWER, title='xsim error'),
    Metric('xsim++', Better.LOWER, title='xsim++ error'),
  )
  CENTRE = sentence_embedding.Centre.AUTO
  name: str = 'similarity_search'
  source: text_sources.PairSource
  margin: str = 'ratio'
  k: validation.PositiveInt = 4
  altered: Mapping[str, str] = class_registry.known_by_content(
    content_hash.hash_paths, default_factory=dict
  )

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    pairs = self.source.pairs()
    unknown = set(self.altered) - {second for _, second in pairs}
    if unknown:
      raise errors.ConfigError(
        'Altered sentences are of no second side',
        got=', '.join(sorted(unknown)),
        expected='languages of '
        + ', '.join(map(text_sources.pair_name, pairs)),
        where='SimilaritySearch.altered',
      )
    return self.scored(
      pairs,
      lambda pair, _, notes: self._errors(subject, pair, notes),
      name=text_sources.pair_name,
    )

  def _errors(
    self, subject, pair, notes
  ) -> dict[str, corpus_statistics.Statistics]:
    text = self.source.load(pair)
    count = len(text.second)
    second = list(text.second)
    if pair[1] in self.altered:
      second += [
        line for _, line in file_reading.read_lines(self.altered[pair[1]])
      ]
    vectors = [
      self.vectors(subject, texts, [code] * len(texts), notes)
      for code, texts in zip(pair, (list(text.first), second), strict=True)
    ]
    translations = vectors[1][:count]
    first, centered_translations = self.centred(
      subject,
      ((vectors[0], pair[:1] * count), (translations, pair[1:] * count)),
      notes,
    )
    # Altered sentences lose the mean of the translations, not their own.
    keys = vectors[1] - (translations[:1] - centered_translations[:1])

    def errors_among(number: int) -> corpus_statistics.Statistics:
      return errors_of(
        first, keys[:number], second[:number], k=self.k, margin=self.margin
      )

    statistics = {'xsim': errors_among(count)}
    if len(second) > count:
      statistics['xsim++'] = errors_among(len(second))
    return statistics


def errors_of(
  first: np.ndarray,
  second: np.ndarray,
  texts: list[str],
  *,
  k: int = 4,
  margin: str = 'ratio',
) -> corpus_statistics.Statistics:
  """Which first sentences' best candidates have another text: 1, else 0.

  Args:
    first: [N, H].
    second: [M, H], the translation of sentence i at place i, M >= N.
    texts: M, of the second side.
    k: neighbours among which the candidate is searched.
    margin: how a pair is scored.
  """
  candidate_pairs = margin_scoring.find_candidates(
    first, second, k=min(k, len(first)), margin=margin, direction='forward'
  )
  best = dict(
    zip(
      candidate_pairs.first.tolist(),
      candidate_pairs.second.tolist(),
      strict=True,
    )
  )
  return corpus_statistics.Statistics(
    np.array([texts[best[i]] != texts[i] for i in range(len(first))])
  )
