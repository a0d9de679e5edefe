"""Rates of this machine's devices."""

import time

import jax

from xlflax.training.devices import accelerators


def peak_flops(device: jax.Device) -> float | None:
  """Returns the peak dense bf16 FLOP/s of a device, or None if unknown."""
  accelerator = accelerators.of_kind(device.device_kind)
  return accelerator.flops if accelerator else None


def product_rate(
  size: int = 1024, dtype: str = 'float32', repeats: int = 3
) -> float:
  """FLOP/s of matrix products on a device here; by default, of a CPU."""
  keys = jax.random.split(jax.random.key(0))
  left_matrix, right = (
    jax.random.normal(key, (size, size), dtype) / size**0.5 for key in keys
  )
  seconds = _turn(lambda x: x @ right, left_matrix, repeats)
  return 2 * size**3 / seconds


def _turn(function, array: jax.Array, repeats: int) -> float:
  """Seconds of a call in a loop on the device, `array` to its like."""
  loop = jax.jit(
    lambda x: jax.lax.fori_loop(0, repeats, lambda _, y: function(y), x)
  )
  loop(array).block_until_ready()
  start = time.perf_counter()
  loop(array).block_until_ready()
  return (time.perf_counter() - start) / repeats


def memory_in_use_peak(device: jax.Device) -> int | None:
  """Peak bytes in use on a device, where its runtime counts them."""
  stats = device.memory_stats() or {}
  return stats.get('peak_bytes_in_use')
