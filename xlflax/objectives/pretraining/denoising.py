"""Denoising objectives for pretraining encoder-decoders.

The decoder reconstructs a sequence from a corrupted version of it.
"""

import dataclasses
import enum
from typing import Annotated, Any, ClassVar

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
from xlflax.utils import class_registry, errors, validation


@class_registry.register('span_corruption')
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanCorruption(SequenceToSequence):
  """Span corruption (T5, Raffel et al. 2020, section 3.1.4; mT5).

  The encoder reads the text with each dropped span replaced by a sentinel. The
  decoder predicts the sentinels, each followed by the tokens of its span (see
  `span_corruption.apply_span_corruption`).

  The objective reads sequences of ExampleLayout.BLOCKS or SENTENCES and uses
  only their text tokens. The </s> between the lines of a block are removed,
  because T5's blocks have none, and a packed sequence is read as one text. If a
  sequence has T tokens, of which T - 2 are text, inputs and targets have the
  static lengths `SpanPolicy.lengths(T - 2)`.

  Attributes:
    noise_density: Fraction of the text tokens to drop, or a function of the
      step.
    max_noise_density: Upper bound for `noise_density`, which is required if the
      density is a schedule.
    mean_span_length: Mean number of text tokens in a dropped span.
    decoder_start: Type of the decoder's first input token (T5: PAD).
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  noise_density: span_corruption.Density = 0.15
  max_noise_density: validation.OpenFraction | None = None
  mean_span_length: Annotated[float, annotated_types.Ge(1)] = 3.0
  decoder_start: DecoderStart = DecoderStart.PAD
  name: str = 'span_corruption'

  def __post_init__(self):
    _ = self.policy  # The constructor of the policy checks the settings.

  @property
  def policy(self) -> span_corruption.SpanPolicy:
    """Policy that selects the spans to drop."""
    return span_corruption.SpanPolicy(
      noise_density=self.noise_density,
      max_noise_density=self.max_noise_density,
      mean_span_length=self.mean_span_length,
    )

  def longest_row(self, length: int) -> int:
    """Returns the length of the inputs or targets, whichever is greater."""
    return max(self.policy.lengths(_text_length(length)))

  def vocabulary_error(
    self, vocabulary: Any, length: int
  ) -> errors.VocabularyError | None:
    """Returns the error for a vocabulary with too few sentinels, or None."""
    num_spans = self.policy.num_slots(_text_length(length))
    return span_corruption.missing_sentinels_error(num_spans, vocabulary)

  def rows(
    self, batch, context: objective_base.ObjectiveContext, rng: jax.Array
  ):
    """Creates the inputs and targets of span corruption."""
    text = masking.is_text(batch, context.vocabulary)
    text_length = _text_length(text.shape[1])
    policy = self.policy
    spans = policy(
      rng, jnp.sum(text, axis=1, dtype=jnp.int32), text_length, context.step
    )
    inputs, targets = span_corruption.apply_span_corruption(
      batch, spans, policy.lengths(text_length), context.vocabulary
    )
    return inputs, targets, None


def _text_length(length: int) -> int:
  """Returns the number of tokens between the first and the last, at least 1."""
  return max(length - 2, 1)


@class_registry.register('text_infilling')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextInfilling(SequenceToSequence):
  """Reconstruction of texts with masked spans and permuted sentences (mBART).

  Liu et al. (2020b), section 2.2: 35 % of the words are masked in spans with
  Poisson-distributed lengths, each span is replaced by one mask symbol, and the
  sentences of a block are permuted. The target is the original sequence. The
  encoder's sequence ends with the symbol of its language, which is also the
  first input token of the decoder. The objective reads sequences of
  ExampleLayout.BLOCKS, whose lines end with </s>, or of SENTENCES. A packed
  sequence is read as one text.

  Attributes:
    mask_ratio: Fraction of the words to mask in each text.
    poisson_lambda: Mean number of words in a masked span.
    permute_sentences: Whether to permute the sentences of each text.
    source_symbols: Special symbols that surround the text in the encoder's
      input.
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  mask_ratio: validation.PositiveFraction = 0.35
  poisson_lambda: Annotated[float, annotated_types.Interval(ge=1, le=100)] = 3.5
  permute_sentences: bool = True
  source_symbols: SourceSymbols = SourceSymbols.LANGUAGE_SUFFIX
  name: str = 'infilling'

  def __post_init__(self):
    _ = self.policy  # The constructor of the policy checks the settings.

  @property
  def policy(self) -> infilling.InfillingPolicy:
    """Policy that selects the words to mask."""
    return infilling.InfillingPolicy(
      mask_ratio=self.mask_ratio, poisson_lambda=self.poisson_lambda
    )

  def rows(
    self, batch, context: objective_base.ObjectiveContext, rng: jax.Array
  ):
    """Creates the corrupted inputs, and the original texts as targets."""
    vocabulary = context.vocabulary
    order_rng, span_rng = jax.random.split(rng)
    batch = sequence_ops.merge_segments(batch)
    source = batch
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


