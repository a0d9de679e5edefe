"""Logits of classification heads, from states and a head's parameters.

A head is `{'output': {'kernel' [H, C], 'bias' [C]}}`. It may have `'dense'`
(`kernel` [H, H], perhaps `bias` [H]) and an activation before it: BERT's pooler
and RoBERTa's classification head, with tanh. ModernBERT has a `'norm'` (`scale`
[H], perhaps `bias`) between the two.
"""

import enum
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xlflax.models import activations
from xlflax.utils import validation

Drop = Callable[[jax.Array], jax.Array]


class Pooling(enum.StrEnum):
  """How the logits of a sequence are pooled."""

  FIRST = 'first'  # the first position
  MEAN = 'mean'  # the mean of the states of its text
  LATE = 'late'  # the mean of the logits of its text
  LAST = 'last'  # the last position of its text (decoders)


def pool_first_position(
  head: dict,
  states: jax.Array,
  *,
  activation: str = 'tanh',
  epsilon: float = 1e-5,
) -> jax.Array:
  """The first position through `dense` and so on: [B, T, H] -> [B, H]."""
  return _hidden(head, states[:, 0], activation, epsilon)


def sequence_logits(
  head: dict,
  states: jax.Array,
  *,
  activation: str = 'tanh',
  epsilon: float = 1e-5,
  pooling: Pooling | str = Pooling.FIRST,
  mask: jax.Array | None = None,
  drop: Drop | None = None,
) -> jax.Array:
  """Logits of a sequence's classes: [B, T, H] -> [B, C].

  Args:
    head: its parameters.
    states: [B, T, H].
    activation: after `dense`, one of `xlflax.models.activations`.
    epsilon: of `norm`.
    pooling: how all positions become one.
    mask: [B, T], nonzero at text; None if all is text.
    drop: dropout before each linear map; None for none.

  Raises:
    ConfigError: there is no such pooling.
  """
  pooling = validation.validate(pooling, Pooling, name='pooling')
  read = states
  if pooling is Pooling.FIRST:
    read = states[:, 0]
  elif pooling is Pooling.LAST:
    read = _last(states, mask)
  elif pooling is Pooling.MEAN:
    read = _mean(states, mask)
  logits = token_logits(
    head, read, activation=activation, epsilon=epsilon, drop=drop
  )
  return _mean(logits, mask) if pooling is Pooling.LATE else logits


def token_logits(
  head: dict,
  states: jax.Array,
  *,
  activation: str = 'tanh',
  epsilon: float = 1e-5,
  drop: Drop | None = None,
) -> jax.Array:
  """Logits of each token's classes: [B, T, H] -> [B, T, C].

  For question answering the two classes are start and end of the answer. The
  other arguments are those of `sequence_logits`.
  """
  drop = drop or _nothing
  if 'dense' in head or 'norm' in head:
    states = _hidden(head, drop(states), activation, epsilon)
  return _linear(head['output'], drop(states))


def _nothing(states: jax.Array) -> jax.Array:
  return states


def _hidden(
  head: dict, states: jax.Array, activation: str, epsilon: float
) -> jax.Array:
  """Applies `dense` and `norm`: [..., H] -> [..., H]."""
  if 'dense' in head:
    states = activations.activation_function(activation)(
      _linear(head['dense'], states)
    )
  if 'norm' not in head:
    return states
  wide = states.astype(jnp.float32)
  wide = wide - wide.mean(-1, keepdims=True)
  power = jnp.square(wide).mean(-1, keepdims=True)
  wide = (
    wide * jax.lax.rsqrt(power + epsilon) * _row(head['norm']['scale'], states)
  )
  if 'bias' in head['norm']:
    wide = wide + _row(head['norm']['bias'], states)
  return wide.astype(states.dtype)


def _mean(values: jax.Array, mask: jax.Array | None) -> jax.Array:
  """Over the text: [B, T, C] -> [B, C]."""
  if mask is None:
    return values.mean(1)
  weights = (mask != 0)[:, :, None].astype(values.dtype)
  return (values * weights).sum(1) / weights.sum(1)


def _last(states: jax.Array, mask: jax.Array | None) -> jax.Array:
  """Returns the states of the last position of the text: [B, H]."""
  if mask is None:
    return states[:, -1]
  places = jnp.arange(mask.shape[1])
  last = jnp.max(jnp.where(mask != 0, places, 0), axis=1)
  return jnp.take_along_axis(states, last[:, None, None], axis=1)[:, 0]


def _linear(parameters: dict, inputs: jax.Array) -> jax.Array:
  """[..., H] -> [..., C]."""
  outputs = inputs @ parameters['kernel'].astype(inputs.dtype)
  if 'bias' not in parameters:
    return outputs
  return outputs + _row(parameters['bias'].astype(inputs.dtype), outputs)


def _row(vector: jax.Array, like: jax.Array) -> jax.Array:
  return jnp.expand_dims(vector, tuple(range(like.ndim - 1)))
