"""CPU devices that stand in for the devices of a described machine.

The text of a program right after XLA's SPMD partitioner is the same for all
platforms. Later passes of the CPU compiler compute bfloat16 matmuls in float32,
and do not turn an all-reduce into a reduce-scatter.
"""

import contextlib
import os
import pathlib
from typing import Any

import jax

from xlflax.planning import scratch_folder
from xlflax.training.devices import machine_topology
from xlflax.utils import errors

# With one device there is nothing to partition, and only calls are inlined.
_PASSES = ('spmd-partitioning', 'call-inliner')
_NUMBER_OF_DEVICES = '--xla_force_host_platform_device_count'
# Compiled to be looked at, not to run fast.
_OPTIONS = {
  'xla_backend_optimization_level': 0,
  'xla_llvm_disable_expensive_passes': True,
}


def compile_partitioned(lowered: Any) -> tuple[Any, str]:
  """Compiles for the CPU and returns the executable and the partitioned HLO.

  The persistent compilation cache must be off: a cached program is not
  partitioned again.

  Args:
    lowered: Result of `jax.jit(...).lower(...)` for CPU devices.

  Raises:
    TrainingError: If XLA did not write the partitioned program.
  """
  with scratch_folder.scratch_folder() as folder:
    compiled = lowered.compile(
      compiler_options=_OPTIONS
      | {
        'xla_dump_to': str(folder),
        'xla_dump_hlo_pass_re': f'^({"|".join(_PASSES)})$',
        'xla_dump_hlo_as_text': True,
      }
    )
    return compiled, _partitioned(folder)


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


def create_cpu_devices(machine: machine_topology.Machine) -> None:
  """Creates as many CPU devices as the machine has devices.

  JAX reads these settings when it creates its devices, so a command calls this
  before anything else. JAX rejects `jax_num_cpu_devices` in combination with
  the flag in XLA_FLAGS, which is therefore removed.

  Raises:
    ConfigError: If too few devices were created before.
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
      where='--target_topology',
      fix='plan in a process of its own',
    )
