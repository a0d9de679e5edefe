"""Time, memory and numerical error of a jitted function."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def measure_jitted(
  function: Callable[..., Any], *arguments, calls: int
) -> tuple[dict[str, Any], Any]:
  """Compiles and times the JAX function call `function(*arguments)`.

  Args:
    function: Function to compile with `jax.jit` and to time.
    *arguments: Arguments of the function.
    calls: Number of timed calls, after one warm-up call.

  Returns:
    The measurements and the function's result. The measurements are the
    medians 'seconds' and 'cpu_seconds' (of the process), 'temporary_bytes'
    (memory in addition to arguments and results) and 'compile_seconds'.
  """
  start = time.perf_counter()
  compiled = jax.jit(function).lower(*arguments).compile()
  compile_seconds = time.perf_counter() - start
  result = jax.block_until_ready(compiled(*arguments))
  seconds, cpu_seconds = [], []
  for _ in range(calls):
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(compiled(*arguments))
    seconds.append(time.perf_counter() - wall)
    cpu_seconds.append(time.process_time() - cpu)
  memory = compiled.memory_analysis()
  return {
    'seconds': float(np.median(seconds)),
    'cpu_seconds': float(np.median(cpu_seconds)),
    'temporary_bytes': int(memory.temp_size_in_bytes),
    'compile_seconds': compile_seconds,
  }, result


def max_relative_error(actual, expected) -> float:
  """Returns the maximum absolute error, relative to the largest expected value.

  Args:
    actual: Pytree of arrays to compare with `expected`.
    expected: Pytree of reference arrays, with the same structure as `actual`.

  Returns:
    The maximum over all leaves, or infinity if `actual` is not finite.
  """
  max_error = 0.0
  for actual_leaf, expected_leaf in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    actual_leaf, expected_leaf = (
      np.asarray(leaf, np.float64) for leaf in (actual_leaf, expected_leaf)
    )
    if not np.isfinite(actual_leaf).all():
      return float('inf')
    max_error = max(
      max_error,
      float(
        np.abs(actual_leaf - expected_leaf).max()
        / max(np.abs(expected_leaf).max(), 1e-30)
      ),
    )
  return max_error


def format_table(
  results: dict[str, dict[str, Any]], errors: tuple[str, ...]
) -> str:
  """Formats measurements of several implementations as a Markdown table.

  Args:
    results: Map from variant to its measurements, or to {'refused': reason} if
      the variant could not be run.
    errors: Keys of the numerical errors to include in the table.
  """
  lines = [
    '| variant | ms | CPU ms | temporary MB | compile s | '
    + ' | '.join(error.replace('_', ' ') for error in errors)
    + ' |',
    '| --- ' * (5 + len(errors)) + '|',
  ]
  for name, figures in results.items():
    if 'refused' in figures:
      lines.append(f'| {name} | not run: {figures["refused"]} |')
      continue
    cells = [
      name,
      f'{1e3 * figures["seconds"]:.2f}',
      f'{1e3 * figures["cpu_seconds"]:.2f}',
      f'{figures["temporary_bytes"] / 1e6:.1f}',
      f'{figures["compile_seconds"]:.1f}',
      *(f'{figures[error]:.1e}' for error in errors),
    ]
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)
