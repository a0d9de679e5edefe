"""Similarities of many vectors, beside faiss and plain numpy.

  python -m benchmarks.similarity csls   # 200k x 200k words of 768 dimensions
  python -m benchmarks.similarity cka    # 500k sentences, 13 x 13 layers

`x/...` is what `xlflax analyze` runs. Each variant is measured in a process of
its own, by one call after a small one; all must find the same. Take smaller
sizes to see what a variant would need: `--project N` tells the time of N words
or sentences from that of fewer. faiss is `pip install faiss-cpu`.
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
from benchmarks.peers import similarity as peers

VARIANTS = {
  'csls': ('x/csls', 'faiss/csls', 'numpy/csls'),
  'cka': ('x/cka', 'x/cka_diagonal', 'numpy/cka', 'numpy/cka_diagonal'),
}
_TIME_EXPONENTS = {'csls': 2, 'cka': 1}  # of the count, that time grows with
_NUM_COMPARED_QUERIES = 1000  # queries whose translations are compared
_MAX_GIB = 8


def make_vectors(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Two sides float32 [count, size]; row i of one is near to that of the other.

  Many directions are shared by all, as those of embeddings are.
  """
  random = np.random.default_rng(0)
  scales = np.linspace(2, 0.2, size, dtype=np.float32)
  sides = (
    np.empty((count, size), np.float32),
    np.empty((count, size), np.float32),
  )
  for start in range(0, count, 1 << 14):
    rows = slice(start, min(start + (1 << 14), count))
    shape = rows.stop - start, size
    shared = random.standard_normal(shape, np.float32) + 0.5
    for side in sides:
      side[rows] = (
        shared + 0.7 * random.standard_normal(shape, np.float32)
      ) * scales[None]
  return sides


def measure_csls(variant: str, args: argparse.Namespace) -> dict[str, Any]:
  """One search for the translations of all words."""
  call: Callable[..., Any] = {
    'x/csls': _find_nearest,
    'faiss/csls': peers.csls_faiss,
    'numpy/csls': peers.csls_numpy,
  }[variant]
  small = make_vectors(max(args.k, args.count // 100), args.size)
  call(*small, top=args.top, k=args.k)
  sides = make_vectors(args.count, args.size)
  found, figures = _time_call(lambda: call(*sides, top=args.top, k=args.k))
  shown = np.linspace(
    0, args.count - 1, min(_NUM_COMPARED_QUERIES, args.count)
  ).astype(int)
  return figures | {'outputs': found[shown].tolist()}


def _find_nearest(first, second, *, top: int, k: int) -> np.ndarray:
  from xlflax.similarity import csls as csls_lib

  return csls_lib.find_nearest(first, second, top=top, k=k).indices


def measure_cka(variant: str, args: argparse.Namespace) -> dict[str, Any]:
  """CKA of all layers; the states' own making is not timed."""
  diagonal = variant.endswith('diagonal')

  def make() -> Any:
    if variant.startswith('numpy'):
      return peers.PlainCKA(diagonal=diagonal)
    from xlflax.similarity import cka as cka_lib

    return cka_lib.LayerCKA(
      layers='diagonal' if diagonal else 'all', dtype=np.float32
    )

  def run(count: int) -> tuple[Any, dict[str, Any]]:
    figures: dict[str, Any] = {}
    sums = make()
    for first, second in peers.generate_states(
      layers=args.layers, sentences=count, size=args.size, batch=args.batch
    ):
      _, one = _time_call(functools.partial(sums.update, first, second))
      figures = _add_timings(figures, one)
    found, one = _time_call(sums.result)
    return found, _add_timings(figures, one)

  run(args.count // 100 + 8)
  found, figures = run(args.count)
  return figures | {'outputs': found.tolist()}


def _time_call(call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
  wall, cpu = time.perf_counter(), time.process_time()
  found = call()
  return found, {
    'seconds': [time.perf_counter() - wall],
    'cpu_seconds': [time.process_time() - cpu],
    'first_seconds': 0.0,
    'peak_bytes': measure.peak_resident_bytes(),
  }


def _add_timings(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
  sums = {
    key: [a + b for a, b in zip(one.get(key, [0]), other[key], strict=True)]
    for key in ('seconds', 'cpu_seconds')
  }
  return other | sums


def outputs_agree(part: str, one: Any, other: Any) -> bool:
  """Whether two variants found the same, rounding aside."""
  if part == 'csls':
    return bool(np.mean(np.asarray(one) == np.asarray(other)) > 0.999)
  one, other = np.asarray(one), np.asarray(other)
  if one.ndim != other.ndim:
    one, other = (np.diag(x) if x.ndim == 2 else x for x in (one, other))
  return bool(np.allclose(one, other, atol=1e-4))


def format_table(
  results: dict[str, dict[str, Any]], *, scale: float, project: int | None
) -> str:
  """Markdown: time, memory, and the time of other sizes if asked for."""
  heads = [
    'variant',
    'seconds',
    'CPU seconds',
    'peak GiB',
    *([f'CPU minutes at {project:,}'] if project else []),
  ]
  lines = [' | '.join(heads), ' | '.join('---' for _ in heads)]
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
  found: dict[str, Any] = {}

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
    found[variant] = figures.pop('outputs')
    return figures

  variants = args.variants.split(',') if args.variants else VARIANTS[args.part]
  results = measure.run_interleaved(variants, run, rounds=args.rounds)
  first, *others = found
  for other in others:
    if not outputs_agree(args.part, found[first], found[other]):
      raise RuntimeError(f'{first} and {other} do not find the same.')
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
  parser.add_argument('part', choices=list(VARIANTS))
  parser.add_argument(
    '--count',
    type=int,
    help='words of a language (default: 200000), or sentences (500000)',
  )
  parser.add_argument(
    '--size', type=int, default=768, help='dimensions (default: %(default)s)'
  )
  parser.add_argument(
    '--top',
    type=int,
    default=1,
    help='translations of a word (default: %(default)s)',
  )
  parser.add_argument(
    '--k', type=int, default=10, help='K of CSLS (default: %(default)s)'
  )
  parser.add_argument(
    '--layers',
    type=int,
    default=13,
    help='of either model (default: %(default)s)',
  )
  parser.add_argument(
    '--batch',
    type=int,
    default=2048,
    help='sentences at a time (default: %(default)s)',
  )
  parser.add_argument('--variants', help='comma-separated; all by default')
  parser.add_argument('--rounds', type=int, default=1)
  parser.add_argument(
    '--cores', type=int, help='cores each process may use; default: all'
  )
  parser.add_argument(
    '--project',
    type=int,
    metavar='N',
    help='tell the time of N words or sentences, too',
  )
  parser.add_argument('--output', help='write every timing to this file')
  parser.add_argument('--run_variant', help=argparse.SUPPRESS)
  return parser


if __name__ == '__main__':
  main()
