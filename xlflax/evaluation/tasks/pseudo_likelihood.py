"""Pseudo-log-likelihoods of sentences under a masked language model.

Every token is predicted from the other tokens of its sentence (Salazar et al.,
2020, "Masked Language Model Scoring"). Optionally, the following tokens of its
word are masked as well (Kauf and Ivanova, 2023, "A Better Way to Do Masked
Language Model Scoring").
"""

import dataclasses
import enum
import os.path
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.evaluation import (
  batch_sharding,
  eval_task,
  hidden_states,
  text_sources,
  unknown_tokens,
)
from xlflax.evaluation.metrics.example_statistics import Aggregate
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.evaluation.tasks import (
  head_task,
  multiple_choice_task,
  perplexity,
  truncation_notes,
)
from xlflax.objectives.corruption import infilling, masking
from xlflax.objectives.pretraining import masked_lm
from xlflax.utils import validation

_POSITION = 'place'  # Key of the batch with the position to predict.
_TEXT_COLUMNS = (
  ('word_perplexity', (4, 3), Aggregate.PERPLEXITY),
  ('bits_per_byte', (6, 5), Aggregate.RATIO),
)


class MaskUnit(enum.Enum):
  """Tokens that are masked while the model predicts one token."""

  TOKEN = 'token'  # The predicted token.
  # The predicted token and the following tokens of its word, where words are
  # those of whole-word masking.
  WORD = 'word'


class ScoredSpan(enum.Enum):
  """Tokens whose likelihood determines the score of an answer choice."""

  CHOICE = 'choice'  # The tokens of the choice.
  ALL = 'all'  # The tokens of the text and the choice.


class Scores(NamedTuple):
  """Likelihood and accuracy sums over the predicted tokens of N sentences.

  Attributes:
    sums: Negative log-likelihood in nats, number of correct predictions, and
      number of tokens, of shape [N, 3], float64.
    cut: Bool array of shape [N], True for truncated sentences.
    num_unknown: Number of predicted tokens that are unknown tokens, of shape
      [N].
  """

  sums: np.ndarray
  cut: np.ndarray
  num_unknown: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SingleTokenPrediction(masked_lm.MaskedLM):
  """Objective that predicts a single masked token in each sequence.

  The position of the token is `batch['place']` of shape [B, 1], or -1 if the
  sequence has none.

  Attributes:
    mask_unit: Tokens that are masked while a token is predicted.
  """

  mask_unit: MaskUnit

  def mask(self, batch, context, rng):
    del rng
    tokens = batch['token_ids']
    position = batch[_POSITION]
    columns = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    is_hidden = columns == position  # [B, T]
    if self.mask_unit is MaskUnit.WORD:
      is_word_start = infilling.begins_word(tokens, context.vocabulary)
      word_ids = jnp.cumsum(is_word_start, axis=1, dtype=jnp.int32)
      in_same_word = word_ids == masking.gather_rows(
        word_ids, jnp.maximum(position, 0)
      )
      eos_position = (batch['segment_ids'] > 0).sum(1, keepdims=True) - 1
      is_hidden |= (
        (columns > position) & in_same_word & (columns < eos_position)
      )
    choice = masking.Choice(
      jnp.maximum(position, 0),
      (position >= 0).astype(jnp.float32),
      jnp.full_like(position, masking.Action.MASK),
    )
    return jnp.where(is_hidden, context.vocabulary.mask_id, tokens), choice


