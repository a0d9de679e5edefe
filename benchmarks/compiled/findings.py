"""What a compiled program shows that costs time or memory for nothing."""

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
from xlflax.training import training_setup as setup_lib
from xlflax.training.devices import machine_topology

if TYPE_CHECKING:
  from xlflax import trainer as trainer_lib


# Bytes from which on a warning is worth reading.
_MIN_ALL_REDUCE_BYTES = 100 * 10**6
_MIN_BYTES = 32 * 2**20
# The start of warnings about matmuls whose arrays are not aligned.
MISALIGNED = 'Matmuls of a vocabulary or of layers are not aligned'
_ALIGNMENT = 16
_CUBLAS = 'custom_call_target="__cublas'
_MAX_FINDINGS = 3
# Few layers look like the kernels of one layer.
_MIN_READERS = 6


def describe_findings(
  module: hlo.Module,
  run: execution.Run,
  setup: setup_lib.Setup,
  machine: machine_topology.DeviceTopology,
) -> Iterator[str]:
  """Yields a line for each finding.

  Args:
    module: the program that the target's compiler made.
    run: of it.
    setup: what the step was made from.
    machine: of the run.
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


def collect_row_lengths(settings: 'trainer_lib.Trainer') -> set[int]:
  """Returns the lengths of rows of datasets and of what objectives compute."""
  found = {dataset.name: dataset.length for dataset in settings.datasets}
  made = {
    entry.objective.longest_row(found[entry.dataset])
    for entry in settings.objectives.entries
  }
  return made | set(found.values())


def _describe_all_reduces(run) -> Iterator[str]:
  for collective, times in run.exchanged.items():
    if collective.kind != collectives.ALL_REDUCE or (
      collective.bytes <= _MIN_ALL_REDUCE_BYTES
    ):
      continue
    yield (
      f'{times} x all-reduce of {collective.dtype}{list(collective.shape)}, '
      f'{plan_report.format_mebibytes(collective.bytes)}: every device gets all of an array of which '
      'it may need its part; a sharding constraint on the gradient makes it '
      'a reduce-scatter.'
    )


def _describe_windowed_products(run) -> Iterator[str]:
  if run.windowed:
    yield (
      f'{len(run.windowed)} products are loops of partial sums '
      f'({sum(run.windowed.values()):,} rounds) that pass through memory: '
      'gather the weights before the product.'
    )


def _iterate_kernels(module: hlo.Module) -> Iterator[tuple]:
  """Yields (computation, instruction) of all that runs as a kernel."""
  fused = {
    name
    for computation in module.computations.values()
    for i in computation.instructions.values()
    for kind, names in i.called.items()
    if kind in ('calls', 'to_apply') and i.opcode != 'call'
    for name in names
  }
  for name, computation in module.computations.items():
    if name not in fused:
      for instruction in computation.instructions.values():
        if instruction.opcode not in traffic.FREE:
          yield computation, instruction


def _describe_scores(module, lengths) -> Iterator[str]:
  """Arrays of [..., T, S] that are written out."""
  size = max(
    (
      array.bytes
      for _, i in _iterate_kernels(module)
      for array in i.arrays
      if len(array.shape) in (3, 4)  # more are stacks of them
      and set(array.shape[-2:]) <= lengths
      and not array.on_chip
    ),
    default=0,
  )
  if size > _MIN_BYTES:
    yield (
      f'Attention writes its scores to memory, {plan_report.format_mebibytes(size)} for each layer '
      'and pass: a fused kernel would not.'
    )


def _num_layers(config) -> int:
  return getattr(config, 'num_layers', 0) or config.num_encoder_layers


def _describe_repeated_reads(module, layers: int) -> Iterator[str]:
  """Arrays that kernels of unrolled layers read in full, again and again."""
  found: dict[str, tuple[float, int]] = {}
  for computation, value in _iterate_kernels(module):
    size = 0.0 if value.is_tuple else value.traffic
    if size > _MIN_BYTES:
      times = _count_readers(module, computation, value)
      if times >= max(_MIN_READERS, layers):
        array = value.arrays[0]
        found[f'{array.dtype}{list(array.shape)}'] = size, times
  most = sorted(found.items(), key=lambda item: -item[1][0] * item[1][1])
  for text, (size, times) in most[:_MAX_FINDINGS]:
    yield (
      f'{times} kernels read the same {text}, {plan_report.format_mebibytes(size)}: a mask or a '
      'constant that each layer could compute where it uses it.'
    )


def _count_readers(module, computation, value) -> int:
  return sum(
    _count_readers(module, computation, user)
    if user.opcode == 'bitcast'
    else user.opcode not in traffic.FREE
    and traffic.count_operand_bytes(module, computation, user, value)
    >= value.bytes
    for user in computation.users[value.name]
  )


def _describe_wide_arrays(module, tokens: set[int]) -> Iterator[str]:
  """float32 arrays with a row for each token, which kernels write."""
  found: dict[str, tuple[float, str]] = {}
  for _, i in _iterate_kernels(module):
    module_name = kernels.module_name(i.op_name)
    for array in i.arrays if i.opcode in ('fusion', 'copy') else ():
      if (
        array.dtype == 'f32'
        and len(array.shape) > 1
        and not array.on_chip
        and any(math.prod(array.shape[:-1]) % n == 0 for n in tokens)
        and array.bytes > _MIN_BYTES
        and module_name != 'update'
      ):
        text = f'f32{list(array.shape)}'
        found[text] = (array.bytes, module_name)
  most = sorted(found.items(), key=lambda item: -item[1][0])[:_MAX_FINDINGS]
  for text, (size, where) in most:
    yield f'{where} writes {text}, {plan_report.format_mebibytes(size)}, in a bfloat16 model.'


def _describe_padded_copies(module) -> Iterator[str]:
  """Copies that only pad an operand of a product to what tiles."""
  for computation, i in _iterate_kernels(module):
    fused = next(module.called(i, 'calls'), None)
    root = fused.root if fused else i
    if root.opcode == 'pad' and i.bytes > _MIN_BYTES:
      source = next(iter(computation.operands(i)))
      yield (
        f'{source.arrays[0].dtype}{list(source.arrays[0].shape)} is copied to '
        f'be padded to {list(i.arrays[0].shape)}, {plan_report.format_mebibytes(i.bytes)}: a size '
        'that tiles (pad_vocab_size_multiple, a multiple of 64 rows) spares that.'
      )


def count_misaligned(module: hlo.Module) -> dict[str, int]:
  """Counts matmuls by big arrays whose rows are no multiple of 16 bytes.

  The tensor memory accelerator of GPUs cannot load or store such rows.

  Args:
    module: The program that a GPU's compiler made.

  Returns:
    Array, such as 'bf16[4928, 250002]' -> number of matmuls that use it.
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
  counts = count_misaligned(module)
  if counts:
    described = ', '.join(f'{count} x {text}' for text, count in counts.items())
    yield (
      f'{MISALIGNED}: {described}. Rows that are not a multiple of 16 bytes '
      'take slow kernels. Pad the vocabulary (pad_vocab_size_multiple), or '
      'choose sizes that are multiples of 8.'
    )


def _is_matmul(module, instruction) -> bool:
  if instruction.opcode == 'custom-call':
    return _CUBLAS in instruction.attributes
  return instruction.opcode == 'dot' or any(
    inner.opcode == 'dot'
    for called in module.called(instruction, 'calls')
    for inner in called.instructions.values()
  )


def _describe_exposed_collectives(run) -> Iterator[str]:
  waited = sum(run.exposed.values())
  if waited > 0.1 * run.seconds:
    kind, seconds = max(run.exposed.items(), key=lambda item: item[1])
    yield (
      f'Devices wait {waited / run.seconds:.0%} of a step for collectives, '
      f'most of it ({seconds * 1e3:.2f} ms) for {kind.kind} of '
      f'{kind.dtype}{list(kind.shape)}.'
    )
