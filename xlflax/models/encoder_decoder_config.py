"""Hyperparameters of encoder-decoders."""

import dataclasses
import enum
from typing import Annotated

import annotated_types

from xlflax.models import encoder_config
from xlflax.utils import class_registry, errors, validation


class EncoderDecoderFamily(enum.StrEnum):
  """Type of the layers (T5, pre-LN or post-LN)."""

  # Layer norm after each block (Vaswani et al. 2017).
  POST_LN = 'post_ln'
  # Layer norm before each block and after the last layer (mBART).
  PRE_LN = 'pre_ln'
  # RMS norm before each block, relative positions and no biases.
  T5 = 't5'


_ENCODER_ONLY = (
  encoder_config.PositionEmbedding.ROTARY,
  encoder_config.PositionEmbedding.DISENTANGLED,
)


class OutputScaling(enum.StrEnum):
  """Factor that T5 applies to hidden states before the output embeddings."""

  # WIDTH if the output embeddings are the token embeddings, else NONE.
  AUTO = 'auto'
  # 1 / sqrt(hidden_dim).
  WIDTH = 'width'
  # 1.
  NONE = 'none'


class TiedLayers(enum.StrEnum):
  """Choice of encoder layers that a tied decoder with fewer layers shares."""

  FIRST = 'first'
  LAST = 'last'


# Fields that apply only to T5 or only to the other families, and their values
# in configurations to which they do not apply.
_T5_ONLY = {
  'per_layer_relative_bias': False,
  'gated_mlp': False,
  'output_scaling': OutputScaling.AUTO,
}
_LAYER_NORM_ONLY = {
  'use_language_embeddings': False,
  'type_vocab_size': 0,
  'scale_embeddings': False,
  'position_offset': 0,
  'tie_decoder': False,
  'mlm_head': encoder_config.MlmHead.TIED,
}


