"""Operations in a training step, counted from its jaxpr.

The count does not depend on a compiler, so the cost of a step can be estimated
for any device. Matmuls and attention kernels are counted by their FLOPs. All
other operations are counted by the bytes that they read from and write to
memory if XLA fuses element-wise operations with the operations that consume
them:

- Matmuls, attention kernels, gathers, scatters, sorts and loops read and write
  whole arrays.
- Element-wise operations, broadcasts and layout changes are computed where
  their result is used. Arrays between them are never written.
- On NVIDIA GPUs, matmuls add a bias or the gradient from another operation to
  their result.
- A reduction reads the arrays that its operand is computed from, and writes
  its result. Reductions and element-wise operations that can run at the same
  time read a shared array once.
- A value that several operations use is written if many arrays must be read to
  compute it. Otherwise, the residual stream and its gradient would be computed
  from the outputs of all other layers.

All shapes are global shapes, that is, shapes of the complete arrays. In a
`shard_map`, the FLOPs and bytes of a shard are multiplied by the number of
devices, and each operation is counted once.
"""

import collections
import dataclasses
import enum
import functools
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlflax.training.devices import flops

# Contiguous dimensions must be a multiple of this for fast GPU matmuls.
ALIGNMENT = 16
# Matmuls with fewer FLOPs are not checked for alignment.
_MIN_CHECKED_FLOPS = 1e9


class Kind(enum.Enum):
  """The resource that limits an operation's speed."""

  MATMUL = 'matmul'
  ATTENTION = 'attention'
  MEMORY = 'memory'


@dataclasses.dataclass(frozen=True)
class Operation:
  """Costs of an operation that reads its operands from memory.

  Attributes:
    kind: Resource that limits the operation's speed.
    name: Name of the JAX primitive or of the Pallas kernel.
    part: Part of the model, such as 'MLP'.
    phase: Phase of the step: 'forward', 'backward' or 'update'.
    flops: Number of floating-point operations per execution of the operation.
    bytes: Number of bytes that each execution of the operation reads and
      writes.
    count: Number of times that the operation is executed in a step.
    rate: Speed of the matmul relative to a bfloat16 matmul.
    misaligned: Descriptions of the arrays whose contiguous dimension is not a
      multiple of 16 bytes.
    rows: Number of rows in the output of a matmul, or 0 for other operations.
  """

  kind: Kind
  name: str
  part: str
  phase: str
  flops: float = 0.0
  bytes: float = 0.0
  count: float = 1.0
  rate: float = 1.0
  misaligned: tuple[str, ...] = ()
  rows: int = 0


@dataclasses.dataclass(frozen=True)
class StepCosts:
  """FLOPs, memory traffic and peak memory of one step, summed over all devices.

  Attributes:
    operations: Operations of the step that read their operands from memory.
    peak_bytes: Largest total size in bytes of the arrays that exist at the same
      time, without the arguments of the step and the results that replace them.
  """

  operations: tuple[Operation, ...]
  peak_bytes: float

  def total(self, field: str) -> float:
    """Returns the total of a field, such as 'flops', over all operations.

    Operations that are executed several times count several times.
    """
    return sum(getattr(o, field) * o.count for o in self.operations)


def count_costs(
  jaxpr: Any,
  *,
  has_bias_epilogues: bool = False,
  has_accumulation: bool = False,
) -> StepCosts:
  """Computes the costs of a jaxpr, such as `jitted.trace(...).jaxpr.jaxpr`.

  Args:
    jaxpr: Traced step.
    has_bias_epilogues: Whether matmuls add a bias to their result in the same
      kernel.
    has_accumulation: Whether matmuls that compute gradients add another
      gradient to their result in the same kernel.
  """
  counter = _Counter(has_bias_epilogues, has_accumulation)
  arguments = [counter.new_argument(_size(v.aval)) for v in jaxpr.invars]
  constants = [counter.new_argument(_size(v.aval)) for v in jaxpr.constvars]
  results = counter.run(jaxpr, [*constants, *arguments], '', 1.0)
  for value, variable in zip(results, jaxpr.outvars, strict=True):
    counter.write(value, variable.aval, '', 1.0)
  return StepCosts(tuple(counter.operations()), counter.peak_bytes())


