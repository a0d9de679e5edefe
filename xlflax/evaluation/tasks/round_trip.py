"""Round-trip accuracy: token alignment through several languages and back.

Source: Dufter et al. (2018), "Embedding Learning Through Multilingual Concept
Induction". The variant for sentences with SimAlign's links is from
ImaniGooghari et al. (2023), "Glot500" (`evaluate_roundtrip.py` of its
repository).
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
from xlflax.evaluation.metrics.example_statistics import Aggregate
from xlflax.evaluation.metrics.metric import ACCURACY
from xlflax.evaluation.tasks import perplexity, truncation_notes
from xlflax.similarity import word_links
from xlflax.utils import errors, validation

_COLUMNS = (('accuracy', (0, 2), Aggregate.RATIO),)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundTrip(eval_task.EvalTask):
  """Fraction of tokens that alignment links map back to themselves.

  Links lead from each token of a chain's first language to the second language,
  and so on, and from the last language back to the first. A link joins two
  tokens that are each other's most similar by cosine.

  The metrics are `accuracy/<chain>` with its mean, and `tokens/<chain>`, the
  number of tokens of the first language. Confidence intervals are computed by
  resampling sentences.

  Attributes:
    source: Source of text in which lines with the same number are translations
      of each other in all languages.
    language_cycles: Chains of languages, such as 'en-de-fr'. If None, there is
      one chain for each language, which consists of the language and the two
      languages that follow it in `source`.
    layer: Layer whose hidden states are compared. 0 is the embedding output and
      -1 the last layer. SimAlign and Glot500 use layer 8.
    max_length: Maximum number of tokens per sentence. If None, the model's
      maximum length is used.
  """

  METRICS = (ACCURACY, perplexity.TOKENS)
  name: str = 'round_trip'
  source: text_sources.TextSource
  language_cycles: tuple[str, ...] | None = None
  layer: validation.LayerIndex = -1
  max_length: validation.PositiveInt | None = None

  def scored_layers(self, eval_model: eval_task.EvalModel) -> tuple[int, ...]:
    return (hidden_states.layer_index(eval_model, self.layer, where=self.name),)

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    codes = self.source.languages_found()
    notes = ['line i is assumed to be the same sentence in every language']
    chains = self.language_cycles or [
      '-'.join((codes * 3)[i : i + min(len(codes), 3)])
      for i in range(len(codes))
    ]

    def score(chain: str) -> np.ndarray:
      sides = [
        self._token_states(eval_model, code, notes) for code in chain.split('-')
      ]
      if len(sides) < 2 or len(set(map(len, sides))) > 1:
        raise errors.CorpusError(
          'A round trip requires at least two languages with the same number '
          'of sentences, but the numbers of sentences are '
          f'{", ".join(str(len(side)) for side in sides)}',
          where=chain,
        )
      rows = []
      for translations in zip(*sides, strict=True):
        returns = _returning_tokens(translations)
        rows.append((returns.sum(), 0, len(returns)))
      return np.array(rows, float)

    return perplexity.evaluate_parts(
      self.name, {chain: chain for chain in chains}, score, notes, _COLUMNS
    )

  def _token_states(self, eval_model, language: str, notes) -> list[np.ndarray]:
    """Returns the states of each sentence's tokens, of shape [T, H]."""
    language_id = language_codes.language_id(
      eval_model.vocabulary,
      language,
      notes,
      required=eval_model.needs_languages,
    )
    (layer,) = self.scored_layers(eval_model)
    lines = self.source.load(language)
    language_ids = [language_id] * len(lines)
    readings = [
      word_states.Reading(
        np.array(ids, np.int32), np.arange(len(ids), dtype=np.int32)
      )
      for ids in eval_model.vocabulary.encode_each(lines, language_ids)
    ]
    states_by_sentence = {
      word_state.sentence: word_state.states[layer]
      for word_state in word_states.states_of_readings(
        eval_model, readings, language_ids, max_length=self.max_length
      )
    }
    num_truncated = sum(
      len(states_by_sentence[i]) < len(reading.words)
      for i, reading in enumerate(readings)
    )
    note = truncation_notes.format_truncated(num_truncated, language)
    if num_truncated and note not in notes:
      notes.append(note)
    return [states_by_sentence[i] for i in range(len(lines))]


def _returning_tokens(translations: Sequence[np.ndarray]) -> np.ndarray:
  """Computes which tokens of the first translation return to themselves.

  Args:
    translations: Hidden states of each translation's tokens, of shape [T, H].

  Returns:
    A mask of the first translation's tokens of shape [T], bool.
  """
  links = []
  for source, target in zip(
    translations, (*translations[1:], translations[0]), strict=True
  ):
    if len(source) and len(target):
      links.append(
        word_links.link_matrix(
          word_links.cosine_similarities(source, target),
          word_links.Method.ARGMAX,
        )
      )
    else:
      links.append(np.zeros((len(source), len(target)), bool))
  return alignment_error_rate.round_trip_words(links)
