"""Parameter counts of the gin files of model sizes."""

import dataclasses
import pathlib

import flax.linen as nn
import gin
import jax
import pytest

import xlflax.gin_configs
from xlflax.models import (
  encoder,
  encoder_decoder,
  model_params,
  vocabulary_padding,
)
from xlflax.models import encoder_config as model_config
from xlflax.training import param_tree

_FOLDER = pathlib.Path(xlflax.gin_configs.__file__).parent
_VOCAB = 80_000
# Millions of parameters with a vocabulary of 80k.
_MILLIONS = {
  'tiny': 10.8,
  'small': 60.5,
  'base': 147.6,
  'large': 385.9,
  'ecs': 118.4,
  'modernbert_base': 172.4,
  'mmbert_base': 172.4,
  # 113.2 in the layers and 61.4 in each of two embedding tables
  'eurobert_210m': 236.1,
}
# Millions of parameters of encoder-decoders. With 250k tokens: mT5 small 300.2 and base
# 582.4, mBART 610.9, as published; VECO 659.7 (published: 662).
_ENCODER_DECODERS = {
  'tiny_t5': 21.3,
  't5_small': 126.0,
  'mt5_base': 321.1,
  'umt5_base': 321.1,
  'tiny_transformer': 11.4,
  'transformer_base': 85.7,
  'tiny_mbart': 11.5,
  'mbart': 436.8,
  'veco_small_translation': 119.2,
  'veco_translation': 486.7,
}
_PARTIAL_FILES = {
  'encoder',
  'encoder_decoder',
  't5',
  'transformer',
  'bart',
  'roberta',
}


@pytest.fixture(autouse=True)
def _clean_gin():
  gin.clear_config()
  gin.add_config_file_search_path(str(_FOLDER))
  yield
  gin.clear_config()


def _model(*bindings):
  gin.parse_config_files_and_bindings(
    [],
    [
      'from __gin__ import dynamic_registration',
      'from xlflax.models import encoder_config as model_config',
      *bindings,
    ],
  )
  return gin.query_parameter('MODEL/gin.macro.value').scoped_configurable_fn()


def test_every_size_is_tested():
  sizes = {path.stem for path in (_FOLDER / 'models').glob('*.gin')}
  assert sizes == {*_MILLIONS, *_ENCODER_DECODERS} | _PARTIAL_FILES


def _count(model):
  """Returns millions of parameters and checks the shape of the logits."""
  shapes = nn.unbox(
    jax.eval_shape(
      lambda key: model_params.init_params(model, key), jax.random.key(0)
    )
  )
  token_ids = jax.ShapeDtypeStruct((2, 9), 'int32')
  logits = jax.eval_shape(
    lambda p, ids: model.apply({'params': p}, ids), shapes, token_ids
  )
  assert logits.shape == (2, 9, _VOCAB)
  count = vocabulary_padding.count_unpadded(
    param_tree.param_shapes(shapes), model.config
  )
  return round(count / 1e6, 1)


@pytest.mark.parametrize('size', _MILLIONS)
def test_encoder_size(size):
  model = _model(f"include 'models/{size}.gin'")
  assert type(model) is encoder.Encoder
  assert type(model.config) is model_config.EncoderConfig
  assert (
    _count(
      encoder.Encoder(dataclasses.replace(model.config, vocab_size=_VOCAB))
    )
    == _MILLIONS[size]
  )


@pytest.mark.parametrize('size', _ENCODER_DECODERS)
def test_encoder_decoder_size(size):
  model = _model(f"include 'models/{size}.gin'")
  assert type(model) is encoder_decoder.EncoderDecoder
  assert (
    _count(
      model.clone(config=dataclasses.replace(model.config, vocab_size=_VOCAB))
    )
    == _ENCODER_DECODERS[size]
  )


def test_bindings_override_fields():
  model = _model(
    "include 'models/tiny.gin'",
    "model_config.EncoderConfig.norm_position = 'pre'",
    'model_config.EncoderConfig.max_position_embeddings = 64',
  )
  assert model.config.norm_position is model_config.NormPosition.PRE
  assert model.config.max_position_embeddings == 64
