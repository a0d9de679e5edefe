"""What each layer sees of a row, where layers differ: all of it, or a window.

Layer i is global if i is a multiple of `config.global_every`; the others are
local: their positions attend to those at most `config.local_window` away, and
may have other rotary periods (Warner et al. 2024).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlflax.models import attention, rotary
from xlflax.models import config as model_config


class View(NamedTuple):
  """A layer's.

  Attributes:
    mask: bool [B or 1, 1, T, T], or None if all attend to all.
    rotation: of queries and keys; None for other kinds of positions.
    is_first: whether the layer is the first and has no norm before its
      attention; None if every layer has one.
  """

  mask: jax.Array | None
  rotation: rotary.Rotation | None
  is_first: jax.Array | bool | None


class Views(NamedTuple):
  """Those of all layers: (mask, rotation) of the global and local ones."""

  everywhere: tuple[Any, Any]
  window: tuple[Any, Any] | None


def differ(config: model_config.EncoderConfig) -> bool:
  """Whether layers need their index."""
  return config.local_window is not None or not config.first_norm


def make(
  config: model_config.EncoderConfig, segment_ids, positions, length: int
) -> Views:
  """What `of_layer` takes its views from.

  Args:
    config: of the encoder.
    segment_ids: int32 [B, T], or None.
    positions: int32 [B, T], or None for 0 .. T - 1.
    length: T.
  """
  mask = None if segment_ids is None else attention.segment_mask(segment_ids)
  everywhere = mask, _rotation(config, positions, length, config.rotary_theta)
  if config.local_window is None:
    return Views(everywhere, None)
  theta = config.local_rotary_theta or config.rotary_theta
  return Views(
    everywhere,
    (
      attention.window_mask(length, config.local_window, mask),
      _rotation(config, positions, length, theta),
    ),
  )


def of_layer(
  config: model_config.EncoderConfig,
  views: Views,
  index: jax.Array | int | None,
) -> View:
  """The view of a layer; its index, if `differ`, may be traced."""
  is_first = None if config.first_norm else index == 0
  mask, rotation = views.everywhere
  if views.window is None:
    return View(mask, rotation, is_first)
  assert index is not None
  local_mask, local_rotation = views.window
  is_global = index % config.global_every == 0
  if isinstance(is_global, bool):
    return View(*(views.everywhere if is_global else views.window), is_first)
  if mask is None:
    mask = jnp.ones_like(local_mask)

  def choose(a, b):
    return jnp.where(is_global, a, b)

  return View(
    choose(mask, local_mask),
    jax.tree.map(choose, rotation, local_rotation),
    is_first,
  )


def _rotation(config, positions, length, theta):
  rotary_kind = model_config.PositionEmbedding.ROTARY
  if config.position_embedding is not rotary_kind:
    return None
  if positions is None:
    positions = jnp.arange(length)[None]
  return rotary.rotation(positions, dim=config.dim_per_head, theta=theta)
