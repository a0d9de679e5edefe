"""The step that all decoding methods share: one token's probabilities."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models.decoder import Cache
from xlflax.models.decoding.decoding_options import DecodingOptions


class Hypotheses(NamedTuple):
  """Generated rows and their scores.

  Attributes:
    token_ids: int32 [B, n, S], without the start; from the end symbol on, the
      padding symbol.
    scores: float32 [B, n]. GREEDY and SAMPLE: the log probability of the row,
      in nats, under the model as it is (neither temperature nor truncation).
      BEAM: the log probability over its length to the power of the length
      penalty, falling; -inf for a hypothesis that does not exist.
  """

  token_ids: jax.Array
  scores: jax.Array


@dataclasses.dataclass(frozen=True)
class Stepper:
  """A model, its parameters, and the ends of rows.

  Attributes:
    model: an `EncoderDecoder`.
    params: its parameters.
    options: how to decode.
    eos_id: ends a row.
    pad_id: fills rows after that.
    prefix: int32 [R, P], what every row starts with.
    limits: int32 [R], tokens generated at most, from 1 to `options.max_length`.
    language_ids: int32 [R, 1], or None.
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
    return self.model.apply(
      {'params': self.params}, *args, method=method, **kwargs
    )

  def start(self, inputs) -> Cache:
    """Encodes the source and reads the prefix except its last token."""
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
    """Of the i-th generated token, after `token_ids` [R]: float32 [R, V].

    Suppressed tokens have -inf; the others are not scaled up for it.
    """
    states, cache = self._states(token_ids, cache, self.prefix.shape[1] - 1 + i)
    result = jax.nn.log_softmax(self.call('logits', states[:, 0]))
    if self.options.suppressed_ids:
      ids = jnp.asarray(self.options.suppressed_ids)
      result = result.at[:, ids].set(-jnp.inf)
    return result, cache

  def _states(self, token_ids, cache, position):
    return self.call(
      'decode_step',
      token_ids[:, None],
      cache,
      position,
      language_ids=self.language_ids,
    )
