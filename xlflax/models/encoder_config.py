"""Hyperparameters of the encoder."""

import dataclasses
import enum
from typing import Annotated, Any, TypeVar, cast

import annotated_types
import jax.numpy as jnp

from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import activations, adapter_config, config_checks
from xlflax.models.variants import parameter_sharing
from xlflax.utils import class_registry, errors, validation


class PositionEmbedding(enum.StrEnum):
  """Type of the position embeddings."""

  # A trained table (BERT, RoBERTa, XLM-R, XLM).
  LEARNED = 'learned'
  # A constant table (Vaswani et al. 2017, section 3.5).
  SINUSOIDAL = 'sinusoidal'
  # A constant table of all sines, then all cosines (tensor2tensor, NLLB-200).
  SINUSOIDAL_HALVES = 'sinusoidal_halves'
  # No table. Queries and keys are rotated (Su et al. 2021).
  ROTARY = 'rotary'
  # No table of positions. Relative distances have embeddings (DeBERTa).
  DISENTANGLED = 'disentangled'


class NormPosition(enum.StrEnum):
  """Position of the layer norms within a Transformer layer."""

  # After each residual sum (BERT, RoBERTa, XLM, XLM-R).
  POST = 'post'
  # Before each block and after the last layer.
  PRE = 'pre'


class Norm(enum.StrEnum):
  """Type of normalization."""

  # Layer norm with scale and bias.
  LAYER = 'layer'
  # Layer norm with scale and without bias (ModernBERT).
  SCALE = 'scale'
  # RMS norm (EuroBERT).
  RMS = 'rms'


class MlmHead(enum.StrEnum):
  """Layers between the last Transformer layer and the output embeddings."""

  # A dense layer, an activation and a layer norm (BERT, RoBERTa).
  TRANSFORM = 'transform'
  # No layers (XLM).
  TIED = 'tied'
  # No head. The encoder returns hidden states and has no logits.
  NONE = 'none'


class Remat(enum.StrEnum):
  """Values that each layer's backward pass recomputes."""

  # Nothing. This is the fastest option and takes the most memory.
  NONE = 'none'
  # Everything except the results of matmuls with weights.
  MINIMAL = 'minimal'
  # Everything except the results of matmuls with weights that are at most as
  # wide as their input, which excludes the inner states of feed-forward blocks.
  SAVE_HIDDEN = 'save_hidden'
  # Everything. Only the inputs of the layers are saved.
  FULL = 'full'


class MatmulPrecision(enum.StrEnum):
  """Number format for matmuls of hidden states and weights."""

  # The compute dtype.
  DEFAULT = 'default'
  # FP8, on NVIDIA GPUs of compute capability 8.9 or later (L40S, H100).
  FP8 = 'fp8'


class AttentionBackend(enum.StrEnum):
  """Implementation of attention."""

  # CUDNN or FUSED if they support the call, else XLA. The choice is logged.
  AUTO = 'auto'
  # XLA operations, which support all devices and options.
  XLA = 'xla'
  # cuDNN flash attention: NVIDIA GPUs, without dropout and biases.
  CUDNN = 'cudnn'
  # The kernels of xlflax for GPUs and TPUs. They are interpreted on CPUs.
  FUSED = 'fused'


# `EncoderConfig` or `EncoderDecoderConfig`.
_Config = TypeVar('_Config')

