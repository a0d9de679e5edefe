"""Peak and measured FLOP/s, and memory use, of this machine's devices."""

import time

import jax

from xlflax.training.devices import accelerators


def peak_flops(device: jax.Device) -> float | None:
  """Returns a device's peak FLOP/s for dense bfloat16, or None if unknown."""
  accelerator = accelerators.find_by_kind(device.device_kind)
  return accelerator.flops if accelerator else None


def measure_matmul_rate(
  size: int = 1024, dtype: str = 'float32', repeats: int = 3
) -> float:
  """Measures the FLOP/s that the default device reaches for matmuls.

  Args:
    size: Number of rows and columns in each matrix.
    dtype: Dtype of the matrices.
    repeats: Number of matmuls to time. The defaults of all arguments are
      suitable for a CPU.
  """
  keys = jax.random.split(jax.random.key(0))
  left_matrix, right_matrix = (
    jax.random.normal(key, (size, size), dtype) / size**0.5 for key in keys
  )
  seconds = _time_call(lambda x: x @ right_matrix, left_matrix, repeats)
  return 2 * size**3 / seconds


def _time_call(function, array: jax.Array, repeats: int) -> float:
  """Returns the seconds per call of a function, measured in a device loop.

  Args:
    function: Function that maps an array to an array of the same shape.
    array: Argument of the first call. The result of each call is the argument
      of the next call.
    repeats: Number of times that the function is called.
  """
  loop = jax.jit(
    lambda x: jax.lax.fori_loop(0, repeats, lambda _, y: function(y), x)
  )
  loop(array).block_until_ready()
  start = time.perf_counter()
  loop(array).block_until_ready()
  return (time.perf_counter() - start) / repeats


def peak_memory_bytes(device: jax.Device) -> int | None:
  """Returns a device's peak memory use in bytes, or None if it is unknown."""
  stats = device.memory_stats() or {}
  return stats.get('peak_bytes_in_use')