@class_registry.register('encoder_decoder_config')
@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(encoder_config.TransformerConfig):
  """Hyperparameters of `xlflax.models.encoder_decoder.EncoderDecoder`.

  Attributes:
    family: Model family, which determines the type of the layers: T5, pre-LN or
      post-LN.
    num_encoder_layers: Number of encoder layers.
    num_decoder_layers: Number of decoder layers.
    relative_buckets: Number of rows in the relative position table (T5).
    relative_max_distance: Distance at and beyond which all distances share the
      last bucket (T5).
    per_layer_relative_bias: Whether each layer has a relative position table
      (umT5). Otherwise, all encoder layers share one table, and all decoder
      layers share one table.
    output_scaling: Factor that T5 applies to the last hidden states before the
      output embeddings.
    tie_decoder: Whether the decoder shares parameters with the encoder. It
      shares the embeddings, and its layers share the self-attention,
      feed-forward blocks and layer norms of the encoder layers. Only the
      cross-attention is then separate (VECO, section 6.1).
    tied_layers: Encoder layers, FIRST or LAST, that a tied decoder shares if it
      has fewer layers than the encoder.
    output_bias: Whether a bias is added to the logits (mBART: True). It has no
      effect for T5.

  The attributes of `TransformerConfig` apply as well.

  Raises:
    ConfigError: If a value is invalid or does not apply to the family.
  """

  family: EncoderDecoderFamily
  num_encoder_layers: validation.NumLayers
  num_decoder_layers: validation.NumLayers
  relative_buckets: Annotated[int, annotated_types.Ge(4)] = 32
  relative_max_distance: validation.PositiveInt = 128
  per_layer_relative_bias: bool = False
  output_scaling: OutputScaling = OutputScaling.AUTO
  tie_decoder: bool = False
  tied_layers: TiedLayers = TiedLayers.LAST
  output_bias: bool = True
  layer_norm_epsilon: Annotated[float, annotated_types.Interval(gt=0, le=1)] = (
    1e-5
  )
  mlm_head: encoder_config.MlmHead = encoder_config.MlmHead.TIED

  def __post_init__(self):
    self._check_family()
    self._check_sizes()
    _ = self.encoder  # Checks all fields that encoders have as well.

  @property
  def is_t5(self) -> bool:
    """True if the model has T5 layers."""
    return self.family is EncoderDecoderFamily.T5

  @property
  def scales_output(self) -> bool:
    """True if hidden states are scaled before the output embeddings (T5)."""
    if self.output_scaling is OutputScaling.AUTO:
      return self.tie_word_embeddings
    return self.output_scaling is OutputScaling.WIDTH

  @property
  def num_layers(self) -> int:
    """Number of encoder layers."""
    return self.num_encoder_layers

  @property
  def table_size(self) -> int:
    """Number of rows of the embedding table: vocab_size, rounded up."""
    return self.encoder.table_size

  @property
  def sharing(self) -> None:
    """Sharing plan: None, as all languages share all parameters."""
    return None

  @property
  def encoder(self) -> encoder_config.EncoderConfig:
    """`EncoderConfig` with the field values of this configuration.

    It configures the modules that are shared with encoder-only models.
    """
    if self.family is EncoderDecoderFamily.POST_LN:
      norm_position = encoder_config.NormPosition.POST
    else:
      norm_position = encoder_config.NormPosition.PRE
    encoder_fields = {
      field.name for field in dataclasses.fields(encoder_config.EncoderConfig)
    }
    return encoder_config.EncoderConfig(
      num_layers=self.num_encoder_layers,
      norm_position=norm_position,
      **{
        field.name: getattr(self, field.name)
        for field in dataclasses.fields(self)
        if field.name in encoder_fields
      },
    )

  def _check_family(self) -> None:
    """Raises ConfigError for values that the family does not support."""
    unsupported_fields = _LAYER_NORM_ONLY if self.is_t5 else _T5_ONLY
    for name, default in unsupported_fields.items():
      if getattr(self, name) != default:
        raise errors.ConfigError(
          f'The model family {str(self.family)!r} does not support `{name}`',
          got=getattr(self, name),
          expected=default,
          where=errors.field_location(self, name),
        )
    if self.position_embedding in _ENCODER_ONLY:
      raise errors.ConfigError(
        "`position_embedding` must be 'learned', 'sinusoidal' or "
        "'sinusoidal_halves' for an encoder-decoder",
        got=repr(str(self.position_embedding)),
        where=errors.field_location(self, 'position_embedding'),
      )
    if self.mlm_head is encoder_config.MlmHead.NONE:
      raise errors.ConfigError(
        "An encoder-decoder requires mlm_head='tied' or mlm_head='transform', "
        "because the decoder computes logits. Found mlm_head='none'",
        where=errors.field_location(self, 'mlm_head'),
      )
    if (
      self.is_t5
      and self.attention_backend is encoder_config.AttentionBackend.CUDNN
    ):
      raise errors.ConfigError(
        "attention_backend='cudnn' does not support the relative position "
        "biases of family='t5'. Supported backends are 'auto', 'xla' and 'fused'",
        where=errors.field_location(self, 'attention_backend'),
        fix="Set attention_backend to 'auto'.",
      )

  def _check_sizes(self) -> None:
    """Raises ConfigError for inconsistent numbers of buckets or layers."""
    if (
      self.relative_buckets < 4
      or self.relative_buckets % 4
      or self.relative_max_distance <= self.relative_buckets // 2
    ):
      raise errors.ConfigError(
        '`relative_buckets` must be a positive multiple of 4, and '
        '`relative_max_distance` must be above relative_buckets / 2. Found '
        f'relative_buckets={self.relative_buckets} and '
        f'relative_max_distance={self.relative_max_distance}',
        where=type(self).__name__,
      )
    if self.tie_decoder and self.num_decoder_layers > self.num_encoder_layers:
      raise errors.ConfigError(
        'A tied decoder must not have more layers than the encoder. Found '
        f'num_decoder_layers={self.num_decoder_layers} and '
        f'num_encoder_layers={self.num_encoder_layers}',
        where=errors.field_location(self, 'num_decoder_layers'),
      )
