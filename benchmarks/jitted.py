"""One jitted function: its time, its memory, and how far it is from another."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def measure_jitted(
  function: Callable[..., Any], *arguments, calls: int
) -> tuple[dict[str, Any], Any]:
  """Compiles and times `function(*arguments)`.

  Args:
    function: jittable.
    *arguments: arrays.
    calls: timed calls, after one that warms up.

  Returns:
    ({'seconds' and 'cpu_seconds' (of the process), medians; 'temporary_bytes'
    beside arguments and results; 'compile_seconds'}, what it returned).
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


def max_relative_error(found, wanted) -> float:
  """The largest difference, to the largest value, over the leaves of trees.

  Not finite values of `found` make it infinite.
  """
  worst = 0.0
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    if not np.isfinite(a).all():
      return float('inf')
    worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
  return worst


def format_table(
  results: dict[str, dict[str, Any]], errors: tuple[str, ...]
) -> str:
  """Markdown: a line for each variant, or why it was not run.

  Args:
    results: variant -> its figures, or {'refused': reason}.
    errors: keys of the distances to show.
  """
  lines = [
    '| variant | ms | CPU ms | temporary MB | compile s | '
    + ' | '.join(e.replace('_', ' ') for e in errors)
    + ' |',
    '| --- ' * (5 + len(errors)) + '|',
  ]
  for name, found in results.items():
    if 'refused' in found:
      lines.append(f'| {name} | not run: {found["refused"]} |')
      continue
    cells = [
      name,
      f'{1e3 * found["seconds"]:.2f}',
      f'{1e3 * found["cpu_seconds"]:.2f}',
      f'{found["temporary_bytes"] / 1e6:.1f}',
      f'{found["compile_seconds"]:.1f}',
      *(f'{found[e]:.1e}' for e in errors),
    ]
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)
