"""Warnings of a plan: unsplit arrays, missing memory, better settings."""

import math
from typing import TYPE_CHECKING, Any

from xlflax.planning import memory, plan_report, step_costs, step_time
from xlflax.training import param_tree, training_setup
from xlflax.training.devices import (
  accelerators,
  gpu_runtime,
  machine_topology,
  partitioning,
)

if TYPE_CHECKING:
  from xlflax import trainer as trainer_lib


# Bytes of an array that is worth a warning if every device holds it.
BIG = 64 * 2**20
# Attention kernels pad heads, and XLA pads sums over positions, to these.
_HEAD_MULTIPLE = 16
_ROW_MULTIPLE = 8
# FLOPs of a matmul that is worth a warning.
_BIG_MATMUL = 1e11
# Of a TPU's memory; XLA needs some, too. Runs on GPUs say how much they take.
_OF_TPUS = 0.9
_FIRST_BF16 = (8, 0)
# Bytes of a step below which no larger batch is advised.
_SMALL_STEP = 2**30
# Fraction of a step that a doubled batch has to save.
_WORTHWHILE = 0.01


def of_sharding(setup: training_setup.Setup, boxed: Any) -> list[str]:
  """Warns of dimensions that do not divide and of big unsplit arrays.

  Args:
    setup: of the run.
    boxed: its abstract parameters with their logical axes.
  """
  partitioner = setup.settings.partitioner
  parameters = param_tree.flatten_params(setup.factory.abstract_sharded.params)
  warnings, named = [], set()
  for kept_dimension in partitioner.kept_whole(boxed):
    leaf = parameters[kept_dimension.name]
    named.add(kept_dimension.name)
    if math.prod(leaf.sharding.shard_shape(leaf.shape)) * 4 >= BIG:
      warnings.append(_kept_whole(kept_dimension, leaf))
  if math.prod(partitioner.mesh.shape[a] for a in ('fsdp', 'tensor')) == 1:
    return warnings + _copies(setup)
  state = setup.factory.abstract_sharded
  optimizer_state = param_tree.flatten_params(
    {
      'optimizer': state.opt_state,
      'ema': state.ema,
      'objectives': state.objective_state,
    }
  )
  for name, leaf in (parameters | optimizer_state).items():
    size = memory.shard_bytes(leaf)
    if (
      leaf.sharding.is_fully_replicated
      and size >= BIG
      and not any(name.endswith(n.removeprefix('model/')) for n in named)
    ):
      warnings.append(
        f'{name} {list(leaf.shape)}: {plan_report.format_mebibytes(size)} whole on each device: no '
        'rule of Partitioner.rules splits any of its dimensions.'
      )
  return warnings


def _kept_whole(whole: partitioning.KeptWhole, leaf: Any) -> str:
  size = whole.shape[whole.dimension]
  common = math.gcd(size, whole.parts)
  if whole.logical == 'vocab':
    fix = f'set pad_vocab_size_multiple = {whole.parts} in the model'
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
    f'{whole.parts}, so {plan_report.format_mebibytes(memory.shard_bytes(leaf))} are on each '
    f'device: {fix}.'
  )


def _copies(setup: training_setup.Setup) -> list[str]:
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
  machine: machine_topology.Machine, total: float, *, accumulation: int
) -> list[str]:
  """Warns if a step does not fit into what a run may use of a device."""
  accelerator = machine.accelerator
  if accelerator is None:
    return []
  share, why = _OF_TPUS, ''
  if accelerator.platform == 'gpu':
    share, why = gpu_runtime.memory_fraction(), f', {gpu_runtime.MEMORY}'
  if total <= _usable_memory(accelerator):
    return []
  return [
    f'A step takes {_gib(total)} on each device; a run may use '
    f'{_gib(share * accelerator.memory)} of the {_gib(accelerator.memory)} of '
    f'a {accelerator.name} ({share:.0%}{why}): raise '
    f'accumulation (now {accumulation}), lower the batch size, set '
    "remat = 'minimal', 'narrow' or 'full', or split more by Partitioner.fsdp."
  ]


def _usable_memory(accelerator: accelerators.Accelerator) -> float:
  """Returns the bytes of a device that a run may use."""
  fraction = _OF_TPUS
  if accelerator.platform == 'gpu':
    fraction = gpu_runtime.memory_fraction()
  return fraction * accelerator.memory