def score_sentences(
  eval_model: eval_task.EvalModel,
  sentences: Sequence[Sequence[int]],
  language_ids: Sequence[int],
  *,
  hidden: MaskUnit = MaskUnit.TOKEN,
  starts: Sequence[int] = (),
  max_length: int | None = None,
) -> Scores:
  """Predicts every token of each sentence from the sentence's other tokens.

  Args:
    eval_model: Model with its parameters, vocabulary, partitioner and batch
      size.
    sentences: N lists of token ids, without special tokens. Sentences that
      exceed the maximum length are truncated at the beginning.
    language_ids: N indices into the vocabulary's languages.
    hidden: Tokens that are masked while a token is predicted: only the token
      itself, or also the following tokens of its word.
    starts: Index of the first scored token of each sentence. If empty, all
      tokens are scored.
    max_length: Maximum number of tokens per sentence, including bos and eos. If
      None, the model's maximum length is used.
  """
  limit = hidden_states.length_limit(eval_model, max_length)
  truncated = [ids[-limit + 2 :] for ids in sentences]
  num_lost = np.array([len(ids) for ids in sentences]) - [
    len(ids) for ids in truncated
  ]
  first_scored = np.maximum(
    np.array(starts or [0] * len(truncated)) - num_lost, 0
  )
  # Each scored token is a sequence of its own.
  scored_tokens = [
    (sentence, token)
    for sentence, ids in enumerate(truncated)
    for token in range(first_scored[sentence], len(ids))
  ]
  sentence_indices, token_indices = (
    np.array(scored_tokens, np.int64).reshape(-1, 2).T
  )
  languages = np.asarray(language_ids, np.int32)
  spec = eval_model.vocabulary.spec
  totals = np.zeros((len(truncated), 3))
  for indices, rows, length in hidden_states.language_batches(
    eval_model,
    [truncated[i] for i in sentence_indices],
    languages[sentence_indices],
    limit,
  ):
    batch_sentences = sentence_indices[indices]
    num_sequences = len(batch_sentences)
    batch = hidden_states.token_rows(
      [truncated[i] for i in batch_sentences],
      languages[batch_sentences],
      rows,
      length,
      spec,
    )
    # Positions count bos.
    batch[_POSITION] = np.full((rows, 1), -1, np.int32)
    batch[_POSITION][:num_sequences, 0] = token_indices[indices] + 1
    with batch_sharding.logical_axis_scope(eval_model.partitioner):
      sums = perplexity.score_batch(
        _SingleTokenPrediction(mask_unit=hidden),
        eval_model.model,
        spec,
        eval_model.partitioner,
        eval_model.params,
        batch_sharding.shard_batch(batch, eval_model.partitioner),
        jax.random.key(0),  # The prediction is deterministic.
      )
    np.add.at(
      totals, batch_sentences, np.asarray(sums, np.float64)[:num_sequences]
    )
  num_unknown = np.array(
    [
      unknown_tokens.is_unknown(ids[first_scored[i] :], spec).sum()
      for i, ids in enumerate(truncated)
    ],
    np.int64,
  )
  return Scores(totals, num_lost > 0, num_unknown)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class PseudoPerplexity(eval_task.EvalTask):
  """Pseudo-perplexity: each token is predicted from the rest of its sentence.

  The metrics of each language are `perplexity/<language>`, which equals
  exp(`loss/<language>`) and refers to tokens, `word_perplexity/<language>`,
  `accuracy/<language>` and `tokens/<language>`. `word_perplexity` is computed
  from the loss per word, where words are separated by spaces, so that models
  with different vocabularies are comparable. It does not exist for languages
  without spaces and leaves out truncated sentences. `bits_per_byte/<language>`
  is the negative pseudo-log-likelihood in bits per UTF-8 byte of the text,
  which is comparable in all languages, and also leaves out truncated sentences.
  `mean` is the mean over languages. For perplexities, it is the geometric mean.
  Confidence intervals are computed by resampling sentences. If some of the
  predicted tokens are unknown tokens, `unknown_rate/<language>` is their
  fraction. Unknown tokens are easy to predict, so that languages with many of
  them cannot be compared.

  Attributes:
    source: Text with one sentence per line.
    mask_unit: Tokens that are masked while a token is predicted: only the TOKEN
      itself, or also the following tokens of its WORD.
    max_length: Maximum number of tokens per sentence. Longer sentences are
      truncated at the beginning. If None, the model's maximum length is used.
  """

  USES_MLM_HEAD = True
  METRICS = (
    *perplexity.Perplexity.METRICS,
    Metric(
      'word_perplexity',
      Better.LOWER,
      Unit.UNBOUNDED,
      title='perplexity by word',
      description='Perplexity computed from the loss per word, so that '
      'models with different vocabularies can be compared.',
    ),
    Metric(
      'bits_per_byte',
      Better.LOWER,
      Unit.UNBOUNDED,
      title='pseudo-log-likelihood in bits per byte',
      description='Negative pseudo-log-likelihood in bits per byte of the '
      'text. It can be compared between vocabularies and languages.',
    ),
  )
  name: str = 'pseudo_perplexity'
  source: text_sources.TextSource
  mask_unit: MaskUnit = MaskUnit.TOKEN
  max_length: validation.PositiveInt | None = None

  @property
  def further_metrics(self) -> tuple[str, ...]:
    """Metrics that can be compared between vocabularies."""
    return ('bits_per_byte', 'word_perplexity')

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    notes: list[str] = []
    unknown_rates: dict[str, float] = {}

    def score(language: str) -> np.ndarray:
      texts = [text for text in self.source.load(language) if text.strip()]
      language_ids = [_language_id(eval_model, language, notes)] * len(texts)
      sentence_scores = score_sentences(
        eval_model,
        eval_model.vocabulary.encode_each(texts, language_ids),
        language_ids,
        hidden=self.mask_unit,
        max_length=self.max_length,
      )
      if sentence_scores.cut.any():
        notes.append(
          truncation_notes.format_truncated(
            int(sentence_scores.cut.sum()), language
          )
        )
      perplexity.record_unknown_rate(
        language,
        int(sentence_scores.num_unknown.sum()),
        int(sentence_scores.sums[:, 2].sum()),
        unknown_rates,
        notes,
        are_scored=True,
      )
      has_words = language_codes.uses_spaces(language)
      counts = [len(text.split()) if has_words else 0 for text in texts]
      word_counts = np.where(sentence_scores.cut, 0, counts)
      word_losses = np.where(word_counts, sentence_scores.sums[:, 0], 0)
      num_bytes = np.array([len(text.encode('utf-8')) for text in texts])
      byte_counts = np.where(sentence_scores.cut, 0, num_bytes)
      bits = np.where(
        sentence_scores.cut, 0, sentence_scores.sums[:, 0] / np.log(2)
      )
      return np.column_stack(
        [sentence_scores.sums, word_counts, word_losses, byte_counts, bits]
      )

    return perplexity.evaluate_parts(
      self.name,
      {code: code for code in self.source.languages_found()},
      score,
      notes,
      (*perplexity.COLUMNS, *_TEXT_COLUMNS),
      unknown_rates=unknown_rates,
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class LikelihoodChoice(multiple_choice_task.ChoiceTask):
  """Accuracy of choosing the most probable answer, without fine-tuning.

  A text and a choice, joined by a space, form a sentence. The score of the
  choice is the pseudo-log-likelihood of its tokens. In XStoryCloze, the choice
  is the ending of the story. In XWinograd, the text ends with a noun phrase
  that fills the gap, and the choice is the rest of the sentence. The metrics
  and files are the same as in `ChoiceTask`.

  Attributes:
    mask_unit: Tokens that are masked while a token is predicted (see
      `PseudoPerplexity`).
    scored_span: Tokens whose likelihood is the score of a choice: those of the
      CHOICE, or ALL tokens.
    length_normalize: Whether a choice's score is the mean over its tokens
      instead of the sum.
  """

  USES_MLM_HEAD = True
  name: str = 'likelihood_choice'
  mask_unit: MaskUnit = MaskUnit.TOKEN
  scored_span: ScoredSpan = ScoredSpan.CHOICE
  length_normalize: bool = False

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model. The result lists languages or files that failed."""
    result = eval_task.EvalResult(metrics={})
    failures = eval_task.Failures(self.name)
    notes: list[str] = []
    for part in self.source.languages():
      with failures.guard(part):
        examples = head_task.check_examples(
          self.source.load(part), self.EXAMPLE, part
        )
        scores = self._score_choices(eval_model, part, examples, notes)
        self.add_choices(part, examples, scores, result, notes)
    result.metrics.update(head_task.mean_metrics(result.metrics))
    return dataclasses.replace(
      result, notes=tuple(notes), failures=failures.collected()
    )

  def _score_choices(self, eval_model, part, examples, notes) -> np.ndarray:
    """Returns the pseudo-log-likelihood of each choice, of shape [N]."""
    codes = dict.fromkeys(example.language for example in examples)
    id_by_code = {code: _language_id(eval_model, code, notes) for code in codes}
    language_ids = [id_by_code[example.language] for example in examples]
    vocabulary = eval_model.vocabulary
    text_ids = vocabulary.encode_each(
      [example.text for example in examples], language_ids
    )
    sentence_ids = vocabulary.encode_each(
      [f'{example.text} {example.paired_text}' for example in examples],
      language_ids,
    )
    if self.scored_span is ScoredSpan.ALL:
      starts = [0] * len(examples)
    else:
      starts = [
        len(os.path.commonprefix(ids))
        for ids in zip(text_ids, sentence_ids, strict=True)
      ]
    sentence_scores = score_sentences(
      eval_model,
      sentence_ids,
      language_ids,
      hidden=self.mask_unit,
      starts=starts,
    )
    if sentence_scores.cut.any():
      notes.append(
        f'the text of {sentence_scores.cut.sum()} choices of {part} was '
        'truncated at the beginning'
      )
    losses, _, num_tokens = sentence_scores.sums.T
    return (
      -losses / np.maximum(num_tokens, 1) if self.length_normalize else -losses
    )


def _language_id(
  eval_model: eval_task.EvalModel, language: str, notes: list[str]
) -> int:
  """Returns the id of a language."""
  return language_codes.language_id(
    eval_model.vocabulary, language, notes, required=eval_model.needs_languages
  )
