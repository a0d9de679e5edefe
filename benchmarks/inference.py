"""Inference beside transformers on torch, with the same converted weights.

  python -m benchmarks.inference                  # sentence states
  python -m benchmarks.beam_search                # translation, beam 5

`x/…` are the functions that `xlflax evaluate` and `xlflax translate` run,
`torch/…` the peer; each is measured in processes of its own, in turn. Both
must find the same, or the comparison stops.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import measure, sentences, shapes

SHAPE = shapes.Shape(vocabulary=32_000, batch=64, length=128, dropout=0.0)
VARIANTS = ('x/sentence_states', 'torch/sentence_states')


def make_states_function(
  variant: str, shape: shapes.Shape, count: int
) -> Callable[[], np.ndarray]:
  """A function that gives the states of `count` sentences, every layer's."""
  from benchmarks.peers import converted

  texts = sentences.make_random_sentences(
    count, vocabulary=shape.vocabulary, longest=shape.length - 2
  )
  model = converted.make_encoder(shape)
  if variant.startswith('torch/'):
    from benchmarks.peers import inference

    return inference.make_states_function(
      model, sentences.tokenize_sentences(texts), shape.batch
    )
  from xlflax.evaluation import eval_task, hidden_states
  from xlflax.models import encoder

  config, params = converted.convert_model(model)
  vocabulary: Any = sentences.NumberVocabulary(shape.vocabulary)
  subject = eval_task.EvalModel(
    model=encoder.Encoder(config),
    params=params,
    vocabulary=vocabulary,
    batch_size=shape.batch,
  )
  return lambda: (
    hidden_states.sentence_states(
      subject, texts, [0] * count, max_length=shape.length
    ).states
  )


def measure_variant(
  variant: str, shape: shapes.Shape, count: int, calls: int
) -> dict[str, Any]:
  """Times one variant in this process."""
  call = make_states_function(variant, shape, count)
  kept = []
  figures = measure.time_calls(lambda: kept.append(call()), calls=calls)
  last = kept[-1][-1].astype(np.float64)
  return figures | {'work': count, 'outputs': last[:, :4].tolist()}


def outputs_agree(one: Any, other: Any) -> bool:
  """Whether two variants found the same means of states."""
  return bool(np.allclose(one, other, atol=1e-4))


def format_table(results: dict[str, dict[str, Any]], unit: str) -> str:
  """Markdown: medians, and how much more each does than the last variant."""
  base = list(results.values())[-1]
  lines = [
    f'| variant | {unit}/s | {unit} per CPU second | speed '
    '| CPU speed | peak GB |',
    '| --- ' * 6 + '|',
  ]
  for name, figures in results.items():
    wall, cpu = (
      figures['work'] / statistics.median(figures[key])
      for key in ('seconds', 'cpu_seconds')
    )
    speeds = [
      statistics.median(base[key]) / statistics.median(figures[key])
      for key in ('seconds', 'cpu_seconds')
    ]
    lines.append(
      f'| {name} | {wall:,.0f} | {cpu:,.0f} | {speeds[0]:.2f} | '
      f'{speeds[1]:.2f} | {figures["peak_bytes"] / 1e9:.2f} |'
    )
  return '\n'.join(lines)


def main(arguments=None) -> None:
  compare_variants(
    arguments,
    module='benchmarks.inference',
    variants=VARIANTS,
    shape=SHAPE,
    count=256,
    unit='sentences',
    agree=outputs_agree,
    measure_one=measure_variant,
  )


def compare_variants(
  arguments,
  *,
  module: str,
  variants: Sequence[str],
  shape: shapes.Shape,
  count: int,
  unit: str,
  agree: Callable[[Any, Any], bool],
  measure_one: Callable[..., dict[str, Any]],
) -> None:
  """The command line of a comparison; prints its table.

  Args:
    arguments: of the command line.
    module: is run for each variant.
    variants: names; the last is the peer.
    shape: the sizes.
    count: sentences.
    unit: of `work` in what `measure_one` gives.
    agree: whether two variants' `found` are the same.
    measure_one: (variant, shape, count, calls) -> figures, in this process.
  """
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--rounds', type=int, default=2)
  parser.add_argument('--calls', type=int, default=2)
  parser.add_argument(
    '--count', type=int, default=count, help='sentences (default: %(default)s)'
  )
  parser.add_argument('--variants', default=','.join(variants))
  parser.add_argument(
    '--shape', default=shape.to_json(), help='all sizes as JSON'
  )
  parser.add_argument(
    '--cores', type=int, help='cores each process may use; default: all'
  )
  parser.add_argument('--run_variant', help=argparse.SUPPRESS)
  args = parser.parse_args(arguments)
  shape = shapes.Shape.from_json(args.shape)
  if args.run_variant:
    print(
      json.dumps(measure_one(args.run_variant, shape, args.count, args.calls))
    )
    return
  found: dict[str, dict[str, Any]] = {}

  def run(variant: str) -> dict[str, Any]:
    found[variant] = measure.run_module(
      module,
      '--run_variant',
      variant,
      '--count',
      str(args.count),
      '--calls',
      str(args.calls),
      '--shape',
      args.shape,
      cores=args.cores,
    )
    return found[variant]

  results = measure.run_interleaved(
    args.variants.split(','), run, rounds=args.rounds
  )
  first, *others = found
  for other in others:
    if not agree(found[first]['outputs'], found[other]['outputs']):
      raise RuntimeError(f'{first} and {other} do not find the same.')
  print(
    f'{shape}\n\n'
    + format_table(
      {
        name: figures | {'work': found[name]['work']}
        for name, figures in results.items()
      },
      unit,
    )
  )


if __name__ == '__main__':
  main()