def advise_batch(
  machine: machine_topology.Machine,
  *,
  total: float,
  state: float,
  seconds: float,
  update_seconds: float,
) -> list[str]:
  """Advises a larger batch if memory allows it and tokens become cheaper.

  The update of the parameters takes the same time for every batch size, and
  all memory but the state is proportional to the batch size. The advised batch
  is the smallest that another doubling would make cheaper by less than 1 %.

  Args:
    machine: Machine that is planned for.
    total: Peak of memory, in bytes of one device.
    state: Bytes of the train state on one device.
    seconds: Estimated time of a step.
    update_seconds: Estimated time of the update in it.
  """
  accelerator = machine.accelerator
  if accelerator is None or total < _SMALL_STEP:
    return []
  usable = _usable_memory(accelerator)
  factor = 1
  while (
    state + 2 * factor * (total - state) <= usable
    and update_seconds / (2 * factor) >= _WORTHWHILE * seconds
  ):
    factor *= 2
  if factor == 1:
    return []
  saved = update_seconds * (1 - 1 / factor)
  return [
    f'A step uses {_gib(total)} of the {_gib(usable)} of device memory that a '
    f'run may use. A batch that is {factor} times as large needs about '
    f'{_gib(state + factor * (total - state))} and takes {saved * 1e3:,.1f} '
    f'ms ({saved / seconds:.0%}) less per batch of the present size, because '
    f'the update of the parameters ({update_seconds * 1e3:,.1f} ms) is shared. '
    'If you increase the batch size, adapt the learning rate and the number '
    'of steps.'
  ]


def of_machine(
  machine: machine_topology.Machine, settings: 'trainer_lib.Trainer'
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


def describe_misalignment(
  setup: training_setup.Setup,
  machine: machine_topology.Machine,
  costs: step_costs.StepCosts,
) -> list[str]:
  """Returns warnings about array shapes that make GPU matmuls slow.

  Args:
    setup: The run.
    machine: Machine that is planned for.
    costs: Costs of a step.
  """
  accelerator = machine.accelerator
  if accelerator is None or accelerator.platform != 'gpu':
    return []
  config: Any = setup.settings.model.config
  sizes = setup.model.config
  warnings: list[str] = []
  seconds: dict[str, float] = {}
  counts: dict[str, float] = {}
  for operation in costs.operations:
    if operation.misaligned:
      extra = step_time.operation_seconds(
        operation, accelerator, devices=machine.count
      ) - step_time.operation_seconds(
        operation, accelerator, devices=machine.count, aligned=True
      )
      for array in operation.misaligned[:1]:
        seconds[array] = seconds.get(array, 0.0) + extra * operation.count
        counts[array] = counts.get(array, 0.0) + operation.count
  for array, extra in seconds.items():
    if f'{sizes.table_size}' in array:
      fix = 'Set pad_vocab_size_multiple = 128 in the model.'
    else:
      fix = (
        'Choose multiples of 8 for hidden_dim, mlp_dim and the size of a head '
        f'({config.dim_per_head}).'
      )
    warnings.append(
      f'{counts[array]:,.0f} matmuls read or write {array}, whose rows are '
      'not a multiple of 16 bytes: they run at '
      f'{step_time.MISALIGNED_FRACTION:.0%} of the rate of aligned matmuls '
      f'({extra * 1e3:,.1f} ms per step). {fix}'
    )
  head_dim = config.dim_per_head
  uses_kernel = any(
    o.kind is step_costs.Kind.ATTENTION for o in costs.operations
  )
  if uses_kernel and head_dim % _HEAD_MULTIPLE:
    warnings.append(
      f'The size of an attention head, {head_dim}, is not a multiple of '
      f'{_HEAD_MULTIPLE}: attention kernels pad it. Choose hidden_dim and '
      'num_heads so that hidden_dim / num_heads is a multiple.'
    )
  rows = {
    o.rows
    for o in costs.operations
    if o.part == 'head and loss'
    and o.phase == 'forward'
    and o.flops > _BIG_MATMUL
    and o.rows % (_ROW_MULTIPLE * machine.count)
  }
  warnings += [
    f'The head scores {count / machine.count:,.0f} positions per device, not a '
    f'multiple of {_ROW_MULTIPLE}: the gradient of the bias needs an additional '
    'pass over the logits. Change the batch size, the length or the fraction '
    'of masked tokens.'
    for count in sorted(rows)
  ]
  return warnings


def _gib(size: float) -> str:
  return f'{size / 2**30:,.1f} GiB'
