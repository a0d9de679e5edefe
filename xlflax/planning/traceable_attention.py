"""Replacement of attention backends that a CPU cannot trace or compile."""

import dataclasses
from typing import TYPE_CHECKING, Any

from xlflax.models import encoder_config
from xlflax.models.attention import attention_backends
from xlflax.planning import compilers
from xlflax.training import run_header
from xlflax.training.devices import machine_topology
from xlflax.utils import errors

if TYPE_CHECKING:
  from xlflax import trainer


_Backend = encoder_config.AttentionBackend


def with_traceable_attention(
  settings: 'trainer.Trainer', machine: machine_topology.DeviceTopology
) -> 'trainer.Trainer':
  """Replaces a run's cuDNN attention with fused or plain XLA attention.

  JAX traces cuDNN attention only if cuDNN is installed. The fused kernels,
  which are used instead, have the same estimated cost.

  Args:
    settings: Settings of the run.
    machine: Machine for which costs are estimated.

  Raises:
    ConfigError: If the configured backend cannot be used on the machine.
  """
  config: Any = settings.model.config
  if not hasattr(config, 'attention_backend'):
    return settings
  case = run_header.attention_case(settings, compilers.target_of(machine))
  if attention_backends.resolve_backend(config.attention_backend, case) is not (
    _Backend.CUDNN
  ):
    return settings
  try:
    backend = attention_backends.resolve_backend(_Backend.FUSED, case)
  except errors.ConfigError:
    backend = _Backend.XLA
  return _with_backend(settings, backend)


def with_plain_attention(settings: 'trainer.Trainer') -> 'trainer.Trainer':
  """Returns a run's settings with XLA attention, which compiles on CPUs."""
  if not hasattr(settings.model.config, 'attention_backend'):
    return settings
  return _with_backend(settings, _Backend.XLA)


def _with_backend(
  settings: 'trainer.Trainer', backend: _Backend
) -> 'trainer.Trainer':
  """Returns the settings with another attention backend."""
  config: Any = settings.model.config
  config = dataclasses.replace(config, attention_backend=backend)
  return dataclasses.replace(
    settings, model=settings.model.clone(config=config)
  )