@dataclasses.dataclass(frozen=True)
class _Value:
  """An array of the program, in memory or computed where it is used.

  Attributes:
    reads: Mapping from the ids of arrays in memory to the number of bytes that
      are read from each array to compute the value.
    level: Number of kernels that must run one after the other before the value
      can be computed.
    in_memory: Whether the value is an array in memory or a view of one.
    is_scattered: Whether the array is a constant, such as zeros, into which a
      scatter or an update in place has written elements.
    is_product: Whether the array is the result of a matmul and is used only
      once.
    is_accumulated: Whether the array is the result of a matmul that also adds
      another array. XLA does not fuse a further addition of this array with a
      second matmul.
  """

  reads: dict[int, float]
  level: int
  in_memory: bool
  is_scattered: bool = False
  is_product: bool = False
  is_accumulated: bool = False


_NOTHING = _Value({}, 0, False)
# Views of an array in memory cost nothing.
_VIEWS = frozenset(
  (
    'reshape',
    'squeeze',
    'expand_dims',
    'transpose',
    'copy_p',
    'optimization_barrier',
    'sharding_constraint',
    'pvary',
    'stop_gradient',
  )
)
# A value with several uses is written if its operands have more bytes than this
# multiple of its own size. Values within one layer stay below the multiple.
_MAX_READ_RATIO = 6
# An array that is added to a matmul's result is a bias if it has fewer bytes
# than the result by this factor.
_MIN_ROWS = 8
_SLICES = frozenset(('slice', 'dynamic_slice', 'split'))
_UNFUSED = frozenset(
  (
    'conv_general_dilated',
    'sort',
    'top_k',
    'cumsum',
    'cumlogsumexp',
    'cummax',
    'cumprod',
    'while',
    'cond',
  )
)
_INLINED = ('jaxpr', 'call_jaxpr', 'fun_jaxpr')
# Matmuls between all queries and all keys in the kernels of
# `models.attention.fused`, whose loops have bounds that depend on the data.
_ATTENTION_MATMULS = {
  'attention_forward': 2,
  'attention_query_gradient': 3,
  'attention_memory_gradient': 4,
  'attention_gradients': 5,
  'attention_bias_gradient': 2,
}


