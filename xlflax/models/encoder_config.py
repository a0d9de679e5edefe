"""The encoder's hyper-parameters, and their fit to a vocabulary."""

import dataclasses
import enum
from typing import Annotated, Any, TypeVar, cast

import annotated_types
import jax.numpy as jnp

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import activations, config_checks
from xlflax.models.variants import parameter_sharing
from xlflax.utils import class_registry, errors, validation


class PositionEmbedding(enum.StrEnum):
  """Where absolute positions come from."""

  LEARNED = 'learned'  # a trained table (BERT, RoBERTa, XLM-R, XLM)
  SINUSOIDAL = 'sinusoidal'  # a constant table (Vaswani et al. 2017, 3.5)
  # The sines of all periods, then the cosines (tensor2tensor; NLLB-200).
  SINUSOIDAL_HALVES = 'sinusoidal_halves'
  ROTARY = 'rotary'  # none: queries and keys are turned (Su et al. 2021)
  DISENTANGLED = 'disentangled'  # none: distances have vectors (DeBERTa)


class NormPosition(enum.StrEnum):
  """Where layer normalisation is in a layer."""

  POST = 'post'  # after the residual sum (BERT, RoBERTa, XLM, XLM-R)
  PRE = 'pre'  # before each block, and once more after the last layer


class Norm(enum.StrEnum):
  """The kind of normalisation."""

  LAYER = 'layer'  # layer norm, with scale and bias
  SCALE = 'scale'  # layer norm without bias (ModernBERT)
  RMS = 'rms'  # scale by the root mean square (EuroBERT)


class MlmHead(enum.StrEnum):
  """The layers between the last Transformer layer and the output table."""

  TRANSFORM = 'transform'  # dense, activation, layer norm (BERT, RoBERTa)
  TIED = 'tied'  # nothing (XLM)
  NONE = 'none'  # no prediction of tokens: states only


class OutputEmbeddings(enum.StrEnum):
  """The table that states are multiplied with for logits."""

  TIED = 'tied'  # the token embeddings
  OWN = 'own'  # a table of its own (T5 v1.1, mT5, umT5)


class PaddingStates(enum.StrEnum):
  """The states of padding positions, which no text position sees."""

  KEEP = 'keep'  # whatever the layers compute
  ZERO = 'zero'  # zeros after the embeddings and every layer (XLM)


class Remat(enum.StrEnum):
  """What the backward pass recomputes, layer by layer."""

  NONE = 'none'  # nothing: fastest, most memory
  MINIMAL = 'minimal'  # all but the products with weight matrices
  NARROW = 'narrow'  # and those that are wider than what they are made from
  FULL = 'full'  # everything: only the layers' inputs are kept


class Products(enum.StrEnum):
  """How layers multiply states by weights."""

  PLAIN = 'plain'  # in the compute dtype
  EIGHT_BITS = 'eight_bits'  # rounded to FP8: NVIDIA GPUs from H100 and L40S on


class LayerLoop(enum.StrEnum):
  """How a program goes over stacked layers."""

  AUTO = 'auto'  # unrolled on GPUs and TPUs, scanned elsewhere
  SCAN = 'scan'  # one copy of the layer: compiles fast
  UNROLL = 'unroll'  # a copy a layer: nothing is moved in and out of stacks


class AttentionBackend(enum.StrEnum):
  """Which implementation computes attention."""

  AUTO = 'auto'  # cuDNN or FUSED where they can be used; logged
  XLA = 'xla'  # plain XLA: everywhere, every case
  CUDNN = 'cudnn'  # cuDNN flash attention: NVIDIA GPUs, no dropout, no bias
  FUSED = 'fused'  # our own kernels: GPUs, TPUs; interpreted on CPUs


# `EncoderConfig` or `EncoderDecoderConfig`.
_Config = TypeVar('_Config')

