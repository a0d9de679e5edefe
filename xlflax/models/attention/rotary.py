"""Rotary position embeddings (Su et al. 2021)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Rotation(NamedTuple):
  """The angles by which pairs of a head's features are rotated.

  Attributes:
    cos: float32 [B or 1, T, D / 2].
    sin: likewise.
  """

  cos: jax.Array
  sin: jax.Array


def rotary_angles(
  positions: jax.Array, *, dim: int, theta: float, factor: float = 1.0
) -> Rotation:
  """Returns the angles p / factor / theta^(2i / D) (section 3.2.2).

  Args:
    positions: int32 [B or 1, T].
    dim: D, the width of a head, even.
    theta: the base of the periods.
    factor: what stretches them all (Chen et al. 2023).
  """
  frequencies = theta ** (-np.arange(0, dim, 2, dtype=np.float32) / dim)
  frequencies /= factor
  angles = (
    positions.astype(jnp.float32)[:, :, None]
    * jnp.asarray(frequencies, jnp.float32)[None, None]
  )
  return Rotation(jnp.cos(angles), jnp.sin(angles))


def apply_rotary(heads: jax.Array, by: Rotation) -> jax.Array:
  """Rotates feature i together with feature i + D / 2: [B, T, N, D] -> same.

  Computed in float32; the outcome has the dtype of `heads`.
  """
  first, second = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
  cos, sin = by.cos[:, :, None], by.sin[:, :, None]
  cos, sin = (jnp.broadcast_to(x, first.shape) for x in (cos, sin))
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  ).astype(heads.dtype)
