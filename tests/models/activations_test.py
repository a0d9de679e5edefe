"""The registry of activations."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.models import activations, encoder_config
from xlflax.utils import errors

_SIZES = dict(num_layers=1, hidden_dim=4, mlp_dim=6, num_heads=2)


@pytest.fixture
def registry(monkeypatch):
  """The registry, restored after the test."""
  monkeypatch.setattr(
    activations, '_registered', activations._registered.copy()
  )


@pytest.mark.parametrize(
  'name, values',
  [
    ('gelu', [-0.158655, 0, 0.841345]),
    ('gelu_tanh', [-0.158808, 0, 0.841192]),
    ('relu', [0, 0, 1]),
    ('silu', [-0.268941, 0, 0.731059]),
    ('tanh', [-0.761594, 0, 0.761594]),
  ],
)
def test_activation_values(name, values):
  inputs = jnp.asarray([-1.0, 0, 1])
  np.testing.assert_allclose(
    activations.activation_function(name)(inputs), values, atol=1e-6
  )


def test_all_activation_names():
  assert activations.activation_names() == (
    'gelu',
    'gelu_tanh',
    'relu',
    'silu',
    'tanh',
  )


def test_hugging_face_names_round_trip():
  theirs = activations.from_huggingface()
  assert theirs['gelu_new'] == theirs['gelu_fast'] == 'gelu_tanh'
  assert theirs['swish'] == 'silu'
  for name in activations.activation_names():
    assert theirs[activations.to_huggingface(name)] == name


def test_registered_activation_is_used_by_configs_and_imports(registry):
  with raises_error(
    errors.ConfigError, got='square', where='EncoderConfig.activation'
  ):
    encoder_config.EncoderConfig(**_SIZES, activation='square')
  activations.register_activation('square', jnp.square, huggingface=('pow2',))
  assert encoder_config.EncoderConfig(**_SIZES, activation='square')
  assert activations.from_huggingface()['pow2'] == 'square'


def test_activation_without_hugging_face_name_is_rejected(registry):
  activations.register_activation('square', jnp.square)
  with raises_error(
    errors.ConfigError, got='square', mentions='EncoderConfig.activation'
  ):
    activations.to_huggingface('square')
