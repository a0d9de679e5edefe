"""Speed of CSLS and CKA for many vectors, with xlflax, faiss and NumPy.

  python -m benchmarks.similarity csls   # 200k x 200k words of 768 dimensions
  python -m benchmarks.similarity cka    # 500k sentences, 13 x 13 layers

The variants `x/...` are the functions that `xlflax analyze` runs. Each variant
is measured in its own process, with one call after a small warm-up call. The
comparison fails if the results differ. With a smaller `--count`, `--project N`
estimates the time for N words or sentences. Install faiss with `pip install
faiss-cpu`.
"""

import argparse
import functools
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.baselines import similarity

VARIANTS = {
  'csls': ('x/csls', 'faiss/csls', 'numpy/csls'),
  'cka': ('x/cka', 'x/cka_diagonal', 'numpy/cka', 'numpy/cka_diagonal'),
}
# Time is proportional to the count raised to this exponent.
_TIME_EXPONENTS = {'csls': 2, 'cka': 1}
_NUM_COMPARED_QUERIES = 1000
# Peak memory above which the table marks a variant.
_MAX_GIB = 8


def make_vectors(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns synthetic embeddings of translation pairs in two languages.

  As in real embeddings, the mean of all vectors is not zero.

  Args:
    count: Number of vectors.
    size: Dimension of the vectors.

  Returns:
    Two arrays, float32 of shape [count, size].
  """
  random = np.random.default_rng(0)
  scales = np.linspace(2, 0.2, size, dtype=np.float32)
  embeddings = (
    np.empty((count, size), np.float32),
    np.empty((count, size), np.float32),
  )
  for start in range(0, count, 1 << 14):
    rows = slice(start, min(start + (1 << 14), count))
    shape = rows.stop - start, size
    common = random.standard_normal(shape, np.float32) + 0.5
    for array in embeddings:
      array[rows] = (
        common + 0.7 * random.standard_normal(shape, np.float32)
      ) * scales[None]
  return embeddings


def measure_csls(variant: str, args: argparse.Namespace) -> dict[str, Any]:
  """Times a CSLS search for the translations of all words."""
  call: Callable[..., Any] = {
    'x/csls': _find_nearest,
    'faiss/csls': similarity.csls_faiss,
    'numpy/csls': similarity.csls_numpy,
  }[variant]
  warmup_vectors = make_vectors(max(args.k, args.count // 100), args.size)
  call(*warmup_vectors, top=args.top, k=args.k)
  embeddings = make_vectors(args.count, args.size)
  indices, figures = _time_call(
    lambda: call(*embeddings, top=args.top, k=args.k)
  )
  compared_queries = np.linspace(
    0, args.count - 1, min(_NUM_COMPARED_QUERIES, args.count)
  ).astype(int)
  return figures | {'outputs': indices[compared_queries].tolist()}


def _find_nearest(first, second, *, top: int, k: int) -> np.ndarray:
  """Returns the indices of the nearest neighbors, of shape [words, top]."""
  from xlflax.similarity import csls

  return csls.find_nearest(first, second, top=top, k=k).indices


def measure_cka(variant: str, args: argparse.Namespace) -> dict[str, Any]:
  """Times the computation of CKA for all layers."""
  diagonal = variant.endswith('diagonal')

  def make_cka() -> Any:
    if variant.startswith('numpy'):
      return similarity.PlainCKA(diagonal=diagonal)
    from xlflax.similarity import cka

    return cka.LayerCKA(
      layers='diagonal' if diagonal else 'all', dtype=np.float32
    )

  def run(count: int) -> tuple[Any, dict[str, Any]]:
    figures: dict[str, Any] = {}
    accumulator = make_cka()
    for first, second in similarity.generate_states(
      layers=args.layers, sentences=count, size=args.size, batch=args.batch
    ):
      _, timings = _time_call(
        functools.partial(accumulator.update, first, second)
      )
      figures = _add_timings(figures, timings)
    matrix, timings = _time_call(accumulator.result)
    return matrix, _add_timings(figures, timings)

  run(args.count // 100 + 8)
  matrix, figures = run(args.count)
  return figures | {'outputs': matrix.tolist()}


def _time_call(call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
  """Calls a function and returns its result and its measured times."""
  wall, cpu = time.perf_counter(), time.process_time()
  result = call()
  return result, {
    'seconds': [time.perf_counter() - wall],
    'cpu_seconds': [time.process_time() - cpu],
    'first_seconds': 0.0,
    'peak_bytes': measure.peak_resident_bytes(),
  }


def _add_timings(
  first: dict[str, Any], second: dict[str, Any]
) -> dict[str, Any]:
  """Returns the summed times, and all other measurements from `second`."""
  sums = {
    key: [a + b for a, b in zip(first.get(key, [0]), second[key], strict=True)]
    for key in ('seconds', 'cpu_seconds')
  }
  return second | sums


def outputs_agree(part: str, first: Any, second: Any) -> bool:
  """Returns whether two implementations have equal outputs up to rounding.

  Args:
    part: Measured computation, 'csls' or 'cka'.
    first: Output of one variant.
    second: Output of the variant that is compared with `first`.
  """
  if part == 'csls':
    return bool(np.mean(np.asarray(first) == np.asarray(second)) > 0.999)
  first, second = np.asarray(first), np.asarray(second)
  if first.ndim != second.ndim:
    first, second = (
      np.diag(matrix) if matrix.ndim == 2 else matrix
      for matrix in (first, second)
    )
  return bool(np.allclose(first, second, atol=1e-4))


def format_table(
  results: dict[str, dict[str, Any]], *, scale: float, project: int | None
) -> str:
  """Formats measured times, projected times and memory use as a Markdown table.

  Args:
    results: Map from variant to its measurements.
    scale: Factor by which the measured CPU time is multiplied to estimate the
      time for `project` words or sentences.
    project: Number of words or sentences for which the time is projected. If
      None, there is no projection.
  """
  columns = [
    'variant',
    'seconds',
    'CPU seconds',
    'peak GiB',
    *([f'CPU minutes at {project:,}'] if project else []),
  ]
  lines = [' | '.join(columns), ' | '.join('---' for _ in columns)]
  for name, figures in results.items():
    wall, cpu = (
      float(np.median(figures[key])) for key in ('seconds', 'cpu_seconds')
    )
    peak = figures['peak_bytes'] / 2**30
    lines.append(
      ' | '.join(
        [
          name,
          f'{wall:.1f}',
          f'{cpu:.1f}',
          f'{peak:.2f}' + (' (!)' if peak > _MAX_GIB else ''),
          *([f'{cpu * scale / 60:.1f}'] if project else []),
        ]
      )
    )
  return '\n'.join(f'| {line} |' for line in lines)


def main(arguments=None) -> None:
  """Measures all implementations of CSLS or CKA and prints a table."""
  args = _make_parser().parse_args(arguments)
  if args.count is None:
    args.count = {'csls': 200_000, 'cka': 500_000}[args.part]
  if args.run_variant:
    print(
      json.dumps(
        {'csls': measure_csls, 'cka': measure_cka}[args.part](
          args.run_variant, args
        )
      )
    )
    return
  outputs: dict[str, Any] = {}

  def run(variant: str) -> dict[str, Any]:
    figures = measure.run_module(
      'benchmarks.similarity',
      args.part,
      '--run_variant',
      variant,
      *(
        f'--{name}={getattr(args, name)}'
        for name in ('count', 'size', 'top', 'k', 'layers', 'batch')
      ),
      cores=args.cores,
    )
    outputs[variant] = figures.pop('outputs')
    return figures

  variants = args.variants.split(',') if args.variants else VARIANTS[args.part]
  results = measure.run_interleaved(variants, run, rounds=args.rounds)
  first, *others = outputs
  for other in others:
    if not outputs_agree(args.part, outputs[first], outputs[other]):
      raise RuntimeError(
        f'The outputs of the benchmark variants {first} and {other} differ.'
      )
  scale = (
    (args.project / args.count) ** _TIME_EXPONENTS[args.part]
    if (args.project)
    else 1.0
  )
  print(
    f'{args.part}: {args.count:,} of {args.size} dimensions'
    + (f', {args.layers} layers' if args.part == 'cka' else '')
    + '\n\n'
    + format_table(results, scale=scale, project=args.project)
  )
  if args.output:
    pathlib.Path(args.output).write_text(
      json.dumps(results, indent=2) + '\n', encoding='utf-8'
    )


def _make_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    'part', choices=list(VARIANTS), help='Measure to compute.'
  )
  parser.add_argument(
    '--count',
    type=int,
    help='Number of words per language (default: 200000) or sentences '
    '(default: 500000).',
  )
  parser.add_argument(
    '--size',
    type=int,
    default=768,
    help='Dimension of the vectors (default: %(default)s).',
  )
  parser.add_argument(
    '--top',
    type=int,
    default=1,
    help='Number of translations per word (default: %(default)s).',
  )
  parser.add_argument(
    '--k',
    type=int,
    default=10,
    help='Neighborhood size K in CSLS (default: %(default)s).',
  )
  parser.add_argument(
    '--layers',
    type=int,
    default=13,
    help='Number of layers per model (default: %(default)s).',
  )
  parser.add_argument(
    '--batch',
    type=int,
    default=2048,
    help='Number of sentences per batch (default: %(default)s).',
  )
  parser.add_argument(
    '--variants', help='Variants to measure, separated by commas. Default: all.'
  )
  parser.add_argument(
    '--rounds', type=int, default=1, help='Number of processes per variant.'
  )
  parser.add_argument(
    '--cores', type=int, help='Number of CPU cores per process. Default: all.'
  )
  parser.add_argument(
    '--project',
    type=int,
    metavar='N',
    help='Also estimate the time for N words or sentences.',
  )
  parser.add_argument(
    '--output', help='JSON file to which the timings are written.'
  )
  parser.add_argument('--run_variant', help=argparse.SUPPRESS)
  return parser


if __name__ == '__main__':
  main()
