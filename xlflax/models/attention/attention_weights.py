"""Attention weights of an encoder's layers, for analyses.

Attention is usually computed without storing the weights. The functions in this
module compute the weights in addition to the output of each layer, if a caller
requests them. Training is not affected.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import encoder_config
from xlflax.models.attention import attention_backends, masks
from xlflax.utils import errors

COLLECTION = 'intermediates'
_NAME = 'attention_weights'


def record_attention_weights(
  module: nn.Module,
  query: jax.Array,
  key: jax.Array,
  mask: masks.Mask | jax.Array | None,
) -> None:
  """Stores attention weights if the collection 'intermediates' is mutable.

  Args:
    module: Attention module in whose collection 'intermediates' the weights are
      stored.
    query: Queries of shape [B, T, N, D].
    key: Keys of shape [B, S, K, D], where K divides N.
    mask: Attention mask. If None, every query attends to every key.
  """
  if not module.is_mutable_collection(COLLECTION):
    return
  repeats = query.shape[2] // key.shape[2]
  scores = jnp.einsum(
    'btnd,bsnd->bnts',
    query,
    jnp.repeat(key, repeats, axis=2),
    preferred_element_type=jnp.float32,
  )
  scores = scores * query.shape[-1] ** -0.5
  visible = masks.mask_array(mask, query.shape[1], key.shape[1])
  if visible is not None:
    scores = jnp.where(visible, scores, attention_backends.MASKED_SCORE)
  module.sow(COLLECTION, _NAME, jax.nn.softmax(scores, axis=-1))


def compute_attention_weights(
  model: nn.Module, params: Any, token_ids: jax.Array, **inputs: Any
) -> jax.Array:
  """Computes the self-attention weights of each encoder layer.

  Args:
    model: Encoder.
    params: Parameters of the encoder.
    token_ids: Token ids of shape [B, T].
    **inputs: Additional inputs of `Encoder.encode`.

  Returns:
    Attention weights of shape [L, B, N, T, T], float32. The weights of each
    query (the fourth axis) sum to 1 over the keys (the last axis).

  Raises:
    ConfigError: If the encoder has disentangled attention, whose weights are
      not stored.
  """
  position_embedding = model.config.position_embedding
  if position_embedding is encoder_config.PositionEmbedding.DISENTANGLED:
    raise errors.ConfigError(
      'Attention weights are not available for encoders with '
      f'position_embedding={position_embedding.value!r}'
    )
  _, variables = model.apply(
    {'params': params},
    token_ids,
    method='encode',
    mutable=[COLLECTION],
    **inputs,
  )
  layers = variables[COLLECTION]
  if model.config.scan_layers:
    (weights,) = layers['layers']['attention'][_NAME]
    return weights
  return jnp.stack(
    [
      layers[f'layers_{index}']['attention'][_NAME][0]
      for index in range(model.config.num_layers)
    ]
  )
