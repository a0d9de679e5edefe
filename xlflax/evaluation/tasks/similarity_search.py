"""Similarity search on FLORES: error rates for translation retrieval.

xsim is defined by Artetxe and Schwenk (2019) and computed as in LASER. xsim++
is defined by Chen et al. (2023), "xsim++: An Improved Proxy to Bitext Mining
Performance".
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from xlflax.data.supervised.readers import file_reading
from xlflax.evaluation import eval_task, sentence_embedding, text_sources
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.evaluation.tasks import sentence_task
from xlflax.similarity import margin_scoring
from xlflax.storage import content_hash
from xlflax.utils import class_registry, errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SimilaritySearch(sentence_task.SentenceTask):
  """Fraction of sentences whose nearest neighbor is not their translation.

  Neighbors are ranked by margin. The metrics of each language pair are
  `xsim/<pair>` among the sentences of the second language, and, if there are
  altered sentences, `xsim++/<pair>` among these sentences and the altered
  sentences, with the means over pairs. Lower is better. A sentence with the
  same text as the correct translation counts as a translation.

  Attributes:
    source: Source of sentence pairs, such as `ParallelFiles` with FLORES-200.
    margin: Margin score by which candidates are ranked: 'ratio', 'distance' or
      'absolute' (cosine similarity).
    num_neighbors: Number of nearest neighbors over which the margin score
      averages similarities.
    altered: File of altered sentences for each second language, with one
      sentence per line. An altered sentence is a copy of a sentence in which a
      number, a name or a word is replaced. Altered sentences are additional
      candidates in `xsim++`.
  """

  METRICS = (
    Metric(
      'xsim',
      Better.LOWER,
      title='xsim error',
      unit=Unit.FRACTION,
      description='Fraction of sentences whose nearest neighbor by margin is '
      'not their translation.',
    ),
    Metric(
      'xsim++',
      Better.LOWER,
      title='xsim++ error',
      unit=Unit.FRACTION,
      description='The same fraction if altered copies of the translations '
      'are additional candidates.',
    ),
  )
  DEFAULT_CENTERING = sentence_embedding.Centering.AUTO
  name: str = 'similarity_search'
  source: text_sources.PairSource
  margin: str = 'ratio'
  num_neighbors: validation.PositiveInt = 4
  altered: Mapping[str, str] = class_registry.path_field(
    content_hash.hash_paths, default_factory=dict
  )

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    pairs = self.source.pairs()
    unknown = set(self.altered) - {second for _, second in pairs}
    if unknown:
      raise errors.ConfigError(
        'Each key of `altered` must be the second language of a language pair',
        got=', '.join(sorted(unknown)),
        expected='second languages of '
        + ', '.join(map(text_sources.pair_name, pairs)),
        where=errors.field_location(self, 'altered'),
      )
    return self.score_parts(
      pairs,
      lambda pair, _, notes: self._score_pair(eval_model, pair, notes),
      name=text_sources.pair_name,
    )

  def _score_pair(
    self, eval_model, pair, notes
  ) -> dict[str, example_statistics.Statistics]:
    """Returns per-sentence errors of a language pair, by metric."""
    text = self.source.load(pair)
    count = len(text.second)
    second = list(text.second)
    if pair[1] in self.altered:
      second += [
        line for _, line in file_reading.read_lines(self.altered[pair[1]])
      ]
    first_vectors, second_vectors = (
      self.vectors(eval_model, texts, [code] * len(texts), notes)
      for code, texts in zip(pair, (list(text.first), second), strict=True)
    )
    translations = second_vectors[:count]
    queries, centered_translations = self.center_vectors(
      eval_model,
      ((first_vectors, pair[:1] * count), (translations, pair[1:] * count)),
      notes,
    )
    # The mean of the translations is also subtracted from altered sentences.
    mean = translations[:1] - centered_translations[:1]
    keys = second_vectors - mean

    def score_candidates(num_keys: int) -> example_statistics.Statistics:
      return search_errors(
        queries,
        keys[:num_keys],
        second[:num_keys],
        k=self.num_neighbors,
        margin=self.margin,
      )

    statistics = {'xsim': score_candidates(count)}
    if len(second) > count:
      statistics['xsim++'] = score_candidates(len(second))
    return statistics


def search_errors(
  first: np.ndarray,
  second: np.ndarray,
  texts: list[str],
  *,
  k: int = 4,
  margin: str = 'ratio',
) -> example_statistics.Statistics:
  """Returns 1 for each query whose best candidate is wrong, and 0 otherwise.

  A candidate is wrong if its text differs from that of the translation.

  Args:
    first: Sentence vectors of the queries, of shape [N, H].
    second: Sentence vectors of the candidates, of shape [M, H] with M >= N.
      Candidate i is the translation of query i.
    texts: Candidate texts, M strings.
    k: Number of nearest neighbors among which the best candidate is chosen.
    margin: Margin score by which candidates are ranked: 'ratio', 'distance' or
      'absolute' (cosine similarity).
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
  return example_statistics.Statistics(
    np.array([texts[best[i]] != texts[i] for i in range(len(first))])
  )
