"""The first contact with a device, for the commands that make it."""

import logging
from collections.abc import Callable
from typing import Any

from xlflax.foundation import errors


def of_run(settings: Any) -> None:
  """Before a run: the fastest correct form of attention, on GPUs and TPUs."""
  import jax

  from xlflax.training import announcement
  from xlflax.training.devices import first_contact

  config = settings.model.config
  if jax.default_backend() == 'cpu':
    return
  _measure(lambda line: logging.info('This device: %s.', line))
  if not hasattr(config, 'attention_backend'):
    return
  stream = max(settings.streams, key=lambda stream: stream.length)
  rows = stream.batch_size // settings.partitioner.mesh.size
  groups = getattr(config, 'num_kv_heads', None) or config.num_heads
  shapes = first_contact.Shapes(
    max(rows // settings.accumulation, 1),
    config.num_heads,
    groups,
    announcement.case(settings),
  )
  first_contact.meet(
    shapes,
    jax.config.jax_compilation_cache_dir,  # type: ignore[attr-defined]
    report=lambda line: logging.info('Attention on this device: %s.', line),
  )


def _measure(report: Callable[[str], None]) -> None:
  """Links by a ring of the processes; rates beside those of data sheets."""
  import jax

  from xlflax.training.devices import accelerators, rates
  from xlflax.training.processes import ring

  ring.meet(report=report)
  kind = jax.devices()[0].device_kind
  rates.meet(accelerators.of_kind(kind), report=report)


def show() -> int:
  """Prints the devices' rates, and what each form does at XLM-R base's shapes; 2 if one is wrong."""
  import jax

  from xlflax.models import targets
  from xlflax.models.attention import attention
  from xlflax.training.devices import first_contact

  target = targets.current()
  if target.platform == 'cpu':
    raise errors.ConfigError(
      'There is no device to meet',
      got='a CPU',
      expected='a GPU or a TPU',
      where='--devices',
      fix='run it where the device is',
    )
  _measure(print)
  case = attention.Case(
    'bfloat16', 64, 512, True, 0.1, target.capability, platform=target.platform
  )
  found = first_contact.meet(
    first_contact.Shapes(64, 12, 12, case),
    jax.config.jax_compilation_cache_dir,  # type: ignore[attr-defined]
    report=print,
  )
  return 2 if any(one['problem'] for one in found.values()) else 0
