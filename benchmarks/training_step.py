"""A training step beside Hugging Face on torch: tokens/s and peak memory.

  python -m benchmarks.training_step --vocabulary 250000
  python -m benchmarks.training_step --vocabulary 32000 --rounds 2 --calls 6
  python -m benchmarks.training_step --cores 1   # on a machine that is busy
  python -m benchmarks.training_step --model xlmr-base   # see pretraining.py

Every variant runs in processes of its own, in turn, on the same sizes; the
table shows medians over all timed steps. `x/…` are xlflax's step (masking on
the device, AdamW, clipping), `torch/…` are the peers. On a machine that does
other work too, torch's threads spin while they wait for each other: there,
only processor seconds on one core compare.
"""

import argparse
import json
import os
import platform
import statistics

from benchmarks import measure, pretraining, shapes

VARIANTS = (
  'x/gathered_chunked',
  'x/gathered',
  'x/every_chunked',
  'x/every',
  'torch/gathered',
  'torch/as_is',
)


def measure_variant(variant: str, shape: shapes.Shape, calls: int) -> dict:
  """Times one variant in this process."""
  library, _, name = variant.partition('/')
  if library == 'x':
    from benchmarks import xlflax_step as module
  else:
    from benchmarks.peers import xlm_roberta as module
  figures = measure.time_calls(
    module.make_step_function(shape, name), calls=calls
  )
  return figures | {'versions': module.library_versions()}


def compare_variants(
  variants, shape: shapes.Shape, *, rounds: int, calls: int, **process
) -> dict[str, dict]:
  """Measures each variant in `rounds` processes of its own.

  Args:
    variants: names, of `VARIANTS`.
    shape: the sizes.
    rounds: processes for each variant, those of all in turn.
    calls: timed steps in each.
    **process: cores and huge_pages, of `measure.run_module`.
  """
  return measure.run_interleaved(
    variants,
    lambda variant: measure.run_module(
      'benchmarks.training_step',
      '--run_variant',
      variant,
      '--calls',
      str(calls),
      '--shape',
      shape.to_json(),
      **process,
    ),
    rounds=rounds,
  )


def _format_ratios(figures: dict, base: dict | None) -> list[str]:
  """Speed and memory in comparison with `base`."""
  if base is None:
    return ['-', '-', '-']

  def ratio(key):
    return statistics.median(base[key]) / statistics.median(figures[key])

  return [
    f'{ratio("seconds"):.2f}',
    f'{figures["peak_bytes"] / base["peak_bytes"]:.2f}',
    f'{ratio("cpu_seconds"):.2f}',
  ]


def format_table(results: dict[str, dict], shape: shapes.Shape) -> str:
  """Markdown: medians, and ratios to the peers that were run.

  A speed of 2.00 to a peer is twice its speed; in processor seconds too.
  """
  peers = ('torch/as_is', 'torch/gathered')
  lines = [
    '| variant | tokens/s | CPU s/step | peak GB |'
    + ''.join(f' speed to {peer} | memory | CPU speed |' for peer in peers),
    '| --- ' * 10 + '|',
  ]
  for name, figures in results.items():
    seconds = statistics.median(figures['seconds'])
    cells = [
      name,
      f'{shape.tokens / seconds:,.0f}',
      f'{statistics.median(figures["cpu_seconds"]):.2f}',
      f'{figures["peak_bytes"] / 1e9:.2f}',
    ]
    for peer in peers:
      cells += _format_ratios(figures, results.get(peer))
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)


def _make_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--vocabulary', type=int, default=250_000)
  parser.add_argument('--rounds', type=int, default=2)
  parser.add_argument('--calls', type=int, default=5)
  parser.add_argument('--variants', help='default: all')
  parser.add_argument(
    '--model',
    choices=list(pretraining.MODELS),
    help='a model of paper size, in bf16 on one GPU',
  )
  parser.add_argument('--batch', type=int, help='of --model')
  parser.add_argument(
    '--tiny',
    action='store_true',
    help='--model at sizes that only show that it runs',
  )
  parser.add_argument('--shape', help='all sizes as JSON')
  parser.add_argument(
    '--cores', type=int, help='cores each process may use; default: all'
  )
  parser.add_argument(
    '--huge_pages',
    action='store_true',
    help='have glibc ask for huge pages (Linux), for every variant',
  )
  parser.add_argument('--output', help='write the figures to this file too')
  parser.add_argument('--run_variant', help=argparse.SUPPRESS)
  return parser


def _benchmark_model(args) -> None:
  """What `--model` asks for."""
  changed = {'batch': args.batch, 'tiny': args.tiny}
  if args.run_variant:
    print(
      json.dumps(
        pretraining.measure_variant(
          args.model, args.run_variant, args.calls, **changed
        )
      )
    )
    return
  variants = (
    args.variants.split(',')
    if args.variants
    else pretraining.list_variants(args.model)
  )
  results = pretraining.compare_variants(
    args.model, variants, calls=args.calls, **changed
  )
  print(
    f'{args.model}, {results[variants[0]]["device"]}\n\n'
    f'{pretraining.format_table(results)}'
  )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(
        {'model': args.model, **changed, 'results': results}, file, indent=2
      )


def main(arguments=None) -> None:
  args = _make_parser().parse_args(arguments)
  if args.model:
    _benchmark_model(args)
    return
  shape = (
    shapes.Shape.from_json(args.shape)
    if args.shape
    else shapes.Shape(vocabulary=args.vocabulary)
  )
  if args.run_variant:
    print(json.dumps(measure_variant(args.run_variant, shape, args.calls)))
    return
  variants = args.variants.split(',') if args.variants else VARIANTS
  results = compare_variants(
    variants,
    shape,
    rounds=args.rounds,
    calls=args.calls,
    cores=args.cores,
    huge_pages=args.huge_pages,
  )
  print(
    f'{shape}\n{platform.processor() or platform.machine()}, '
    f'{args.cores or os.cpu_count()} cores\n\n{format_table(results, shape)}'
  )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(
        {'shape': json.loads(shape.to_json()), 'results': results},
        file,
        indent=2,
      )


if __name__ == '__main__':
  main()
