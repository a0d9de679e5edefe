"""Environment variables that can change the results of commands.

Variables with which xlflax cannot keep its guarantees, such as exact
resumption, are rejected. Variables that are legitimate but affect numerical
results are recorded with the metrics of a run.
"""

import pathlib
from collections.abc import Mapping

from xlflax.utils import errors

_FALSE = ('0', 'f', 'false', 'n', 'no', 'off')
_TRUE = ('1', 'on', 't', 'true', 'y', 'yes')
# Values that do not change JAX's default behavior, by variable.
_ACCEPTED: Mapping[str, tuple[str, ...]] = {
  'JAX_DEFAULT_PRNG_IMPL': ('threefry2x32',),
  'JAX_DISABLE_JIT': _FALSE,
  'JAX_ENABLE_X64': _FALSE,
  'JAX_NUMPY_DTYPE_PROMOTION': ('standard',),
  'JAX_NUMPY_RANK_PROMOTION': ('allow', 'warn'),
  'JAX_THREEFRY_PARTITIONABLE': _TRUE,
}
# Variables that affect the compiled program or the devices.
_RECORDED = (
  'CUDA_VISIBLE_DEVICES',
  'JAX_DEFAULT_MATMUL_PRECISION',
  'JAX_PLATFORMS',
  'LIBTPU_INIT_ARGS',
  'NCCL_ALGO',
  'NCCL_PROTO',
  'NVIDIA_TF32_OVERRIDE',
  'OMP_NUM_THREADS',
  'PYTHONOPTIMIZE',
  'XLA_FLAGS',
)


def check_variables(environment: Mapping[str, str]) -> None:
  """Checks that environment variables do not change JAX's global defaults.

  The defaults concern data types, random numbers and compilation.

  Args:
    environment: Environment variables of the process.

  Raises:
    ConfigError: If a variable changes the data types, the random numbers or the
      compilation of all programs.
  """
  for name, accepted in _ACCEPTED.items():
    value = environment.get(name, '')
    if value and value.lower() not in accepted:
      raise errors.ConfigError(
        f'The environment variable {name} has a value that xlflax does not '
        f'support. It must be unset or set to {" or ".join(accepted)}',
        got=value,
        fix=f'Unset {name}.',
      )


def read_xla_flags(environment: Mapping[str, str]) -> list[str]:
  """Returns the flags of XLA_FLAGS, such as ['--xla_gpu_autotune_level=2'].

  Like XLA, the function reads the flags from a file if the value of the
  variable does not start with '-'. A file that cannot be read has no flags.

  Args:
    environment: Environment variables of the process.
  """
  value = environment.get('XLA_FLAGS', '').strip()
  if value and not value.startswith('-'):
    try:
      value = pathlib.Path(value).read_text(encoding='utf-8')
    except (OSError, ValueError):
      return []
  return value.split()


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
  """Returns the environment variables that can affect numerical results.

  If XLA_FLAGS is the path of a file, its value is the content of the file.
  """
  variables = {
    name: environment[name] for name in _RECORDED if environment.get(name)
  }
  if flags := read_xla_flags(environment):
    variables['XLA_FLAGS'] = ' '.join(flags)
  return variables