DTYPES = ('float32', 'bfloat16')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
  """Hyperparameters that encoders and encoder-decoders share.

  Fields of an enum type also accept its value as a string ('pre'), as in gin
  files. In an encoder-decoder, a field applies to the encoder and the decoder.

  Attributes:
    hidden_dim: Width of the hidden states.
    mlp_dim: Width of the hidden layer of the feed-forward blocks.
    num_heads: Number of attention heads per layer.
    head_dim: Width of an attention head. If None, it is hidden_dim / num_heads.
    max_position_embeddings: Maximum sequence length in tokens. It is also the
      number of positions in the position table.
    vocab_size: Number of token ids. If None, `with_vocabulary` sets it.
    pad_vocab_size_multiple: Multiple to which the number of rows of embedding
      tables is rounded up. On GPUs, matmuls over a vocabulary whose size is not
      a multiple of 8 run at about a third of the usual rate. In addition, mesh
      axes that shard the rows must divide the number of rows. The padded rows
      are zero, have no gradient and are never predicted. However, they are
      included in the root mean squares by which Adafactor and StableAdamW scale
      updates.
    num_languages: Number of language ids. If None, `with_vocabulary` sets it.
    use_language_embeddings: Whether to add a language embedding to each token
      embedding (XLM).
    type_vocab_size: Number of token types (BERT: 2). If 0, there are no token
      type embeddings.
    position_embedding: Type of the position embeddings, such as learned or
      rotary. Rotary and disentangled positions are available only for encoders.
      T5 always uses its own relative positions.
    position_offset: Row of the position table for position 0 (RoBERTa and
      mBART: 2).
    embedding_norm: Whether to apply layer norm to the sum of the embeddings
      (not T5).
    scale_embeddings: Whether to multiply token embeddings by sqrt(hidden_dim)
      (Vaswani et al. 2017, section 3.4; mBART).
    layer_norm_epsilon: Number that layer norms add to the variance (RoBERTa:
      1e-5; T5: 1e-6).
    activation: Activation of the feed-forward blocks and of the masked-LM head,
      one of `xlflax.models.activations`: 'gelu' (exact), 'gelu_tanh' (T5 v1.1),
      'relu' (T5), 'silu', 'tanh'.
    gated_mlp: Whether the feed-forward blocks are gated: act(x W0) * (x W1).
    dropout_rate: Dropout rate for the embeddings and the output of each block.
    attention_dropout_rate: Dropout rate for the attention probabilities.
    mlm_head: Layers between the last Transformer layer and the output
      embeddings. TRANSFORM is a dense layer with activation and layer norm, and
      TIED has no layers. With NONE, the encoder has no logits.
    tie_word_embeddings: Whether to compute logits from the token embeddings. If
      False, there is a separate table of output embeddings (T5 v1.1, mT5,
      umT5). With tied embeddings, T5 scales the last hidden states by 1 /
      sqrt(hidden_dim) (Raffel et al. 2020).
    dtype: Data type of the computation. Parameters, softmax and norms always
      use float32.
    scan_layers: Whether to stack the parameters of all layers, so that XLA can
      compile a single layer and scan over it.
    unroll_layers: Whether to unroll the scan over stacked layers. An unrolled
      program contains a copy of each layer and copies no values to and from
      stacked arrays. A loop contains one copy of the layer and compiles faster.
      The parameters are the same. If None, layers are unrolled on GPUs and TPUs
      only. Without `scan_layers`, the field has no effect.
    remat: Values that are not stored, but recomputed in the backward pass.
    matmul_precision: Number format for matmuls of hidden states and weights. It
      does not apply to embeddings and logits.
    attention_backend: Implementation of attention. The cuDNN implementation
      supports neither T5's biases nor dropout.
    initializer_range: Standard deviation of the initial weights. T5 ignores
      this field and uses 1 / sqrt(number of inputs).
  """

  hidden_dim: validation.Dimension
  mlp_dim: validation.Dimension
  num_heads: validation.Dimension
  head_dim: validation.Dimension | None = None
  max_position_embeddings: validation.PositiveInt = 512
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
  tie_word_embeddings: bool = True
  dtype: str = 'float32'
  scan_layers: bool = True
  unroll_layers: bool | None = None
  remat: Remat = Remat.NONE
  matmul_precision: MatmulPrecision = MatmulPrecision.DEFAULT
  attention_backend: AttentionBackend = AttentionBackend.AUTO
  initializer_range: validation.PositiveFloat = 0.02

  @property
  def dim_per_head(self) -> int:
    """Width of an attention head."""
    return self.head_dim or self.hidden_dim // self.num_heads

  @property
  def compute_dtype(self) -> jnp.dtype:
    """JAX data type of the computation."""
    return jnp.dtype(self.dtype)


