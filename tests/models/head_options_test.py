"""Options of token heads, and classification heads."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.errors import raises_error
from tests.models import random_parameters
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.models.heads import classification_heads
from xlflax.utils import errors

_SIZES = dict(
  num_layers=1,
  hidden_dim=8,
  mlp_dim=12,
  num_heads=2,
  vocab_size=30,
  pad_vocab_size_multiple=1,
  max_position_embeddings=10,
)
_IDS = np.arange(6)[None] + 5


def _make(**fields):
  model = encoder.Encoder(model_config.EncoderConfig(**_SIZES | fields))
  return model, random_parameters.draw_parameters(model)


def test_encoder_without_a_head_returns_states():
  model, params = _make(mlm_head='none')
  assert params.keys() == {'embeddings', 'layers'}
  apply = jax.jit(model.apply, static_argnames='method')
  states = apply({'params': params}, _IDS)
  assert states.shape == (1, 6, 8)
  np.testing.assert_array_equal(
    states, apply({'params': params}, _IDS, method='encode')
  )
  for method, arguments in (
    ('logits', (states,)),
    ('transform', (states,)),
    ('output_table', ()),
  ):
    with raises_error(errors.ConfigError, where='EncoderConfig.mlm_head'):
      model.apply({'params': params}, *arguments, method=method)


def test_untied_output_table():
  model, params = _make(tie_word_embeddings=False)
  assert params['output'].shape == params['embeddings']['token'].shape
  table, bias = model.apply({'params': params}, method='output_table')
  np.testing.assert_array_equal(table, params['output'])
  states = jnp.ones((1, 1, 8))
  hidden = model.apply({'params': params}, states, method='transform')
  logits = model.apply({'params': params}, states, method='logits')
  np.testing.assert_allclose(
    logits[0, 0], hidden[0, 0] @ table.T + bias, atol=1e-6
  )
  with raises_error(
    errors.ConfigError,
    where='EncoderConfig.tie_word_embeddings',
    mentions='mlm_head',
  ):
    _make(tie_word_embeddings=False, mlm_head='none')


def test_head_activation():
  model, params = _make(activation='relu', head_activation='silu')
  same, _ = _make(activation='silu')
  other, _ = _make(activation='relu')
  states = jnp.linspace(-1, 1, 8)[None]
  got, like, unlike = (
    m.apply({'params': params}, states, method='transform')
    for m in (model, same, other)
  )
  np.testing.assert_array_equal(got, like)
  assert np.abs(got - unlike).max() > 1e-3
  with raises_error(
    errors.ConfigError, got='mish', where='EncoderConfig.head_activation'
  ):
    _make(head_activation='mish')


def _head(dense: bool):
  output = {
    'kernel': jnp.array([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]]),
    'bias': jnp.array([0.5, 0.0, 0.0]),
  }
  if not dense:
    return {'output': output}
  return {
    'output': output,
    'dense': {
      'kernel': jnp.array([[0.0, 1.0], [1.0, 0.0]]),
      'bias': jnp.zeros(2),
    },
  }


def test_classification_head_logits():
  states = jnp.array([[[1.0, 2.0], [3.0, 4.0]]])
  np.testing.assert_allclose(
    classification_heads.token_logits(_head(False), states),
    [[[1.5, 2.0, 0.0], [3.5, 4.0, 2.0]]],
  )
  np.testing.assert_allclose(
    classification_heads.sequence_logits(_head(False), states),
    [[1.5, 2.0, 0.0]],
  )
  tanh_one, two = np.tanh(1.0), np.tanh(2.0)
  np.testing.assert_allclose(
    jax.jit(classification_heads.sequence_logits)(_head(True), states),
    [[two + 0.5, tanh_one, 2 * two - tanh_one]],
    rtol=1e-6,
  )
