"""Attention masks as what they are made from, and as arrays.

Kernels read segments and a window, a few numbers a token, where a mask
[T, S] would cost memory and time. Plain attention makes the array in place.
"""

import flax
import jax
import jax.numpy as jnp

# The score of whatever cannot be chosen: keys that a query does not see, logits
# of entries beyond the vocabulary, arcs that no tree has, negatives that do not
# count. Unlike -inf it keeps gradients finite; the probability is exactly 0 in
# float32.
MASKED_SCORE = -1e9


class Mask(flax.struct.PyTreeNode):
  """Which keys each query sees.

  Attributes:
    query_segments: int32 [B, T]; a query sees the keys of its own segment.
      Padding (segment 0) is a segment like any other. None: no segments.
    key_segments: int32 [B, S]; None where `query_segments` is.
    window: int32 [], how far a query sees in either direction; None: anywhere.
    causal: whether a query sees no later key.
    sees_itself: whether keys are the queries' own positions, so that no query
      sees nothing.
  """

  query_segments: jax.Array | None = None
  key_segments: jax.Array | None = None
  window: jax.Array | int | None = None
  causal: bool = flax.struct.field(pytree_node=False, default=False)
  sees_itself: bool = flax.struct.field(pytree_node=False, default=False)

  def array(self, length: int, memory_length: int) -> jax.Array | None:
    """Returns bool [B or 1, 1, T, S], or None if everything is seen."""
    distance = jnp.arange(length)[:, None] - jnp.arange(memory_length)[None]
    parts = []
    if self.query_segments is not None:
      assert self.key_segments is not None
      parts.append(
        self.query_segments[:, None, :, None]
        == self.key_segments[:, None, None, :]
      )
    if self.causal:
      parts.append((distance >= 0)[None, None])
    if self.window is not None:
      parts.append((jnp.abs(distance) <= self.window)[None, None])
    if not parts:
      return None
    mask, *other_parts = parts
    for other in other_parts:
      mask = mask & jnp.broadcast_to(other, mask.shape)
    return mask


def within_segments(
  segment_ids: jax.Array | None, *, causal: bool = False
) -> Mask | None:
  """Returns the mask of self-attention in which positions see their segment.

  Args:
    segment_ids: int32 [B, T], or None for one segment.
    causal: whether a position sees no later one.
  """
  if segment_ids is None and not causal:
    return None
  return Mask(segment_ids, segment_ids, causal=causal, sees_itself=True)


def of_memory(
  segment_ids: jax.Array | None,
  memory_segment_ids: jax.Array | None,
  *,
  length: int,
) -> Mask | None:
  """Returns the mask of cross-attention from a row to its paired row.

  Segment k of a packed row sees segment k of the paired row, or nothing if
  that row has no segment k. Before: segment_ids [[1, 2, 0]],
  memory_segment_ids [[1, 1, 2, 0]]; after: [[T, T, F, F], [F, F, T, F],
  [F, F, F, T]].

  Args:
    segment_ids: int32 [B, T]; None for one segment without padding.
    memory_segment_ids: int32 [B, S], 0 at padding; None if there is none and
      every position sees all of the memory.
    length: T.
  """
  if memory_segment_ids is None:
    return None
  if segment_ids is None:
    segment_ids = jnp.ones((memory_segment_ids.shape[0], length), jnp.int32)
  return Mask(segment_ids, memory_segment_ids)


def mask_array(
  mask: Mask | jax.Array | None, length: int, memory_length: int
) -> jax.Array | None:
  """Returns a mask bool [B or 1, 1, T, S] as it is, or makes it of a `Mask`."""
  if isinstance(mask, Mask):
    return mask.array(length, memory_length)
  return mask
