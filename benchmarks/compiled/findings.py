"""Detection of patterns that waste time or memory in compiled programs."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.compiled.programs import (
  collectives,
  execution,
  hlo,
  kernels,
  traffic,
)
from xlflax.planning import plan_report
from xlflax.training import training_setup
from xlflax.training.devices import machine_topology

if TYPE_CHECKING:
  from xlflax import trainer


# Minimum sizes in bytes for a warning.
_MIN_ALL_REDUCE_BYTES = 100 * 10**6
_MIN_BYTES = 32 * 2**20
# Start of the warning about matmuls of unaligned arrays.
MISALIGNED = 'Matmuls of a vocabulary or of layers are not aligned'
_ALIGNMENT = 16
_CUBLAS = 'custom_call_target="__cublas'
_MAX_FINDINGS = 3
# With fewer readers, the reads may be those of a single layer.
_MIN_READERS = 6


def describe_findings(
  module: hlo.Module,
  run: execution.Run,
  setup: training_setup.Setup,
  machine: machine_topology.DeviceTopology,
) -> Iterator[str]:
  """Yields a description of each pattern that wastes time or memory.

  Args:
    module: Program that the target device's compiler produced.
    run: Counts and times from a simulated execution of the program.
    setup: Training setup from which the step was built.
    machine: Topology of the devices on which the program would run.
  """
  settings = setup.settings
  yield from _describe_all_reduces(run)
  yield from _describe_windowed_products(run)
  yield from _describe_scores(module, collect_row_lengths(settings))
  yield from _describe_repeated_reads(
    module, _num_layers(settings.model.config)
  )
  if settings.model.config.dtype == 'bfloat16':
    rows = max(dataset.batch_size for dataset in settings.datasets)
    rows = max(
      rows // (machine.count * settings.gradient_accumulation_steps), 1
    )
    lengths = collect_row_lengths(settings)
    yield from _describe_wide_arrays(
      module, {rows * length for length in lengths}
    )
  yield from _describe_padded_copies(module)
  if machine.platform == 'gpu':
    yield from _describe_misaligned_matmuls(module)
  yield from _describe_exposed_collectives(run)


def collect_row_lengths(settings: 'trainer.Trainer') -> set[int]:
  """Returns the sequence lengths that a run's datasets and objectives use."""
  dataset_lengths = {
    dataset.name: dataset.length for dataset in settings.datasets
  }
  objective_lengths = {
    entry.objective.longest_row(dataset_lengths[entry.dataset])
    for entry in settings.objectives.entries
  }
  return objective_lengths | set(dataset_lengths.values())


def _describe_all_reduces(run) -> Iterator[str]:
  """Describes all-reduces of large arrays."""
  for collective, count in run.exchanged.items():
    if collective.kind != collectives.ALL_REDUCE or (
      collective.bytes <= _MIN_ALL_REDUCE_BYTES
    ):
      continue
    yield (
      f'{count} x all-reduce of {collective.dtype}{list(collective.shape)}, '
      f'{plan_report.format_mebibytes(collective.bytes)}: every device receives the complete array '
      'although it may need only a shard. A sharding constraint on the gradient '
      'turns it into a reduce-scatter.'
    )


def _describe_windowed_products(run) -> Iterator[str]:
  """Describes matmuls that are computed as loops over partial sums."""
  if run.windowed:
    yield (
      f'{len(run.windowed)} matmuls are loops of partial sums '
      f'({sum(run.windowed.values()):,} iterations), which pass through memory. '
      'Gather the weights before the matmul.'
    )


def _iterate_kernels(module: hlo.Module) -> Iterator[tuple]:
  """Yields each kernel's computation and instruction."""
  fused = {
    name
    for computation in module.computations.values()
    for instruction in computation.instructions.values()
    for attribute, names in instruction.called.items()
    if attribute in ('calls', 'to_apply') and instruction.opcode != 'call'
    for name in names
  }
  for name, computation in module.computations.items():
    if name not in fused:
      for instruction in computation.instructions.values():
        if instruction.opcode not in traffic.FREE:
          yield computation, instruction


def _describe_scores(module, lengths) -> Iterator[str]:
  """Describes attention scores [..., T, S] that are written to memory."""
  size = max(
    (
      array.bytes
      for _, instruction in _iterate_kernels(module)
      for array in instruction.arrays
      if len(array.shape) in (3, 4)  # Stacked scores have more dimensions.
      and set(array.shape[-2:]) <= lengths
      and not array.on_chip
    ),
    default=0,
  )
  if size > _MIN_BYTES:
    yield (
      f'Attention writes its scores to memory, {plan_report.format_mebibytes(size)} for each layer '
      'and pass. Use a fused kernel.'
    )


def _num_layers(config) -> int:
  """Returns the number of encoder layers in a configuration."""
  return getattr(config, 'num_layers', 0) or config.num_encoder_layers