DTYPES = ('float32', 'bfloat16')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
  """What the configurations of encoders and of encoder-decoders share.

  Fields of an enum type also take its value as a string ('pre'), which is how
  gin files write them. In an encoder-decoder a field is for both halves.

  Attributes:
    hidden_dim: width of the states.
    mlp_dim: width inside the feed-forward blocks.
    num_heads: attention heads per layer.
    head_dim: width of a head; None for hidden_dim / num_heads.
    max_length: longest row, in tokens; rows of the position table.
    vocab_size: number of token ids; None until `with_vocabulary`.
    pad_vocab_size_multiple: The number of rows of embedding tables is rounded
      up to a multiple of this number. The matmuls of a vocabulary whose size
      is not a multiple of 8 run at about a third of the rate of others on
      GPUs, and a mesh axis must divide the rows. The padded rows are zero,
      have no gradient and are never predicted. They are part of the root mean
      squares by which Adafactor and StableAdamW scale updates.
    num_languages: number of language ids; None until `with_vocabulary`.
    use_language_embeddings: adds a language's embedding to each token (XLM).
    type_vocab_size: number of token types (BERT: 2); 0 for none.
    position_embedding: trained, constant or rotary positions; only an encoder
      alone can have rotary ones, and T5 has its own.
    position_offset: row of the table that holds position 0 (RoBERTa and
      mBART: 2).
    embedding_norm: layer norm over the summed embeddings (not T5).
    scale_embeddings: token embeddings times sqrt(hidden_dim) (Vaswani et al.
      2017, 3.4; mBART).
    layer_norm_epsilon: added to the variance (RoBERTa: 1e-5; T5: 1e-6).
    activation: of feed-forward block and head, one of
      `xlflax.models.activations`: 'gelu' (exact), 'gelu_tanh' (T5 v1.1),
      'relu' (T5), 'silu', 'tanh'.
    gated_mlp: the feed-forward block is act(x W0) * (x W1).
    dropout_rate: on embeddings and on the output of each block.
    attention_dropout_rate: on attention probabilities.
    mlm_head: what lies between the last layer and the output table: BERT's
      transform, nothing, or no head: such an encoder has states, but no
      logits.
    output_embeddings: the output table: the token embeddings, or its own.
      T5's tied states are scaled by 1 / sqrt(hidden_dim) (Raffel et al. 2020).
    dtype: of computation; parameters, softmax and norms are float32.
    scan_layers: one compiled layer with stacked parameters, scanned over;
      False unrolls the layers.
    layer_loop: whether the program has a loop over stacked layers or a copy
      of each; parameters are the same.
    remat: what the backward pass recomputes.
    products: of states and weights, but for those of embeddings and logits.
    attention_backend: which implementation of attention; cuDNN has no T5
      biases and no dropout.
    initializer_range: standard deviation of initial weights (not T5, whose
      weights start at 1 / sqrt(inputs)).
  """

  hidden_dim: validation.Dimension
  mlp_dim: validation.Dimension
  num_heads: validation.Dimension
  head_dim: validation.Dimension | None = None
  max_length: validation.PositiveInt = 512
  vocab_size: validation.PositiveInt | None = None
  pad_vocab_size_multiple: validation.PositiveInt = 128
  num_languages: validation.PositiveInt | None = None
  use_language_embeddings: bool = False
  type_vocab_size: validation.NonNegativeInt = 0
  position_embedding: PositionEmbedding = PositionEmbedding.LEARNED
  position_offset: validation.NonNegativeInt = 0
  embedding_norm: bool = True
  scale_embeddings: bool = False
  layer_norm_epsilon: Annotated[float, annotated_types.Interval(gt=0, le=1)] = (
    1e-12
  )
  activation: str = 'gelu'
  gated_mlp: bool = False
  dropout_rate: validation.FractionBelowOne = 0.1
  attention_dropout_rate: validation.FractionBelowOne = 0.1
  mlm_head: MlmHead = MlmHead.TRANSFORM
  output_embeddings: OutputEmbeddings = OutputEmbeddings.TIED
  dtype: str = 'float32'
  scan_layers: bool = True
  layer_loop: LayerLoop = LayerLoop.AUTO
  remat: Remat = Remat.NONE
  products: Products = Products.PLAIN
  attention_backend: AttentionBackend = AttentionBackend.AUTO
  initializer_range: validation.PositiveFloat = 0.02

  @property
  def dim_per_head(self) -> int:
    """Width of a head."""
    return self.head_dim or self.hidden_dim // self.num_heads

  @property
  def compute_dtype(self) -> jnp.dtype:
    """The JAX dtype of computation."""
    return jnp.dtype(self.dtype)


