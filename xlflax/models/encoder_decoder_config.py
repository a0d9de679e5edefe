"""Hyper-parameters of encoder-decoders."""

import dataclasses
import enum
from typing import Annotated

import annotated_types

from xlflax.models import encoder_config as model_config
from xlflax.utils import class_registry, errors, validation


class EncoderDecoderFamily(enum.StrEnum):
  """The kind of layers."""

  POST_LN = 'post_ln'  # layer norm after each block (Vaswani et al. 2017)
  PRE_LN = 'pre_ln'  # before each block, and after the last layer (mBART)
  T5 = 't5'  # pre-norm RMS, relative positions, no biases


OutputEmbeddings = model_config.OutputEmbeddings
_ENCODER_ONLY = (
  model_config.PositionEmbedding.ROTARY,
  model_config.PositionEmbedding.DISENTANGLED,
)


class OutputScaling(enum.StrEnum):
  """The factor of T5's states before the output table."""

  AUTO = 'auto'  # 1 / sqrt(hidden_dim) if that is the token embeddings
  WIDTH = 'width'  # 1 / sqrt(hidden_dim)
  NONE = 'none'  # nothing


class TiedLayers(enum.StrEnum):
  """Which of the encoder's layers a shallower tied decoder shares."""

  FIRST = 'first'
  LAST = 'last'


# Fields that only one kind of family has, and their value in the others.
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
  'mlm_head': model_config.MlmHead.TIED,
}


@class_registry.register('encoder_decoder_config')
@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(model_config.TransformerConfig):
  """Hyper-parameters of `xlflax.models.encoder_decoder.EncoderDecoder`.

  Attributes (besides those of `TransformerConfig`):
    family: the kind of layers.
    num_encoder_layers: layers of the encoder.
    num_decoder_layers: layers of the decoder.
    relative_buckets: rows of the relative position table (T5).
    relative_max_distance: distance from which on all share a bucket (T5).
    per_layer_relative_bias: a relative position table in every layer (umT5)
      instead of one for all layers of the encoder and one for the decoder's.
    output_scaling: what T5's states are multiplied with before the output
      table.
    tie_decoder: the decoder's layers use the self-attention, feed-forward and
      layer norms of the encoder's, and its embeddings; only cross-attention
      is the decoder's own (VECO, section 6.1).
    tied_layers: which encoder layers a shallower tied decoder uses.
    output_bias: whether logits have a bias (mBART; T5 has none).

  Raises:
    ConfigError: a value is out of range, not among the choices, or does not
      belong to the family.
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
  mlm_head: model_config.MlmHead = model_config.MlmHead.TIED

  def __post_init__(self):
    self._check_family()
    self._check_sizes()
    _ = self.encoder  # has the checks of everything they share

  @property
  def is_t5(self) -> bool:
    """Whether the layers are those of T5."""
    return self.family is EncoderDecoderFamily.T5

  @property
  def scales_output(self) -> bool:
    """Whether T5's states are scaled before the output table."""
    if self.output_scaling is OutputScaling.AUTO:
      return self.output_embeddings is OutputEmbeddings.TIED
    return self.output_scaling is OutputScaling.WIDTH

  @property
  def num_layers(self) -> int:
    """Layers of the encoder, which is what states are read from."""
    return self.num_encoder_layers

  @property
  def table_size(self) -> int:
    """Rows of the embedding table: vocab_size, rounded up."""
    return self.encoder.table_size

  @property
  def sharing(self) -> None:
    """No part of an encoder-decoder is language-specific."""
    return None

  @property
  def encoder(self) -> model_config.EncoderConfig:
    """The encoder's half, for the modules that both kinds of model share."""
    pre = self.family is not EncoderDecoderFamily.POST_LN
    shared = {f.name for f in dataclasses.fields(self)} & {
      f.name for f in dataclasses.fields(model_config.EncoderConfig)
    }
    return model_config.EncoderConfig(
      num_layers=self.num_encoder_layers,
      norm_position=(
        model_config.NormPosition.PRE if pre else model_config.NormPosition.POST
      ),
      **{name: getattr(self, name) for name in shared},
    )

  def _check_family(self) -> None:
    foreign = _LAYER_NORM_ONLY if self.is_t5 else _T5_ONLY
    for name, default in foreign.items():
      if getattr(self, name) != default:
        raise errors.ConfigError(
          f'The family {self.family!s} has no {name}',
          got=getattr(self, name),
          expected=default,
          where=f'EncoderDecoderConfig.{name}',
        )
    if self.position_embedding in _ENCODER_ONLY:
      raise errors.ConfigError(
        'A decoder has no rotary positions',
        got="'rotary'",
        expected="'learned', 'sinusoidal' or 'sinusoidal_halves'",
        where='EncoderDecoderConfig.position_embedding',
      )
    if self.mlm_head is model_config.MlmHead.NONE:
      raise errors.ConfigError(
        'An encoder-decoder needs a head',
        got="mlm_head = 'none'",
        expected="'tied' or 'transform'",
        where='EncoderDecoderConfig.mlm_head',
      )
    if (
      self.is_t5
      and self.attention_backend is model_config.AttentionBackend.CUDNN
    ):
      raise errors.ConfigError(
        'cuDNN attention cannot be used here',
        got='relative position biases',
        expected='none',
        where='EncoderDecoderConfig.attention_backend',
        fix="set it to 'xla' or 'auto'",
      )

  def _check_sizes(self) -> None:
    if (
      self.relative_buckets < 4
      or self.relative_buckets % 4
      or self.relative_max_distance <= self.relative_buckets // 2
    ):
      raise errors.ConfigError(
        'The relative positions have impossible buckets',
        got=f'relative_buckets = {self.relative_buckets}, '
        f'relative_max_distance = {self.relative_max_distance}',
        expected='a multiple of 4, and a distance above half of it',
        where='EncoderDecoderConfig',
      )
    if self.tie_decoder and self.num_decoder_layers > self.num_encoder_layers:
      raise errors.ConfigError(
        'A tied decoder has more layers than the encoder can lend it',
        got=f'num_decoder_layers = {self.num_decoder_layers}',
        expected=f'at most num_encoder_layers = {self.num_encoder_layers}',
        where='EncoderDecoderConfig.num_decoder_layers',
      )
