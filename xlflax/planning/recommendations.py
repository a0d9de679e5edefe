"""Warnings and recommendations about the estimated costs of a run.

Warnings are about sharding, memory and unsupported dtypes. Recommendations are
about faster settings.
"""

import collections
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from xlflax.planning import memory, plan_report, step_costs, step_time
from xlflax.training import param_tree, training_setup
from xlflax.training.devices import gpu_runtime, machine_topology, partitioning

if TYPE_CHECKING:
  from xlflax import trainer


# Minimum size in bytes of a replicated array that causes a warning.
MIN_WARNED_BYTES = 64 * 2**20
# Attention kernels pad heads, and XLA pads sums over positions, to multiples of
# these sizes.
_HEAD_MULTIPLE = 16
_ROW_MULTIPLE = 8
# Minimum fraction of a step's computation time for which a shape is reported.
_MIN_REPORTED_FRACTION = 0.01
# Fraction of a TPU's memory that a run may use, because XLA needs some, too.
# For GPUs, the fraction is a setting of the run.
_TPU_MEMORY_FRACTION = 0.9
_FIRST_BF16 = (8, 0)  # First compute capability with bfloat16 arithmetic.
# Memory of a step, in bytes, below which no larger batch is advised.
_MIN_STEP_BYTES = 2**30
# Minimum fraction of a step's time that a doubled batch must save.
_MIN_SAVED_FRACTION = 0.01


def describe_sharding(setup: training_setup.Setup, boxed: Any) -> list[str]:
  """Returns warnings about parameter dimensions or arrays that are not sharded.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    boxed: Abstract parameters of the run, boxed with their logical axes.
  """
  partitioner = setup.settings.partitioner
  parameters = param_tree.flatten_params(setup.factory.abstract_sharded.params)
  warnings, named = [], set()
  for kept_dimension in partitioner.kept_whole(boxed):
    leaf = parameters[kept_dimension.name]
    named.add(kept_dimension.name)
    if math.prod(leaf.sharding.shard_shape(leaf.shape)) * 4 >= MIN_WARNED_BYTES:
      warnings.append(_describe_kept_dimension(kept_dimension, leaf))
  if math.prod(partitioner.mesh.shape[a] for a in ('fsdp', 'tensor')) == 1:
    return warnings + _describe_replication(setup)
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
      and size >= MIN_WARNED_BYTES
      and not any(name.endswith(n.removeprefix('model/')) for n in named)
    ):
      warnings.append(
        f'{name} {list(leaf.shape)} is replicated on each device '
        f'({plan_report.format_mebibytes(size)}), because no rule of '
        'Partitioner.rules shards any of its dimensions.'
      )
  return warnings


def _describe_kept_dimension(
  dimension: partitioning.Unsharded, leaf: Any
) -> str:
  """Returns a warning about a dimension that its mesh axes do not divide."""
  size = dimension.shape[dimension.dimension]
  common = math.gcd(size, dimension.parts)
  if dimension.logical == 'vocab':
    fix = f'Set pad_vocab_size_multiple = {dimension.parts} in the model'
  elif dimension.axes == 'fsdp':
    fix = (
      f'Set fsdp = {common} and use data parallelism for the other devices, or '
      f'set tensor = {dimension.parts // common} and '
      "tensor_splits = 'parameters' to shard the state over the same number of "
      'devices'
    )
  else:
    fix = f'Set {dimension.axes} = {common}'
  shard_size = plan_report.format_mebibytes(memory.shard_bytes(leaf))
  return (
    f'{dimension.name} {list(dimension.shape)}: dimension '
    f'{dimension.dimension} ({dimension.logical}) of {size} is not divisible '
    f'by {dimension.axes} = {dimension.parts}. Each device stores '
    f'{shard_size}. {fix}.'
  )


def _describe_replication(setup: training_setup.Setup) -> list[str]:
  """Returns a warning if the complete state is replicated on all devices."""
  count = setup.settings.partitioner.mesh.size
  size = memory.bytes_per_device(setup.factory.abstract_sharded)
  if count == 1 or size < 2**30:
    return []
  return [
    f'The train state ({_gib(size)}) is replicated on each of {count} devices. '
    'Set Partitioner.fsdp to shard it.'
  ]


