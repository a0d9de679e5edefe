"""Encoder-decoder configurations: validation and vocabulary sizes."""

import pytest

from tests.errors import raises_error
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder_decoder, encoder_decoder_config
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors

_SIZES = dict(
  num_encoder_layers=3,
  num_decoder_layers=2,
  hidden_dim=16,
  mlp_dim=24,
  num_heads=2,
)


def _config(**fields):
  return encoder_decoder_config.EncoderDecoderConfig(**_SIZES | fields)


def test_strings_become_enums():
  config = _config(
    family='post_ln',
    tie_decoder=True,
    tied_layers='first',
    remat='full',
    attention_backend='cudnn',
  )
  assert config.family is encoder_decoder_config.EncoderDecoderFamily.POST_LN
  assert config.tied_layers is encoder_decoder_config.TiedLayers.FIRST
  assert config.encoder.remat is model_config.Remat.FULL
  assert config.encoder.norm_position is model_config.NormPosition.POST
  assert (config.num_layers, config.dim_per_head) == (3, 8)


def test_sizes_come_from_the_vocabulary():
  spec = vocabulary_spec.VocabularySpec(
    size=30,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 4),
    languages=('en', 'fr'),
  )
  config = model_config.with_vocabulary(
    _config(family='t5', pad_vocab_size_multiple=8), spec
  )
  assert (config.vocab_size, config.num_languages) == (30, 2)
  assert config.table_size == 32
  with raises_error(
    errors.VocabularyError,
    where='EncoderDecoderConfig.vocab_size',
    mentions=(31, 30),
  ):
    model_config.with_vocabulary(_config(family='t5', vocab_size=31), spec)


def test_model_round_trips_through_a_model_directory(tmp_path):
  model = encoder_decoder.EncoderDecoder(
    _config(
      family='t5',
      vocab_size=30,
      gated_mlp=True,
      tie_word_embeddings=False,
      per_layer_relative_bias=True,
    )
  )
  run_directory.write_model(tmp_path, model)
  assert run_directory.read_model(tmp_path) == model


@pytest.mark.parametrize(
  'fields,values',
  [
    (dict(family='t4'), ('t4', 'EncoderDecoderConfig.family')),
    (
      dict(family='t5', tie_decoder=True),
      (True, 'EncoderDecoderConfig.tie_decoder'),
    ),
    (
      dict(family='t5', type_vocab_size=1),
      (1, 'EncoderDecoderConfig.type_vocab_size'),
    ),
    (
      dict(family='pre_ln', gated_mlp=True),
      ('pre_ln', True, 'EncoderDecoderConfig.gated_mlp'),
    ),
    (
      dict(family='t5', attention_backend='cudnn'),
      'EncoderDecoderConfig.attention_backend',
    ),
    (
      dict(family='post_ln', num_decoder_layers=0),
      ('0', 'EncoderDecoderConfig.num_decoder_layers'),
    ),
    (
      dict(family='post_ln', mlm_head='none'),
      ("mlm_head='none'", 'EncoderDecoderConfig.mlm_head'),
    ),
    (
      dict(family='post_ln', num_decoder_layers=4, tie_decoder=True),
      ('num_decoder_layers=4', 'EncoderDecoderConfig.num_decoder_layers'),
    ),
    (dict(family='t5', relative_buckets=6), 'EncoderDecoderConfig'),
    (dict(family='t5', relative_max_distance=16), 'EncoderDecoderConfig'),
    (
      dict(family='t5', num_heads=3),
      ('hidden_dim=16', 'num_heads=3', 'EncoderConfig.hidden_dim'),
    ),
  ],
)
def test_invalid_fields_are_rejected(fields, values):
  with raises_error(errors.ConfigError, mentions=values):
    _config(**fields)
