"""Compiles peers' steps for devices that are not there, beside xlflax's.

  python -m benchmarks.compiled_peers --t5x DIR
  python -m benchmarks.compiled_peers --steps plain_flax --devices gpu:H200:1
  python -m benchmarks.compiled_peers --recorded --page docs/performance.md

`t5x` is T5X's encoder-decoder (github.com/google-research/t5x, a checkout in
DIR) at mT5-base's size, `plain_flax` an encoder of XLM-R base's size made of
Flax's own layers (`benchmarks/peers/jax_steps.py`). Both are compiled and
judged as `benchmarks.compile_targets` does it, and stand beside what that
recorded of xlflax's step of equal size. Needs the extra `plan-gpu`. --record
keeps what was compiled in a file beside this one; --recorded compiles nothing
and takes it from there; --page writes the table of the file between a page's
markers.
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
# Peer -> xlflax's case of equal size.
BASELINES = {'t5x': 'mt5-base', 'plain_flax': 'xlmr-base'}
DEVICES = {'t5x': 'gpu:H200:8', 'plain_flax': 'gpu:H200:1'}
# XLA:GPU finds no tiles for a product of T5X's, of 256 x 115 rows.
OPTIONS = {'t5x': {'xla_gpu_enable_triton_gemm': False}}


def evaluate_step(
  machine: machine_topology.DeviceTopology, step: Any, **options: Any
) -> dict[str, float]:
  """Compiles a step and returns its bound and peak memory.

  Args:
    machine: of the devices that the step is placed on.
    step: a `peers.jax_steps.Step`.
    **options: of XLA.
  """
  with compilers.trace_for_machine(machine):
    made = compilers.compile_step(
      machine, step.jitted, step.state, step.batch, **options
    )
  module = hlo.parse_module(made.text)
  reader = kernels.make_reader(machine.platform, pallas.count_flops(made.jaxpr))
  place = collectives.Placement(machine.count, machine.per_node)
  run = execution.Execution(module, reader, place, machine.accelerator).run()
  times = roofline.compute_times(machine, run, compiled=True)
  return {
    'milliseconds': times.bound * 1e3,
    'peak_gib': made.memory.peak / compile_targets.GIB,
    'waited': times.waited / times.bound,
    'tokens_per_second': step.tokens / times.bound,
  }


def format_table(found: dict[str, dict], recorded: dict[str, dict]) -> str:
  """Markdown: peers, each beside xlflax's step of equal size.

  A peer's MFU is that of xlflax's model FLOPs in the peer's time.

  Args:
    found: 'peer@devices' -> of `judged`.
    recorded: 'case@devices' -> `compile_targets.figures`.
  """
  lines = [
    '| step | devices | bound, ms | MFU bound | peak, GiB | waiting for '
    'collectives |',
    '| --- ' * 6 + '|',
  ]
  for key, peer in found.items():
    name, devices = key.split('@')
    ours = recorded.get(f'{BASELINES[name]}@{devices}')
    if ours:
      of_peer = ours['mfu'] * ours['milliseconds'] / peer['milliseconds']
      lines.append(
        _format_row(f'xlflax, {BASELINES[name]}', devices, ours, ours['mfu'])
      )
    lines.append(_format_row(name, devices, peer, of_peer if ours else None))
  return '\n'.join(lines)


def _format_row(name: str, devices: str, found: dict, mfu: float | None) -> str:
  return (
    f'| {name} | {devices} | {found["milliseconds"]:.1f} | '
    f'{"-" if mfu is None else f"{mfu:.1%}"} | {found["peak_gib"]:.1f} | '
    f'{found["waited"]:.1%} |'
  )


def _compile_baselines(args: argparse.Namespace) -> dict[str, dict[str, float]]:
  """Compiles the peers that the flags name."""
  from benchmarks.peers import jax_steps

  makers = {
    't5x': functools.partial(
      jax_steps.make_t5x_step,
      args.t5x or pathlib.Path('t5x'),
      sizes=jax_steps.T5Sizes(),
    ),
    'plain_flax': functools.partial(
      jax_steps.make_plain_flax_step, sizes=jax_steps.EncoderSizes()
    ),
  }
  found = {}
  for name in args.steps.split(','):
    devices = args.devices or DEVICES[name]
    machine = machine_topology.parse_topology(devices)
    step = makers[name](devices=compilers.topology_devices(machine))
    found[f'{name}@{devices}'] = evaluate_step(
      machine, step, **OPTIONS.get(name, {})
    )
    print(name, devices, found[f'{name}@{devices}'], flush=True)
  return found


def _parse_arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--t5x', type=pathlib.Path, metavar='DIR')
  parser.add_argument('--steps', default=','.join(BASELINES), metavar='NAMES')
  parser.add_argument('--devices', metavar='DEVICES')
  parser.add_argument('--record', action='store_true')
  parser.add_argument('--recorded', action='store_true')
  parser.add_argument('--page', type=pathlib.Path, metavar='FILE')
  return parser.parse_args()


def main() -> None:
  args = _parse_arguments()
  kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
  found = kept if args.recorded else _compile_baselines(args)
  if args.record:
    RECORD.write_text(json.dumps(kept | found, indent=1) + '\n')
  ours = json.loads(compile_targets.RECORD.read_text())['recorded']
  print(format_table(found, ours))
  if args.page:
    scaling.write_page(args.page, format_table(kept | found, ours), 'peers')


if __name__ == '__main__':
  main()
