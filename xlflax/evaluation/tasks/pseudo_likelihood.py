"""Pseudo-log-likelihoods: what a masked language model says of a sentence.

Every token is predicted from the rest of its sentence: Salazar et al. (2020),
"Masked Language Model Scoring"; with what follows of its word hidden, too: Kauf
and Ivanova (2023), "A Better Way to Do Masked Language Model Scoring".
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
)
from xlflax.evaluation.metrics.corpus_statistics import Aggregate
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.evaluation.tasks import head_task, multiple_choice_task, perplexity
from xlflax.objectives.corruption import infilling, masking
from xlflax.objectives.pretraining import masked_lm
from xlflax.utils import validation

_PLACE = 'place'
_BY_WORD = ('word_perplexity', (4, 3), Aggregate.PERPLEXITY)


class Hidden(enum.Enum):
  """What is hidden of a sentence while one of its tokens is predicted."""

  TOKEN = 'token'  # that token
  WORD = 'word'  # and what follows of its word, as whole-word masking has it


class Scored(enum.Enum):
  """Which tokens of a text and a choice count."""

  CHOICE = 'choice'
  ALL = 'all'


class Scores(NamedTuple):
  """What is predicted of N sentences.

  Attributes:
    sums: float64 [N, 3]: -ln p of the tokens, right predictions, tokens.
    cut: bool [N], which sentences were longer than the model reads.
  """

  sums: np.ndarray
  cut: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OneToken(masked_lm.MaskedLM):
  """Predicts the token at `batch['place']` [B, 1]; -1: there is none."""

  hidden: Hidden

  def mask(self, batch, context, rng):
    del rng
    tokens, position = batch['token_ids'], batch[_PLACE]
    columns = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    hidden = columns == position  # [B, T]
    if self.hidden is Hidden.WORD:
      begins = infilling.begins_word(tokens, context.vocabulary)
      word_ids = jnp.cumsum(begins, axis=1, dtype=jnp.int32)
      in_same_word = word_ids == masking.gather_rows(
        word_ids, jnp.maximum(position, 0)
      )
      end = (batch['segment_ids'] > 0).sum(1, keepdims=True) - 1  # eos
      hidden |= (columns > position) & in_same_word & (columns < end)
    choice = masking.Choice(
      jnp.maximum(position, 0),
      (position >= 0).astype(jnp.float32),
      jnp.full_like(position, masking.Action.MASK),
    )
    return jnp.where(hidden, context.vocabulary.mask_id, tokens), choice


def score_sentences(
  subject: eval_task.Subject,
  sentences: Sequence[Sequence[int]],
  language_ids: Sequence[int],
  *,
  hidden: Hidden = Hidden.TOKEN,
  starts: Sequence[int] = (),
  max_length: int | None = None,
) -> Scores:
  """Predicts every token of sentences from the others.

  Args:
    subject: model, parameters, vocabulary, partitioner, batch size.
    sentences: N lists of ids, without special symbols; the last tokens count
      of those that are longer than the model reads.
    language_ids: N indices into the vocabulary's languages.
    hidden: beside the token.
    starts: the first token of each that counts; (): all do.
    max_length: tokens a sentence, bos and eos included, at most; None: as many
      as the model reads.
  """
  limit = hidden_states.length_limit(subject, max_length)
  read = [ids[-limit + 2 :] for ids in sentences]
  lost = np.array([*map(len, sentences)]) - [*map(len, read)]
  first = np.maximum(np.array(starts or [0] * len(read)) - lost, 0)
  places = [
    (i, at) for i, ids in enumerate(read) for at in range(first[i], len(ids))
  ]
  owner, token_index = np.array(places, np.int64).reshape(-1, 2).T
  languages = np.asarray(language_ids, np.int32)
  spec = subject.vocabulary.spec
  totals = np.zeros((len(read), 3))
  for indices, rows, length in hidden_states.language_batches(
    subject, [read[i] for i in owner], languages[owner], limit
  ):
    chosen = owner[indices]
    batch = hidden_states.token_rows(
      [read[i] for i in chosen], languages[chosen], rows, length, spec
    )
    batch[_PLACE] = np.full((rows, 1), -1, np.int32)
    batch[_PLACE][: len(chosen), 0] = token_index[indices] + 1  # after bos
    with batch_sharding.logical_axis_scope(subject.partitioner):
      sums = perplexity.score_batch(
        _OneToken(hidden=hidden),
        subject.model,
        spec,
        subject.partitioner,
        subject.params,
        batch_sharding.shard_batch(batch, subject.partitioner),
        jax.random.key(0),  # nothing is drawn
      )
    np.add.at(totals, chosen, np.asarray(sums, np.float64)[: len(chosen)])
  return Scores(totals, lost > 0)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class PseudoPerplexity(eval_task.EvalTask):
  """Perplexity of tokens, each predicted from the rest of its sentence.

  Metrics, for each language: `perplexity/<language>` = exp(`loss/<language>`)
  of a token; `word_perplexity/<language>`, of the loss by word between spaces,
  which models of other vocabularies can be compared by (languages without
  spaces have none, sentences that were cut do not count);
  `accuracy/<language>` and `tokens/<language>`. `mean` is the mean over
  languages, of perplexities the geometric one. The examples of
  intervals are sentences.

  Attributes:
    source: text, a sentence a line.
    hidden: what is hidden: the TOKEN, or what follows of its WORD, too.
    max_length: tokens a sentence, at most; the last ones of longer ones count.
  """

  METRICS = (
    *perplexity.Perplexity.METRICS,
    Metric(
      'word_perplexity',
      Better.LOWER,
      Unit.UNBOUNDED,
      title='perplexity by word',
    ),
  )
  name: str = 'pseudo_perplexity'
  source: text_sources.TextSource
  hidden: Hidden = Hidden.TOKEN
  max_length: validation.PositiveInt | None = None

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    notes: list[str] = []

    def rows(language: str) -> np.ndarray:
      texts = [text for text in self.source.load(language) if text.strip()]
      number = _number(subject, language, notes)
      sentence_scores = score_sentences(
        subject,
        subject.vocabulary.encode_each(texts, [number] * len(texts)),
        [number] * len(texts),
        hidden=self.hidden,
        max_length=self.max_length,
      )
      if sentence_scores.cut.any():
        notes.append(
          f'{sentence_scores.cut.sum()} sentences of {language} were cut'
        )
      spaced = language_codes.uses_spaces(language)
      counts = [len(text.split()) if spaced else 0 for text in texts]
      word_counts = np.where(sentence_scores.cut, 0, counts)
      by_word = np.where(word_counts, sentence_scores.sums[:, 0], 0)
      return np.column_stack([sentence_scores.sums, word_counts, by_word])

    return perplexity.evaluate_parts(
      self.name,
      {code: code for code in self.source.languages_found()},
      rows,
      notes,
      (*perplexity.COLUMNS, _BY_WORD),
    )


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class LikelihoodChoice(multiple_choice_task.ChoiceTask):
  """The share of questions whose right choice is the likeliest, untrained.

  A text and a choice, joined by a space, are one sentence; the pseudo-log-
  likelihood of the choice's tokens is its score (XStoryCloze's endings; what
  follows the pronoun of XWinograd). Metrics and files are those of
  `ChoiceTask`.

  Attributes:
    hidden: see `PseudoPerplexity`.
    scored: whether the tokens of the CHOICE count or ALL.
    by_token: whether a score is the mean of its tokens, not their sum.
  """

  name: str = 'likelihood_choice'
  hidden: Hidden = Hidden.TOKEN
  scored: Scored = Scored.CHOICE
  by_token: bool = False

  def evaluate(self, subject: eval_task.Subject) -> eval_task.EvalResult:
    """Scores the subject; parts that fail are listed in the result."""
    result, failures = (
      eval_task.EvalResult(metrics={}),
      eval_task.Failures(self.name),
    )
    notes: list[str] = []
    for part in self.source.languages():
      with failures.guard(part):
        examples = head_task.of_kind(self.source.load(part), self.EXAMPLE, part)
        scores = self._scores(subject, part, examples, notes)
        self.add_chosen(part, examples, scores, result, notes)
    result.metrics.update(head_task.mean_metrics(result.metrics))
    return dataclasses.replace(
      result, notes=tuple(notes), failures=failures.collected()
    )

  def _scores(self, subject, part, examples, notes) -> np.ndarray:
    """The (pseudo-)log-likelihood of each choice, [N]."""
    codes = dict.fromkeys(example.language for example in examples)
    ids = {code: _number(subject, code, notes) for code in codes}
    numbers = [ids[example.language] for example in examples]
    encode = subject.vocabulary.encode_each
    texts = [example.text for example in examples]
    joined = encode([f'{x.text} {x.paired_text}' for x in examples], numbers)
    starts = [
      len(os.path.commonprefix(pair))
      for pair in zip(encode(texts, numbers), joined, strict=True)
    ]
    if self.scored is Scored.ALL:
      starts = [0] * len(starts)
    sentence_scores = score_sentences(
      subject, joined, numbers, hidden=self.hidden, starts=starts
    )
    if sentence_scores.cut.any():
      notes.append(
        f'{sentence_scores.cut.sum()} choices of {part} lost the start of the text'
      )
    loss, _, tokens = sentence_scores.sums.T
    return -loss / np.maximum(tokens, 1) if self.by_token else -loss


def _number(subject: eval_task.Subject, language: str, notes: list[str]) -> int:
  return language_codes.language_id(
    subject.vocabulary, language, notes, required=subject.needs_languages
  )
