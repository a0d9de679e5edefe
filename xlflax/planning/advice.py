"""Warnings of a plan: unsplit arrays, missing memory, better settings."""

import math
from typing import Any

from xlflax.planning import memory, report
from xlflax.training import params
from xlflax.training import settings as settings_lib
from xlflax.training import setup as setup_lib
from xlflax.training.devices import gpu_runtime, machines, partitioning

# Smaller arrays may be on every device.
BIG = 2**20
# Of a TPU's memory; XLA needs some, too. Runs on GPUs say how much they take.
_OF_TPUS = 0.9
_FIRST_BF16 = (8, 0)


def of_sharding(setup: setup_lib.Setup, boxed: Any) -> list[str]:
  """Warns of dimensions that do not divide and of big unsplit arrays.

  Args:
    setup: of the run.
    boxed: its abstract parameters with their logical axes.
  """
  partitioner = setup.settings.partitioner
  parameters = params.names(setup.factory.abstract_sharded.params)
  found, named = [], set()
  for whole in partitioner.kept_whole(boxed):
    leaf = parameters[whole.name]
    named.add(whole.name)
    if math.prod(leaf.sharding.shard_shape(leaf.shape)) * 4 >= BIG:
      found.append(_kept_whole(whole, leaf))
  if math.prod(partitioner.mesh.shape[a] for a in ('fsdp', 'tensor')) == 1:
    return found + _copies(setup)
  state = setup.factory.abstract_sharded
  others = params.names(
    {
      'optimizer': state.opt_state,
      'ema': state.ema,
      'objectives': state.objective_state,
    }
  )
  for name, leaf in (parameters | others).items():
    size = memory.shard_bytes(leaf)
    if (
      leaf.sharding.is_fully_replicated
      and size >= BIG
      and not any(name.endswith(n.removeprefix('model/')) for n in named)
    ):
      found.append(
        f'{name} {list(leaf.shape)}: {report.mebibytes(size)} whole on each device: no '
        'rule of Partitioner.rules splits any of its dimensions.'
      )
  return found


def _kept_whole(whole: partitioning.KeptWhole, leaf: Any) -> str:
  size = whole.shape[whole.dimension]
  common = math.gcd(size, whole.parts)
  if whole.logical == 'vocab':
    fix = f'set vocab_multiple = {whole.parts} in the model'
  elif whole.axes == 'fsdp':
    fix = (
      f'take fsdp = {common}, and data for the rest; or tensor = '
      f"{whole.parts // common} with tensor_splits = 'parameters' to "
      'split the state over as many devices'
    )
  else:
    fix = f'take {whole.axes} = {common}'
  return (
    f'{whole.name} {list(whole.shape)}: dimension {whole.dimension} '
    f'({whole.logical}) of {size} is not divisible by {whole.axes} = '
    f'{whole.parts}, so {report.mebibytes(memory.shard_bytes(leaf))} are on each '
    f'device: {fix}.'
  )


def _copies(setup: setup_lib.Setup) -> list[str]:
  """Warns if every device holds all of the state."""
  count = setup.settings.partitioner.mesh.size
  size = memory.per_device(setup.factory.abstract_sharded)
  if count == 1 or size < 2**30:
    return []
  return [
    f'Parameters and optimizer, {_gib(size)}, are whole on each of '
    f'{count} devices: Partitioner.fsdp splits them.'
  ]


def of_memory(
  machine: machines.Machine, total: float, *, accumulation: int
) -> list[str]:
  """Warns if a step does not fit into what a run may use of a device."""
  accelerator = machine.accelerator
  if accelerator is None:
    return []
  share, why = _OF_TPUS, ''
  if accelerator.platform == 'gpu':
    share, why = gpu_runtime.share_of_memory(), f', {gpu_runtime.MEMORY}'
  if total <= share * accelerator.memory:
    return []
  return [
    f'A step takes {_gib(total)} on each device; a run may use '
    f'{_gib(share * accelerator.memory)} of the {_gib(accelerator.memory)} of '
    f'a {accelerator.name} ({share:.0%}{why}): raise '
    f'accumulation (now {accumulation}), lower the batch size, set '
    "remat = 'minimal', 'narrow' or 'full', or split more by Partitioner.fsdp."
  ]


def of_machine(
  machine: machines.Machine, settings: settings_lib.Settings
) -> list[str]:
  """Warns of what the devices cannot do."""
  accelerator = machine.accelerator
  if (
    accelerator
    and accelerator.capability
    and accelerator.capability < _FIRST_BF16
    and settings.model.config.dtype == 'bfloat16'
  ):
    return [
      f'A {accelerator.name} has no bfloat16 arithmetic: the rates are '
      "those of float16, which dtype = 'bfloat16' does not reach."
    ]
  if (
    accelerator
    and accelerator.platform == 'gpu'
    and settings.model.config.dtype == 'float32'
  ):
    return [
      "dtype = 'float32': products run at half the rate at most, and "
      "activations take twice the memory of dtype = 'bfloat16'."
    ]
  return []


def of_loops(unknown: int) -> list[str]:
  return (
    [
      f'Nothing says how often {unknown} loops run: what is in them '
      'counts once.'
    ]
    if unknown
    else []
  )


def _gib(size: float) -> str:
  return f'{size / 2**30:,.1f} GiB'