def describe_memory_shortage(
  machine: machine_topology.DeviceTopology, total: float, *, accumulation: int
) -> list[str]:
  """Returns a warning if a step needs more memory than the run may use.

  Args:
    machine: Machine for which costs are estimated.
    total: Peak memory that a step uses on one device, in bytes.
    accumulation: Number of gradient accumulation steps of the run. The warning
      mentions it.
  """
  accelerator = machine.accelerator
  if accelerator is None:
    return []
  fraction, source = _TPU_MEMORY_FRACTION, ''
  if accelerator.platform == 'gpu':
    fraction, source = gpu_runtime.memory_fraction(), f', {gpu_runtime.MEMORY}'
  if total <= fraction * accelerator.memory:
    return []
  return [
    f'A step needs {_gib(total)} on each device, but a run may use only '
    f'{_gib(fraction * accelerator.memory)} of the '
    f'{_gib(accelerator.memory)} of a {accelerator.name} '
    f'({fraction:.0%}{source}). Increase accumulation (now {accumulation}), '
    "decrease the batch size, set remat = 'minimal', 'save_hidden' or 'full', or "
    'increase Partitioner.fsdp.'
  ]


def usable_memory(machine: machine_topology.DeviceTopology) -> float | None:
  """Returns the usable memory of each device in bytes, or None for CPUs."""
  accelerator = machine.accelerator
  if accelerator is None:
    return None
  fraction = _TPU_MEMORY_FRACTION
  if accelerator.platform == 'gpu':
    fraction = gpu_runtime.memory_fraction()
  return fraction * accelerator.memory


def advise_batch(
  machine: machine_topology.DeviceTopology,
  *,
  total: float,
  state: float,
  seconds: float,
  update_seconds: float,
) -> list[str]:
  """Returns advice to increase the batch size if that saves time per token.

  The update of the parameters takes the same time for every batch size, and all
  memory but the state is proportional to the batch size. The advised batch size
  is the smallest for which another doubling would save less than 1 % of the
  time.

  Args:
    machine: Machine for which costs are estimated.
    total: Peak memory that a step uses on one device, in bytes.
    state: Bytes that the train state occupies on one device.
    seconds: Estimated time of a step in seconds.
    update_seconds: Estimated time of the parameter update in seconds.
  """
  usable = usable_memory(machine)
  if usable is None or total < _MIN_STEP_BYTES:
    return []
  factor = 1
  while (
    state + 2 * factor * (total - state) <= usable
    and update_seconds / (2 * factor) >= _MIN_SAVED_FRACTION * seconds
  ):
    factor *= 2
  if factor == 1:
    return []
  saved = update_seconds * (1 - 1 / factor)
  return [
    f'A step uses {_gib(total)} of the {_gib(usable)} of device memory that a '
    f'run may use. A batch that is {factor} times as large needs about '
    f'{_gib(state + factor * (total - state))} and takes {saved * 1e3:,.1f} '
    f'ms ({saved / seconds:.0%}) less per batch of the current size, because '
    f'the parameters are updated less often ({update_seconds * 1e3:,.1f} ms). '
    'If you increase the batch size, adapt the learning rate and the number '
    'of steps.'
  ]


def describe_dtype_support(
  machine: machine_topology.DeviceTopology, settings: 'trainer.Trainer'
) -> list[str]:
  """Returns warnings about dtypes that are slow on the target devices.

  Args:
    machine: Machine for which costs are estimated.
    settings: Settings of the run.
  """
  accelerator = machine.accelerator
  if (
    accelerator
    and accelerator.capability
    and accelerator.capability < _FIRST_BF16
    and settings.model.config.dtype == 'bfloat16'
  ):
    return [
      f'A {accelerator.name} has no bfloat16 arithmetic. The estimate uses '
      "the rates of float16, which dtype = 'bfloat16' does not reach."
    ]
  return []


