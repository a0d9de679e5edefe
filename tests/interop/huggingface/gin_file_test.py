"""The gin file of an imported model builds that model."""

import dataclasses
import pathlib

import gin
import pytest

from xlflax.interop.huggingface import gin_file
from xlflax.models import encoder, encoder_decoder
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder_decoder_config as pair_config

_SIZES = dict(hidden_dim=12, mlp_dim=20, num_heads=3)
_MODELS = {
  'bert': encoder.Encoder(
    model_config.EncoderConfig(
      **_SIZES, num_layers=2, type_vocab_size=2, dropout_rate=0.25
    )
  ),
  'modernbert': encoder.Encoder(
    model_config.EncoderConfig(
      **_SIZES,
      num_layers=3,
      position_embedding='rotary',
      norm='scale',
      norm_position='pre',
      first_attention_norm=False,
      local_attention=3,
      global_attn_every_n_layers=2,
      gated_mlp=True,
      mlp_bias=False,
    )
  ),
  'mbart': encoder_decoder.EncoderDecoder(
    pair_config.EncoderDecoderConfig(
      **_SIZES,
      family='pre_ln',
      num_encoder_layers=2,
      num_decoder_layers=1,
      position_offset=2,
    )
  ),
  't5': encoder_decoder.EncoderDecoder(
    pair_config.EncoderDecoderConfig(
      **_SIZES,
      family='t5',
      num_encoder_layers=2,
      num_decoder_layers=2,
      tie_word_embeddings=False,
      output_scaling='width',
      gated_mlp=True,
    )
  ),
}


# Bindings of an earlier gin file, which the model's gin file overrides.
_OTHER = """
from __gin__ import dynamic_registration
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder_decoder_config as pair_config

model_config.EncoderConfig:
  layer_norm_epsilon = 1e-3
  position_offset = 7
  type_vocab_size = 5
  cross_attention = True
pair_config.EncoderDecoderConfig:
  layer_norm_epsilon = 1e-3
  mlm_head = 'transform'
  max_position_embeddings = 9
"""


@pytest.mark.parametrize('name', _MODELS)
def test_gin_file_builds_the_model(name, tmp_path):
  model = _MODELS[name]
  config = dataclasses.replace(model.config, vocab_size=31, num_languages=4)
  path = pathlib.Path(tmp_path) / gin_file.FILE
  path.write_text(gin_file.format_gin_file(config, str(tmp_path)))
  gin.clear_config()
  try:
    gin.parse_config(_OTHER)
    gin.parse_config_file(str(path))
    built = gin.query_parameter(
      'MODEL/gin.macro.value'
    ).scoped_configurable_fn()
  finally:
    gin.clear_config()
  assert type(built) is type(model)
  assert built.config == model.config  # The sizes come from the vocabulary.
