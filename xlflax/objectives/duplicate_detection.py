"""Hashes of token sequences, for detecting duplicates in a batch."""

import jax
import jax.numpy as jnp


def fingerprint_rows(token_ids: jax.Array) -> jax.Array:
  """Computes two 32-bit hashes of each sequence.

  Args:
    token_ids: Token ids of the sequences, an integer array of shape [B, T].

  Returns:
    uint32 array of shape [B, 2].
  """
  ids = token_ids.astype(jnp.uint32)
  positions = jnp.arange(ids.shape[1], dtype=jnp.uint32)[None, :]

  def hash_rows(multiplier, offset):
    mixed = (ids + jnp.uint32(1)) * jnp.uint32(multiplier)
    mixed ^= (positions + jnp.uint32(offset)) * jnp.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    return jnp.sum(mixed ^ (mixed >> 16), axis=1, dtype=jnp.uint32)

  return jnp.stack(
    [hash_rows(0x27D4EB2F, 1), hash_rows(0x165667B1, 77)], axis=1
  )


def equal_fingerprints(first: jax.Array, second: jax.Array) -> jax.Array:
  """Compares all pairs of fingerprints from two sets for equality.

  Args:
    first: Fingerprints of B sequences, of shape [B, 2].
    second: Fingerprints of K sequences, of shape [K, 2].

  Returns:
    Boolean array of shape [B, K], True where two fingerprints are equal.
  """
  return jnp.all(first[:, None] == second[None, :], axis=-1)


def find_equal_rows(token_ids: jax.Array) -> jax.Array:
  """Finds equal sequences in a batch by comparing their 64-bit hashes.

  Args:
    token_ids: Token ids of the sequences, an integer array of shape [B, T].

  Returns:
    Boolean array of shape [B, B], True where two sequences are equal.
  """
  fingerprints = fingerprint_rows(token_ids)
  return equal_fingerprints(fingerprints, fingerprints)
