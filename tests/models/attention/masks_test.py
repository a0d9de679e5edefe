"""Attention masks as arrays."""

import jax.numpy as jnp
import numpy as np

from xlflax.models.attention import masks


def _rows(mask, length, memory_length=None):
  array = masks.mask_array(mask, length, memory_length or length)
  return np.asarray(array)[0, 0].astype(int).tolist()


def test_self_attention_masks_within_segments():
  segments = jnp.asarray([[1, 1, 2, 0]])
  assert _rows(masks.make_self_attention_mask(segments), 4) == [
    [1, 1, 0, 0],
    [1, 1, 0, 0],
    [0, 0, 1, 0],
    [0, 0, 0, 1],
  ]
  assert _rows(masks.make_self_attention_mask(segments, causal=True), 4) == [
    [1, 0, 0, 0],
    [1, 1, 0, 0],
    [0, 0, 1, 0],
    [0, 0, 0, 1],
  ]
  assert _rows(masks.make_self_attention_mask(None, causal=True), 2) == [
    [1, 0],
    [1, 1],
  ]
  assert masks.make_self_attention_mask(None) is None


def test_window_masks_within_segments():
  mask = masks.make_self_attention_mask(jnp.asarray([[1, 1, 1, 2, 2, 0]]))
  assert _rows(mask.replace(window=1), 6) == [
    [1, 1, 0, 0, 0, 0],
    [1, 1, 1, 0, 0, 0],
    [0, 1, 1, 0, 0, 0],
    [0, 0, 0, 1, 1, 0],
    [0, 0, 0, 1, 1, 0],
    [0, 0, 0, 0, 0, 1],
  ]
  assert masks.Mask(window=0).array(3, 3).shape == (1, 1, 3, 3)


def test_cross_attention_masks():
  segments = jnp.asarray([[1, 2, 0]])
  memory = jnp.asarray([[1, 1, 2, 0]])
  assert _rows(
    masks.make_cross_attention_mask(segments, memory, length=3), 3, 4
  ) == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
  assert (
    _rows(masks.make_cross_attention_mask(None, memory, length=3), 3, 4)
    == [[1, 1, 0, 0]] * 3
  )
  assert masks.make_cross_attention_mask(segments, None, length=3) is None


def test_mask_without_restrictions_is_none():
  assert masks.Mask().array(2, 3) is None
  mask = jnp.ones((1, 1, 2, 3), bool)
  assert masks.mask_array(mask, 2, 3) is mask
