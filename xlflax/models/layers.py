"""Parts of the encoder: embeddings, attention and feed-forward blocks."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlflax import errors
from xlflax.models import attention, dropout, recompute
from xlflax.models import config as model_config

_Config = model_config.EncoderConfig


def constrain(states: jax.Array, *axes: str | None) -> jax.Array:
  """Activations with logical axes, such as 'batch', 'length', 'embed'."""
  return nn.with_logical_constraint(states, axes)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'gelu': recompute.recomputed(
        functools.partial(jax.nn.gelu, approximate=False)),
    'gelu_tanh': recompute.recomputed(
        functools.partial(jax.nn.gelu, approximate=True)),
    'relu': jax.nn.relu,
}


def sinusoids(length: int, dim: int) -> np.ndarray:
  """Sinusoidal positions (Vaswani et al. 2017, section 3.5).

  Columns 2i and 2i + 1 hold the sine and cosine of p / 10000^(2i / dim).

  Args:
    length: number of positions.
    dim: width.

  Returns:
    float32 [length, dim].
  """
  rates = 10000.0 ** (-2.0 * (np.arange(dim) // 2) / dim)
  angles = np.arange(length)[:, None] * rates[None, :]
  even = np.arange(dim)[None, :] % 2 == 0
  return np.where(even, np.sin(angles), np.cos(angles)).astype(np.float32)


def weights_init(config: _Config, *axes: str):
  """Normal initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(
      nn.initializers.normal(config.initializer_range), axes)


def zeros_init(*axes: str):
  """Zero initialiser whose parameter carries logical axes."""
  return nn.with_logical_partitioning(nn.initializers.zeros_init(), axes)


class LayerNorm(nn.Module):
  """Layer norm over the last axis (Ba et al. 2016), in float32."""

  config: _Config

  @nn.compact
  def __call__(self, states: jax.Array) -> jax.Array:
    """[..., H] -> [..., H] in the compute dtype."""
    ones = nn.with_logical_partitioning(nn.initializers.ones_init(), ('norm',))
    width = (states.shape[-1],)
    scale = self.param('scale', ones, width, jnp.float32)
    bias = self.param('bias', zeros_init('norm'), width, jnp.float32)
    function = _normalize(self.config.layer_norm_epsilon,
                          self.config.compute_dtype)
    return function(states, scale, bias)


@functools.lru_cache
def _normalize(epsilon: float, dtype: jnp.dtype):
  """(x [..., H], scale [H], bias [H]) -> [..., H] in `dtype`."""
  def normalize(states, scale, bias):
    states = states.astype(jnp.float32)
    states = states - states.mean(-1, keepdims=True)
    variance = jnp.square(states).mean(-1, keepdims=True)
    unit = states * jax.lax.rsqrt(variance + epsilon)
    rows = tuple(range(states.ndim - 1))
    scale, bias = (jnp.expand_dims(x, rows) for x in (scale, bias))
    return (unit * scale + bias).astype(dtype)

  return recompute.recomputed(normalize)


class Linear(nn.Module):
  """Linear map with bias over the last axes.

  Attributes:
    config: dtype and initialiser.
    features: shape of the output's last axes.
    axes: logical axes of the kernel, [*contracted, *features].
  """

  config: _Config
  features: tuple[int, ...]
  axes: tuple[str, ...]

  @nn.compact
  def __call__(self, inputs: jax.Array) -> jax.Array:
    """[..., *contracted] -> [..., *features] in the compute dtype."""
    dtype = self.config.compute_dtype
    contracted = len(self.axes) - len(self.features)
    kernel = self.param(
        'kernel', weights_init(self.config, *self.axes),
        (*inputs.shape[-contracted:], *self.features), jnp.float32)
    axes = ('norm' if axis == 'embed' else axis
            for axis in self.axes[contracted:])
    bias = self.param('bias', zeros_init(*axes), self.features, jnp.float32)
    outputs = jnp.tensordot(inputs.astype(dtype), kernel.astype(dtype),
                            axes=contracted)
    rows = tuple(range(inputs.ndim - contracted))
    return outputs + jnp.expand_dims(bias.astype(dtype), rows)


def lookup(table: jax.Array, ids: jax.Array, axis: str) -> jax.Array:
  """Rows of a table that may be sharded over `axis` and its width.

  The width is gathered first (as for any product with FSDP weights), so that
  each device picks its batch's rows out of its own part of the table and one
  sum over the parts completes them. Left alone, the partitioner gathers the
  whole table.

  Args:
    table: [R, H].
    ids: int32 [B, T].
    axis: logical axis of the rows.

  Returns:
    [B, T, H].
  """
  table = constrain(table, axis, None)
  ids = constrain(ids, 'batch', 'length')
  return constrain(jnp.take(table, ids, axis=0), 'batch', 'length', 'embed')


