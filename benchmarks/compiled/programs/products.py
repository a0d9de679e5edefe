"""FLOPs of matmuls in HLO modules: dots, convolutions and library calls."""

import math
import re

from benchmarks.compiled.programs import hlo

OPCODES = ('dot', 'convolution')
_LABELS = re.compile(r'dim_labels=(\w+)_(\w+)->(\w+)')
_ATTENTION = re.compile(r'custom_call_target="__cudnn\$fmha')
# Calls that autotuning selects: __cublas$gemm, __cublas$lt$matmul$f8, ...
_LIBRARY = re.compile(r'"__cublas\$.*"lhs_contracting_dimensions":\[([^]]*)\]')


def count_matmul_flops(
  computation: hlo.Computation, product: hlo.Instruction
) -> float:
  """Returns the FLOPs of a dot or convolution; a multiply-add counts as 2."""
  lhs, rhs = (
    computation.instructions[name].arrays[0]
    for name in _operand_pair(product.operands)
  )
  if product.opcode == 'convolution':
    return _count_convolution_flops(lhs, rhs, product)
  contracted = product.dimensions('lhs_contracting_dims')
  return (
    2 * product.arrays[0].size * math.prod(lhs.shape[i] for i in contracted)
  )


def _operand_pair(operands: tuple[str, ...]) -> tuple[str, str]:
  """Returns both operands of an instruction.

  An operand that is used twice may be written only once in HLO.
  """
  return operands[0], operands[min(1, len(operands) - 1)]


def _count_convolution_flops(
  lhs: hlo.Array, kernel: hlo.Array, product: hlo.Instruction
) -> float:
  """Counts the FLOPs of the convolution taps that are inside the input.

  XLA:TPU writes batched matmuls as convolutions whose window is dilated or
  padded, so that most taps are outside the input.
  """
  match = _LABELS.search(product.attributes)
  if not match:  # The labels are 'bf_io->bf'.
    return 2 * product.arrays[0].size * kernel.shape[0]
  inputs, kernels, outputs = match.groups()
  shape = product.arrays[0].shape
  count = (
    2
    * kernel.shape[kernels.index('i')]
    * kernel.shape[kernels.index('o')]
    * shape[outputs.index('b')]
  )
  for number, name in enumerate(sorted(set(kernels) - {'i', 'o'})):
    count *= _count_taps(
      lhs.shape[inputs.index(name)],
      kernel.shape[kernels.index(name)],
      shape[outputs.index(name)],
      _Window.parse(product.attributes, number),
    )
  return count


class _Window:
  """Movement of a convolution's window over one dimension."""

  def __init__(self, stride: int, low: int, dilation: int, spread: int):
    self.stride, self.low = stride, low
    self.dilation, self.spread = dilation, spread

  @classmethod
  def parse(cls, attributes: str, number: int) -> '_Window':
    """Parses one dimension of `window={size=2x3 pad=0_0x1_1 ...}`."""
    window = re.search(r'window=\{([^}]*)\}', attributes)
    fields = dict(
      field.split('=') for field in (window.group(1).split() if window else ())
    )

    def value(name: str) -> int:
      text = fields[name].split('x')[number] if name in fields else ''
      return int(text.split('_')[0] or (name != 'pad'))

    return cls(
      value('stride'), value('pad'), value('lhs_dilate'), value('rhs_dilate')
    )


def _count_taps(size: int, kernel: int, output: int, window: _Window) -> int:
  """Counts pairs of an output position and a tap that read an input element."""
  last_position = (size - 1) * window.dilation
  positions = (
    output_index * window.stride + tap * window.spread - window.low
    for output_index in range(output)
    for tap in range(kernel)
  )
  return sum(
    0 <= position <= last_position and position % window.dilation == 0
    for position in positions
  )


def count_cublas_flops(
  computation: hlo.Computation, call: hlo.Instruction
) -> float:
  """Returns the FLOPs of a call to cuBLAS, or 0 for any other call."""
  match = _LIBRARY.search(call.attributes)
  if not match:
    return 0.0
  lhs = computation.instructions[call.operands[0]].arrays[0]
  axes = [int(axis.strip('"')) for axis in match.group(1).split(',') if axis]
  contracted = math.prod(lhs.shape[axis] for axis in axes)
  return 2.0 * call.arrays[0].size * contracted


def count_cudnn_attention_flops(
  computation: hlo.Computation, call: hlo.Instruction
) -> float | None:
  """Returns the FLOPs of a call to cuDNN attention, or None for other calls.

  The forward pass has two matmuls of queries [B, T, N, D] with keys and values
  [B, S, N, D]. The backward pass recomputes the scores and has five matmuls.
  """
  if not _ATTENTION.search(call.attributes):
    return None
  query, key = (
    computation.instructions[name].arrays[0] for name in call.operands[:2]
  )
  num_matmuls = 5 if 'Backward' in call.attributes else 2
  batch, heads, width = query.shape[0], query.shape[2], query.shape[3]
  return num_matmuls * 2 * batch * heads * query.shape[1] * key.shape[1] * width
