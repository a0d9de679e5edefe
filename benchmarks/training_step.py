"""Tokens/s and peak memory of xlflax and Hugging Face training steps.

  python -m benchmarks.training_step --vocabulary 250000
  python -m benchmarks.training_step --vocabulary 32000 --rounds 2 --calls 6
  python -m benchmarks.training_step --cores 1   # on a busy machine
  python -m benchmarks.training_step --model xlmr-base   # see pretraining.py

Every variant runs in separate processes, in turn, with the same sizes. The
table shows medians over all timed steps. The variants `x/…` are xlflax's step
(masking on the device, AdamW, clipping), and the variants `torch/…` are the
baselines. If the machine is also running other programs, torch's threads
consume CPU time while they wait for each other. In this case, only CPU seconds
on one core are comparable.
"""

import argparse
import json
import os
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
  """Times the training steps of xlflax or Hugging Face in this process.

  Args:
    variant: Variant to measure, one of `VARIANTS`.
    shape: Sizes of the model and the batch.
    calls: Number of timed steps.

  Returns:
    The measurements of `measure.time_calls`, and the library versions.
  """
  library, _, name = variant.partition('/')
  if library == 'x':
    from benchmarks import xlflax_step as module
  else:
    from benchmarks.baselines import xlm_roberta as module
  figures = measure.time_calls(
    module.make_step_function(shape, name), calls=calls
  )
  return figures | {'versions': module.library_versions()}


def compare_variants(
  variants, shape: shapes.Shape, *, rounds: int, calls: int, **process
) -> dict[str, dict]:
  """Measures each kind of training step in several subprocesses.

  Args:
    variants: Variants to measure, names from `VARIANTS`.
    shape: Sizes of the model and the batch.
    rounds: Number of processes for each variant. The variants are run in turn.
    calls: Number of timed steps in each process.
    **process: The arguments `cores` and `huge_pages` of `measure.run_module`.

  Returns:
    Map from variant to its measurements over all rounds.
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
  """Returns speed, memory and CPU speed relative to `base`."""
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
  """Formats median measurements and their ratios to the baselines as Markdown.

  A relative speed of 2.00 means twice the baseline's speed. The CPU speed is
  the corresponding ratio of CPU seconds.
  """
  baselines = ('torch/as_is', 'torch/gathered')
  lines = [
    '| variant | tokens/s | CPU s/step | peak GB |'
    + ''.join(
      f' speed to {baseline} | memory | CPU speed |' for baseline in baselines
    ),
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
    for baseline in baselines:
      cells += _format_ratios(figures, results.get(baseline))
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines)


def _make_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--vocabulary', type=int, default=250_000, help='Vocabulary size.'
  )
  parser.add_argument(
    '--rounds', type=int, default=2, help='Number of processes per variant.'
  )
  parser.add_argument(
    '--calls', type=int, default=5, help='Number of timed steps per process.'
  )
  parser.add_argument(
    '--variants', help='Variants to measure, separated by commas. Default: all.'
  )
  parser.add_argument(
    '--model',
    choices=list(pretraining.MODELS),
    help='Published model to train in bf16 on one GPU.',
  )
  parser.add_argument(
    '--batch', type=int, help='Number of sequences per batch. Requires --model.'
  )
  parser.add_argument(
    '--tiny',
    action='store_true',
    help='Reduce --model to tiny sizes, to test whether it runs.',
  )
  parser.add_argument(
    '--shape', help='All sizes of the model and the batch as a JSON object.'
  )
  parser.add_argument(
    '--cores', type=int, help='Number of CPU cores per process. Default: all.'
  )
  parser.add_argument(
    '--huge_pages',
    action='store_true',
    help='Let glibc request huge pages in every variant (Linux).',
  )
  parser.add_argument(
    '--output', help='JSON file to which the measurements are written.'
  )
  parser.add_argument('--run_variant', help=argparse.SUPPRESS)
  return parser


def _benchmark_model(args) -> None:
  """Runs the benchmark for the model that `--model` selects."""
  overrides = {'batch': args.batch, 'tiny': args.tiny}
  if args.run_variant:
    print(
      json.dumps(
        pretraining.measure_variant(
          args.model, args.run_variant, args.calls, **overrides
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
    args.model, variants, calls=args.calls, **overrides
  )
  print(
    f'{args.model}, {results[variants[0]]["device"]}\n\n'
    f'{pretraining.format_table(results)}'
  )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(
        {'model': args.model, **overrides, 'results': results}, file, indent=2
      )


def main(arguments=None) -> None:
  """Runs the benchmark and prints its table."""
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
    f'{shape}\n{measure.describe_processor()}, '
    f'{args.cores or os.cpu_count()} cores\n\n{format_table(results, shape)}'
  )
  if args.output:
    with open(args.output, 'w', encoding='utf-8') as file:
      json.dump(
        {
          'shape': json.loads(shape.to_json()),
          'processor': measure.describe_processor(),
          'results': results,
        },
        file,
        indent=2,
      )


if __name__ == '__main__':
  main()
