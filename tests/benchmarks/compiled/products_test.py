"""Tests of matmul FLOPs in the forms that compilers write."""

import pytest

from benchmarks.compiled.programs import hlo, products


def _flops(lhs, right, line):
  module = hlo.parse_module(
    f'ENTRY %m (p: {lhs}, q: {right}) -> f32[] {{\n'
    f'  %p = {lhs} parameter(0)\n  %q = {right} parameter(1)\n'
    f'  ROOT %r = {line}\n}}\n'
  )
  return products.count_matmul_flops(module.entry, module.entry.root)


def test_flops_of_a_batched_dot():
  line = (
    'f32[5,6,8] dot(%p, %q), lhs_batch_dims={0}, rhs_batch_dims={0}, '
    'lhs_contracting_dims={2}, rhs_contracting_dims={1}'
  )
  assert _flops('f32[5,6,7]', 'f32[5,7,8]', line) == 2 * 5 * 6 * 7 * 8


def test_flops_of_a_dot_with_one_operand():
  line = 'f32[4,4] dot(%p), lhs_contracting_dims={0}, rhs_contracting_dims={0}'
  assert _flops('f32[6,4]', 'f32[1]', line) == 2 * 4 * 6 * 4


@pytest.mark.parametrize(
  ('lhs', 'right', 'line', 'expected'),
  [
    # A plain matmul [32, 16] x [16, 48].
    (
      'bf16[32,16]',
      'bf16[16,48]',
      'bf16[32,48] convolution(%p, %q), dim_labels=bf_io->bf',
      2 * 32 * 16 * 48,
    ),
    # Heads: [32, 16] x [16, 2, 8], the heads as a padded window.
    (
      'bf16[32,16,1]',
      'bf16[16,2,8]',
      'bf16[32,2,8] convolution(%p, %q), window={size=2 pad=1_1 '
      'rhs_reversal=1}, dim_labels=bf0_i0o->b0f',
      2 * 32 * 16 * 16,
    ),
    # Summed over heads: [32, 2, 8] x [2, 8, 16].
    (
      'bf16[32,2,8]',
      'bf16[2,8,16]',
      'bf16[32,16,1] convolution(%p, %q), window={size=2}, '
      'dim_labels=b0f_0io->bf0',
      2 * 32 * 16 * 16,
    ),
    # A batch of two matmuls [32, 8] x [8, 24], as a dilated window.
    (
      'bf16[32,2,8]',
      'bf16[24,2,8]',
      'f32[2,32,24] convolution(%p, %q), window={size=2 stride=1 '
      'pad=0_0 lhs_dilate=2}, dim_labels=b0f_o0i->0bf',
      2 * 2 * 32 * 8 * 24,
    ),
    # Two dimensions of a window, one of which has size 1.
    (
      'bf16[2,4,1,6]',
      'bf16[1,2,6,5]',
      'bf16[2,2,4,5] convolution(%p, %q), window={size=1x2 '
      'pad=0_0x1_1 rhs_reversal=0x1}, dim_labels=0b1f_01io->01bf',
      2 * 2 * 2 * 4 * 6 * 5,
    ),
  ],
)
def test_flops_of_convolutions_that_are_matmuls(lhs, right, line, expected):
  assert _flops(lhs, right, line) == expected


def test_flops_of_cudnn_attention():
  """Counts two matmuls in the forward pass and five in the backward pass."""
  text = (
    'ENTRY %m (q: bf16[4,16,2,8], k: bf16[4,12,2,8]) -> bf16[4,16,2,8] {{\n'
    '  %q = bf16[4,16,2,8] parameter(0)\n  %k = bf16[4,12,2,8] parameter(1)\n'
    '  ROOT %r = bf16[4,16,2,8] custom-call(%q, %k, %k), '
    'custom_call_target="{}"\n}}\n'
  )

  def flops(target):
    entry = hlo.parse_module(text.format(target)).entry
    return products.count_cudnn_attention_flops(entry, entry.root)

  once = 2 * 4 * 2 * 16 * 12 * 8
  assert flops('__cudnn$fmhaSoftmax') == 2 * once
  assert flops('__cudnn$fmhaSoftmaxBackward') == 5 * once
  assert flops('TopK') is None


def _cublas_flops(lhs, right, result, config, operands='%p, %q'):
  """Returns the FLOPs of a cuBLAS call as XLA:GPU writes it."""
  entry = hlo.parse_module(
    f'ENTRY %m (p: {lhs}, q: {right}) -> {result} {{\n'
    f'  %p = {lhs} parameter(0)\n  %q = {right} parameter(1)\n'
    f'  ROOT %r = ({result}, s8[4194304]) custom-call({operands}), '
    'custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(f)/d"}, '
    'backend_config={"gemm_backend_config":{"selected_algorithm":"0",'
    f'"dot_dimension_numbers":{config},"epilogue":"BIAS_GELU"}}}}\n}}\n'
  ).entry
  return products.count_cublas_flops(entry, entry.root)


def test_flops_of_cublas_calls():
  """Autotuned calls have the same FLOPs as the original dot."""
  assert (
    _cublas_flops(
      'bf16[1024,768]',
      'bf16[768,3072]',
      'bf16[1024,3072]',
      '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],'
      '"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}',
    )
    == 2 * 1024 * 768 * 3072
  )
  assert (
    _cublas_flops(
      'bf16[12,5,8,64]',
      'bf16[12,5,7,64]',
      'bf16[12,8,7]',
      '{"lhs_contracting_dimensions":["1","3"],'
      '"rhs_contracting_dimensions":["1","3"],'
      '"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]}',
    )
    == 2 * 12 * 8 * 7 * 5 * 64
  )
  entry = hlo.parse_module(
    'ENTRY %m (p: f32[8]) -> f32[8] {\n  %p = f32[8] parameter(0)\n'
    '  ROOT %r = f32[8] custom-call(%p), custom_call_target="TopK"\n}\n'
  ).entry
  assert products.count_cublas_flops(entry, entry.root) == 0
