"""Encoder configurations: validation and vocabulary sizes."""

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import encoder_config as model_config
from xlflax.utils import errors


def _config(**changes):
  sizes = dict(num_layers=2, hidden_dim=12, mlp_dim=20, num_heads=3)
  return model_config.EncoderConfig(**sizes | changes)


def _spec(size=50, languages=('en', 'de')):
  return vocabulary_spec.VocabularySpec(
    size=size,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    languages=languages,
  )


def test_strings_become_enums():
  config = _config(norm_position='pre', remat='full')
  assert config.norm_position is model_config.NormPosition.PRE
  assert config.remat is model_config.Remat.FULL
  assert config == _config(
    norm_position=model_config.NormPosition.PRE, remat=model_config.Remat.FULL
  )


@pytest.mark.parametrize(
  'name, value, values',
  [
    (
      'norm_position',
      'middle',
      ('post', 'pre', 'middle', 'EncoderConfig.norm_position'),
    ),
    (
      'activation',
      'swish',
      ('gelu', 'gelu_tanh', 'relu', 'swish', 'EncoderConfig.activation'),
    ),
    (
      'dtype',
      'float16',
      ('float32', 'bfloat16', 'float16', 'EncoderConfig.dtype'),
    ),
    ('num_layers', 0, (1, '0', 'EncoderConfig.num_layers')),
    (
      'pad_vocab_size_multiple',
      0,
      (1, '0', 'EncoderConfig.pad_vocab_size_multiple'),
    ),
    ('type_vocab_size', -1, (0, '-1', 'EncoderConfig.type_vocab_size')),
    ('dropout_rate', 1.0, (1, 'EncoderConfig.dropout_rate')),
    ('attention_dropout_rate', -0.1, (0, '-0.1')),
  ],
)
def test_invalid_values_are_rejected(name, value, values):
  with raises_error(errors.ConfigError, mentions=values) as raised:
    _config(**{name: value})
  assert_mentions(raised.value, f'EncoderConfig.{name}')


def test_num_heads_must_divide_hidden_dim_without_head_dim():
  with raises_error(
    errors.ConfigError,
    where='EncoderConfig.hidden_dim',
    mentions=('hidden_dim=12', 'num_heads=5'),
  ):
    _config(num_heads=5)
  assert _config(num_heads=5, head_dim=4).dim_per_head == 4
  assert _config().dim_per_head == 4


def test_vocabulary_sets_missing_sizes():
  config = model_config.with_vocabulary(_config(), _spec())
  assert (config.vocab_size, config.num_languages) == (50, 2)
  assert model_config.with_vocabulary(config, _spec()) == config


@pytest.mark.parametrize(
  'stated, values',
  [
    (dict(vocab_size=49), (49, 50, 'EncoderConfig.vocab_size')),
    (dict(num_languages=3), (3, 2, 'EncoderConfig.num_languages')),
  ],
)
def test_different_vocabulary_sizes_are_rejected(stated, values):
  with raises_error(errors.VocabularyError, mentions=values):
    model_config.with_vocabulary(_config(**stated), _spec())


def test_table_size_is_rounded_up():
  assert _config(vocab_size=50).table_size == 128
  assert _config(vocab_size=250_002).table_size == 250_112
  assert _config(vocab_size=119_547).table_size == 119_552
  assert _config(vocab_size=50, pad_vocab_size_multiple=16).table_size == 64
  assert _config(vocab_size=64, pad_vocab_size_multiple=16).table_size == 64


def test_table_size_requires_a_vocabulary():
  with raises_error(
    errors.ConfigError,
    where='EncoderConfig.vocab_size',
    mentions='with_vocabulary',
  ):
    _ = _config().table_size
