"""Loss curves of tiny models that read one cache in different orders.

  python -m benchmarks.row_orders --work=DIR --data=DATA

MLM with an encoder of two layers on lines of real text in four languages, as
their sources have them one after the other, from one cache: `full` shuffles
all rows of a task, `locality` has the windows of `dataset_config.Locality` (64 blocks),
of blocks so short that a run reads several windows, and `text` shuffles the
rows of one block of 1024 neighbours at a time, which is what a bad order looks
like. Seeds are shared, so initial parameters and masks are. No row is read
twice. Of each order: the mean loss of each quarter of the steps, over seeds;
and of its difference to `full`, mean, standard error over seeds, and the mean
of its absolute value after the first quarter.
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
from xlflax.data.corpus import corpus_directory as corpus_lib
from xlflax.data.corpus import corpus_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.tokenizers import vocabulary_training
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.trainer import Trainer
from xlflax.training.optimization import optimizers, schedules

_LANGUAGES = ('de', 'en', 'ru', 'zh')
_MIXTURE = 'corpus.mono'
_LENGTH = 64
_NUM_QUARTERS = 4


def make_orders(block_rows: int) -> dict[str, dataset_config.Locality | None]:
  """The orders of rows that are compared."""
  return {
    'full': None,
    'locality': dataset_config.Locality(block_rows=block_rows),
    'text': dataset_config.Locality(block_rows=1024, window_blocks=1),
  }


def prepare_data(work: pathlib.Path, data: pathlib.Path | None) -> None:
  """Writes corpus, vocabulary and cache, unless they are there."""
  if (work / 'cache').exists():
    return
  lines = large_text.read_lines(data)
  for code in _LANGUAGES:
    corpus_writer.write_monolingual(work / 'corpus', code, [lines[code]])
  vocabulary = vocabulary_training.train_vocabulary(
    corpus_lib.Corpus(work / 'corpus'),
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
  """A run with rows in an order."""
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
      model_config.EncoderConfig(
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
  """Mean loss of each quarter of the steps."""
  values = [loss for _, loss in losses]
  size = len(values) // _NUM_QUARTERS
  return [
    statistics.fmean(values[k * size : (k + 1) * size])
    for k in range(_NUM_QUARTERS)
  ]


def compare_curves(found: list[list[float]], full: list[list[float]]) -> dict:
  """Of an order: its curve, and how it differs from that of `full`.

  Args:
    found: mean losses [seeds][quarters].
    full: those of the full permutation, under the same seeds; one has no
      standard error.
  """
  gaps = [
    [a - b for a, b in zip(x, y, strict=True)]
    for x, y in zip(found, full, strict=True)
  ]
  root = len(found) ** 0.5
  return {
    'loss': [round(statistics.fmean(q), 4) for q in zip(*found, strict=True)],
    'difference': [
      round(statistics.fmean(q), 4) for q in zip(*gaps, strict=True)
    ],
    'standard_error': [
      round(statistics.stdev(q) / root, 4) if len(q) > 1 else None
      for q in zip(*gaps, strict=True)
    ],
    'absolute_after_first': round(
      statistics.fmean(abs(gap) for row in gaps for gap in row[1:]), 4
    ),
  }


def main(arguments: list[str] | None = None) -> None:
  """Prints a line of JSON for each order."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--work', type=pathlib.Path, required=True)
  parser.add_argument('--data', type=pathlib.Path)
  parser.add_argument('--steps', type=int, default=400)
  parser.add_argument('--batch', type=int, default=32)
  parser.add_argument('--block_rows', type=int, default=16)
  parser.add_argument('--seeds', type=int, default=5)
  args = parser.parse_args(arguments)
  work = args.work.absolute()
  prepare_data(work, args.data)
  step_runner, full = runner.Runner(), []
  for name, locality in make_orders(args.block_rows).items():
    found = [
      compute_curve(
        step_runner.train(make_trainer(work, locality, args, seed)).losses
      )
      for seed in range(args.seeds)
    ]
    full = full or found
    print(json.dumps({'order': name} | compare_curves(found, full)), flush=True)


if __name__ == '__main__':
  main()