class _Counter:
  """Walks a jaxpr in program order and collects its operations."""

  def __init__(self, has_bias_epilogues: bool, has_accumulation: bool) -> None:
    self._has_bias_epilogues = has_bias_epilogues
    self._has_accumulation = has_accumulation
    # Size of each array in memory, and the first and last equation between
    # which it exists. Arguments of the step have the size 0.
    self._sizes: list[float] = []
    self._first: list[int] = []
    self._last: list[int] = []
    self._clock = 0
    # Number of devices that execute the current jaxpr on shards of its arrays.
    self._num_shards = 1
    self._operations: list[Operation] = []
    # (level, arrays, part, phase, count) -> bytes of a fused kernel.
    self._fused: dict[tuple[Any, ...], float] = {}
    self._read: set[tuple[int, int]] = set()

  def _bytes(self, aval) -> float:
    """Returns the bytes of an array, summed over all devices."""
    return _size(aval) * self._num_shards

  def operations(self) -> list[Operation]:
    """Returns all operations that were counted so far."""
    fused = [
      Operation(Kind.MEMORY, 'fusion', part, phase, bytes=size, count=count)
      for (_, _, part, phase, count), size in self._fused.items()
    ]
    return self._operations + fused

  def peak_bytes(self) -> float:
    """Returns the largest total size of arrays that exist at the same time."""
    changes = np.zeros(self._clock + 2)
    np.add.at(changes, self._first, self._sizes)
    np.subtract.at(changes, np.array(self._last) + 1, self._sizes)
    return float(np.cumsum(changes).max())

  def new_argument(self, size: float) -> _Value:
    """Returns an array that represents an argument of the training step.

    `peak_bytes` does not count arguments, which stay in memory for the entire
    step.
    """
    value = self.new_array(size)
    self._sizes[-1] = 0.0
    return value

  def new_array(self, size: float, level: int = 0, scope: str = '') -> _Value:
    """Adds an array to the simulated memory and returns it.

    The results of optimizer updates need no memory, because they replace
    arguments of the step.
    """
    is_update = bool(scope) and _part_and_phase(scope)[1] == 'update'
    self._sizes.append(0.0 if is_update else size)
    self._first.append(self._clock)
    self._last.append(self._clock)
    return _Value({len(self._sizes) - 1: size}, level, True)

  def _use(self, value: _Value) -> None:
    """Extends the lifetime of the arrays that a value is computed from."""
    for array in value.reads:
      self._last[array] = self._clock

  def write(self, value: _Value, aval, scope: str, count: float) -> _Value:
    """Materializes a value as an array and counts the kernel that writes it."""
    if value.in_memory or not getattr(aval, 'shape', None):
      return value
    # Constants and random bits are computed where they are used.
    if not value.reads:
      return value
    self._add_fused(value, self._bytes(aval), scope, count)
    return self.new_array(self._bytes(aval), value.level + 1, scope)

  def _add_fused(self, value: _Value, written: float, scope, count) -> None:
    """Adds the memory traffic of an operation to a fused kernel."""
    key = (value.level, frozenset(value.reads), *_part_and_phase(scope), count)
    traffic = written
    self._use(value)
    for array, size in value.reads.items():
      if (array, value.level) not in self._read:
        self._read.add((array, value.level))
        traffic += size
    self._fused[key] = self._fused.get(key, 0.0) + traffic

  def run(
    self, jaxpr, arguments: Sequence[_Value], scope: str, count: float
  ) -> list[_Value]:
    """Counts the operations of a jaxpr and returns its output values."""
    values = dict(
      zip([*jaxpr.constvars, *jaxpr.invars], arguments, strict=True)
    )

    def read(atom) -> _Value:
      return _NOTHING if hasattr(atom, 'val') else values[atom]

    uses = _count_uses(jaxpr)
    for equation in jaxpr.eqns:
      self._clock += 1
      inputs = [read(atom) for atom in equation.invars]
      stack = str(equation.source_info.name_stack)
      name = f'{scope}/{stack}' if stack else scope
      results = self._equation(equation, inputs, name, count)
      results = [
        dataclasses.replace(
          self._write_shared(value, variable.aval, name, count),
          is_product=False,
        )
        if uses[variable] > 1
        else value
        for value, variable in zip(results, equation.outvars, strict=True)
      ]
      # Operands that were written to memory are not computed again.
      for atom, value in zip(equation.invars, inputs, strict=True):
        if not hasattr(atom, 'val'):
          values[atom] = value
      values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]

  def _equation(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts an equation and returns its results."""
    name = equation.primitive.name
    if name == 'scan':
      return self._scan(equation, inputs, scope, count)
    if name == 'pallas_call' or name.startswith('dot_product_attention'):
      return self._kernel(equation, inputs, scope, count)
    if name == 'dot_general':
      return self._matmul(equation, inputs, scope, count)
    if name == 'cond':
      return self._branches(equation, inputs, scope, count)
    if _is_reduction(name):
      merged = _merge(inputs)
      return [
        self.write(
          dataclasses.replace(merged, in_memory=False), v.aval, scope, count
        )
        if v.aval.shape
        else dataclasses.replace(merged, in_memory=False)
        for v in equation.outvars
      ]
    if inner := _inlined(equation):
      return self._call(equation, inner, inputs, scope, count)
    if name == 'gather':
      return self._gather(equation, inputs, scope, count)
    if name.startswith('scatter') or name == 'dynamic_update_slice':
      return self._update(equation, inputs, scope, count)
    if name in _UNFUSED:
      return self._unfused(equation, inputs, scope, count)
    return self._element_wise(equation, inputs, scope, count)

  def _element_wise(self, equation, inputs, scope, count) -> list[_Value]:
    """Returns the results of an operation that is computed where it is used."""
    name = equation.primitive.name
    if name == 'optimization_barrier':
      return [
        dataclasses.replace(
          self.write(value, v.aval, scope, count), is_accumulated=False
        )
        for value, v in zip(inputs, equation.outvars, strict=True)
      ]
    if name == 'add' and self._has_bias_epilogues:
      for product, bias in (inputs, inputs[::-1]):
        size = self._bytes(equation.outvars[0].aval)
        if product.is_product and sum(bias.reads.values()) * _MIN_ROWS <= size:
          return [dataclasses.replace(product, is_product=False)]
    if name == 'add_any' and self._has_accumulation:
      for i, product in enumerate(inputs):
        other = inputs[1 - i]
        if product.is_product and other.reads and not other.is_accumulated:
          return [self._accumulate(equation, inputs, i, scope, count)]
    if name in ('add', 'add_any') and any(v.reads for v in inputs):
      # XLA scatters into the other operand.
      other_values = [v for v in inputs if v.reads and not v.is_scattered]
      inputs = other_values or inputs
    merged = _merge(inputs)
    outputs = []
    for variable in equation.outvars:
      reads, in_memory = merged.reads, False
      if name in _VIEWS:
        in_memory = merged.in_memory
      elif name in _SLICES:
        size = self._bytes(variable.aval)
        reads = {array: min(bytes_, size) for array, bytes_ in reads.items()}
        in_memory = inputs[0].in_memory
      outputs.append(
        _Value(
          reads,
          merged.level,
          in_memory,
          is_product=in_memory and inputs[0].is_product,
          is_accumulated=in_memory and inputs[0].is_accumulated,
        )
      )
    return outputs

  def _accumulate(self, equation, inputs, i, scope, count) -> _Value:
    """Returns input i, a matmul's result to which the matmul adds an array.

    The time to read the other array is not counted, because large matmuls are
    limited by their arithmetic.
    """
    other = self.write(inputs[1 - i], equation.invars[1 - i].aval, scope, count)
    inputs[1 - i] = other
    self._use(other)
    level = max(inputs[i].level, other.level + 1)
    return dataclasses.replace(
      inputs[i], level=level, is_product=False, is_accumulated=True
    )

  def _write_shared(self, value: _Value, aval, scope: str, count) -> _Value:
    """Writes a value to memory if its operands have many more bytes."""
    is_update = _part_and_phase(scope)[1] == 'update'
    if is_update or sum(value.reads.values()) <= _MAX_READ_RATIO * self._bytes(
      aval
    ):
      return value
    return self.write(value, aval, scope, count)

  def _write_operands(self, equation, inputs, scope, count) -> None:
    """Replaces the inputs by arrays in memory."""
    for i, atom in enumerate(equation.invars):
      if inputs[i].reads:
        inputs[i] = self.write(inputs[i], atom.aval, scope, count)
        self._use(inputs[i])

  def _results(self, equation, inputs, scope) -> list[_Value]:
    """Returns new arrays in memory for the results of an equation."""
    level = 1 + max((value.level for value in inputs), default=0)
    return [
      self.new_array(self._bytes(v.aval), level, scope)
      for v in equation.outvars
    ]

  def _add(self, kind, name, scope, **fields) -> None:
    """Adds an operation."""
    part, phase = _part_and_phase(scope)
    self._operations.append(Operation(kind, name, part, phase, **fields))

  def _matmul(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts a matmul."""
    self._write_operands(equation, inputs, scope, count)
    arrays = [v.aval for v in (*equation.invars[:2], *equation.outvars)]
    (contracted, _), (batch, _) = equation.params['dimension_numbers']
    amount = flops.count_equation(equation) * self._num_shards
    rows = math.prod(
      size
      for i, size in enumerate(arrays[0].shape)
      if i not in contracted and i not in batch
    )
    self._add(
      Kind.MATMUL,
      'dot_general',
      scope,
      flops=amount,
      bytes=sum(map(self._bytes, arrays)),
      count=count,
      rate=_matmul_rate(arrays[:2]),
      misaligned=misaligned_arrays(equation)
      if amount >= _MIN_CHECKED_FLOPS
      else (),
      rows=rows * self._num_shards,
    )
    (result,) = self._results(equation, inputs, scope)
    return [dataclasses.replace(result, is_product=True)]

  def _kernel(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts an attention kernel or another Pallas kernel."""
    self._write_operands(equation, inputs, scope, count)
    name = str(equation.params.get('name') or equation.primitive.name)
    if (matmuls := _attention_matmuls(name)) is not None:
      query, key = (v.aval.shape for v in equation.invars[:2])
      is_heads_first = name.endswith(flops.HEADS_FIRST)
      kind, amount = (
        Kind.ATTENTION,
        2.0 * matmuls * math.prod(query) * key[2 if is_heads_first else 1],
      )
    else:
      amount = float(flops.count_kernel(equation))
      kind = Kind.MATMUL if amount else Kind.MEMORY
    amount *= self._num_shards
    arrays = [v.aval for v in (*equation.invars, *equation.outvars)]
    self._add(
      kind, name, scope, flops=amount, bytes=sum(map(self._bytes, arrays)),
      count=count,
    )  # fmt: skip
    return self._results(equation, inputs, scope)

  def _unfused(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts an operation that reads and writes complete arrays."""
    self._write_operands(equation, inputs, scope, count)
    arrays = [v.aval for v in (*equation.invars, *equation.outvars)]
    self._add(
      Kind.MEMORY,
      equation.primitive.name,
      scope,
      bytes=sum(map(self._bytes, arrays)),
      count=count,
    )
    return self._results(equation, inputs, scope)

  def _gather(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts a gather: the indices and the gathered elements."""
    self._write_operands(equation, inputs, scope, count)
    moved = self._bytes(equation.outvars[0].aval)
    size = 2 * moved + self._bytes(equation.invars[1].aval)
    self._add(Kind.MEMORY, 'gather', scope, bytes=size, count=count)
    return self._results(equation, inputs, scope)

  def _update(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts an update in place, which moves only the updated elements."""
    self._write_operands(equation, inputs, scope, count)
    is_scatter = equation.primitive.name.startswith('scatter')
    update = equation.invars[2 if is_scatter else 1].aval
    size = (3 if is_scatter else 2) * self._bytes(update)
    self._add(
      Kind.MEMORY, equation.primitive.name, scope, bytes=size, count=count
    )
    level = 1 + max((value.level for value in inputs), default=0)
    if not inputs[0].reads:  # The operand is a constant, such as zeros.
      (result,) = self._results(equation, inputs, scope)
      return [dataclasses.replace(result, is_scattered=True)]
    return [_Value(inputs[0].reads, level, True)]

  def _scan(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts a loop over layers or micro-batches.

    If all iterations are unrolled, XLA computes a stacked result where it is
    used. Otherwise, each iteration writes its part of the results.
    """
    self._write_operands(equation, inputs, scope, count)
    level = 1 + max((value.level for value in inputs), default=0)
    body, length = equation.params['jaxpr'].jaxpr, equation.params['length']
    is_unrolled = equation.params['unroll'] >= length
    arguments = [
      self.new_array(self._bytes(v.aval), level) if value.reads else _NOTHING
      for value, v in zip(inputs, body.invars, strict=True)
    ]
    constants = [
      self.new_array(self._bytes(v.aval), level) for v in body.constvars
    ]
    results = self.run(
      body, [*constants, *arguments], f'{scope}/while', count * length
    )
    for i, atom in enumerate(body.outvars):
      # A stacked result has one dimension more than that of an iteration.
      is_carry = atom.aval.ndim == equation.outvars[i].aval.ndim
      if is_carry or not is_unrolled:
        results[i] = self.write(
          results[i], atom.aval, f'{scope}/while', count * length
        )
    last = max((value.level for value in results), default=level)
    return [
      self.new_array(self._bytes(v.aval), last + 1) if value.reads else _NOTHING
      for value, v in zip(results, equation.outvars, strict=True)
    ]

  def _branches(self, equation, inputs, scope, count) -> list[_Value]:
    """Counts the branch with the most equations."""
    self._write_operands(equation, inputs, scope, count)
    branch = max(equation.params['branches'], key=lambda b: len(b.jaxpr.eqns))
    constants = [
      self.new_array(self._bytes(v.aval)) for v in branch.jaxpr.constvars
    ]
    results = self.run(branch.jaxpr, [*constants, *inputs[1:]], scope, count)
    return [
      self.write(value, v.aval, scope, count)
      for value, v in zip(results, equation.outvars, strict=True)
    ]

  def _call(self, equation, inner, inputs, scope, count) -> list[_Value]:
    """Counts the equations of a called jaxpr."""
    outer = self._num_shards
    if equation.primitive.name == 'shard_map':
      self._num_shards *= _num_manual_devices(equation)
    constants = [self.new_array(self._bytes(v.aval)) for v in inner.constvars]
    results = self.run(inner, [*constants, *inputs], scope, count)
    self._num_shards = outer
    return results


def _num_manual_devices(equation) -> int:
  """Returns the number of devices that execute the body of a `shard_map`."""
  sizes = dict(equation.params['mesh'].shape)
  return math.prod(sizes[axis] for axis in equation.params['newly_manual_axes'])


def _is_reduction(name: str) -> bool:
  """Returns whether a primitive reduces dimensions of its operands."""
  return name == 'reduce' or (
    name.startswith(('reduce_', 'arg')) and name != 'reduce_precision'
  )


def _count_uses(jaxpr) -> collections.Counter[Any]:
  """Returns the number of equations that use each variable of a jaxpr."""
  return collections.Counter(
    variable
    for equation in jaxpr.eqns
    for variable in {v for v in equation.invars if not hasattr(v, 'val')}
  )


def _merge(inputs: Sequence[_Value]) -> _Value:
  """Combines the inputs of an element-wise operation into its result."""
  arrays = [value for value in inputs if value.reads]
  if len(arrays) == 1:
    return arrays[0]
  reads: dict[int, float] = {}
  for value in arrays:
    for array, size in value.reads.items():
      reads[array] = max(reads.get(array, 0.0), size)
  return _Value(reads, max((v.level for v in arrays), default=0), False)


def _inlined(equation) -> Any:
  """Returns the jaxpr that an equation calls, or None."""
  for key in _INLINED:
    if (value := equation.params.get(key)) is not None:
      return getattr(value, 'jaxpr', value)
  return None


def _size(aval) -> float:
  """Returns the size in bytes of an array, which may contain random keys."""
  shape = getattr(aval, 'shape', ())
  itemsize = getattr(getattr(aval, 'dtype', None), 'itemsize', 4)
  return float(math.prod(shape) * itemsize)


def _attention_matmuls(name: str) -> int | None:
  """Returns the number of matmuls of an attention kernel, or None."""
  if name.startswith('dot_product_attention_fwd'):
    return 2
  if name.startswith('dot_product_attention_bwd'):
    return 5
  return _ATTENTION_MATMULS.get(name.removesuffix(flops.HEADS_FIRST))


def _matmul_rate(arrays) -> float:
  """Returns the rate of a matmul relative to bfloat16."""
  sizes = {np.dtype(array.dtype).itemsize for array in arrays}
  return {1: 2.0, 2: 1.0}.get(max(sizes), 0.5)


def misaligned_arrays(equation) -> tuple[str, ...]:
  """Describes the arrays of a matmul that are not aligned in memory.

  The size of their contiguous dimension is not a multiple of 16 bytes. Adjacent
  dimensions of the same role (batch, contracted, free) form one dimension of
  the matmul, and the last of these is contiguous.

  Args:
    equation: The `dot_general` equation of the matmul.
  """
  contracted, batch = equation.params['dimension_numbers']
  array_roles = []
  for i, atom in enumerate(equation.invars[:2]):
    roles = [
      'contracted' if j in contracted[i] else 'batch' if j in batch[i] else ''
      for j in range(len(atom.aval.shape))
    ]
    array_roles.append((atom.aval, roles))
  output = equation.outvars[0].aval
  num_batch = len(batch[0])
  num_left = num_batch + array_roles[0][1].count('')
  roles = [
    'batch' if j < num_batch else 'left' if j < num_left else 'right'
    for j in range(len(output.shape))
  ]
  array_roles.append((output, roles))
  return tuple(
    dict.fromkeys(
      f'{aval.dtype.name}{list(aval.shape)}'
      for aval, roles in array_roles
      if not _is_aligned(aval, roles)
    )
  )


def _is_aligned(aval, roles: Sequence[str]) -> bool:
  """Returns whether the contiguous dimension is aligned to ALIGNMENT bytes."""
  contiguous = 1
  for size, role in zip(reversed(aval.shape), reversed(roles), strict=True):
    if role != roles[-1]:
      break
    contiguous *= size
  if contiguous == math.prod(aval.shape):
    return True
  return contiguous * aval.dtype.itemsize % ALIGNMENT == 0


# Components of a name stack that are not modules: transformations, control
# flow and names of functions.
_NO_MODULE = re.compile(
  r'[(.]|->|^(while|body|cond|closed_call|branch_\d+_fun|checkpoint|'
  r'rematted_computation|remat\d*|shard_map|pjit|scan|pallas_call)$'
)
# The loop over layers, which is inside of the differentiated function.
_LAYERS = re.compile(r'jvp\(.*/while')
# Parts of the model by pattern of the module name. The first match counts.
_PARTS = {
  r'norm(_\d+)?(/layer_norm_gradient)?$': 'norms',
  r'attention': 'attention',
  r'mlp|feed_forward|experts': 'MLP',
  r'embed': 'embeddings',
  r'(^|/)(layers|encoder|decoder)': 'residuals and dropout',
  r'^(head|objective|output|logits)': 'head and loss',
}


@functools.lru_cache(maxsize=8192)
def _part_and_phase(scope: str) -> tuple[str, str]:
  """Returns the model part and the step phase to which a name stack belongs."""
  if 'jvp(' not in scope:
    return 'optimizer', 'update'
  phase = 'backward' if 'transpose(' in scope else 'forward'
  modules = [p for p in scope.split('/') if p and not _NO_MODULE.search(p)]
  if not modules and _LAYERS.search(scope):
    return 'residuals and dropout', phase
  module = '/'.join(modules) or 'objective'
  part = next((p for r, p in _PARTS.items() if re.search(r, module)), 'others')
  return part, phase
