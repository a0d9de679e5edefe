"""Time bounds and peak memory of training steps in xlflax and JAX baselines.

  python -m benchmarks.compiled_baselines --t5x DIR
  python -m benchmarks.compiled_baselines --steps plain_flax --devices gpu:H200:1
  python -m benchmarks.compiled_baselines --recorded \\
      --page docs/measured/compiled_steps.md

`t5x` is T5X's encoder-decoder (github.com/google-research/t5x, checked out in
DIR) in the size of mT5-base. `plain_flax` is an encoder that consists of Flax
layers, in the size of XLM-R base (`benchmarks/baselines/jax_steps.py`). Both
are compiled without the target devices and evaluated as in
`benchmarks.compile_targets`, and compared with the xlflax step of equal size
that this benchmark recorded. The extra `plan-gpu` is required. --record stores
the measurements in a file next to this module. --recorded formats the stored
measurements without compiling. --page writes the table of stored measurements
between markers in a page.
"""

import argparse
import functools
import json
import pathlib
from typing import Any

from benchmarks import compile_targets, scaling
from benchmarks.compiled import roofline
from benchmarks.compiled.programs import (
  collectives,
  execution,
  hlo,
  kernels,
  pallas,
)
from xlflax.planning import compilers
from xlflax.training.devices import machine_topology

RECORD = pathlib.Path(__file__).with_suffix('.json')
# Baseline -> case of `compile_targets` of equal size.
BASELINES = {'t5x': 'mt5-base', 'plain_flax': 'xlmr-base'}
DEVICES = {'t5x': 'gpu:H200:8', 'plain_flax': 'gpu:H200:1'}
# XLA:GPU finds no tiling for a matmul of T5X with 256 x 115 rows.
OPTIONS = {'t5x': {'xla_gpu_enable_triton_gemm': False}}


def evaluate_step(
  machine: machine_topology.DeviceTopology, step: Any, **options: Any
) -> dict[str, float]:
  """Compiles a training step and returns its time bound and peak memory.

  Args:
    machine: Topology of the devices for which the step is compiled.
    step: Training step to compile, a `baselines.jax_steps.Step`.
    **options: Compiler options for XLA.
  """
  with compilers.trace_for_machine(machine):
    program = compilers.compile_step(
      machine, step.jitted, step.state, step.batch, **options
    )
  module = hlo.parse_module(program.text)
  reader = kernels.make_reader(
    machine.platform, pallas.count_flops(program.jaxpr)
  )
  placement = collectives.Placement(machine.count, machine.per_node)
  counted = execution.Execution(
    module, reader, placement, machine.accelerator
  ).run()
  times = roofline.compute_times(machine, counted, compiled=True)
  return {
    'milliseconds': times.bound * 1e3,
    'peak_gib': program.memory.peak / compile_targets.GIB,
    'waited': times.waited / times.bound,
    'tokens_per_second': step.tokens / times.bound,
  }


def format_table(
  baseline_figures: dict[str, dict], xlflax_records: dict[str, dict]
) -> str:
  """Formats baseline and xlflax training steps as a Markdown table.

  Each baseline is listed after the xlflax step of equal size, if it is
  recorded. A baseline's MFU is computed from xlflax's model FLOPs and the
  baseline's step time.

  Args:
    baseline_figures: Map from 'baseline@devices' to the result of
      `evaluate_step`.
    xlflax_records: Map from 'case@devices' to the measurements recorded by
      `compile_targets`.
  """
  lines = [
    '| step | devices | bound, ms | MFU bound | peak, GiB | waiting for '
    'collectives |',
    '| --- ' * 6 + '|',
  ]
  for key, figures in baseline_figures.items():
    name, devices = key.split('@')
    xlflax_figures = xlflax_records.get(f'{BASELINES[name]}@{devices}')
    if xlflax_figures:
      mfu = (
        xlflax_figures['mfu']
        * xlflax_figures['milliseconds']
        / figures['milliseconds']
      )
      lines.append(
        _format_row(
          f'xlflax, {BASELINES[name]}',
          devices,
          xlflax_figures,
          xlflax_figures['mfu'],
        )
      )
    lines.append(
      _format_row(name, devices, figures, mfu if xlflax_figures else None)
    )
  return '\n'.join(lines)


def _format_row(
  name: str, devices: str, figures: dict, mfu: float | None
) -> str:
  return (
    f'| {name} | {devices} | {figures["milliseconds"]:.1f} | '
    f'{"-" if mfu is None else f"{mfu:.1%}"} | {figures["peak_gib"]:.1f} | '
    f'{figures["waited"]:.1%} |'
  )


def _compile_baselines(args: argparse.Namespace) -> dict[str, dict[str, float]]:
  """Compiles the baselines that the command-line flags select."""
  from benchmarks.baselines import jax_steps

  step_makers = {
    't5x': functools.partial(
      jax_steps.make_t5x_step,
      args.t5x or pathlib.Path('t5x'),
      sizes=jax_steps.T5Sizes(),
    ),
    'plain_flax': functools.partial(
      jax_steps.make_plain_flax_step, sizes=jax_steps.EncoderSizes()
    ),
  }
  results = {}
  for name in args.steps.split(','):
    devices = args.devices or DEVICES[name]
    machine = machine_topology.parse_topology(devices)
    step = step_makers[name](devices=compilers.topology_devices(machine))
    results[f'{name}@{devices}'] = evaluate_step(
      machine, step, **OPTIONS.get(name, {})
    )
    print(name, devices, results[f'{name}@{devices}'], flush=True)
  return results


def _parse_arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add(
    '--t5x',
    type=pathlib.Path,
    metavar='DIR',
    help='Directory with a checkout of T5X.',
  )
  add(
    '--steps',
    default=','.join(BASELINES),
    metavar='NAMES',
    help='Baselines to compile, separated by commas.',
  )
  add(
    '--devices',
    metavar='DEVICES',
    help='Devices for which steps are compiled. Default: the devices of each '
    'baseline.',
  )
  add(
    '--record',
    action='store_true',
    help='Store the measurements in the record.',
  )
  add(
    '--recorded',
    action='store_true',
    help='Format the stored measurements without compiling.',
  )
  add(
    '--page',
    type=pathlib.Path,
    metavar='FILE',
    help='Markdown page to which the table is written.',
  )
  return parser.parse_args()


def main() -> None:
  """Compiles training steps or reads recorded results, and prints a table."""
  args = _parse_arguments()
  stored = json.loads(RECORD.read_text()) if RECORD.exists() else {}
  figures = stored if args.recorded else _compile_baselines(args)
  if args.record:
    RECORD.write_text(json.dumps(stored | figures, indent=1) + '\n')
  xlflax_records = json.loads(compile_targets.RECORD.read_text())['recorded']
  print(format_table(figures, xlflax_records))
  if args.page:
    scaling.write_page(
      args.page, format_table(stored | figures, xlflax_records), 'baselines'
    )


if __name__ == '__main__':
  main()
