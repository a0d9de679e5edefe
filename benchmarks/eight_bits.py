"""Loss curves of small models whose layers multiply in eight bits.

  python -m benchmarks.eight_bits --work=DIR --data=DATA

MLM by the form of `recipes/small.gin` (4 layers, rotary positions, pre-norm, no
dropout, 40 % of the tokens masked, Muon), 64 wide, on the text and cache of
`benchmarks.row_orders`: in float32, in bfloat16, and in bfloat16 with `products
= 'eight_bits'`, which a CPU rounds as tensor cores do. Seeds are shared, so
initial parameters, rows and masks are. Of each: the mean loss of each quarter
of the steps, over seeds; its difference to float32, and its standard error.
DIR keeps finished runs, so a call that was stopped goes on.
"""

import argparse
import dataclasses
import json
import pathlib

from benchmarks import row_orders
from studies.replication import runner
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.trainer import Trainer
from xlflax.training.optimization import optimizers, schedules

VARIANTS = {
  'float32': {},
  'bfloat16': {'dtype': 'bfloat16'},
  'eight_bits': {'dtype': 'bfloat16', 'matmul_precision': 'eight_bits'},
}


def make_trainer(
  work: pathlib.Path, variant: str, args: argparse.Namespace, seed: int
) -> Trainer:
  """A run of one of `VARIANTS`."""
  config = model_config.EncoderConfig(
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
  peak = schedules.Linear(
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
    optimizer=optimizers.Muon(learning_rate=peak),
  )


def main(arguments: list[str] | None = None) -> None:
  """Prints a line of JSON for each variant."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--work', type=pathlib.Path, required=True)
  parser.add_argument('--data', type=pathlib.Path)
  parser.add_argument('--steps', type=int, default=2000)
  parser.add_argument('--batch', type=int, default=40)
  parser.add_argument('--seeds', type=int, default=3)
  args = parser.parse_args(arguments)
  work = args.work.absolute()
  row_orders.prepare_data(work, args.data)
  step_runner = runner.Runner()
  found: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
  for seed in range(args.seeds):
    for name, curves in found.items():
      kept = work / f'{name}-{args.steps}x{args.batch}-{seed}.json'
      if not kept.exists():
        losses = step_runner.train(make_trainer(work, name, args, seed)).losses
        kept.write_text(json.dumps(row_orders.compute_curve(losses)))
      curves.append(json.loads(kept.read_text()))
  for name, curves in found.items():
    row = row_orders.compare_curves(curves, found['float32'])
    print(json.dumps({'products': name} | row), flush=True)


if __name__ == '__main__':
  main()