def recommend_bfloat16(
  machine: machine_topology.DeviceTopology, settings: 'trainer.Trainer'
) -> list[str]:
  """Returns a recommendation if a GPU computes in float32.

  Args:
    machine: Machine for which costs are estimated.
    settings: Settings of the run.
  """
  accelerator = machine.accelerator
  if (
    accelerator
    and accelerator.platform == 'gpu'
    and settings.model.config.dtype == 'float32'
  ):
    return [
      'The model computes in float32. Pass '
      f'--gin.{type(settings.model.config).__name__}.dtype="\'bfloat16\'" to '
      'halve the memory of activations and to use the faster bfloat16 matmuls.'
    ]
  return []


def describe_misalignment(
  setup: training_setup.Setup,
  machine: machine_topology.DeviceTopology,
  costs: step_costs.StepCosts,
) -> list[str]:
  """Returns recommendations about array shapes that make GPU matmuls slow.

  A shape is reported if it takes at least 1 % of the step's computation time.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    machine: Machine for which costs are estimated.
    costs: Costs of a step, summed over all devices.
  """
  accelerator = machine.accelerator
  if accelerator is None or accelerator.platform != 'gpu':
    return []
  time = step_time.estimate_time(costs, machine, collections.Counter())
  min_seconds = _MIN_REPORTED_FRACTION * time.computation
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
    if extra < min_seconds:
      continue
    if f'{sizes.table_size}' in array:
      fix = 'Set pad_vocab_size_multiple = 128 in the model.'
    else:
      fix = (
        'Choose multiples of 8 for hidden_dim, mlp_dim and the head size '
        f'({config.dim_per_head}).'
      )
    warnings.append(
      f'The rows of {array} are not a multiple of 16 bytes. Matmuls that read '
      f'or write such rows ({counts[array]:,.0f} per step) are estimated to '
      f'reach {step_time.MISALIGNED_FRACTION:.0%} of the rate of aligned '
      f'matmuls, which takes {extra * 1e3:,.1f} ms more per step. {fix}'
    )
  head_dim = config.dim_per_head
  uses_kernel = any(
    o.kind is step_costs.Kind.ATTENTION for o in costs.operations
  )
  if uses_kernel and head_dim % _HEAD_MULTIPLE:
    warnings.append(
      f'The size of an attention head, {head_dim}, is not a multiple of '
      f'{_HEAD_MULTIPLE}, so attention kernels pad it. Choose hidden_dim and '
      f'num_heads such that hidden_dim / num_heads is a multiple of '
      f'{_HEAD_MULTIPLE}.'
    )
  rows = {
    o.rows
    for o in costs.operations
    if o.part == 'head and loss'
    and o.phase == 'forward'
    and o.rows % (_ROW_MULTIPLE * machine.count)
    and _logits_pass_seconds(o, setup, machine) >= min_seconds
  }
  warnings += [
    f'The head scores {count / machine.count:,.0f} positions per device, which '
    f'is not a multiple of {_ROW_MULTIPLE}. The gradient of the bias therefore '
    'needs an additional pass over the logits. Change the batch size, the '
    'length or the fraction of masked tokens.'
    for count in sorted(rows)
  ]
  return warnings


def _logits_pass_seconds(
  operation: step_costs.Operation,
  setup: training_setup.Setup,
  machine: machine_topology.DeviceTopology,
) -> float:
  """Returns the time in which a device reads its shard of the logits once."""
  itemsize = np.dtype(setup.settings.model.config.dtype).itemsize
  size = operation.rows * setup.model.config.table_size * itemsize
  read = step_costs.Operation(
    step_costs.Kind.MEMORY, 'reduce_sum', '', 'backward', bytes=size
  )
  assert machine.accelerator is not None
  return step_time.operation_seconds(
    read, machine.accelerator, devices=machine.count
  )


def _gib(size: float) -> str:
  """Formats a number of bytes in GiB."""
  return f'{size / 2**30:,.1f} GiB'
