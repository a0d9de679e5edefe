"""Round trips: does a token come back to itself through other languages?

Dufter et al. (2018), "Embedding Learning Through Multilingual Concept
Induction"; on sentences, with the links of SimAlign: ImaniGooghari et al.
(2023), "Glot500" (`evaluate_roundtrip.py` of its repository).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.evaluation import (
  eval_task,
  hidden_states,
  text_sources,
  word_states,
)
from xlflax.evaluation.metrics import alignment_error_rate
from xlflax.evaluation.metrics.corpus_statistics import Aggregate
from xlflax.evaluation.metrics.metric import ACCURACY
from xlflax.evaluation.tasks import perplexity
from xlflax.similarity import word_links
from xlflax.utils import errors, validation

_COLUMNS = (('accuracy', (0, 2), Aggregate.RATIO),)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundTrip(eval_task.EvalTask):
  """The share of tokens that come back through a chain of translations.

  From each token of a chain's first language the links go to the second, …,
  and from the last to the first. A link joins two tokens that are each other's
  most similar by cosine.

  Metrics: `accuracy/<chain>` and its mean; `tokens/<chain>` of the first
  language. The examples of intervals are sentences.

  Attributes:
    source: text; a line means the same in every language.
    chains: such as 'en-de-fr'; None: each language with the next two.
    layer: whose states are compared; 0 is the embedding output, -1 the last
      layer. SimAlign's and Glot500's is 8.
    max_length: tokens a sentence, at most.
  """

  METRICS = (ACCURACY, perplexity.TOKENS)
  name: str = 'round_trip'
  source: text_sources.TextSource
  chains: tuple[str, ...] | None = None
  layer: validation.LayerIndex = -1
  max_length: validation.PositiveInt | None = None

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    codes = self.source.languages_found()
    notes = ['line i is taken for the same sentence in every language']
    chains = self.chains or [
      '-'.join((codes * 3)[i : i + min(len(codes), 3)])
      for i in range(len(codes))
    ]

    def rows(chain: str) -> np.ndarray:
      sides = [self._vectors(subject, code, notes) for code in chain.split('-')]
      if len(sides) < 2 or len(set(map(len, sides))) > 1:
        raise errors.CorpusError(
          'There is no way round',
          got=f'{", ".join(str(len(side)) for side in sides)} sentences',
          expected='two languages or more, a line the same in all of them',
          where=chain,
        )
      back = [_back(sentence) for sentence in zip(*sides, strict=True)]
      return np.array(
        [(returns.sum(), 0, len(returns)) for returns in back], float
      )

    return perplexity.evaluate_parts(
      self.name, {chain: chain for chain in chains}, rows, notes, _COLUMNS
    )

  def _vectors(self, subject, language: str, notes) -> list[np.ndarray]:
    """The states [T, H] of each sentence's tokens."""
    number = language_codes.language_id(
      subject.vocabulary, language, notes, required=subject.needs_languages
    )
    layer = hidden_states.layer_index(subject, self.layer, where=self.name)
    lines = self.source.load(language)
    numbers = [number] * len(lines)
    readings = [
      word_states.Reading(
        np.array(ids, np.int32), np.arange(len(ids), dtype=np.int32)
      )
      for ids in subject.vocabulary.encode_each(lines, numbers)
    ]
    states_by_sentence = {
      word_state.sentence: word_state.states[layer]
      for word_state in word_states.states_of_readings(
        subject, readings, numbers, max_length=self.max_length
      )
    }
    n = sum(
      len(states_by_sentence[i]) < len(r.words) for i, r in enumerate(readings)
    )
    if n and (note := f'{n} sentences of {language} were cut') not in notes:
      notes.append(note)
    return [states_by_sentence[i] for i in range(len(lines))]


def _back(sentence: Sequence[np.ndarray]) -> np.ndarray:
  """Which tokens of the first of translations [T, H] come back, bool [T]."""
  return alignment_error_rate.round_trip_words(
    [
      word_links.link_matrix(
        word_links.cosine_similarities(x, y), word_links.Method.ARGMAX
      )
      if len(x) and len(y)
      else np.zeros((len(x), len(y)), bool)
      for x, y in zip(sentence, (*sentence[1:], sentence[0]), strict=True)
    ]
  )
