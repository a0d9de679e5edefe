"""Momentum contrast: a slow copy of the encoder and a queue of its keys.

MoCo (He et al. 2020, section 3), as PPA uses it for sentence pairs (Pan et
al. 2021, section 2.1). The functions are pure; the state is a dict:

| key | content |
| --- | --- |
| `key_encoder` | `{'model': ...}`, and `'heads': {name: ...}` with a head: the
  parameters of f_k, which no gradient reaches |
| `queue` | `keys` float32 [size, D], unit vectors; `prints` uint32
  [size, 4], if duplicates are told apart: hashes of both sides of each key's
  pair, 0 for a key that no pair made |
| `negatives` | the queue as it was when the step began |
| `pointer` | int32 [], the slot that the next batch's first key gets |
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.objectives import duplicate_detection, losses, objective_base
from xlflax.utils import class_registry, errors, validation


@class_registry.register('momentum_queue')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MomentumQueue:
  """Settings of momentum contrast.

  Attributes:
    size: keys in the queue (PPA: 32,000); a multiple of the batch's pairs.
    momentum: m of theta_k <- m theta_k + (1 - m) theta_q (PPA: 0.999).
  """

  size: validation.PositiveInt = 32_000
  momentum: validation.FractionBelowOne = 0.999

  def check_batch(self, pairs: int, where: str) -> None:
    """Raises ConfigError unless `pairs` keys a step fill the queue evenly."""
    if self.size % pairs:
      nearest_size = max(round(self.size / pairs), 1) * pairs
      raise errors.ConfigError(
        'The queue does not hold a whole number of batches',
        got=f'a queue of {self.size} keys and batches of {pairs} pairs',
        expected=f'a size that is a multiple of {pairs}',
        where=where,
        fix=f'set MomentumQueue.size to {nearest_size}, or change the batch size',
      )


def _query_encoder(params, name: str) -> dict[str, Any]:
  """The part of the parameters that f_q uses."""
  encoder = {'model': params['model']}
  if name in params.get('heads', {}):
    encoder['heads'] = {name: params['heads'][name]}
  return encoder


def initial_state(
  queue: MomentumQueue, params, *, name: str, dim: int, with_prints: bool
) -> dict[str, Any]:
  """Returns f_k as a copy of f_q and a queue of random unit vectors (MoCo).

  Args:
    queue: the settings.
    params: `{'model': ..., 'heads': ...}` of f_q.
    name: the objective's, under which its head is found.
    dim: D, the width of a key.
    with_prints: whether the queue keeps `prints`.
  """
  vectors = jax.random.normal(jax.random.key(0), (queue.size, dim))
  queue_state = {'keys': losses.l2_normalize(vectors)}
  if with_prints:
    queue_state['prints'] = jnp.zeros((queue.size, 4), jnp.uint32)
  return {
    'key_encoder': jax.tree.map(jnp.copy, _query_encoder(params, name)),
    'queue': queue_state,
    'negatives': jax.tree.map(jnp.copy, queue_state),
    'pointer': jnp.zeros([], jnp.int32),
  }


def start_step(
  queue: MomentumQueue, params, state, *, name: str
) -> dict[str, Any]:
  """Applies the momentum update (He et al., equation 2), once per step.

  It comes before the step's keys are made and takes the parameters of f_q
  from before the step's update, as in MoCo's algorithm 1.
  """
  m = queue.momentum
  return {
    **state,
    'negatives': state['queue'],
    'key_encoder': jax.tree.map(
      lambda k, q: m * k + (1 - m) * q,
      state['key_encoder'],
      _query_encoder(params, name),
    ),
  }


def enqueue(
  state, new, valid: jax.Array, context: objective_base.Context
) -> dict[str, Any]:
  """Replaces the oldest keys of the queue by those of a micro-batch.

  A step fills the next B slots in the order of the global batch's pairs, in
  whatever micro-batches they come. The slot of a pair that is not valid is
  passed over: it keeps the key that it has.

  Before: pointer 2, size 6, keys of pairs 0 to 3, pair 1 not valid; after:
  slots 2, 4, 5 hold keys 0, 2, 3, and the pointer is 0.

  Args:
    state: as the module's docstring says.
    new: like `state['queue']`, with b rows.
    valid: bool [b].
    context: says which micro-batch this is, of how many.
  """
  count = context.micro_batches
  size, rows = state['queue']['keys'].shape[0], valid.shape[0]
  slots = state['pointer'] + context.micro_batch + count * jnp.arange(rows)
  slots %= size
  queue = jax.tree.map(
    lambda old, values: old.at[slots].set(
      jnp.where(valid[:, None], values, old[slots]), unique_indices=True
    ),
    state['queue'],
    new,
  )
  last = jnp.asarray(context.micro_batch == count - 1)
  pointer = jnp.where(last, state['pointer'] + count * rows, state['pointer'])
  return {**state, 'queue': queue, 'pointer': pointer % size}


def shared_sentences(prints: jax.Array, queued: jax.Array) -> jax.Array:
  """bool [B, K]: pairs `[B, 4]` and `[K, 4]` with a sentence in common."""
  sides = (slice(0, 2), slice(2, 4))
  out = jnp.zeros((prints.shape[0], queued.shape[0]), bool)
  for mine in sides:
    for other in sides:
      out |= duplicate_detection.equal_fingerprints(
        prints[:, mine], queued[:, other]
      )
  return out


def info_nce(
  queries: jax.Array,
  keys: jax.Array,
  negatives: jax.Array,
  *,
  temperature: float,
  weights: jax.Array,
  excluded: jax.Array | None = None,
) -> losses.TokenLoss:
  """InfoNCE of one positive among K negatives (He et al., equation 1).

  loss_i = -log exp(q_i . k_i / t) / (exp(q_i . k_i / t)
                                      + sum_j exp(q_i . n_j / t))

  Args:
    queries: [B, D].
    keys: [B, D]; row i is the positive of query i and never a negative.
    negatives: [K, D].
    temperature: t > 0.
    weights: [B]; a row of weight 0 has loss 0.
    excluded: bool [B, K] or None; True ignores negative j for query i.

  Returns:
    Float32 [B] each: the loss, and 1 where no negative is more similar.
  """
  highest = jax.lax.Precision.HIGHEST
  positive = jnp.einsum('bd,bd->b', queries, keys, precision=highest)
  negative_scores = jnp.einsum(
    'bd,kd->bk', queries, negatives, precision=highest
  )
  if excluded is not None:
    negative_scores = jnp.where(excluded, MASKED_SCORE, negative_scores)
  scores = (
    jnp.concatenate([positive[:, None], negative_scores], axis=1) / temperature
  )
  result = losses.cross_entropy(scores, jnp.zeros(queries.shape[:1], jnp.int32))
  return losses.TokenLoss(
    jnp.where(weights > 0, result.loss, 0.0),
    jnp.where(weights > 0, result.correct, 0.0),
  )