@class_registry.register('encoder_config')
@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
  """Hyperparameters of `xlflax.models.encoder.Encoder`.

  The default values describe BERT (Devlin et al. 2019).

  Attributes:
    num_layers: Number of Transformer layers.
    num_kv_heads: Number of key and value heads, each of which is shared by
      several query heads. If None, `num_heads` is used.
    rope_theta: Base of the frequencies of rotary position embeddings (RoPE).
    local_rope_theta: Base of the frequencies of rotary position embeddings in
      local layers. If None, `rope_theta` is used.
    rope_scaling_factor: Factor by which all layers divide the positions of
      rotary position embeddings.
    local_attention: Maximum distance (inclusive) between a query and a key in
      local layers, in either direction. If None, there are no local layers.
    global_attn_every_n_layers: Interval n between layers with global attention:
      layers 0, n, 2 n, … are global, and all others are local.
    norm_position: Position of the layer norms: after (BERT) or before each
      block.
    norm: Type of the normalization layers: layer norm with or without bias, or
      RMS norm.
    first_attention_norm: Whether the first layer normalizes the input of its
      attention. If False (ModernBERT), the parameters of the norm exist but are
      not used.
    head_activation: Activation of the masked-LM head (RoBERTa: always 'gelu').
      If None, `activation` is used.
    attention_bias: Whether the attention's linear maps have biases.
    mlp_bias: Whether the linear maps of the feed-forward blocks have biases.
    mlp_output_bias: Whether the last linear map of the feed-forward blocks has
      a bias. If None, `mlp_bias` is used.
    head_bias: Whether the dense layer of the masked-LM head has a bias.
    output_bias: Whether a bias is added to the logits of the masked LM.
    relative_buckets: Number of buckets for distances in each direction
      (disentangled positions only).
    relative_max_distance: Distance at and beyond which all distances share the
      last bucket (disentangled positions only).
    zero_padding_states: Whether to set the hidden states of padding positions
      to zero after the embeddings and after each layer (XLM). No text position
      attends to a padding position.
    cross_attention: Whether each layer has VECO's plug-in module, which is
      cross-attention to the hidden states of a paired input. `Encoder.plug_in`
      uses this module, whereas `Encoder.encode` does not.
    sharing: Plan of the parameters that are separate for each language (ECS).
      If None, all languages share all parameters.
    adapters: Adapter or adapters of the layers
      (`xlflax.models.adapter_config`), in the order in which they are applied.
      A run then trains only adapters and heads, unless `Optimizer.trainable` is
      set. If None, there are no adapters.

  The attributes of `TransformerConfig` apply as well.

  Raises:
    ConfigError: If a value is invalid, or if the values are inconsistent.
  """

  num_layers: validation.NumLayers
  num_kv_heads: validation.Dimension | None = None
  rope_theta: validation.PositiveFloat = 10000.0
  local_rope_theta: validation.PositiveFloat | None = None
  rope_scaling_factor: validation.PositiveFloat = 1.0
  local_attention: validation.NonNegativeInt | None = None
  global_attn_every_n_layers: validation.PositiveInt = 1
  norm_position: NormPosition = NormPosition.POST
  norm: Norm = Norm.LAYER
  first_attention_norm: bool = True
  head_activation: str | None = None
  attention_bias: bool = True
  mlp_bias: bool = True
  mlp_output_bias: bool | None = None
  head_bias: bool = True
  output_bias: bool = True
  relative_buckets: validation.PositiveInt = 256
  relative_max_distance: validation.PositiveInt = 512
  zero_padding_states: bool = False
  cross_attention: bool = False
  sharing: parameter_sharing.SharingPlan | None = None
  adapters: adapter_config.Adapters | None = None

  def __post_init__(self):
    adapters = adapter_config.as_adapters(self.adapters)
    object.__setattr__(self, 'adapters', adapters)
    self._check_choices()
    config_checks.check_sizes(self)
    parameter_sharing.check_sharing_plan(self.sharing, self.num_layers)
    config_checks.check_output(self)
    config_checks.check_layers(self)

  def _check_choices(self) -> None:
    """Raises ConfigError for unknown activations and dtypes."""
    _check_choice(self, 'activation', activations.activation_names())
    _check_choice(self, 'dtype', DTYPES)
    if self.head_activation is not None:
      _check_choice(self, 'head_activation', activations.activation_names())

  @property
  def table_size(self) -> int:
    """Number of rows of the embedding table: vocab_size, rounded up."""
    if self.vocab_size is None:
      raise errors.ConfigError(
        '`vocab_size` must be set to the number of tokens in the vocabulary, '
        'but is None',
        where=errors.field_location(self, 'vocab_size'),
        fix='Set vocab_size, or call '
        'xlflax.models.encoder_config.with_vocabulary.',
      )
    multiple = self.pad_vocab_size_multiple
    return -(-self.vocab_size // multiple) * multiple


def with_vocabulary(
  config: _Config, spec: vocabulary_spec.VocabularySpec
) -> _Config:
  """Sets the vocabulary size and the number of languages of a configuration.

  Args:
    config: Configuration of the model, an `EncoderConfig` or
      `EncoderDecoderConfig`.
    spec: Vocabulary specification with the number of tokens and the languages.

  Raises:
    VocabularyError: If the configuration already has a different number of
      tokens or languages.
  """
  class_name = type(config).__name__
  sizes = {'vocab_size': spec.size, 'num_languages': len(spec.languages)}
  for name, size in sizes.items():
    model_size = getattr(config, name)
    if model_size is not None and model_size != size:
      raise errors.VocabularyError(
        f'`{name}` is {model_size} in the configuration of the model, but '
        f'{size} in the vocabulary',
        where=errors.field_location(config, name),
        fix=f'Leave {class_name}.{name} unset to use the value of the '
        'vocabulary, or use the vocabulary of the model.',
      )
  sized_config: Any = dataclasses.replace(cast(Any, config), **sizes)
  plan = getattr(config, 'sharing', None)
  if plan is None or not plan.share_init:
    return sized_config
  plan = dataclasses.replace(plan, special_ids=tuple(spec.special_ids))
  return dataclasses.replace(sized_config, sharing=plan)


def require_num_languages(config: Any, owner: str) -> int:
  """Returns a configuration's number of languages.

  Args:
    config: Configuration of the model, an `EncoderConfig` or
      `EncoderDecoderConfig`.
    owner: Subject of the error message, such as 'The encoder'.

  Raises:
    ConfigError: If the number of languages is not set.
  """
  if config.num_languages is None:
    raise errors.ConfigError(
      f'{owner} requires `num_languages`, which is not set',
      where=errors.field_location(config, 'num_languages'),
      fix='Set num_languages, or call '
      'xlflax.models.encoder_config.with_vocabulary.',
    )
  return config.num_languages


def _check_choice(
  config: EncoderConfig, name: str, choices: tuple[str, ...]
) -> None:
  """Raises ConfigError if a field's value is not supported."""
  value = getattr(config, name)
  if value not in choices:
    raise errors.ConfigError(
      f'The value of `{name}` is not supported',
      got=repr(value),
      expected='one of ' + ', '.join(repr(str(choice)) for choice in choices),
      where=errors.field_location(config, name),
    )
