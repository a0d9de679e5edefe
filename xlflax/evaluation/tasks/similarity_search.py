"""FLORES' similarity search: how often a translation is not the nearest.

xsim: Artetxe and Schwenk (2019), as LASER computes it; xsim++: Chen et al.
(2023), "xsim++: An Improved Proxy to Bitext Mining Performance".
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from xlflax.data.labelled.readers import files
from xlflax.evaluation import base, sentence_encoding
from xlflax.evaluation import sources as sources_lib
from xlflax.evaluation.metrics import aggregates
from xlflax.evaluation.metrics.declaration import Better, Metric
from xlflax.evaluation.tasks import sentence_task
from xlflax.foundation import errors, registry, validation
from xlflax.similarity import margin_scoring
from xlflax.storage import contents


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
  CENTRE = sentence_encoding.Centre.AUTO
  name: str = 'similarity_search'
  source: sources_lib.PairSource
  margin: str = 'ratio'
  k: validation.PositiveInt = 4
  altered: Mapping[str, str] = registry.known_by_content(
    contents.hash_paths, default_factory=dict
  )

  def evaluate(self, subject: base.Subject) -> base.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    pairs = self.source.pairs()
    unknown = set(self.altered) - {second for _, second in pairs}
    if unknown:
      raise errors.ConfigError(
        'Altered sentences are of no second side',
        got=', '.join(sorted(unknown)),
        expected='languages of ' + ', '.join(map(sources_lib.pair_name, pairs)),
        where='SimilaritySearch.altered',
      )
    return self.scored(
      pairs,
      lambda pair, _, notes: self._errors(subject, pair, notes),
      name=sources_lib.pair_name,
    )

  def _errors(self, subject, pair, notes) -> dict[str, aggregates.Statistics]:
    text = self.source.load(pair)
    count = len(text.second)
    second = list(text.second)
    if pair[1] in self.altered:
      second += [line for _, line in files.read_lines(self.altered[pair[1]])]
    vectors = [
      self.vectors(subject, texts, [code] * len(texts), notes)
      for code, texts in zip(pair, (list(text.first), second), strict=True)
    ]
    translations = vectors[1][:count]
    first, kept = self.centred(
      subject,
      ((vectors[0], pair[:1] * count), (translations, pair[1:] * count)),
      notes,
    )
    # Altered sentences lose the mean of the translations, not their own.
    keys = vectors[1] - (translations[:1] - kept[:1])

    def errors_among(number: int) -> aggregates.Statistics:
      return errors_of(
        first, keys[:number], second[:number], k=self.k, margin=self.margin
      )

    found = {'xsim': errors_among(count)}
    if len(second) > count:
      found['xsim++'] = errors_among(len(second))
    return found


def errors_of(
  first: np.ndarray,
  second: np.ndarray,
  texts: list[str],
  *,
  k: int = 4,
  margin: str = 'ratio',
) -> aggregates.Statistics:
  """Which first sentences' best candidates have another text: 1, else 0.

  Args:
    first: [N, H].
    second: [M, H], the translation of sentence i at place i, M >= N.
    texts: M, of the second side.
    k: neighbours among which the candidate is searched.
    margin: how a pair is scored.
  """
  found = margin_scoring.find_candidates(
    first, second, k=min(k, len(first)), margin=margin, direction='forward'
  )
  best = dict(zip(found.first.tolist(), found.second.tolist(), strict=True))
  return aggregates.Statistics(
    np.array([texts[best[i]] != texts[i] for i in range(len(first))])
  )
