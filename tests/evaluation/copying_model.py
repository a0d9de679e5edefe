"""A hand-written encoder-decoder that copies its input."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlflax.models import decoder
from xlflax.utils import class_registry


@class_registry.register('copying_model_config_of_the_tests')
@dataclasses.dataclass(frozen=True)
class Config:
  """Fields of a model configuration that xlflax reads."""

  vocab_size: int
  max_position_embeddings: int = 32


@class_registry.register('copying_model_of_the_tests')
class CopyingModel(nn.Module):
  """Model whose i-th target token is that of the source, up to and with eos.

  The other tokens have small probabilities that decrease with the id.
  """

  config: Config

  def setup(self):
    self.certainty = self.param('certainty', lambda key: jnp.full((), 8.0))

  def __call__(self, token_ids: jax.Array) -> jax.Array:
    return self.logits(self.encode(token_ids))

  def encode(self, token_ids: jax.Array, **inputs) -> jax.Array:
    del inputs
    return token_ids[..., None].astype(jnp.float32)  # [M, T, 1]

  def start_decoding(
    self,
    memory: jax.Array,
    *,
    length: int,
    memory_segment_ids=None,
    rows_per_memory: int = 1,
  ) -> decoder.Cache:
    del memory_segment_ids
    rows = memory.shape[0] * rows_per_memory
    empty = jnp.zeros((1, rows, length, 1, 1))
    memory = memory[None, ..., None]  # [1, M, T, 1, 1]
    return decoder.Cache(empty, empty, memory, memory, None)

  def decode_step(
    self,
    token_ids: jax.Array,
    cache: decoder.Cache,
    position,
    *,
    language_ids=None,
  ):
    del language_ids
    memory = cache.memory_keys[0, :, :, 0]  # [M, T, 1]
    next_token = jnp.take(memory, position + 1, axis=1, mode='clip')
    repeats = token_ids.shape[0] // memory.shape[0]
    return jnp.repeat(next_token, repeats, axis=0)[:, None], cache  # [B, 1, 1]

  def logits(self, states: jax.Array) -> jax.Array:
    token_ids = states[..., 0].astype(jnp.int32)
    vocab = self.config.vocab_size
    other_logits = jnp.linspace(1, 0, vocab).reshape(
      (1,) * token_ids.ndim + (vocab,)
    )
    return self.certainty * jax.nn.one_hot(token_ids, vocab) + other_logits
