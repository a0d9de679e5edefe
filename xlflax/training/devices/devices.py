"""Rates of this machine's devices, for MFU."""

import time

import jax
import jax.numpy as jnp

from xlflax.training.devices import accelerators


def peak_flops(device: jax.Device) -> float | None:
  """Returns the peak dense bf16 FLOP/s of a device, or None if unknown."""
  known = accelerators.of_kind(device.device_kind)
  return known.flops if known else None


def measured_flops(size: int = 1024, repeats: int = 3) -> float:
  """FLOP/s of a float32 matrix product here: the yardstick on a CPU."""
  matrix = jnp.ones((size, size), jnp.float32)
  product = jax.jit(lambda a: a @ a)
  product(matrix).block_until_ready()
  start = time.perf_counter()
  for _ in range(repeats):
    product(matrix).block_until_ready()
  return 2 * size**3 * repeats / (time.perf_counter() - start)


def memory_in_use_peak(device: jax.Device) -> int | None:
  """Peak bytes in use on a device, where its runtime counts them."""
  stats = device.memory_stats() or {}
  return stats.get('peak_bytes_in_use')
