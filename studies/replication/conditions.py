"""Training configurations (conditions) of the replication experiments."""

import dataclasses
import enum

from studies.replication.study_data import TextVariant
from xlflax.data.dataset_config import PairOptions, PairOrder, PositionIds
from xlflax.data.tokenizers.vocabulary_config import Anchors
from xlflax.models.encoder_config import NormPosition
from xlflax.models.variants.parameter_sharing import SharingPlan
from xlflax.training.initialization.decoder_initialization import (
  InitDecoderFromEncoder,
)
from xlflax.training.initialization.vocabulary_matching import (
  EmbeddingMixing,
  EmbeddingNorms,
)


class Loss(enum.Enum):
  """Training loss and the dataset on which it is computed."""

  MLM = 'mlm'
  ADJACENT_MLM = 'adjacent_mlm'  # Of the sequences that CA_MLM reads.
  CODE_SWITCHED_MLM = 'code_switched_mlm'
  FIRST_LANGUAGE_MLM = 'first_language_mlm'
  # Negative control: the selected tokens are not masked.
  UNMASKED = 'unmasked'
  PAIR_MLM = 'pair_mlm'  # Of each side of a pair separately.
  TLM = 'tlm'
  MOCO = 'moco'
  ZERO_QUEUE = 'zero_queue'  # Negative control: MoCo without negatives.
  CA_MLM = 'ca_mlm'  # Of adjacent segments.
  CA_MLM_PAIRS = 'ca_mlm_pairs'
  # Negative control: gradients flow into the side that is attended to.
  FLOWING_CA_MLM_PAIRS = 'flowing_ca_mlm_pairs'
  DISTILLATION = 'distillation'  # Together with MLM on the same sequences.
  TRANSLATION = 'translation'


class Initialization(enum.Enum):
  """Parameters that a training run copies from an earlier run."""

  ALL = 'all'  # All parameters. Both runs have the same vocabulary.
  # The Transformer layers, and embeddings by vocabulary matching.
  BOTH = 'both'
  BODY = 'body'  # The Transformer layers.
  EMBEDDINGS = 'embeddings'
  # As BOTH, and embeddings of translations.
  WITH_DICTIONARY = 'with_dictionary'
  SHUFFLED_DICTIONARY = 'shuffled_dictionary'  # Negative control.
  # No parameters. The other run is the teacher of a distillation.
  TEACHER = 'teacher'


# Options of pairs. With the default options, the second language never occurs
# at the first positions.
AS_XLM = PairOptions(positions=PositionIds.RESET)
AS_PPA = PairOptions(order=PairOrder.RANDOM)
AS_BOTH = PairOptions(order=PairOrder.RANDOM, positions=PositionIds.RESET)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
  """Model sizes and training settings that all runs of a study share.

  Attributes:
    layers: Number of Transformer layers in the encoder.
    hidden: Size of the hidden states.
    length: Number of tokens per sequence. Sequences with both sentences of a
      pair are twice as long.
    batch: Number of monolingual sequences per step. The number of sentence
      pairs per step is half of it.
    learning_rate: Peak learning rate, which then decays linearly to 0.
    warmup: Number of warmup steps.
    heads: Number of attention heads.
    recipe: Whether to use the architecture and training settings of
      recipes/small.gin: rotary positions, no transform before the output layer,
      Muon, and lines that are concatenated into sequences of twice `length`.
    mask_ratio: Fraction of tokens that are masked and predicted.
    tagger_steps: Number of steps for fine-tuning the part-of-speech tagger.
    tagger_rate: Peak learning rate for fine-tuning the part-of-speech tagger.
  """

  layers: int = 4
  hidden: int = 32
  length: int = 16
  batch: int = 32
  learning_rate: float = 5e-3
  warmup: int = 50
  heads: int = 2
  recipe: bool = False
  mask_ratio: float = 0.25
  tagger_steps: int = 100
  tagger_rate: float = 2e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
  """A training configuration in the replication study.

  Recorded results are identified by a digest of the names and values of these
  fields, including the title.

  Attributes:
    name: Unique name of the form `paper/condition`.
    title: Name of the condition in the paper.
    steps: Number of optimizer steps.
    losses: Losses whose sum is minimized in every step.
    anchors: Method of sharing the vocabulary between the languages. If None,
      the vocabulary is trained only on the first language.
    text: Variant of the text on which the model is trained.
    sharing: Model components that are separate for each language. If None, all
      languages share all parameters.
    begins_from: Name of the condition that provides the initial parameters,
      from its run with the same seed. If None, parameters are initialized
      randomly.
    taken: Parameters that are copied from the run of the condition
      `begins_from`.
    norms: Method for choosing embedding norms when embeddings are copied to a
      new vocabulary.
    interpolated: Whether to interpolate embeddings for new tokens, which have
      no match in the vocabulary of the initial run.
    mixing: Method for interpolating embeddings (FOCUS or WECHSEL).
    frozen: Patterns of the names of parameters that are not trained.
    max_pairs: Number of sentence pairs to read. If None, all pairs are read.
    pairs: Options for combining the two sentences of a pair into one sequence.
    cross_attention: Whether the model has the plug-in cross-attention module of
      VECO.
    learned_positions: Whether to use learned positions instead of rotary
      positions. Cross-attention does not support the rotary positions of the
      recipe.
    untrained: Whether to evaluate the initial model without training it.
    learning_rate: Peak learning rate. If None, the value in `Size` is used.
    saved: Whether to save the run because it initializes other runs.
    norm: Position of the layer norms relative to each block.
    measured: Whether to measure scores after training. It is False for a run
      that is only used to initialize other runs.
    against_random: Whether to also compare the model's hidden states in the
      first language with those of a random encoder in the second language.
    aligned: Whether to measure how well the hidden states of each layer align
      words.
    entailment_steps: Number of training steps for each sentence-pair
      classifier. The papers describe several methods of training on
      translations, and one classifier is trained with each method. If 0, no
      classifier is trained.
    decoder_layers: Number of decoder layers in a translation model. If 0, the
      model has no decoder.
    decoder: Method for initializing the decoder from an encoder's run.
  """

  name: str
  title: str
  steps: int
  losses: tuple[Loss, ...] = (Loss.MLM,)
  anchors: Anchors | None = Anchors.JOINT
  text: TextVariant = TextVariant.SAME_DOMAIN
  sharing: SharingPlan | None = None
  begins_from: str | None = None
  taken: Initialization = Initialization.ALL
  norms: EmbeddingNorms = EmbeddingNorms.INITIALIZED
  interpolated: bool = False
  mixing: EmbeddingMixing = EmbeddingMixing.FOCUS
  frozen: tuple[str, ...] = ()
  max_pairs: int | None = None
  pairs: PairOptions = AS_XLM
  cross_attention: bool = False
  learned_positions: bool = False
  untrained: bool = False
  learning_rate: float | None = None
  saved: bool = False
  norm: NormPosition = NormPosition.PRE
  measured: bool = True
  against_random: bool = False
  aligned: bool = False
  entailment_steps: int = 0
  decoder_layers: int = 0
  decoder: InitDecoderFromEncoder | None = None

  @property
  def reads_dictionary(self) -> bool:
    """True if the run requires a bilingual dictionary."""
    return self.taken in (
      Initialization.WITH_DICTIONARY,
      Initialization.SHUFFLED_DICTIONARY,
    )
