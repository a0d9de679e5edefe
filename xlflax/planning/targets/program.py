"""Compiles a step for described devices and reads the partitioned program.

The text comes from right after XLA's SPMD partitioner, where it is the same for
all platforms: each device's shapes, and the collectives. The later passes are
the CPU's own: they compute bfloat16 products in float32 (and then gather
weights in float32), and do not turn an all-reduce of which every device keeps a
part into a reduce-scatter.
"""

import contextlib
import dataclasses
import os
import pathlib
from typing import Any

import jax

from xlflax.foundation import errors
from xlflax.planning.programs import hlo, rewriting
from xlflax.planning.targets import scratch
from xlflax.training.devices import machines

# With one device there is nothing to partition, and only calls are inlined.
_PASSES = ('spmd-partitioning', 'call-inliner')
_NUMBER_OF_DEVICES = '--xla_force_host_platform_device_count'
# Compiled to be looked at, not to run fast.
_OPTIONS = {
  'xla_backend_optimization_level': 0,
  'xla_llvm_disable_expensive_passes': True,
}


@dataclasses.dataclass(frozen=True)
class Program:
  """A compiled step.

  Attributes:
    module: the partitioned program: one device's shapes, all collectives.
    temporary: bytes that the backend which compiled it plans for what is
      neither argument nor result; XLA:CPU's figure where that stood in.
  """

  module: hlo.Module
  temporary: int


def compiled(jitted: Any, *arguments) -> Program:
  """Lowers and compiles a jitted function for abstract arguments.

  The persistent compilation cache must be off: a cached program is not
  partitioned again.

  Raises:
    TrainingError: XLA did not write the partitioned program.
  """
  with scratch.folder() as folder:
    made = jitted.lower(*arguments).compile(
      compiler_options=_OPTIONS
      | {
        'xla_dump_to': str(folder),
        'xla_dump_hlo_pass_re': f'^({"|".join(_PASSES)})$',
        'xla_dump_hlo_as_text': True,
      }
    )
    return Program(
      rewriting.simplified(hlo.parse(_partitioned(folder))),
      getattr(made.memory_analysis(), 'temp_size_in_bytes', 0),
    )


def _partitioned(folder: pathlib.Path) -> str:
  """Returns the text that the partitioner wrote."""
  for name in _PASSES:
    files = sorted(folder.glob(f'*after_{name}.before*.txt'))
    if files:
      return files[-1].read_text(encoding='utf-8')
  raise errors.TrainingError(
    'XLA did not write the partitioned program',
    got=f'no dump of {" or ".join(_PASSES)}',
    where='the plan',
    fix='unset XLA_FLAGS and try again',
  )


def stand_in(machine: machines.Machine) -> None:
  """Makes the CPU look like as many devices as the machine has.

  JAX reads these settings when it makes its devices, so nothing may have
  asked for them: a command calls this before all else. `jax_num_cpu_devices`
  does in the running process what the flag in XLA_FLAGS does at its start;
  that flag, where the environment has it, is taken out, as JAX refuses both.

  Raises:
    ConfigError: the devices were made already, and are fewer.
  """
  flags = os.environ.get('XLA_FLAGS', '')
  os.environ['XLA_FLAGS'] = ' '.join(
    flag for flag in flags.split() if _NUMBER_OF_DEVICES not in flag
  )
  jax.config.update('jax_platforms', 'cpu')
  with contextlib.suppress(RuntimeError):  # the devices are made: see below
    jax.config.update('jax_num_cpu_devices', machine.count)
  if jax.device_count() < machine.count:
    raise errors.ConfigError(
      'The CPU cannot stand in for the devices',
      got=f'{machine}, after JAX made {jax.device_count()} devices',
      where='--devices',
      fix='plan in a process of its own',
    )
