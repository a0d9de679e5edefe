"""Loss curves of small models whose matmuls are computed in FP8.

  python -m benchmarks.fp8 --work=DIR --data=DATA

Trains MLM models with the architecture of `recipes/small.gin` (4 layers, rotary
positions, pre-norm, no dropout, 40 % of the tokens masked, Muon) and width 64
on the text and the cache of `benchmarks.row_orders`. The variants are float32,
bfloat16, and bfloat16 with `matmul_precision = 'fp8'`, for which a CPU rounds
values in the same way as tensor cores. Variants use the same seeds, and
therefore the same initial parameters, sequences and masks. For each variant and
each quarter of the steps, the benchmark prints the mean loss over seeds, its
difference from float32, and the standard error of the difference. Finished runs
are stored in DIR, so that an interrupted call can be resumed.
"""

import argparse
import dataclasses
import json
import pathlib

from benchmarks import row_orders
from studies.replication import runner
from xlflax.models import encoder, encoder_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.trainer import Trainer
from xlflax.training.optimization import optimizers, schedules

VARIANTS = {
  'float32': {},
  'bfloat16': {'dtype': 'bfloat16'},
  'fp8': {'dtype': 'bfloat16', 'matmul_precision': 'fp8'},
}


def make_trainer(
  work: pathlib.Path, variant: str, args: argparse.Namespace, seed: int
) -> Trainer:
  """Returns the trainer of a small model for a number format such as `fp8`."""
  config = encoder_config.EncoderConfig(
    num_layers=4,
    hidden_dim=64,
    mlp_dim=256,
    num_heads=4,
    max_position_embeddings=128,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    norm_position='pre',
    position_embedding='rotary',
    mlm_head='tied',
    **VARIANTS[variant],
  )
  objective = masked_lm.MaskedLM(mask_ratio=0.4)
  learning_rate = schedules.Linear(
    peak_value=3e-3, warmup_steps=min(150, args.steps // 10)
  )
  return dataclasses.replace(
    row_orders.make_trainer(work, None, args, seed),
    model=encoder.Encoder(config),
    objectives=objective_mixture.ObjectiveMixture(
      entries=(
        objective_mixture.WeightedObjective(
          dataset='mono', objective=objective
        ),
      )
    ),
    optimizer=optimizers.Muon(learning_rate=learning_rate),
  )


def main(arguments: list[str] | None = None) -> None:
  """Trains a model in each number format and prints a line of JSON for each."""
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
  add('--steps', type=int, default=2000, help='Number of training steps.')
  add('--batch', type=int, default=40, help='Number of sequences per batch.')
  add('--seeds', type=int, default=3, help='Number of seeds.')
  args = parser.parse_args(arguments)
  work = args.work.absolute()
  row_orders.prepare_data(work, args.data)
  step_runner = runner.Runner()
  curves_by_variant: dict[str, list[list[float]]] = {
    name: [] for name in VARIANTS
  }
  for seed in range(args.seeds):
    for name, curves in curves_by_variant.items():
      curve_file = work / f'{name}-{args.steps}x{args.batch}-{seed}.json'
      if not curve_file.exists():
        losses = step_runner.train(make_trainer(work, name, args, seed)).losses
        curve_file.write_text(json.dumps(row_orders.compute_curve(losses)))
      curves.append(json.loads(curve_file.read_text()))
  for name, curves in curves_by_variant.items():
    row = row_orders.compare_curves(curves, curves_by_variant['float32'])
    print(json.dumps({'matmul_precision': name} | row), flush=True)


if __name__ == '__main__':
  main()
