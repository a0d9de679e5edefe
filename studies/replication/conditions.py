"""The conditions of the experiments."""

import dataclasses
import enum

from studies.replication.worlds import Text
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
  """What a step trains on, and on which dataset."""

  MLM = 'mlm'
  ADJACENT_MLM = 'adjacent_mlm'  # of the rows that CA_MLM reads
  CODE_SWITCHED_MLM = 'code_switched_mlm'
  FIRST_LANGUAGE_MLM = 'first_language_mlm'
  UNMASKED = 'unmasked'  # broken on purpose: chosen tokens are all shown
  PAIR_MLM = 'pair_mlm'  # of each side by itself
  TLM = 'tlm'
  MOCO = 'moco'
  ZERO_QUEUE = 'zero_queue'  # broken on purpose: MoCo without negatives
  CA_MLM = 'ca_mlm'  # of adjacent segments
  CA_MLM_PAIRS = 'ca_mlm_pairs'
  # Broken on purpose: gradients flow into the side that is attended to.
  FLOWING_CA_MLM_PAIRS = 'flowing_ca_mlm_pairs'
  DISTILLATION = 'distillation'  # and MLM on the same rows
  TRANSLATION = 'translation'


class Taken(enum.Enum):
  """What a run begins with of another one (MetaXLM, table 5)."""

  ALL = 'all'  # of a run with the same vocabulary
  BOTH = 'both'  # the body, and rows by vocabulary matching
  BODY = 'body'
  EMBEDDINGS = 'embeddings'
  WITH_DICTIONARY = 'with_dictionary'  # both, and rows of translations
  SHUFFLED_DICTIONARY = 'shuffled_dictionary'  # broken on purpose
  TEACHER = 'teacher'  # no parameter: the run teaches by its predictions


# How pairs are put together. As they are, the second language never stands at
# the first positions.
AS_XLM = PairOptions(positions=PositionIds.RESET)
AS_PPA = PairOptions(order=PairOrder.RANDOM)
AS_BOTH = PairOptions(order=PairOrder.RANDOM, positions=PositionIds.RESET)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
  """The size of models and batches.

  Attributes:
    layers: of the encoder.
    hidden: their width.
    length: tokens a row; a row of both sides of a pair has twice as many.
    batch: rows a step of monolingual text; pairs are half as many.
    learning_rate: the peak; then straight down to 0.
    warmup: steps.
    heads: of attention.
    recipe: whether models and rows have the form of recipes/small.gin: rotary
      positions, no transform before the output, Muon, lines joined end to end
      in rows of twice `length`.
    mask_ratio: share of the tokens that are predicted.
    tagger_steps: of fine-tuning.
    tagger_rate: its peak.
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
  """One row of the experiments.

  Attributes:
    name: unique, `paper/row`.
    title: the paper's name of it.
    steps: optimizer steps.
    losses: what every step trains, losses added.
    anchors: the vocabulary; None: of the first language alone.
    text: domains.
    sharing: language-specific parts.
    begins_from: another condition, whose run of the same seed is taken.
    taken: what is taken of it.
    norms: of rows by vocabulary matching.
    interpolated: whether rows that match none are put together from others.
    mixing: from which (FOCUS, WECHSEL).
    frozen: patterns of parameters that do not train.
    max_pairs: the first so many pairs; None: all.
    pairs: how they are put together.
    cross_attention: whether the model has VECO's plug-in module.
    learned_positions: whether they are learned where the recipe has them
      rotary, which cross-attention cannot be.
    untrained: no step is made.
    learning_rate: None: the size's.
    saved: whether others begin from it.
    norm: where layer norms stand.
    measured: False for one that is only begun from.
    against_random: whether the first language's states are also compared with
      a random encoder's of the second.
    aligned: whether words are aligned by the states of each layer.
    entailment_steps: of classifiers of sentence pairs, trained on translations
      in the ways that papers compare; 0: none.
    decoder_layers: of a translation model; 0: the model is an encoder.
    decoder: how the decoder begins from the run of an encoder.
  """

  name: str
  title: str
  steps: int
  losses: tuple[Loss, ...] = (Loss.MLM,)
  anchors: Anchors | None = Anchors.JOINT
  text: Text = Text.SAME_DOMAIN
  sharing: SharingPlan | None = None
  begins_from: str | None = None
  taken: Taken = Taken.ALL
  norms: EmbeddingNorms = EmbeddingNorms.FRESH
  interpolated: bool = False
  mixing: EmbeddingMixing = EmbeddingMixing.MATCHED
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
    """Whether a run needs a bilingual dictionary."""
    return self.taken in (Taken.WITH_DICTIONARY, Taken.SHUFFLED_DICTIONARY)
