"""Values and errors of embeddings."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.errors import raises_error
from xlflax.models import embeddings
from xlflax.models import encoder_config as model_config
from xlflax.utils import errors

_SIZES = dict(
  num_layers=1, hidden_dim=4, mlp_dim=6, num_heads=2, max_position_embeddings=5
)
_EMBED = dict(
  positions=None, language_ids=None, token_type_ids=None, deterministic=True
)


def _config(**changes):
  return model_config.EncoderConfig(
    **_SIZES | dict(vocab_size=7, pad_vocab_size_multiple=1) | changes
  )


def _ids(shape=(2, 3)):
  return jnp.arange(np.prod(shape)).reshape(shape) % 7


def test_sinusoidal_positions():
  table = embeddings.sinusoidal_positions(3, 4)
  np.testing.assert_allclose(
    table,
    [
      [0, 1, 0, 1],
      [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)],
      [np.sin(2), np.cos(2), np.sin(0.02), np.cos(0.02)],
    ],
    atol=1e-7,
  )


def test_embeddings_are_the_sum_of_tables():
  config = _config(
    type_vocab_size=2,
    use_language_embeddings=True,
    num_languages=3,
    position_offset=2,
    embedding_norm=False,
  )
  module = embeddings.Embeddings(config)
  kinds = dict(
    language_ids=jnp.asarray([[0, 1, 2]] * 2),
    token_type_ids=jnp.asarray([[1, 0, 1]] * 2),
  )
  variables = module.init(jax.random.key(0), _ids(), **_EMBED | kinds)
  outputs = module.apply(variables, _ids(), **_EMBED | kinds)
  tables = jax.tree.map(
    np.asarray, {k: v.value for k, v in variables['params'].items()}
  )
  # max_position_embeddings + position_offset
  assert tables['position'].shape == (7, 4)
  want = (
    tables['token'][_ids()]
    + tables['position'][[2, 3, 4]][None]
    + tables['language'][kinds['language_ids']]
    + tables['token_type'][kinds['token_type_ids']]
  )
  np.testing.assert_allclose(outputs, want, atol=1e-7)
  running = module.apply(
    variables,
    _ids(),
    **_EMBED | kinds | dict(positions=jnp.asarray([[0, 1, 2]] * 2)),
  )
  np.testing.assert_allclose(running, want, atol=1e-7)


def test_sequences_longer_than_the_table_are_rejected():
  with raises_error(
    errors.ConfigError,
    where='EncoderConfig.max_position_embeddings',
    mentions=6,
  ):
    embeddings.Embeddings(_config()).init(
      jax.random.key(0), _ids((1, 6)), **_EMBED
    )


def test_missing_language_ids_are_rejected():
  module = embeddings.Embeddings(
    _config(use_language_embeddings=True, num_languages=2)
  )
  variables = module.init(jax.random.key(0), _ids(), **_EMBED)
  with raises_error(
    errors.ConfigError, where='EncoderConfig.use_language_embeddings'
  ):
    module.apply(variables, _ids(), **_EMBED)


def test_unknown_number_of_languages_is_rejected():
  module = embeddings.Embeddings(_config(use_language_embeddings=True))
  with raises_error(errors.ConfigError, where='EncoderConfig.num_languages'):
    module.init(jax.random.key(0), _ids(), **_EMBED)


def test_ids_out_of_range_give_nan():
  table = jnp.ones((3, 2))
  rows = embeddings.embedding_lookup(table, jnp.asarray([[0, 2, 3]]), 'vocab')
  assert np.isfinite(rows[0, :2]).all() and np.isnan(rows[0, 2]).all()
