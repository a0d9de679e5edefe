"""Decoding step, which computes the next token's probabilities."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models.decoder import Cache
from xlflax.models.decoding.decoding_options import DecodingOptions


class Hypotheses(NamedTuple):
  """Generated sequences and their scores.

  Attributes:
    token_ids: Generated tokens without the start symbols, int32 of shape
      [B, n, S]. The end symbol is followed by padding.
    scores: Scores, float32 of shape [B, n]. For GREEDY and SAMPLE, the log
      probability of the sequence in nats under the model, without temperature
      and truncation. For BEAM, the log probability divided by the length to the
      power of the length penalty, in descending order, or -inf for a hypothesis
      that does not exist.
  """

  token_ids: jax.Array
  scores: jax.Array


@dataclasses.dataclass(frozen=True)
class Stepper:
  """Token-by-token decoder for a model with given parameters and options.

  Attributes:
    model: `EncoderDecoder` model to decode with.
    params: Parameters of the model.
    options: Decoding options, such as the method and the maximum length.
    eos_id: Id of the token that ends a sequence.
    pad_id: Id of the token that follows the end symbol.
    prefix: Start tokens of each sequence, int32 of shape [R, P].
    limits: Maximum number of generated tokens of each sequence, from 1 to
      `options.max_length`, int32 of shape [R].
    language_ids: Language ids of the generated sequences, int32 of shape
      [R, 1], or None.
  """

  model: Any
  params: Any
  options: DecodingOptions
  eos_id: int
  pad_id: int
  prefix: jax.Array
  limits: jax.Array
  language_ids: jax.Array | None

  def call(self, method: str, *args, **kwargs):
    """Calls a method of the model with the parameters in `params`."""
    return self.model.apply(
      {'params': self.params}, *args, method=method, **kwargs
    )

  def start(self, inputs) -> Cache:
    """Encodes the source and decodes all but the last token of the prefix.

    Args:
      inputs: Keyword arguments of the model's `encode`.

    Returns:
      The cache for the first call of `log_probabilities`.
    """
    memory = self.call('encode', **inputs)
    cache = self.call(
      'start_decoding',
      memory,
      memory_segment_ids=inputs.get('segment_ids'),
      length=self.prefix.shape[1] - 1 + self.options.max_length,
      rows_per_memory=self.options.rows_per_source,
    )
    for i in range(self.prefix.shape[1] - 1):
      _, cache = self._states(self.prefix[:, i], cache, i)
    return cache

  def log_probabilities(
    self, token_ids: jax.Array, cache: Cache, i: jax.Array
  ) -> tuple[jax.Array, Cache]:
    """Returns the next token's log probabilities.

    The log probability of suppressed tokens is -inf. The probabilities of the
    other tokens are not rescaled.

    Args:
      token_ids: Preceding token of each sequence, int32 of shape [R].
      cache: Decoder cache from the preceding steps.
      i: Index of the token to predict among the generated tokens, an int32
        scalar.

    Returns:
      A float32 array of shape [R, V], and the cache for the next step.
    """
    states, cache = self._states(token_ids, cache, self.prefix.shape[1] - 1 + i)
    log_probs = jax.nn.log_softmax(self.call('logits', states[:, 0]))
    if self.options.suppressed_ids:
      ids = jnp.asarray(self.options.suppressed_ids)
      log_probs = log_probs.at[:, ids].set(-jnp.inf)
    return log_probs, cache

  def _states(self, token_ids, cache, position):
    """Returns the decoder's hidden states of tokens [R], of shape [R, 1, H]."""
    return self.call(
      'decode_step',
      token_ids[:, None],
      cache,
      position,
      language_ids=self.language_ids,
    )