@class_registry.register('encoder_config')
@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
  """Hyper-parameters of `xlflax.models.encoder.Encoder`.

  The defaults are BERT's (Devlin et al. 2019).

  Attributes (besides those of `TransformerConfig`):
    num_layers: number of Transformer layers.
    num_kv_heads: heads of keys and values, each shared by several query
      heads; None for one per query head.
    rotary_theta: base of the periods of rotary positions.
    local_rotary_theta: the same for local layers; None for `rotary_theta`.
    rotary_factor: what rotary positions are divided by, in every layer.
    local_window: how far positions of local layers see, to either side; None
      if there are no local layers.
    global_every: layers 0, n, 2 n, … are global for n = global_every.
    norm_position: layer norm after (BERT) or before each block.
    norm: layer norm, without bias, or RMS norm.
    first_norm: False leaves out the first layer's norm before attention
      (ModernBERT); its parameter stays, and is not read.
    head_activation: activation of the head (RoBERTa: always 'gelu'); None
      for `activation`.
    attention_bias: whether the attention's linear maps have biases.
    mlp_bias: whether the feed-forward block's linear maps have biases.
    mlp_output_bias: whether the last of them has one; None for `mlp_bias`.
    head_bias: whether the head's dense map has a bias.
    output_bias: whether logits have a bias.
    relative_buckets: buckets of distances to one side (disentangled).
    relative_max_distance: distance of the last bucket (disentangled).
    padding_states: whether padding is set to zero in every layer (XLM).
    cross_attention: gives each layer VECO's plug-in module, an attention to
      the states of a paired input (`Encoder.plug_in` uses it; `encode` does
      not).
    sharing: which parts each language has for itself (ECS); None: none.

  Raises:
    ConfigError: a value is out of range or not among the choices.
  """

  num_layers: validation.NumLayers
  num_kv_heads: validation.Dimension | None = None
  rotary_theta: validation.PositiveFloat = 10000.0
  local_rotary_theta: validation.PositiveFloat | None = None
  rotary_factor: validation.PositiveFloat = 1.0
  local_window: validation.NonNegativeInt | None = None
  global_every: validation.PositiveInt = 1
  norm_position: NormPosition = NormPosition.POST
  norm: Norm = Norm.LAYER
  first_norm: bool = True
  head_activation: str | None = None
  attention_bias: bool = True
  mlp_bias: bool = True
  mlp_output_bias: bool | None = None
  head_bias: bool = True
  output_bias: bool = True
  relative_buckets: validation.PositiveInt = 256
  relative_max_distance: validation.PositiveInt = 512
  padding_states: PaddingStates = PaddingStates.KEEP
  cross_attention: bool = False
  sharing: parameter_sharing.SharingPlan | None = None

  def __post_init__(self):
    self._check_choices()
    config_checks.check_sizes(self)
    parameter_sharing.check_sharing_plan(self.sharing, self.num_layers)
    config_checks.check_output(self)
    config_checks.check_layers(self)

  def _check_choices(self) -> None:
    _choice('activation', self.activation, activations.activation_names())
    _choice('dtype', self.dtype, DTYPES)
    if self.head_activation is not None:
      _choice(
        'head_activation', self.head_activation, activations.activation_names()
      )

  @property
  def table_size(self) -> int:
    """Rows of the embedding table: vocab_size, rounded up."""
    if self.vocab_size is None:
      raise errors.ConfigError(
        'The encoder does not know the size of its vocabulary',
        got='vocab_size = None',
        expected='a number of tokens',
        where='EncoderConfig.vocab_size',
        fix='fill it in by xlflax.models.encoder_config.with_vocabulary, or set it',
      )
    multiple = self.pad_vocab_size_multiple
    return -(-self.vocab_size // multiple) * multiple


def with_vocabulary(
  config: _Config, spec: vocabulary_spec.VocabularySpec
) -> _Config:
  """Returns `config` with the sizes that a vocabulary determines.

  Raises:
    VocabularyError: `config` states another number of tokens or languages.
  """
  kind = type(config).__name__
  sizes = {'vocab_size': spec.size, 'num_languages': len(spec.languages)}
  for name, size in sizes.items():
    stated = getattr(config, name)
    if stated is not None and stated != size:
      raise errors.VocabularyError(
        f'The vocabulary does not fit the model: {name} differs',
        got=f'{stated} in the model, {size} in the vocabulary',
        where=f'{kind}.{name}',
        fix=f'leave {kind}.{name} unset to take it from the '
        'vocabulary, or use the vocabulary that the model was made for',
      )
  changed: Any = dataclasses.replace(cast(Any, config), **sizes)
  plan = getattr(config, 'sharing', None)
  if plan is None or not plan.same_start:
    return changed
  plan = dataclasses.replace(plan, special_ids=tuple(spec.special_ids))
  return dataclasses.replace(changed, sharing=plan)


def known_languages(config: Any, who: str) -> int:
  """The number of languages; a ConfigError if `who` does not know it."""
  if config.num_languages is None:
    raise errors.ConfigError(
      f'{who} does not know its number of languages',
      got='num_languages = None',
      expected='a number',
      where='EncoderConfig.num_languages',
      fix='fill it in by xlflax.models.encoder_config.with_vocabulary, or set it',
    )
  return config.num_languages


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
  if value not in choices:
    raise errors.ConfigError(
      f'The encoder has no such {name}',
      got=repr(value),
      expected='one of ' + ', '.join(repr(str(c)) for c in choices),
      where=f'EncoderConfig.{name}',
    )
  return value
