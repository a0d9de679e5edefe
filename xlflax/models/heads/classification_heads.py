"""Functions that apply a classification head to hidden states.

The parameters of a head are `{'output': {'kernel' [H, C], 'bias' [C]}}`. A
layer `'dense'` (`kernel` [H, H], optionally `bias` [H]) and an activation may
precede the output, as in BERT's pooler and RoBERTa's classification head with
tanh. ModernBERT has a `'norm'` (`scale` [H], optionally `bias`) between the
two.
"""

import enum
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xlflax.models import activations
from xlflax.utils import validation

Drop = Callable[[jax.Array], jax.Array]


class Pooling(enum.StrEnum):
  """Pooling that reduces a sequence to one vector for classification."""

  # The first position.
  FIRST = 'first'
  # The mean of the hidden states of the text.
  MEAN = 'mean'
  # The mean of the logits of the text.
  LATE = 'late'
  # The last position of the text (decoders).
  LAST = 'last'


def pool_first_position(
  head: dict,
  states: jax.Array,
  *,
  activation: str = 'tanh',
  epsilon: float = 1e-5,
) -> jax.Array:
  """Applies a head's hidden layers to the hidden state of the first position.

  Args:
    head: Parameters of the classification head.
    states: Hidden states of shape [B, T, H].
    activation: Name of the activation after the head's layer `dense`, one of
      `xlflax.models.activations`.
    epsilon: Number that the head's layer norm `norm` adds to the variance.

  Returns:
    An array of shape [B, H].
  """
  return _hidden_layers(head, states[:, 0], activation, epsilon)


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
  """Returns class logits for each sequence.

  Args:
    head: Parameters of the classification head.
    states: Hidden states of shape [B, T, H].
    activation: Name of the activation after the head's layer `dense`, one of
      `xlflax.models.activations`.
    epsilon: Number that the head's layer norm `norm` adds to the variance.
    pooling: Method of pooling the positions of a sequence to one vector: FIRST,
      LAST, MEAN, or LATE (mean of the logits).
    mask: Mask of the text tokens, nonzero for text, of shape [B, T]. If None,
      all positions are text.
    drop: Function that applies dropout before each linear map. If None, dropout
      is not applied.

  Returns:
    An array of shape [B, C].

  Raises:
    ConfigError: If the pooling is unknown.
  """
  pooling = validation.validate(pooling, Pooling, name='pooling')
  if pooling is Pooling.FIRST:
    states = states[:, 0]
  elif pooling is Pooling.LAST:
    states = _last_position(states, mask)
  elif pooling is Pooling.MEAN:
    states = _masked_mean(states, mask)
  logits = token_logits(
    head, states, activation=activation, epsilon=epsilon, drop=drop
  )
  return _masked_mean(logits, mask) if pooling is Pooling.LATE else logits


def token_logits(
  head: dict,
  states: jax.Array,
  *,
  activation: str = 'tanh',
  epsilon: float = 1e-5,
  drop: Drop | None = None,
) -> jax.Array:
  """Returns class logits for each token.

  For question answering, the two classes are the start and the end of the
  answer.

  Args:
    head: Parameters of the classification head.
    states: Hidden states of shape [B, T, H].
    activation: Name of the activation after the head's layer `dense`, one of
      `xlflax.models.activations`.
    epsilon: Number that the head's layer norm `norm` adds to the variance.
    drop: Function that applies dropout before each linear map. If None, dropout
      is not applied.

  Returns:
    An array of shape [B, T, C].
  """
  if drop is None:
    drop = _identity
  if 'dense' in head or 'norm' in head:
    states = _hidden_layers(head, drop(states), activation, epsilon)
  return _linear(head['output'], drop(states))


def _identity(states: jax.Array) -> jax.Array:
  return states


def _hidden_layers(
  head: dict, states: jax.Array, activation: str, epsilon: float
) -> jax.Array:
  """Applies `dense`, the activation and `norm` to states [..., H]."""
  if 'dense' in head:
    states = activations.activation_function(activation)(
      _linear(head['dense'], states)
    )
  if 'norm' not in head:
    return states

  # Layer norm in float32.
  outputs = states.astype(jnp.float32)
  outputs = outputs - outputs.mean(-1, keepdims=True)
  variance = jnp.square(outputs).mean(-1, keepdims=True)
  outputs = outputs * jax.lax.rsqrt(variance + epsilon)
  outputs = outputs * _expand_like(head['norm']['scale'], states)
  if 'bias' in head['norm']:
    outputs = outputs + _expand_like(head['norm']['bias'], states)
  return outputs.astype(states.dtype)


def _masked_mean(values: jax.Array, mask: jax.Array | None) -> jax.Array:
  """Returns the mean over the text, which reduces [B, T, C] to [B, C]."""
  if mask is None:
    return values.mean(1)
  weights = (mask != 0)[:, :, None].astype(values.dtype)
  return (values * weights).sum(1) / weights.sum(1)


def _last_position(states: jax.Array, mask: jax.Array | None) -> jax.Array:
  """Returns the states of the last position of the text, of shape [B, H]."""
  if mask is None:
    return states[:, -1]
  positions = jnp.arange(mask.shape[1])
  last = jnp.max(jnp.where(mask != 0, positions, 0), axis=1)
  return jnp.take_along_axis(states, last[:, None, None], axis=1)[:, 0]


def _linear(parameters: dict, inputs: jax.Array) -> jax.Array:
  """Applies a linear map with an optional bias to inputs [..., H]."""
  outputs = inputs @ parameters['kernel'].astype(inputs.dtype)
  if 'bias' not in parameters:
    return outputs
  return outputs + _expand_like(
    parameters['bias'].astype(inputs.dtype), outputs
  )


def _expand_like(vector: jax.Array, like: jax.Array) -> jax.Array:
  """Adds leading axes to a vector, up to the rank of a given array."""
  return jnp.expand_dims(vector, tuple(range(like.ndim - 1)))
