"""Hashes of token rows, to find equal sentences in a batch."""

import jax
import jax.numpy as jnp


def fingerprint_rows(token_ids: jax.Array) -> jax.Array:
  """Two 32-bit hashes of each row of `token_ids [B, T]`: uint32 [B, 2]."""
  ids = token_ids.astype(jnp.uint32)
  position = jnp.arange(ids.shape[1], dtype=jnp.uint32)[None, :]

  def hashed(multiplier, offset):
    mixed = (ids + jnp.uint32(1)) * jnp.uint32(multiplier)
    mixed ^= (position + jnp.uint32(offset)) * jnp.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    return jnp.sum(mixed ^ (mixed >> 16), axis=1, dtype=jnp.uint32)

  return jnp.stack([hashed(0x27D4EB2F, 1), hashed(0x165667B1, 77)], axis=1)


def equal_fingerprints(first: jax.Array, second: jax.Array) -> jax.Array:
  """bool [B, K]: which fingerprints `[B, 2]` and `[K, 2]` are equal."""
  return jnp.all(first[:, None] == second[None, :], axis=-1)


def same_rows(token_ids: jax.Array) -> jax.Array:
  """bool [B, B]: rows of `token_ids [B, T]` that are equal, by 64-bit hash."""
  prints = fingerprint_rows(token_ids)
  return equal_fingerprints(prints, prints)
