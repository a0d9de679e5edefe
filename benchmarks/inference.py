"""Inference speed of xlflax and transformers with the same weights.

  python -m benchmarks.inference                  # mean hidden states
  python -m benchmarks.beam_search                # translation with beam size 5

The variants `x/…` run the same functions as `xlflax evaluate` and `xlflax
translate`. `torch/…` is the baseline. Each variant is measured in separate
processes, and the variants take turns. The comparison fails if their outputs
differ.
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
  """Returns a function that encodes random sentences.

  Args:
    variant: Implementation of the encoder, one of `VARIANTS`.
    shape: Sizes of the model.
    count: Number of sentences to encode.

  Returns:
    A function that returns the mean hidden states of every layer, of shape
    [layers + 1, count, hidden].
  """
  from benchmarks.baselines import converted

  texts = sentences.make_random_sentences(
    count, vocabulary=shape.vocabulary, max_words=shape.length - 2
  )
  model = converted.make_encoder(shape)
  if variant.startswith('torch/'):
    from benchmarks.baselines import inference

    return inference.make_states_function(
      model, sentences.tokenize_sentences(texts), shape.batch
    )
  from xlflax.evaluation import eval_task, hidden_states
  from xlflax.models import encoder

  config, params = converted.convert_model(model)
  vocabulary: Any = sentences.NumberVocabulary(shape.vocabulary)
  eval_model = eval_task.EvalModel(
    model=encoder.Encoder(config),
    params=params,
    vocabulary=vocabulary,
    batch_size=shape.batch,
  )
  return lambda: (
    hidden_states.sentence_states(
      eval_model, texts, [0] * count, max_length=shape.length
    ).states
  )


def measure_variant(
  variant: str, shape: shapes.Shape, count: int, calls: int
) -> dict[str, Any]:
  """Times one implementation in this process; returns its times and outputs."""
  call = make_states_function(variant, shape, count)
  outputs = []
  figures = measure.time_calls(lambda: outputs.append(call()), calls=calls)
  mean_states = outputs[-1][-1].astype(np.float64)
  return figures | {'work': count, 'outputs': mean_states[:, :4].tolist()}


def outputs_agree(first: Any, second: Any) -> bool:
  """Returns whether two implementations compute equal mean hidden states."""
  return bool(np.allclose(first, second, atol=1e-4))


def format_table(results: dict[str, dict[str, Any]], unit: str) -> str:
  """Formats implementations' median times and relative speeds as Markdown."""
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
  """Compares xlflax with transformers and prints a table."""
  compare_variants(
    arguments,
    module='benchmarks.inference',
    variants=VARIANTS,
    shape=SHAPE,
    count=256,
    unit='sentences',
    are_equal=outputs_agree,
    measure_function=measure_variant,
  )


def compare_variants(
  arguments,
  *,
  module: str,
  variants: Sequence[str],
  shape: shapes.Shape,
  count: int,
  unit: str,
  are_equal: Callable[[Any, Any], bool],
  measure_function: Callable[..., dict[str, Any]],
) -> None:
  """Parses arguments, measures all implementations and prints a table.

  Args:
    arguments: Command-line arguments. If None, the process's arguments are
      used.
    module: Python module that is run as a subprocess for each variant.
    variants: Names of the variants. The last one is the baseline.
    shape: Default sizes of the model.
    count: Default number of sentences.
    unit: Name of the processed items in the table, such as 'sentences'.
    are_equal: Function that returns whether the outputs of two variants are
      equal.
    measure_function: Function that measures a variant in this process and
      returns the measurements. It takes the variant, the shape, the number of
      sentences and the number of calls.

  Raises:
    RuntimeError: If the outputs of two variants differ.
  """
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--rounds', type=int, default=2, help='Number of processes per variant.')
  add('--calls', type=int, default=2, help='Number of timed calls per process.')
  add(
    '--count',
    type=int,
    default=count,
    help='Number of sentences (default: %(default)s).',
  )
  add(
    '--variants',
    default=','.join(variants),
    help='Variants to measure, separated by commas.',
  )
  add(
    '--shape',
    default=shape.to_json(),
    help='All sizes of the model and the batch as a JSON object.',
  )
  add(
    '--cores', type=int, help='Number of CPU cores per process. Default: all.'
  )
  parser.add_argument('--run_variant', help=argparse.SUPPRESS)
  args = parser.parse_args(arguments)
  shape = shapes.Shape.from_json(args.shape)
  if args.run_variant:
    print(
      json.dumps(
        measure_function(args.run_variant, shape, args.count, args.calls)
      )
    )
    return
  last_figures: dict[str, dict[str, Any]] = {}

  def run(variant: str) -> dict[str, Any]:
    last_figures[variant] = measure.run_module(
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
    return last_figures[variant]

  results = measure.run_interleaved(
    args.variants.split(','), run, rounds=args.rounds
  )
  first, *others = last_figures
  for other in others:
    if not are_equal(
      last_figures[first]['outputs'], last_figures[other]['outputs']
    ):
      raise RuntimeError(
        f'The outputs of the benchmark variants {first} and {other} differ.'
      )
  print(
    f'{shape}\n\n'
    + format_table(
      {
        name: figures | {'work': last_figures[name]['work']}
        for name, figures in results.items()
      },
      unit,
    )
  )


if __name__ == '__main__':
  main()
