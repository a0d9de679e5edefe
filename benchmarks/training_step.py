"""A training step beside Hugging Face on torch: tokens/s and peak memory.

  python -m benchmarks.training_step --vocabulary 250000
  python -m benchmarks.training_step --vocabulary 32000 --rounds 2 --calls 6

Every variant runs in processes of its own, in turn, on the same sizes; the
table shows medians over all timed steps. `x/…` are xlflax's step (masking on
the device, AdamW, clipping), `torch/…` are the peers.
"""

import argparse
import json
import os
import platform
import statistics

from benchmarks import measure, shapes

VARIANTS = ('x/gathered_chunked', 'x/gathered', 'x/every_chunked', 'x/every',
            'torch/gathered', 'torch/as_is')


def measure_here(variant: str, shape: shapes.Shape, calls: int) -> dict:
  """Times one variant in this process."""
  library, _, name = variant.partition('/')
  if library == 'x':
    from benchmarks import xlflax_step as module
  else:
    from benchmarks.peers import xlm_roberta as module
  figures = measure.time_calls(module.make(shape, name), calls=calls)
  return figures | {'versions': module.versions()}


def compare(variants, shape: shapes.Shape, *, rounds: int, calls: int
            ) -> dict[str, dict]:
  """Measures each variant in `rounds` processes of its own."""
  return measure.interleave(
      variants, lambda variant: measure.run_module(
          'benchmarks.training_step', '--one', variant, '--calls', str(calls),
          '--shape', shape.to_json()), rounds=rounds)


def table(results: dict[str, dict], shape: shapes.Shape) -> str:
  """Markdown: medians, and ratios to `torch/as_is` where that was run."""
  base = results.get('torch/as_is')
  lines = ['| variant | tokens/s | CPU s/step | peak GB | speed to torch/as_is '
           '| memory to torch/as_is |', '| --- ' * 6 + '|']
  for name, figures in results.items():
    seconds = statistics.median(figures['seconds'])
    cells = [name, f'{shape.tokens / seconds:,.0f}',
             f'{statistics.median(figures["cpu_seconds"]):.2f}',
             f'{figures["peak_bytes"] / 1e9:.2f}']
    if base:
      cells += [f'{statistics.median(base["seconds"]) / seconds:.2f}',
                f'{figures["peak_bytes"] / base["peak_bytes"]:.2f}']
    else:
      cells += ['-', '-']
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument('--vocabulary', type=int, default=250_000)
  parser.add_argument('--rounds', type=int, default=2)
  parser.add_argument('--calls', type=int, default=5)
  parser.add_argument('--variants', default=','.join(VARIANTS))
  parser.add_argument('--shape', help='all sizes as JSON')
  parser.add_argument('--output', help='write the figures to this file too')
  parser.add_argument('--one', help=argparse.SUPPRESS)
  args = parser.parse_args(arguments)
  shape = (shapes.Shape.from_json(args.shape) if args.shape
           else shapes.Shape(vocabulary=args.vocabulary))
  if args.one:
    print(json.dumps(measure_here(args.one, shape, args.calls)))
    return
  results = compare(args.variants.split(','), shape, rounds=args.rounds,
                    calls=args.calls)
  print(f'{shape}\n{platform.processor() or platform.machine()}, '
        f'{os.cpu_count()} cores\n\n{table(results, shape)}')
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump({'shape': json.loads(shape.to_json()), 'results': results},
                file, indent=2)


if __name__ == '__main__':
  main()
