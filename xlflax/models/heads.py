"""Logits of classification heads, from states and a head's parameters.

A head is `{'output': {'kernel' [H, C], 'bias' [C]}}`; that of sequences may
have `'dense'` (`kernel` [H, H], `bias` [H]) and tanh before it, which is
BERT's pooler and RoBERTa's classification head.
"""

import jax
import jax.numpy as jnp


def pooled(head: dict, states: jax.Array) -> jax.Array:
  """The first position through `dense` and tanh: [B, T, H] -> [B, H]."""
  first = states[:, 0]
  return jnp.tanh(_linear(head['dense'], first)) if 'dense' in head else first


def sequence_logits(head: dict, states: jax.Array) -> jax.Array:
  """Logits of a sequence's classes: [B, T, H] -> [B, C]."""
  return _linear(head['output'], pooled(head, states))


def token_logits(head: dict, states: jax.Array) -> jax.Array:
  """Logits of each token's classes: [B, T, H] -> [B, T, C].

  For question answering the two classes are start and end of the answer.
  """
  return _linear(head['output'], states)


def _linear(parameters: dict, inputs: jax.Array) -> jax.Array:
  """[..., H] -> [..., C]."""
  outputs = inputs @ parameters['kernel'].astype(inputs.dtype)
  bias = parameters['bias'].astype(inputs.dtype)
  return outputs + jnp.expand_dims(bias, tuple(range(outputs.ndim - 1)))
