"""What is known of accelerators: peak arithmetic rates for MFU."""

import time

import jax
import jax.numpy as jnp

# Dense bf16 FLOP/s of one device, by the vendors' data sheets; the key is
# part of `device_kind` in lower case.
_PEAK_BF16 = (
    ('b200', 2250e12), ('gb200', 2250e12), ('h200', 989e12), ('h100', 989e12),
    ('gh200', 989e12), ('a100', 312e12), ('a10g', 70e12), ('l40s', 362e12),
    ('l4', 121e12), ('v100', 125e12), ('tpu v2', 45e12), ('tpu v3', 123e12),
    ('tpu v4', 275e12), ('tpu v5 lite', 197e12), ('tpu v5e', 197e12),
    ('tpu v5p', 459e12), ('tpu v5', 459e12), ('tpu v6 lite', 918e12),
    ('tpu v6e', 918e12),
)


def peak_flops(device: jax.Device) -> float | None:
  """Peak dense bf16 FLOP/s of a device, or None where it is not known."""
  kind = device.device_kind.lower()
  return next((rate for name, rate in _PEAK_BF16 if name in kind), None)


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
