"""Momentum contrast (MoCo): a moving-average key encoder and a key queue.

The method is MoCo (He et al. 2020, section 3), as PPA applies it to sentence
pairs (Pan et al. 2021, section 2.1). The functions are pure. The state is a
dictionary:

- `key_encoder`: Parameters of f_k, which receive no gradient: `{'model': ...}`
  and, with a head, `'heads': {name: ...}`.
- `queue`: `keys`, unit vectors, float32 [size, D]. If duplicates are excluded,
  also `prints`, uint32 [size, 4]: hashes of both sentences of each key's pair,
  0 for the initial random keys.
- `negatives`: The queue at the start of the step.
- `pointer`: Slot of the first key of the next batch, int32 [].
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from xlflax.models.attention.masks import MASKED_SCORE
from xlflax.objectives import duplicate_detection, losses, objective_base
from xlflax.utils import class_registry, errors, validation


@class_registry.register('moco_queue')
@dataclasses.dataclass(frozen=True, kw_only=True)
class MoCoQueue:
  """Settings for momentum contrast (MoCo): queue size and momentum.

  Attributes:
    size: Number of keys in the queue (PPA: 32,000). It must be a multiple of
      the number of pairs in a batch.
    momentum: Momentum m of the key encoder (PPA: 0.999). Each step computes
      theta_k <- m theta_k + (1 - m) theta_q.
  """

  size: validation.PositiveInt = 32_000
  momentum: validation.FractionBelowOne = 0.999

  def check_batch(self, pairs: int, where: str) -> None:
    """Checks that the queue size is a multiple of the batch size.

    Args:
      pairs: Number of pairs in the batch of each training step.
      where: Location that the error message reports.

    Raises:
      ConfigError: If `size` is not a multiple of `pairs`.
    """
    if self.size % pairs:
      nearest_size = max(round(self.size / pairs), 1) * pairs
      raise errors.ConfigError(
        'The size of the queue must be a multiple of the batch size, but the '
        f'queue contains {self.size} keys and a batch contains {pairs} pairs',
        where=where,
        fix=f'Set MoCoQueue.size to {nearest_size}, or change the batch size.',
      )


def _query_encoder(params, name: str) -> dict[str, Any]:
  """Returns the parameters of f_q: the model and the head of the objective."""
  encoder = {'model': params['model']}
  if name in params.get('heads', {}):
    encoder['heads'] = {name: params['heads'][name]}
  return encoder


def initial_state(
  queue: MoCoQueue, params, *, name: str, dim: int, with_prints: bool
) -> dict[str, Any]:
  """Initializes MoCo with a copy of the query encoder and a random key queue.

  Args:
    queue: Settings for momentum contrast (MoCo): queue size and momentum.
    params: Parameters `{'model': ..., 'heads': ...}` of the query encoder f_q.
    name: Name of the objective, which is also the key of its head.
    dim: Width D of the keys in the queue.
    with_prints: Whether to store sentence hashes (`prints`) in the queue.
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


def start_step(queue: MoCoQueue, params, state, *, name: str) -> dict[str, Any]:
  """Applies MoCo's momentum update (He et al., equation 2) once per step.

    theta_k <- m theta_k + (1 - m) theta_q

  The update precedes the computation of the step's keys. As in algorithm 1 of
  MoCo, the update uses the parameters of f_q before the step's optimizer
  update.

  Args:
    queue: Settings for momentum contrast (MoCo): queue size and momentum.
    params: Parameters of the query encoder f_q.
    state: Key encoder and queue, as documented in the module docstring.
    name: Name of the objective, which is also the key of its head.

  Returns:
    The updated state.
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
  state, new_entries, valid: jax.Array, context: objective_base.ObjectiveContext
) -> dict[str, Any]:
  """Replaces the oldest keys in the queue with a micro-batch's keys.

  A step fills the next B slots in the order of the pairs in the global batch,
  regardless of how the batch is divided into micro-batches. The slot of an
  invalid pair keeps its previous key.

  Before: pointer 2, size 6, keys of pairs 0 to 3, pair 1 invalid. After: slots
  2, 4, 5 contain keys 0, 2, 3, and the pointer is 0.

  Args:
    state: Key encoder and queue, as documented in the module docstring.
    new_entries: Mapping with the arrays of the b new queue entries, as in
      `state['queue']`.
    valid: Boolean array of shape [b], True for new entries that replace an old
      entry of the queue.
    context: `ObjectiveContext` that provides the number of micro-batches and
      the index of the current micro-batch.

  Returns:
    The updated state.
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
    new_entries,
  )
  is_last = jnp.asarray(context.micro_batch == count - 1)
  pointer = jnp.where(
    is_last, state['pointer'] + count * rows, state['pointer']
  )
  return {**state, 'queue': queue, 'pointer': pointer % size}


def shared_sentences(prints: jax.Array, queued: jax.Array) -> jax.Array:
  """Finds queued pairs that share at least one sentence with the given pairs.

  Args:
    prints: Sentence hashes of B pairs, of shape [B, 4].
    queued: Sentence hashes of K pairs, of shape [K, 4].

  Returns:
    Boolean array of shape [B, K].
  """
  sides = (slice(0, 2), slice(2, 4))
  shared = jnp.zeros((prints.shape[0], queued.shape[0]), bool)
  for side in sides:
    for queued_side in sides:
      shared |= duplicate_detection.equal_fingerprints(
        prints[:, side], queued[:, queued_side]
      )
  return shared


def info_nce(
  queries: jax.Array,
  keys: jax.Array,
  negatives: jax.Array,
  *,
  temperature: float,
  weights: jax.Array,
  excluded: jax.Array | None = None,
) -> losses.TokenLoss:
  """Computes InfoNCE with K negatives per query (He et al., equation 1).

  loss_i = -log exp(q_i . k_i / t) / (exp(q_i . k_i / t)
                                      + sum_j exp(q_i . n_j / t))

  Args:
    queries: Query vectors q of shape [B, D].
    keys: Key vectors k of shape [B, D]. Key i is the positive of query i and
      never a negative.
    negatives: Vectors n of the negatives, of shape [K, D].
    temperature: Temperature t > 0 by which the similarities are divided.
    weights: Weights of the examples, of shape [B]. An example of weight 0 has
      loss 0.
    excluded: Boolean array of shape [B, K]. True at (i, j) removes negative j
      from the denominator of query i. If None, all negatives are used.

  Returns:
    The loss, and 1 where no negative is more similar than the positive, float32
    arrays of shape [B].
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
