"""Attention masks, stored either as arrays or as segment ids with a window.

Fused kernels read the segment ids and the window, which are a few numbers per
token. A mask of shape [T, S] would cost memory and time. Other backends convert
segments and windows to such an array.
"""

import flax
import jax
import jax.numpy as jnp

# Score of everything that must have zero probability: masked keys, logits of
# padded rows of the vocabulary, impossible arcs of a tree, excluded negatives.
# Unlike -inf, it keeps gradients finite. The probability is exactly 0 in
# float32.
MASKED_SCORE = -1e9


class Mask(flax.struct.PyTreeNode):
  """Attention mask, which specifies the keys that each query attends to.

  Attributes:
    query_segments: Segment ids of the queries, int32 of shape [B, T]. A query
      attends to the keys in the same segment. Padding (segment 0) is treated
      like any other segment. If None, there are no segments.
    key_segments: Segment ids of the keys, int32 of shape [B, S]. None if and
      only if `query_segments` is None.
    window: Maximum distance between a query and a key in either direction, an
      int32 scalar. If None, the distance is not limited.
    causal: Whether queries attend only to their own and earlier positions.
    sees_itself: Whether queries and keys have the same positions. Each query
      then attends to at least one key, namely its own.
  """

  query_segments: jax.Array | None = None
  key_segments: jax.Array | None = None
  window: jax.Array | int | None = None
  causal: bool = flax.struct.field(pytree_node=False, default=False)
  sees_itself: bool = flax.struct.field(pytree_node=False, default=False)

  def array(self, length: int, memory_length: int) -> jax.Array | None:
    """Returns the mask as a bool array.

    Args:
      length: Number of queries, T.
      memory_length: Number of keys, S.

    Returns:
      A bool array of shape [B or 1, 1, T, S], or None if every query attends to
      every key.
    """
    distance = jnp.arange(length)[:, None] - jnp.arange(memory_length)[None]
    conditions = []
    if self.query_segments is not None:
      assert self.key_segments is not None
      conditions.append(
        self.query_segments[:, None, :, None]
        == self.key_segments[:, None, None, :]
      )
    if self.causal:
      conditions.append((distance >= 0)[None, None])
    if self.window is not None:
      conditions.append((jnp.abs(distance) <= self.window)[None, None])
    if not conditions:
      return None
    mask, *other_conditions = conditions
    for condition in other_conditions:
      mask = mask & jnp.broadcast_to(condition, mask.shape)
    return mask


def make_self_attention_mask(
  segment_ids: jax.Array | None, *, causal: bool = False
) -> Mask | None:
  """Returns a mask that limits self-attention to tokens of the same segment.

  Args:
    segment_ids: Segment ids, int32 of shape [B, T]. If None, there is one
      segment.
    causal: Whether positions attend only to themselves and earlier positions.

  Returns:
    The mask, or None if every position attends to every position.
  """
  if segment_ids is None and not causal:
    return None
  return Mask(segment_ids, segment_ids, causal=causal, sees_itself=True)


def make_cross_attention_mask(
  segment_ids: jax.Array | None,
  memory_segment_ids: jax.Array | None,
  *,
  length: int,
) -> Mask | None:
  """Returns the cross-attention mask between two packed sequences.

  Segment k of a sequence attends to segment k of the paired sequence, or to
  nothing if the paired sequence has no segment k. For example:

      segment_ids        = [[1, 2, 0]]
      memory_segment_ids = [[1, 1, 2, 0]]
      mask               = [[T, T, F, F], [F, F, T, F], [F, F, F, T]]

  Args:
    segment_ids: Segment ids, int32 of shape [B, T]. If None, there is one
      segment and no padding.
    memory_segment_ids: Segment ids of the memory, int32 of shape [B, S], with 0
      for padding. If None, there is no padding and every position attends to
      the complete memory.
    length: Number of queries, T.

  Returns:
    The mask, or None if every position attends to the complete memory.
  """
  if memory_segment_ids is None:
    return None
  if segment_ids is None:
    segment_ids = jnp.ones((memory_segment_ids.shape[0], length), jnp.int32)
  return Mask(segment_ids, memory_segment_ids)


def mask_array(
  mask: Mask | jax.Array | None, length: int, memory_length: int
) -> jax.Array | None:
  """Converts a mask to a bool array of shape [B or 1, 1, T, S].

  Arrays and None are returned unchanged.

  Args:
    mask: Attention mask: a `Mask`, a bool array, or None.
    length: Number of queries, T.
    memory_length: Number of keys, S.
  """
  if isinstance(mask, Mask):
    return mask.array(length, memory_length)
  return mask
