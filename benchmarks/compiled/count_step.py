"""Operation counts and roofline of a training step, from its compiled program.

  python -m benchmarks.compiled.count_step --devices=gpu:H200:1 \\
      --gin_file=pretrain/mlm.gin --gin_file=models/base.gin \\
      --vocabulary_size=250002 --num_languages=100 \\
      --gin.TRAIN_STEPS=1000 --gin.BATCH_SIZE=64 --gin.LENGTH=512

This is a tool for kernel authors. It compiles a run's steps with the device's
compiler (extras `plan-gpu` and `plan-tpu`), reads the program kernel by kernel,
and counts the instructions in Pallas kernels. The device itself is not
required. The result is a roofline at data-sheet rates, which is a lower bound
for the step time. To estimate the step time, use `xlflax train --dry_run`.
"""

import argparse
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax

from benchmarks.compiled import findings, instructions, roofline
from benchmarks.compiled.programs import (
  collectives,
  execution,
  hlo,
  kernels,
  pallas,
)
from xlflax import trainer
from xlflax.config import gin_config
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.models import compile_targets
from xlflax.planning import compilers, dry_run, step_plan
from xlflax.training import training_setup
from xlflax.training.devices import machine_topology

# Number of kernels to report.
_NUM_KERNELS = 12


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
  """Computes, prints and returns the roofline of a training step."""
  # If a GPU plugin is installed, JAX would otherwise search for local GPUs.
  jax.config.update('jax_platforms', 'cpu')
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add(
    '--devices',
    required=True,
    help='Devices as PLATFORM:KIND:COUNT, as in a dry run.',
  )
  add(
    '--gin_file',
    action='append',
    default=[],
    help='Gin file. Repeat the option for several files.',
  )
  add(
    '--vocabulary_size',
    type=int,
    required=True,
    help='Size of the dummy vocabulary.',
  )
  add(
    '--num_languages',
    type=int,
    default=2,
    help='Number of languages in the dummy vocabulary.',
  )
  add(
    '--output',
    type=pathlib.Path,
    help='JSON file to which the counts are written.',
  )
  options, remaining = parser.parse_known_args(arguments)
  bindings = [flag.removeprefix('--gin.') for flag in remaining]
  if unknown := [flag for flag in remaining if not flag.startswith('--gin.')]:
    parser.error(f'unrecognized arguments: {" ".join(unknown)}')
  unused = dict.fromkeys(('MODEL_DIR', 'VOCABULARY', 'CORPUS'), 'unused')
  configuration = gin_config.load_gin_files(
    options.gin_file, bindings, macros=unused
  )
  run = configuration.build(
    trainer.Trainer,
    vocabulary=vocabulary_spec.make_dummy_spec(
      options.vocabulary_size, num_languages=options.num_languages
    ),
  )
  result = count_run(run, machine_topology.parse_topology(options.devices))
  text = json.dumps(result, indent=2)
  if options.output:
    options.output.write_text(text + '\n')
  print(text)
  return result


def count_run(
  run: trainer.Trainer, machine: machine_topology.DeviceTopology
) -> dict:
  """Compiles the training steps of a run and returns their roofline.

  Args:
    run: Configuration of the training run.
    machine: Topology of GPUs or TPUs for which the compiler is installed.

  Returns:
    A dictionary with the keys 'basis', 'memory' (bytes per device), 'roofline'
    (of the mean step), 'steps' and 'warnings'.

  Raises:
    ConfigError: If the compiler for the devices of `machine` is not installed.
  """
  dry_run.check_compiler(machine)
  settings = run.on(machine, devices=compilers.topology_devices(machine))
  times, peak, flops, tokens = [], 0, 0.0, 0.0
  descriptions, warnings = [], []
  with compile_targets.compiling_for(compilers.target_of(machine)):
    setup = training_setup.Setup(settings)
    mixture = settings.objectives
    schedule = [mixture.active(i) for i in range(mixture.period)]
    for active in dict.fromkeys(schedule):
      weight = schedule.count(active) / len(schedule)
      program, step_flops = _compile(setup, active, machine)
      module = hlo.parse_module(program.text)
      cycles = instructions.count_kernel_cycles(machine, program.jaxpr)
      reader = kernels.make_reader(
        machine.platform, pallas.count_flops(program.jaxpr), cycles
      )
      placement = collectives.Placement(machine.count, machine.per_node)
      counted = execution.Execution(
        module, reader, placement, machine.accelerator
      ).run()
      times.append(
        (weight, roofline.compute_times(machine, counted, compiled=True))
      )
      peak = max(peak, program.memory.peak)
      flops += weight * step_flops
      tokens += weight * step_plan.count_tokens(setup.abstract_batches(active))
      descriptions.append(_describe(machine, counted, program, module))
      warnings += instructions.describe_uncounted_kernels(program.jaxpr, cycles)
      warnings += findings.describe_findings(module, counted, setup, machine)
  return {
    'basis': f'XLA:{machine.platform.upper()} ({compilers.compiler_version(machine)})',
    'memory': {'total': peak},
    'roofline': roofline.compute_rates(
      machine, roofline.average_times(times), flops=flops, tokens=tokens
    ),
    'steps': descriptions,
    'warnings': list(dict.fromkeys(warnings)),
  }


def _compile(setup, active, machine) -> tuple[compilers.Compiled, float]:
  """Compiles a step and counts its model FLOPs."""
  with compilers.trace_for_machine(machine), setup.settings.partitioner.scope():
    program = compilers.compile_step(
      machine,
      setup.jitted_step(active),
      setup.factory.abstract_sharded,
      setup.abstract_batches(active),
    )
    return program, setup.flops(active)


def _describe(machine, counted, program, module) -> dict[str, Any]:
  """Returns the counted work of one training step."""
  sorted_collectives = sorted(
    counted.exchanged.items(), key=lambda item: -item[0].sent * item[1]
  )
  return {
    'num_kernels': sum(counted.kernels.values()),
    'unaligned_matmuls': sum(findings.count_misaligned(module).values()),
    'program_flops': sum(
      kernel.flops * count for kernel, count in counted.kernels.items()
    ),
    'program_bytes': sum(
      kernel.bytes * count for kernel, count in counted.kernels.items()
    ),
    'compile_seconds': program.seconds,
    'kernels': _group(machine, counted, 'name', 'kind', 'module', 'phase')[
      :_NUM_KERNELS
    ],
    'parts': _group(machine, counted, 'part', 'phase'),
    'windowed_loops': len(counted.windowed),
    'largest_collectives': [
      dataclasses.asdict(collective)
      | {
        'count': count,
        'sent': collective.sent,
        'exposed_seconds': counted.exposed[collective],
      }
      for collective, count in sorted_collectives
    ],
  }


def _group(machine, counted, *names: str) -> list[dict[str, Any]]:
  """Returns the summed work of kernels with equal fields, slowest first."""
  rows: dict[tuple[Any, ...], dict[str, Any]] = {}
  for kernel, count in counted.kernels.items():
    fields = {name: getattr(kernel, name) for name in names}
    row = rows.setdefault(
      tuple(fields.values()),
      fields | dict.fromkeys(('count', 'flops', 'bytes', 'seconds'), 0),
    )
    row['count'] += count
    row['flops'] += count * kernel.flops
    row['bytes'] += count * kernel.bytes
    row['seconds'] += count * kernel.seconds(machine.accelerator)
  return sorted(rows.values(), key=lambda row: -row['seconds'])


if __name__ == '__main__':
  main()
