"""The devices that a traced program is for, which choose between its forms."""

import contextlib
import contextvars
import functools
import os
from collections.abc import Iterator
from typing import NamedTuple

import jax

from xlflax.utils import errors


class Target(NamedTuple):
  """What the forms of a program depend on.

  Attributes:
    platform: 'cpu', 'gpu' or 'tpu'.
    capability: compute capability of an NVIDIA GPU, such as (9, 0); None for
      other devices.
  """

  platform: str
  capability: tuple[int, ...] | None = None


_compiling_for: contextvars.ContextVar[Target | None] = contextvars.ContextVar(
  'compiling_for', default=None
)
# The platform whose compiler is used, where it is not the target's.
_compiled_by: contextvars.ContextVar[str | None] = contextvars.ContextVar(
  'compiled_by', default=None
)


def current_target() -> Target:
  """Returns the target of `compiling_for`, else the default devices."""
  chosen = _compiling_for.get()
  if chosen is not None:
    return chosen
  platform = jax.default_backend()
  return Target(platform, _capability() if platform == 'gpu' else None)


# Products whose weights or gradients are split over devices stay whole. By
# default XLA:TPU makes loops of partial sums of them, which read activations
# once for each device (docs/performance.md).
_TPU_OPTIONS = {
  'xla_tpu_enable_windowed_einsum_for_all_gather': False,
  'xla_tpu_enable_windowed_einsum_for_reduce_scatter': False,
}


# Of models with fewer parameters XLA:CPU optimizes a step less: it compiles in
# two thirds of the time and is as fast (docs/performance.md, Start-up).
_SMALL = 4_000_000
_CPU_LEVEL = 'xla_backend_optimization_level'

# Kinds of TPUs of which a device has two cores.
_TWO_CORES = ('TPU v4', 'TPU v5', 'TPU v5p')


def compiler_options(parameters: int | None = None) -> dict[str, bool | int]:
  """Returns the options of XLA that a step on the current target gets.

  They are the compiler's that is used: that of CPUs, where it stands in.

  Args:
    parameters: how many are trained, which matters on CPUs; None: many.
  """
  platform = _compiled_by.get() or current_target().platform
  if platform == 'tpu':
    return dict(_TPU_OPTIONS)
  small = parameters is not None and parameters < _SMALL
  return _cpu_level(2) if platform == 'cpu' and small else {}


def repeatable_options() -> dict[str, bool]:
  """What a program needs to give the same bits whenever it runs again.

  On GPUs XLA otherwise adds up scattered values in any order. CPUs and TPUs
  need nothing.
  """
  if current_target().platform != 'gpu':
    return {}
  return {'xla_gpu_exclude_nondeterministic_ops': True}


def checker_options() -> dict[str, bool | int]:
  """Has XLA:TPU run each part of a program twice, and halt if they differ.

  Chips with two cores for a device run it on either; those with one core run
  duplicated instructions.

  Raises:
    ConfigError: the target is no TPU.
  """
  check_has_checker(current_target().platform)
  return {
    'xla_tpu_enable_sdc_checker': True,
    'xla_tpu_sdc_check_repeat_count': 1,
    'xla_tpu_sdc_check_halt_on_detection': True,
    'xla_tpu_sdc_checker_alternate_megacore_cores': True,
    'xla_tpu_sdc_replicate_llo': jax.devices()[0].device_kind not in _TWO_CORES,
    # A test of the links, which takes minutes in large jobs.
    'xla_tpu_ici_sdc_test_run_on_program_start': False,
  }


def check_has_checker(platform: str) -> None:
  """Raises ConfigError where XLA has no checker of its own."""
  if platform != 'tpu':
    raise errors.ConfigError(
      'XLA has no checker of silent data corruption on these devices',
      got=platform,
      expected='TPUs',
      where='Trainer.xla_checker',
      fix='leave it out; Trainer.replay_every alone works everywhere',
    )


def options_of_one_run() -> dict[str, int]:
  """What XLA is told of a program that runs once: to be quick about it.

  On CPUs optimizing takes most of its compilation. The results are the same,
  bit by bit.
  """
  platform = _compiled_by.get() or current_target().platform
  return _cpu_level(1) if platform == 'cpu' else {}


def _cpu_level(level: int) -> dict[str, int]:
  """Of optimization, from 0 to 3, unless XLA_FLAGS name one."""
  named = _CPU_LEVEL in os.environ.get('XLA_FLAGS', '')
  return {} if named else {_CPU_LEVEL: level}


@contextlib.contextmanager
def compiling_for(target: Target, *, by: str | None = None) -> Iterator[None]:
  """Traces programs for devices other than the default ones.

  It holds for this thread. Functions that were jitted and traced outside keep
  their forms, so make them inside.

  Args:
    target: the devices.
    by: platform of the compiler that stands in for theirs; None: it is theirs.
  """
  token = _compiling_for.set(target)
  compiler = _compiled_by.set(by)
  try:
    yield
  finally:
    _compiled_by.reset(compiler)
    _compiling_for.reset(token)


@functools.cache
def _capability() -> tuple[int, ...] | None:
  """Compute capability of the default device; None if it is not CUDA."""
  device = jax.devices()[0]
  if 'cuda' not in device.client.platform_version:
    return None
  return tuple(int(part) for part in device.compute_capability.split('.'))
