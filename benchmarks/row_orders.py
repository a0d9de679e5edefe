"""Loss curves of tiny models that read sequences in different orders.

  python -m benchmarks.row_orders --work=DIR --data=DATA

Trains MLM encoders with two layers on real text in four languages. All of them
read the same token cache, in which lines have the order of their sources.
`full` shuffles all sequences in a task. `locality` uses the windows of
`dataset_config.Locality` (64 blocks), with blocks that are short enough for a
run to read several windows. `text` shuffles only within blocks of 1,024
neighboring sequences and is an example of a bad order. All orders use the same
seeds, and therefore the same initial parameters and masks. No sequence is read
twice. For each order, the benchmark prints the mean loss over seeds for each
quarter of the steps, its mean difference from `full`, the standard error of
this difference over seeds, and the mean absolute difference after the first
quarter.
"""

import argparse
import functools
import json
import pathlib
import statistics

from benchmarks import large_text
from studies.replication import runner
from xlflax.data import dataset_config
from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.tokenizers import vocabulary_training
from xlflax.models import encoder, encoder_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.trainer import Trainer
from xlflax.training.optimization import optimizers, schedules

_LANGUAGES = ('de', 'en', 'ru', 'zh')
_MIXTURE = 'corpus.mono'
_LENGTH = 64
_NUM_QUARTERS = 4


def make_orders(block_rows: int) -> dict[str, dataset_config.Locality | None]:
  """Returns the options for each sequence order that the benchmark compares."""
  return {
    'full': None,
    'locality': dataset_config.Locality(block_rows=block_rows),
    'text': dataset_config.Locality(block_rows=1024, window_blocks=1),
  }


def prepare_data(work: pathlib.Path, data: pathlib.Path | None) -> None:
  """Writes the corpus, vocabulary and cache unless they exist."""
  if (work / 'cache').exists():
    return
  lines = large_text.read_lines(data)
  for code in _LANGUAGES:
    corpus_writer.write_monolingual(work / 'corpus', code, [lines[code]])
  vocabulary = vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(work / 'corpus'),
    work / 'vocabulary',
    size=4000,
    max_sentences=40_000,
    character_coverage=0.995,
  )
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=work / 'cache',
      mixtures=[_MIXTURE],
      vocabulary=vocabulary,
      open_tasks=functools.partial(CorpusTasks, str(work / 'corpus')),
    )
  )


def make_trainer(
  work: pathlib.Path,
  locality: dataset_config.Locality | None,
  args: argparse.Namespace,
  seed: int,
) -> Trainer:
  """Returns a trainer that reads the training sequences in a given order.

  Args:
    work: Directory that contains the vocabulary and the cache.
    locality: Settings for shuffling the sequences block by block. If None, all
      sequences are shuffled together.
    args: Parsed arguments with the batch size and number of steps.
    seed: Random seed for the parameters, the masks and the order of the
      sequences.
  """
  dataset = dataset_config.DatasetConfig(
    name='mono',
    mixture=_MIXTURE,
    layout=dataset_config.ExampleLayout.BLOCKS,
    length=_LENGTH,
    batch_size=args.batch,
    locality=locality,
  )
  return Trainer(
    model_dir=str(work / 'unused'),
    model=encoder.Encoder(
      encoder_config.EncoderConfig(
        num_layers=2,
        hidden_dim=64,
        mlp_dim=256,
        num_heads=2,
        max_position_embeddings=_LENGTH,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        norm_position='pre',
      )
    ),
    objectives=objective_mixture.ObjectiveMixture(
      entries=(
        objective_mixture.WeightedObjective(
          dataset='mono', objective=masked_lm.MaskedLM()
        ),
      )
    ),
    datasets=(dataset,),
    vocabulary=str(work / 'vocabulary'),
    optimizer=optimizers.AdamW(
      learning_rate=schedules.Linear(
        peak_value=4e-3, warmup_steps=args.steps // 10
      )
    ),
    num_train_steps=args.steps,
    cache_dir=str(work / 'cache'),
    verify_cache=False,
    seed=seed,
  )


def compute_curve(losses: tuple[tuple[int, float], ...]) -> list[float]:
  """Returns the mean training loss in each quarter of training."""
  values = [loss for _, loss in losses]
  size = len(values) // _NUM_QUARTERS
  return [
    statistics.fmean(values[quarter * size : (quarter + 1) * size])
    for quarter in range(_NUM_QUARTERS)
  ]


def compare_curves(
  curves: list[list[float]], reference: list[list[float]]
) -> dict:
  """Compares the loss curves of a sequence order and a reference order.

  The result contains the mean losses of the order, their differences from the
  reference, and the standard errors of the differences.

  Args:
    curves: Mean losses for the sequence order under test. Each seed has a list with one loss for each quarter of
      training.
    reference: Mean losses with the reference order, in the format of `curves`.
      With a single seed, there is no standard error.
  """
  differences = [
    [
      loss - reference_loss
      for loss, reference_loss in zip(curve, reference_curve, strict=True)
    ]
    for curve, reference_curve in zip(curves, reference, strict=True)
  ]
  sqrt_num_seeds = len(curves) ** 0.5
  return {
    'loss': [
      round(statistics.fmean(values), 4) for values in zip(*curves, strict=True)
    ],
    'difference': [
      round(statistics.fmean(values), 4)
      for values in zip(*differences, strict=True)
    ],
    'standard_error': [
      round(statistics.stdev(values) / sqrt_num_seeds, 4)
      if len(values) > 1
      else None
      for values in zip(*differences, strict=True)
    ],
    'absolute_after_first': round(
      statistics.fmean(abs(gap) for row in differences for gap in row[1:]), 4
    ),
  }


def main(arguments: list[str] | None = None) -> None:
  """Trains with each sequence order and prints a JSON line with the losses."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add(
    '--work',
    type=pathlib.Path,
    required=True,
    help='Working directory for all outputs.',
  )
  add(
    '--data', type=pathlib.Path, help='Folder that contains public data sets.'
  )
  add('--steps', type=int, default=400, help='Number of training steps.')
  add('--batch', type=int, default=32, help='Number of sequences per batch.')
  add(
    '--block_rows',
    type=int,
    default=16,
    help='Number of sequences per block for `locality`.',
  )
  add('--seeds', type=int, default=5, help='Number of seeds.')
  args = parser.parse_args(arguments)
  work = args.work.absolute()
  prepare_data(work, args.data)
  step_runner, reference = runner.Runner(), []
  for name, locality in make_orders(args.block_rows).items():
    curves = [
      compute_curve(
        step_runner.train(make_trainer(work, locality, args, seed)).losses
      )
      for seed in range(args.seeds)
    ]
    reference = reference or curves
    print(
      json.dumps({'order': name} | compare_curves(curves, reference)),
      flush=True,
    )


if __name__ == '__main__':
  main()