def _describe_repeated_reads(module, layers: int) -> Iterator[str]:
  """Describes arrays that unrolled layers repeatedly read in full."""
  reads: dict[str, tuple[float, int]] = {}
  for computation, value in _iterate_kernels(module):
    size = 0.0 if value.is_tuple else value.traffic
    if size > _MIN_BYTES:
      num_readers = _count_readers(module, computation, value)
      if num_readers >= max(_MIN_READERS, layers):
        array = value.arrays[0]
        reads[f'{array.dtype}{list(array.shape)}'] = size, num_readers
  largest = sorted(reads.items(), key=lambda item: -item[1][0] * item[1][1])
  for array_text, (size, num_readers) in largest[:_MAX_FINDINGS]:
    yield (
      f'{num_readers} kernels read the same {array_text}, {plan_report.format_mebibytes(size)}: Compute a mask or '
      'constant in each layer instead.'
    )


def _count_readers(module, computation, value) -> int:
  """Counts the kernels that read a value in full, directly or by bitcasts."""
  return sum(
    _count_readers(module, computation, user)
    if user.opcode == 'bitcast'
    else user.opcode not in traffic.FREE
    and traffic.count_operand_bytes(module, computation, user, value)
    >= value.bytes
    for user in computation.users[value.name]
  )


def _describe_wide_arrays(module, tokens: set[int]) -> Iterator[str]:
  """Describes float32 arrays with a row per token that kernels write."""
  sizes: dict[str, tuple[float, str]] = {}
  for _, instruction in _iterate_kernels(module):
    module_name = kernels.module_name(instruction.op_name)
    for array in (
      instruction.arrays if instruction.opcode in ('fusion', 'copy') else ()
    ):
      if (
        array.dtype == 'f32'
        and len(array.shape) > 1
        and not array.on_chip
        and any(
          math.prod(array.shape[:-1]) % num_tokens == 0 for num_tokens in tokens
        )
        and array.bytes > _MIN_BYTES
        and module_name != 'update'
      ):
        array_text = f'f32{list(array.shape)}'
        sizes[array_text] = (array.bytes, module_name)
  largest = sorted(sizes.items(), key=lambda item: -item[1][0])[:_MAX_FINDINGS]
  for array_text, (size, name) in largest:
    yield f'{name} writes {array_text}, {plan_report.format_mebibytes(size)}, in a bfloat16 model.'


def _describe_padded_copies(module) -> Iterator[str]:
  """Describes copies whose only purpose is to pad a matmul operand."""
  for computation, instruction in _iterate_kernels(module):
    fused_computation = next(module.called(instruction, 'calls'), None)
    root = fused_computation.root if fused_computation else instruction
    if root.opcode == 'pad' and instruction.bytes > _MIN_BYTES:
      source = next(iter(computation.operands(instruction)))
      yield (
        f'{source.arrays[0].dtype}{list(source.arrays[0].shape)} is copied to '
        f'be padded to {list(instruction.arrays[0].shape)}, {plan_report.format_mebibytes(instruction.bytes)}. To avoid '
        'the copy, choose a size that tiles (pad_vocab_size_multiple, a multiple '
        'of 64 rows).'
      )


def count_misaligned(module: hlo.Module) -> dict[str, int]:
  """Counts matmuls of large arrays whose row size is not divisible by 16 bytes.

  A GPU's tensor memory accelerator cannot load or store arrays with such rows.

  Args:
    module: Program that the GPU compiler produced.

  Returns:
    Map from an array, such as 'bf16[4928, 250002]', to the number of matmuls
    that use it.
  """
  counts: dict[str, int] = {}
  for computation, instruction in _iterate_kernels(module):
    if not _is_matmul(module, instruction):
      continue
    arrays = list(instruction.arrays)
    for operand in computation.operands(instruction):
      arrays += operand.arrays
    for text in {
      f'{array.dtype}{list(array.shape)}'
      for array in arrays
      if array.bytes > _MIN_BYTES and array.row_bytes % _ALIGNMENT
    }:
      counts[text] = counts.get(text, 0) + 1
  return counts


def _describe_misaligned_matmuls(module) -> Iterator[str]:
  """Describes matmuls with operands whose rows are not aligned."""
  counts = count_misaligned(module)
  if counts:
    described = ', '.join(f'{count} x {text}' for text, count in counts.items())
    yield (
      f'{MISALIGNED}: {described}. Rows that are not a multiple of 16 bytes '
      'take slow kernels. Pad the vocabulary (pad_vocab_size_multiple), or '
      'choose sizes that are multiples of 8.'
    )


def _is_matmul(module, instruction) -> bool:
  """Returns whether a kernel computes a matmul."""
  if instruction.opcode == 'custom-call':
    return _CUBLAS in instruction.attributes
  return instruction.opcode == 'dot' or any(
    inner.opcode == 'dot'
    for called in module.called(instruction, 'calls')
    for inner in called.instructions.values()
  )


def _describe_exposed_collectives(run) -> Iterator[str]:
  """Describes collectives for which devices have to wait."""
  waited = sum(run.exposed.values())
  if waited > 0.1 * run.seconds:
    collective, seconds = max(run.exposed.items(), key=lambda item: item[1])
    yield (
      f'Devices wait {waited / run.seconds:.0%} of a step for collectives, '
      f'most of it ({seconds * 1e3:.2f} ms) for {collective.kind} of '
      f'{collective.dtype}{list(collective.shape)}.'
    )
