"""Denoising pretraining of encoder-decoders: rebuild a row from a noisy one."""

import dataclasses
import enum
from typing import Annotated, ClassVar

import annotated_types
import jax
import jax.numpy as jnp

from xlflax.data import batch_keys
from xlflax.objectives import objective_base
from xlflax.objectives.corruption import (
  infilling,
  masking,
  sequence_ops,
  span_corruption,
)
from xlflax.objectives.corruption.random_words import RandomWords
from xlflax.objectives.pretraining import masked_lm
from xlflax.objectives.pretraining.seq2seq import (
  SequenceToSequence,
  SourceSymbols,
)
from xlflax.objectives.teacher_forcing import DecoderStart
from xlflax.utils import class_registry, validation


@class_registry.register('span_corruption')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanCorruption(SequenceToSequence):
  """Predicts dropped spans (T5, Raffel et al. 2020, section 3.1.4; mT5).

  Rows are those of Layout.BLOCKS or SENTENCES. Only their text counts: a
  block is read without the </s> between its lines, as T5's blocks have none,
  and a packed row as one text. With T tokens in a row, T - 2 of text, inputs
  and targets have the static lengths of `SpanPolicy.lengths(T - 2)`.

  Attributes:
    noise_density: share of the text that is dropped, or a function of the
      step.
    max_noise_density: bound of a scheduled density.
    mean_span_length: mean number of tokens in a dropped span.
    decoder_start: T5 begins with the padding symbol.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  noise_density: span_corruption.Density = 0.15
  max_noise_density: validation.OpenFraction | None = None
  mean_span_length: Annotated[float, annotated_types.Ge(1)] = 3.0
  decoder_start: DecoderStart = DecoderStart.PAD
  name: str = 'span_corruption'

  def __post_init__(self):
    _ = self.policy

  @property
  def policy(self) -> span_corruption.SpanPolicy:
    """The policy that chooses the spans to drop."""
    return span_corruption.SpanPolicy(
      noise_density=self.noise_density,
      max_noise_density=self.max_noise_density,
      mean_span_length=self.mean_span_length,
    )

  def longest_row(self, length: int) -> int:
    return max(self.policy.lengths(_text_length(length)))

  def rows(self, batch, context: objective_base.Context, rng: jax.Array):
    text = masking.is_text(batch, context.vocabulary)
    text_length = _text_length(text.shape[1])
    policy = self.policy
    spans = policy(
      rng, jnp.sum(text, axis=1, dtype=jnp.int32), text_length, context.step
    )
    return *span_corruption.apply_span_corruption(
      batch, spans, policy.lengths(text_length), context.vocabulary
    ), None


def _text_length(length: int) -> int:
  """Returns the tokens between a row's first and last one, at least one."""
  return max(length - 2, 1)


@class_registry.register('infilling')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Infilling(SequenceToSequence):
  """Rebuilds a block from masked spans and shuffled sentences (mBART).

  Liu et al. (2020b), section 2.2: 35 % of the words are masked in spans of
  Poisson lengths, each replaced by one mask symbol, and the sentences of a
  block are permuted; the target is the original row. The encoder's row ends in
  the symbol of its language, with which the decoder's begins. Rows are those of
  Layout.BLOCKS, whose lines end in </s>, or of SENTENCES; a packed row is read
  as one text.

  Attributes:
    mask_ratio: share of the words that is masked.
    poisson_lambda: mean number of words in a span.
    permute_sentences: whether sentences are put in a random order.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  mask_ratio: validation.PositiveFraction = 0.35
  poisson_lambda: Annotated[float, annotated_types.Interval(ge=1, le=100)] = 3.5
  permute_sentences: bool = True
  source_symbols: SourceSymbols = SourceSymbols.LANGUAGE_LAST
  name: str = 'infilling'

  def __post_init__(self):
    _ = self.policy

  @property
  def policy(self) -> infilling.InfillingPolicy:
    """The policy that chooses the words to mask."""
    return infilling.InfillingPolicy(
      mask_ratio=self.mask_ratio, poisson_lambda=self.poisson_lambda
    )

  def rows(self, batch, context: objective_base.Context, rng: jax.Array):
    vocabulary = context.vocabulary
    order_rng, span_rng = jax.random.split(rng)
    source = batch = sequence_ops.one_text(batch)
    if self.permute_sentences:
      source = infilling.permute_sentences(source, order_rng, vocabulary)
    starts = infilling.word_starts(source, vocabulary)
    word_spans = self.policy(
      span_rng, jnp.sum(starts, axis=1, dtype=jnp.int32), starts.shape[1]
    )
    return (
      infilling.apply_infilling(source, word_spans, vocabulary),
      batch,
      None,
    )


class Predicted(enum.Enum):
  """The tokens that the decoder is trained to predict."""

  MASKED = 'masked'  # those that the encoder does not see as they are
  ALL = 'all'


@class_registry.register('token_masking')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenMasking(SequenceToSequence):
  """Predicts the masked tokens of the encoder's row by the decoder.

  What VECO's section 7 calls MLM for its baseline mBART: the encoder reads
  the masked row as in masked language modelling, the decoder predicts the
  masked words. (The paper does not say what else the decoder sees; here it
  reads the whole row up to the word that it predicts.) With
  `Translation(mask_ratio=...)` on parallel text it is the row MLM+TLM.

  Attributes:
    mask_ratio: share of the text tokens that is chosen, or a function of the
      step.
    max_mask_ratio: bound of a scheduled ratio.
    mask_probability: share of these shown as the mask symbol.
    random_probability: share shown as a random word; the rest as is.
    random_words: which words these are.
    predicted: the MASKED tokens only, or ALL (BART's token masking).
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1
  random_words: RandomWords = RandomWords.VOCABULARY
  predicted: Predicted = Predicted.MASKED
  name: str = 'token_masking'

  def __post_init__(self):
    masked_lm.masked_lm_of(self)  # its settings are checked where it is made

  def rows(self, batch, context: objective_base.Context, rng: jax.Array):
    batch = sequence_ops.one_text(batch)
    token_ids, choice = masked_lm.masked_lm_of(self).mask(batch, context, rng)
    source = {**batch, batch_keys.TOKEN_IDS: token_ids}
    if self.predicted is Predicted.ALL:
      return source, batch, None
    shape = batch[batch_keys.TOKEN_IDS].shape
    chosen = (
      sequence_ops.scatter_add(shape[1], choice.positions, choice.weights) > 0
    )
    return source, batch, chosen
