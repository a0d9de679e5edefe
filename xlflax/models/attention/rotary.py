"""Rotary position embeddings (Su et al. 2021)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Rotation(NamedTuple):
  """Cosines and sines of rotary position embeddings.

  Attributes:
    cos: Cosines of the rotary angles, float32 of shape [B or 1, T, D / 2].
    sin: Sines of the rotary angles, float32 of shape [B or 1, T, D / 2].
  """

  cos: jax.Array
  sin: jax.Array


def rotary_angles(
  positions: jax.Array, *, dim: int, theta: float, factor: float = 1.0
) -> Rotation:
  """Computes the cosines and sines of the RoPE angles at each position.

  The angle of position p and feature pair i is p / factor / theta^(2i / D)
  (section 3.2.2).

  Args:
    positions: Positions p, int32 of shape [B or 1, T].
    dim: Width D of an attention head. It must be even.
    theta: Base of the rotation frequencies, theta in the formula.
    factor: Factor by which the positions are divided (position interpolation,
      Chen et al. 2023).
  """
  frequencies = theta ** (-np.arange(0, dim, 2, dtype=np.float32) / dim)
  frequencies /= factor
  angles = (
    positions.astype(jnp.float32)[:, :, None]
    * jnp.asarray(frequencies, jnp.float32)[None, None]
  )
  return Rotation(jnp.cos(angles), jnp.sin(angles))


def apply_rotary(heads: jax.Array, rotation: Rotation) -> jax.Array:
  """Rotates features i and i + D / 2 of each head by the rotary angles.

  The rotation is computed in float32.

  Args:
    heads: Queries or keys of shape [B, T, N, D].
    rotation: Rotary angles of the positions.

  Returns:
    An array of the shape and dtype of `heads`.
  """
  first, second = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
  cos, sin = rotation.cos[:, :, None], rotation.sin[:, :, None]
  cos, sin = (jnp.broadcast_to(x, first.shape) for x in (cos, sin))
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  ).astype(heads.dtype)
