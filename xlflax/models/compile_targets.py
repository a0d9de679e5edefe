"""Target devices of traced programs, and compiler options for them.

Some modules choose their implementation depending on the target.
"""

import contextlib
import contextvars
import functools
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax

from xlflax.utils import environment_variables, errors


class Target(NamedTuple):
  """Properties of the device for which a program is compiled.

  Attributes:
    platform: Platform of the device, 'cpu', 'gpu' or 'tpu'.
    capability: Compute capability of an NVIDIA GPU, such as (9, 0). None for
      other devices.
    has_kernels: Whether to use Pallas kernels for operations that can be
      computed without them. False for the compiler of a different platform,
      because it cannot compile the kernels.
  """

  platform: str
  capability: tuple[int, ...] | None = None
  has_kernels: bool = True

  @property
  def has_bias_epilogues(self) -> bool:
    """True if matmul kernels can add a bias to their results."""
    return self.platform == 'gpu' and self.capability is not None

  @property
  def has_triton_kernels(self) -> bool:
    """True if layers use Triton kernels, which require an Ampere GPU."""
    return (
      self.platform == 'gpu'
      and self.has_kernels
      and self.capability is not None
      and self.capability >= (8, 0)
    )


_target: contextvars.ContextVar[Target | None] = contextvars.ContextVar(
  'target', default=None
)
# Platform of the compiler, if it differs from the platform of the target.
_compiler_platform: contextvars.ContextVar[str | None] = contextvars.ContextVar(
  'compiler_platform', default=None
)


def current_target() -> Target:
  """Returns the properties of the device for which programs are traced.

  It is set by `compiling_for`, and otherwise describes the default device.
  """
  target = _target.get()
  if target is not None:
    return target
  platform = jax.default_backend()
  return Target(platform, _capability() if platform == 'gpu' else None)


# Do not split matmuls whose weights or gradients are sharded. By default,
# XLA:TPU converts them to loops of partial sums, which read the activations
# once for each device (docs/measured/compiled_steps.md).
_TPU_OPTIONS = {
  'xla_tpu_enable_windowed_einsum_for_all_gather': False,
  'xla_tpu_enable_windowed_einsum_for_reduce_scatter': False,
}


# Compute all matmuls with cuBLASLt, which adds biases and accumulates the
# gradients of several matmuls without additional kernels
# (docs/measured/compiled_steps.md).
_NVIDIA_OPTIONS = {
  'xla_gpu_enable_triton_gemm': False,
  'xla_gpu_enable_cublaslt': True,
}


# XLA:CPU uses a lower optimization level for models with fewer parameters. A
# step then compiles in two thirds of the time and is equally fast
# (docs/performance.md, Start-up).
_MAX_SMALL_MODEL_PARAMS = 4_000_000
_OPTIMIZATION_LEVEL = 'xla_backend_optimization_level'

# TPUs that have two cores per device.
_TWO_CORE_TPUS = ('TPU v4', 'TPU v5', 'TPU v5p')


def compiler_options(parameters: int | None = None) -> dict[str, bool | int]:
  """Returns the XLA options for a training step on the current target.

  If the compiler of a different platform is used, the function returns that
  platform's options. For GPUs and CPUs, options that XLA_FLAGS contains are
  omitted, so that XLA_FLAGS takes precedence.

  Args:
    parameters: Number of trained parameters, which affects the options only on
      CPUs. If None, the model is assumed to be large.
  """
  platform = _compiler_platform.get() or current_target().platform
  if platform == 'tpu':
    return dict(_TPU_OPTIONS)
  if platform == 'gpu' and current_target().has_bias_epilogues:
    return _without_xla_flags(_NVIDIA_OPTIONS)
  is_small = parameters is not None and parameters < _MAX_SMALL_MODEL_PARAMS
  if platform == 'cpu' and is_small:
    return _without_xla_flags({_OPTIMIZATION_LEVEL: 2})
  return {}


def deterministic_options() -> dict[str, bool]:
  """Returns XLA options that make repeated runs of a program bit-identical.

  By default, XLA adds scattered values in an arbitrary order on GPUs. CPUs and
  TPUs need no option.
  """
  if current_target().platform != 'gpu':
    return {}
  return {'xla_gpu_exclude_nondeterministic_ops': True}


def sdc_checker_options() -> dict[str, bool | int]:
  """Returns the XLA:TPU options that check for silent data corruption.

  Each part of a program runs twice, and the program halts if the results
  differ. TPUs with two cores per device use both cores. TPUs with one core run
  duplicated instructions.

  Raises:
    ConfigError: If the target is not a TPU.
  """
  check_supports_sdc_checker(current_target().platform)
  return {
    'xla_tpu_enable_sdc_checker': True,
    'xla_tpu_sdc_check_repeat_count': 1,
    'xla_tpu_sdc_check_halt_on_detection': True,
    'xla_tpu_sdc_checker_alternate_megacore_cores': True,
    'xla_tpu_sdc_replicate_llo': (
      jax.devices()[0].device_kind not in _TWO_CORE_TPUS
    ),
    # The test of the interconnect takes minutes in large jobs.
    'xla_tpu_ici_sdc_test_run_on_program_start': False,
  }


def check_supports_sdc_checker(platform: str) -> None:
  """Raises ConfigError if XLA has no data corruption check for a platform."""
  if platform != 'tpu':
    raise errors.ConfigError(
      'Trainer.xla_sdc_check is supported only on TPUs',
      got=platform,
      fix='Set Trainer.xla_sdc_check to False. Trainer.sdc_check_every '
      'supports all devices.',
    )


def single_run_options() -> dict[str, bool | int]:
  """Returns XLA options that reduce a program's compilation time.

  Use these options for programs that run once. On CPUs, optimization takes most
  of the compilation time. The results with and without the options are
  bit-identical.
  """
  platform = _compiler_platform.get() or current_target().platform
  if platform != 'cpu':
    return {}
  return _without_xla_flags({_OPTIMIZATION_LEVEL: 1})


def _without_xla_flags(
  options: Mapping[str, bool | int],
) -> dict[str, bool | int]:
  """Returns the options without those that XLA_FLAGS sets."""
  flags = environment_variables.read_xla_flags(os.environ)
  names = {flag.removeprefix('--').partition('=')[0] for flag in flags}
  return {name: options[name] for name in options if name not in names}


@contextlib.contextmanager
def compiling_for(target: Target, *, by: str | None = None) -> Iterator[None]:
  """Context in which programs are traced for a given target device.

  The context applies to the current thread. Functions that were jitted and
  traced outside of the context keep their implementation. Create them inside
  the context instead.

  Args:
    target: Target device for tracing.
    by: Platform whose compiler is used, 'cpu', 'gpu' or 'tpu'. If None, it is
      the platform of the target.
  """
  target_token = _target.set(target)
  compiler_token = _compiler_platform.set(by)
  try:
    yield
  finally:
    _compiler_platform.reset(compiler_token)
    _target.reset(target_token)


@functools.cache
def _capability() -> tuple[int, ...] | None:
  """Returns the default device's compute capability, or None without CUDA."""
  device = jax.devices()[0]
  if 'cuda' not in device.client.platform_version:
    return None
  return tuple(int(part) for part in device.compute_capability.split('.'))
