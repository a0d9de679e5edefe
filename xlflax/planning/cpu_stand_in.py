"""CPU devices that replace the devices of a target machine in dry runs.

The HLO of a program right after XLA's SPMD partitioner is the same for all
platforms. Later passes of the CPU compiler compute bfloat16 matmuls in float32,
and do not convert an all-reduce to a reduce-scatter.
"""

import contextlib
import os
import pathlib
from typing import Any

import jax

from xlflax.planning import scratch_folder
from xlflax.training.devices import machine_topology
from xlflax.utils import environment_variables, errors

# For a single device, the partitioner does not run. The call inliner does.
_PASSES = ('spmd-partitioning', 'call-inliner')
_NUMBER_OF_DEVICES = '--xla_force_host_platform_device_count'
# The program is analyzed but not executed, so optimizations are disabled.
_OPTIONS = {
  'xla_backend_optimization_level': 0,
  'xla_llvm_disable_expensive_passes': True,
}


def compile_partitioned(lowered: Any) -> tuple[Any, str]:
  """Compiles a step for the CPU, and returns it with its partitioned HLO.

  The persistent compilation cache must be disabled, because a cached program is
  not partitioned again.

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
  """Returns the HLO that the partitioner wrote."""
  for name in _PASSES:
    files = sorted(folder.glob(f'*after_{name}.before*.txt'))
    if files:
      return files[-1].read_text(encoding='utf-8')
  raise errors.TrainingError(
    'XLA did not dump the partitioned program in the dry run. A dump after the '
    f'pass {" or ".join(_PASSES)} is required',
    fix='Unset XLA_FLAGS and run the command again.',
  )


def create_cpu_devices(machine: machine_topology.DeviceTopology) -> None:
  """Creates one CPU device for each device of the target machine.

  JAX reads the platform and the number of devices when it creates its devices,
  so a command must call this function first. JAX rejects `jax_num_cpu_devices`
  in combination with the flag in XLA_FLAGS, which is therefore removed.

  Args:
    machine: Target machine, whose devices are replaced by CPU devices.

  Raises:
    ConfigError: If JAX has already created its devices, and they are fewer than
      those of the target machine.
  """
  flags = environment_variables.read_xla_flags(os.environ)
  os.environ['XLA_FLAGS'] = ' '.join(
    flag for flag in flags if _NUMBER_OF_DEVICES not in flag
  )
  jax.config.update('jax_platforms', 'cpu')
  # JAX raises an error if its devices exist already. Their number is checked
  # below.
  with contextlib.suppress(RuntimeError):
    jax.config.update('jax_num_cpu_devices', machine.count)
  if jax.device_count() < machine.count:
    raise errors.ConfigError(
      f'The plan for {machine} (--target_topology) requires {machine.count} '
      f'CPU devices, but JAX has created only {jax.device_count()}',
      fix='Run the plan in a separate process.',
    )