class Embeddings(nn.Module):
  """Sum of token, position, type and language embeddings, normalised."""

  config: _Config

  def setup(self):
    config = self.config
    self.token = self._table('token', config.table_size, 'vocab')
    if config.position_embedding is model_config.PositionEmbedding.LEARNED:
      self.position = self._table(
          'position', config.max_length + config.position_offset, 'position')
    if config.type_vocab_size:
      self.token_type = self._table(
          'token_type', config.type_vocab_size, 'type')
    if config.use_language_embeddings:
      self.language = self._table('language', self._num_languages(),
                                  'language')
    if config.embedding_norm:
      self.norm = LayerNorm(config)
    self.dropout = dropout.Dropout(config.dropout_rate)

  def _table(self, name: str, rows: int, axis: str) -> jax.Array:
    return self.param(name, weights_init(self.config, axis, 'embed'),
                      (rows, self.config.hidden_dim), jnp.float32)

  def _num_languages(self) -> int:
    if self.config.num_languages is None:
      raise errors.ConfigError(
          'The encoder does not know its number of languages',
          got='num_languages = None', expected='a number',
          where='EncoderConfig.num_languages',
          fix='fill it in by xlflax.models.config.with_vocabulary, or set it')
    return self.config.num_languages

  def __call__(self, token_ids, *, positions, language_ids, token_type_ids,
               deterministic: bool) -> jax.Array:
    """[B, T] int32 ids -> [B, T, H] in the compute dtype."""
    config = self.config
    states = lookup(self.token, token_ids, 'vocab')
    states = states + self._positions(token_ids.shape, positions)
    if config.type_vocab_size:
      if token_type_ids is None:
        token_type_ids = jnp.zeros_like(token_ids)
      states = states + lookup(self.token_type, token_type_ids, 'type')
    if config.use_language_embeddings:
      states = states + self._languages(token_ids, language_ids)
    if config.embedding_norm:
      states = self.norm(states)
    return self.dropout(states.astype(config.compute_dtype),
                        deterministic=deterministic)

  def _positions(self, shape, positions: jax.Array | None) -> jax.Array:
    """[B, T, H] or, for running positions, [1, T, H]."""
    config = self.config
    length = shape[1]
    if length > config.max_length:
      raise errors.ConfigError(
          'The rows are longer than the encoder has positions',
          got=f'{length} tokens', expected=f'at most {config.max_length}',
          where='EncoderConfig.max_length',
          fix='shorten the rows of the stream, or raise max_length')
    if config.position_embedding is model_config.PositionEmbedding.LEARNED:
      table = self.position
    else:
      table = jnp.asarray(
          sinusoids(config.max_length + config.position_offset,
                    config.hidden_dim))
    if positions is None:
      first = config.position_offset
      return constrain(table[None, first:first + length], None, None, None)
    return lookup(table, positions + config.position_offset, 'position')

  def _languages(self, token_ids, language_ids: jax.Array | None):
    if language_ids is None:
      if not self.is_initializing():
        raise errors.ConfigError(
            'The encoder has language embeddings but got no language ids',
            expected='language_ids of the shape of token_ids',
            where='EncoderConfig.use_language_embeddings',
            fix="pass the batch's language_ids, or set "
                'use_language_embeddings to False')
      language_ids = jnp.zeros_like(token_ids)
    return lookup(self.language, language_ids, 'language')


class SelfAttention(nn.Module):
  """Multi-head self-attention with biases (Vaswani et al. 2017, 3.2)."""

  config: _Config

  def setup(self):
    config = self.config
    heads = (config.num_heads, config.dim_per_head)
    self.query, self.key, self.value = (
        Linear(config, heads, ('embed', 'heads', 'kv')) for _ in range(3))
    self.output = Linear(config, (config.hidden_dim,),
                         ('heads', 'kv', 'embed'))

  def __call__(self, states: jax.Array, mask: jax.Array | None, *,
               deterministic: bool) -> jax.Array:
    """[B, T, H] and bool [B, 1, T, T] -> [B, T, H]."""
    config = self.config
    # [B, T, H] -> three of [B, T, N, D]
    query, key, value = (
        constrain(project(states), 'batch', 'length', 'heads', 'kv')
        for project in (self.query, self.key, self.value))
    drop = config.attention_dropout_rate and not deterministic
    context = attention.attend(
        query, key, value, mask, backend=config.attention_backend,
        dropout_rate=config.attention_dropout_rate,
        dropout_key=self.make_rng('dropout') if drop else None)
    return self.output(context)


class FeedForward(nn.Module):
  """Two linear maps with an activation between them."""

  config: _Config

  def setup(self):
    config = self.config
    self.wi = Linear(config, (config.mlp_dim,), ('embed', 'mlp'))
    self.wo = Linear(config, (config.hidden_dim,), ('mlp', 'embed'))

  def __call__(self, states: jax.Array) -> jax.Array:
    """[B, T, H] -> [B, T, H]."""
    hidden = ACTIVATIONS[self.config.activation](self.wi(states))
    return self.wo(constrain(hidden, 'batch', 'length', 'mlp'))


class EncoderLayer(nn.Module):
  """Self-attention and feed-forward, each with residual and layer norm."""

  config: _Config

  def setup(self):
    self.attention = SelfAttention(self.config)
    self.attention_norm = LayerNorm(self.config)
    self.mlp = FeedForward(self.config)
    self.mlp_norm = LayerNorm(self.config)
    self.dropout = dropout.Dropout(self.config.dropout_rate)

  def __call__(self, states: jax.Array, mask: jax.Array | None, *,
               deterministic: bool) -> jax.Array:
    """[B, T, H] and bool [B, 1, T, T] -> [B, T, H]."""
    def attend(inputs):
      return self.attention(inputs, mask, deterministic=deterministic)

    states = self._block(attend, states, self.attention_norm, deterministic)
    return self._block(self.mlp, states, self.mlp_norm, deterministic)

  def _block(self, function, states, norm, deterministic) -> jax.Array:
    """x + f(norm(x)), or norm(x + f(x))."""
    pre = self.config.norm_position is model_config.NormPosition.PRE
    inputs = norm(states) if pre else states
    outputs = self.dropout(function(inputs), deterministic=deterministic)
    states = states + outputs
    if not pre:
      states = norm(states)
    return constrain(states, 'batch', 'length', 'embed')