class PredictedPositions(enum.Enum):
  """Tokens on which the decoder's loss is computed.

  Attributes:
    MASKED: Only the tokens that were selected for masking.
    ALL: All tokens of the sequence.
  """

  MASKED = 'masked'
  ALL = 'all'


@class_registry.register('masked_seq2seq')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedSeq2Seq(SequenceToSequence):
  """Masked LM in which the decoder predicts the encoder's masked tokens.

  Section 7 of VECO calls this task MLM for its mBART baseline. The encoder
  reads the masked sequence as in masked language modeling, and the decoder
  predicts the masked words. The paper does not specify the other inputs of the
  decoder. Here, the decoder reads the original sequence up to the word that it
  predicts. Together with `Translation(mask_ratio=...)` on parallel text, this
  objective corresponds to the configuration MLM+TLM in the paper.

  Attributes:
    mask_ratio: Fraction of the text tokens to select for masking, or a function
      of the step.
    max_mask_ratio: Upper bound for `mask_ratio`, which is required if the ratio
      is a schedule.
    mask_probability: Probability of replacing a selected token by the mask
      symbol.
    random_probability: Probability of replacing a selected token by a random
      word. Selected tokens that are not replaced by the mask symbol or a random
      word are kept unchanged.
    random_words: Set of words from which random replacements are drawn.
    predicted: Tokens on which the loss is computed: only the MASKED tokens, or
      ALL tokens (BART's token masking).
  """

  ROWS: ClassVar[objective_base.Rows] = objective_base.Rows.SINGLE

  mask_ratio: masking.MaskRatio = 0.15
  max_mask_ratio: validation.PositiveFraction | None = None
  mask_probability: validation.Fraction = 0.8
  random_probability: validation.Fraction = 0.1
  random_words: RandomWords = RandomWords.VOCABULARY
  predicted: PredictedPositions = PredictedPositions.MASKED
  name: str = 'masked_seq2seq'

  def __post_init__(self):
    # The constructor of the masked LM objective checks the settings.
    masked_lm.make_masked_lm(self)

  def rows(
    self, batch, context: objective_base.ObjectiveContext, rng: jax.Array
  ):
    """Creates the masked inputs, and the original sequences as targets."""
    batch = sequence_ops.merge_segments(batch)
    token_ids, choice = masked_lm.make_masked_lm(self).mask(batch, context, rng)
    source = {**batch, batch_keys.TOKEN_IDS: token_ids}
    if self.predicted is PredictedPositions.ALL:
      return source, batch, None
    shape = batch[batch_keys.TOKEN_IDS].shape
    is_selected = (
      sequence_ops.scatter_add(shape[1], choice.positions, choice.weights) > 0
    )
    return source, batch, is_selected
