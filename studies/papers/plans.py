"""Dry runs of published models on the numbers of GPUs used in their papers.

  python -m studies.papers.plans WORK

Runs `xlflax train --dry_run` for each model in bfloat16, with a dummy
vocabulary of the same size as in the paper. The plans are written to WORK, and
the table in docs/measured/papers.md is written to WORK/plans.md.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from studies import command_line

# Gin file, vocabulary size, number of languages, number of GPUs, and the number
# of parameters that the paper states (None if it states none).
PLANS = (
  ('veco/large_phase2', 250_002, 50, 64, 662e6),
  ('veco/small_ca_mlm_tlm', 250_002, 50, 64, 247e6),
  ('ppa/250k', 110_000, 104, 2, 172e6),
  ('metaxlm/metaxlm', 250_002, 94, 8, 270e6),
  ('ecs/default', 80_000, 2, 8, None),
  ('ecs/sep_emb_l1_3', 40_000, 2, 8, None),
)
GIB = 2**30


def plan_arguments(
  file: str, vocabulary: int, languages: int, devices: int
) -> list[str]:
  """Returns the `xlflax` arguments for the dry run of a model.

  Parameters and optimizer state are sharded by FSDP over all devices.

  Args:
    file: Gin file that configures the model, such as 'ecs/default'.
    vocabulary: Size of the dummy vocabulary.
    languages: Number of languages in the dummy vocabulary.
    devices: Number of devices.
  """
  command = [
    'train',
    '--dry_run',
    f'--gin_file=papers/{file}.gin',
    f'--vocabulary_size={vocabulary}',
    f'--num_languages={languages}',
    f'--target_topology=cpu:{devices}',
    '--gin.partitioning.Partitioner.data=1',
    f'--gin.partitioning.Partitioner.fsdp={devices}',
  ]
  if file.startswith(('ppa', 'metaxlm', 'veco/large')):
    command.append("--gin.INIT_DIR='unused'")
  if file.startswith(('veco', 'metaxlm')):
    command.append("--gin.model_config.EncoderConfig.remat='full'")
  return command


def plan_row(work: pathlib.Path, file: str, *sizes: int) -> dict:
  """Creates the dry-run plan of a model and returns it as JSON values.

  Args:
    work: Folder to which the plan is written.
    file: Gin file that configures the model, such as 'ecs/default'.
    *sizes: Additional arguments of `plan_arguments`.
  """
  output = work / f'{file.replace("/", "_")}.json'
  command = ['xlflax', *plan_arguments(file, *sizes), f'--output_file={output}']
  subprocess.run(command, check=True)
  return json.loads(output.read_text())


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.papers.plans', __doc__)
  parser.add_argument(
    'work',
    type=pathlib.Path,
    metavar='WORK',
    help='Directory to which everything is written.',
  )
  return command_line.run_command(parser, _print_plans, arguments)


def _print_plans(args: argparse.Namespace) -> None:
  """Makes dry-run plans of all models and prints a table."""
  work = args.work
  work.mkdir(parents=True, exist_ok=True)
  lines = [
    '| gin file | V | parameters | the paper | difference | GPUs | state '
    'per GPU, GiB | activations and gradients, GiB |',
    '| --- ' * 8 + '|',
  ]
  for file, vocabulary, languages, devices, published in PLANS:
    plan = plan_row(work, file, vocabulary, languages, devices)
    count, memory = plan['parameters']['total'], plan['memory']
    state = sum(memory[k] for k in ('parameters', 'optimizer', 'other_state'))
    lines.append(
      f'| `papers/{file}.gin` | {vocabulary:,} | {count / 1e6:.1f}M | '
      + (
        f'{published / 1e6:.0f}M | {count / published - 1:+.1%}'
        if published
        else '- | -'
      )
      + f' | {devices} | {state / GIB:.2f} | {memory["temporary"] / GIB:.1f} '
      '|'
    )
  text = '\n'.join(lines) + '\n'
  (work / 'plans.md').write_text(text)
  print(text)


if __name__ == '__main__':
  sys.exit(main())
