"""The gin files of model sizes: parsed, built, shapes inferred."""

import dataclasses
import pathlib

import flax.linen as nn
import gin
import jax
import pytest

import xlflax.gin_configs
from xlflax.models import api, encoder
from xlflax.models import config as model_config

_FOLDER = pathlib.Path(xlflax.gin_configs.__file__).parent
_VOCAB = 80_000
# Millions of parameters with a vocabulary of 80k.
_MILLIONS = {'tiny': 10.8, 'small': 60.5, 'base': 147.6, 'large': 385.9,
             'ecs': 118.4}


@pytest.fixture(autouse=True)
def _clean_gin():
  gin.clear_config()
  gin.add_config_file_search_path(str(_FOLDER))
  yield
  gin.clear_config()


def _model(*bindings):
  gin.parse_config_files_and_bindings([], [
      'from __gin__ import dynamic_registration',
      'from xlflax.models import config as model_config', *bindings])
  return gin.query_parameter('MODEL/gin.macro.value').scoped_configurable_fn()


def test_every_size_is_tested():
  sizes = {path.stem for path in (_FOLDER / 'models').glob('*.gin')}
  assert sizes == {*_MILLIONS, 'encoder'}


@pytest.mark.parametrize('size', _MILLIONS)
def test_size(size):
  model = _model(f"include 'models/{size}.gin'")
  assert type(model) is encoder.Encoder
  assert type(model.config) is model_config.EncoderConfig
  model = encoder.Encoder(
      dataclasses.replace(model.config, vocab_size=_VOCAB))
  shapes = nn.unbox(jax.eval_shape(
      lambda key: api.init_params(model, key), jax.random.key(0)))
  assert round(api.count_params(shapes) / 1e6, 1) == _MILLIONS[size]
  token_ids = jax.ShapeDtypeStruct((2, 9), 'int32')
  logits = jax.eval_shape(
      lambda p, ids: model.apply({'params': p}, ids), shapes, token_ids)
  assert logits.shape == (2, 9, _VOCAB)


def test_overrides_by_name():
  model = _model(
      "include 'models/tiny.gin'",
      "model_config.EncoderConfig.norm_position = 'pre'",
      'model_config.EncoderConfig.max_length = 64')
  assert model.config.norm_position is model_config.NormPosition.PRE
  assert model.config.max_length == 64
