"""Tests of the costs and modules of kernels in a compiled program."""

import pytest

from benchmarks.compiled.programs import hlo, kernels, pallas
from xlflax.training.devices import accelerators


def _kernels(text, known_flops=None):
  module = hlo.parse_module(text)
  read = kernels.make_reader('gpu', known_flops or {})
  parsed_kernels = (
    read(module, module.entry, i) for i in module.entry.instructions.values()
  )
  return [k for k in parsed_kernels if k]


_SLICING = """
%inner (a: f32[10,100], i: s32[], b: f32[10,100]) -> f32[10,100] {
  %a = f32[10,100]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %b = f32[10,100]{1,0} parameter(2)
  %zero = s32[] constant(0)
  %row = f32[1,100]{1,0} dynamic-slice(%a, %i, %zero), dynamic_slice_sizes={1,100}
  %twice = f32[1,100]{1,0} add(%row, %row)
  ROOT %new = f32[10,100]{1,0} dynamic-update-slice(%b, %twice, %i, %zero)
}

ENTRY %m (p: f32[10,100], i: s32[], q: f32[10,100]) -> f32[10,100] {
  %p = f32[10,100]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %q = f32[10,100]{1,0} parameter(2)
  ROOT %f = f32[10,100]{1,0} fusion(%p, %i, %q), kind=kLoop, calls=%inner
}
"""


def test_fused_slices_and_updates_count_only_accessed_bytes():
  (kernel,) = _kernels(_SLICING)
  assert kernel.kind is kernels.KernelKind.FUSED
  assert kernel.bytes == 400 + 4 + 400  # the slice, its index, the update
  full_text = _SLICING.replace('add(%row, %row)', 'add(%row, %whole)').replace(
    '  %twice', '  %whole = f32[1,100]{1,0} reduce(%a, %zero)\n  %twice'
  )
  assert _kernels(full_text)[0].bytes == 4000 + 4 + 400


def test_reads_from_tpu_vmem_are_free():
  text = _SLICING.replace(
    '%q = f32[10,100]{1,0}', '%q = f32[10,100]{1,0:T(8,128)S(1)}'
  ).replace('ROOT %new = f32[10,100]{1,0}', 'ROOT %new = f32[10,100]{1,0:S(1)}')
  assert _kernels(text)[0].bytes == 400 + 4


_PRODUCT = """
%gemm (a: bf16[8,16], b: bf16[16,4]) -> f32[8,4] {
  %a = bf16[8,16]{1,0} parameter(0)
  %b = bf16[16,4]{1,0} parameter(1)
  ROOT %dot = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %m (p: bf16[8,16], q: bf16[16,4]) -> f32[8,4] {
  %p = bf16[8,16]{1,0} parameter(0)
  %q = bf16[16,4]{1,0} parameter(1)
  ROOT %f = f32[8,4]{1,0} fusion(%p, %q), kind=kCustom, calls=%gemm, metadata={op_name="jit(step)/transpose(jvp(M))/while/body/layers/mlp/wi/dot_general"}
}
"""


def test_matmuls_in_fusions_are_counted():
  (kernel,) = _kernels(_PRODUCT)
  assert kernel.kind is kernels.KernelKind.PRODUCT
  assert kernel.flops == 2 * 8 * 16 * 4
  assert kernel.bytes == 8 * 16 * 2 + 16 * 4 * 2 + 8 * 4 * 4
  assert (kernel.module, kernel.phase) == ('layers/mlp/wi', 'backward')


@pytest.mark.parametrize(
  ('dtype', 'rate'), [('bf16', 1.0), ('f32', 0.5), ('f8e4m3fn', 2.0)]
)
def test_matmul_rate_depends_on_the_dtype(dtype, rate):
  assert _kernels(_PRODUCT.replace('bf16', dtype))[0].rate == rate


def test_cublas_calls_are_matmuls():
  """The rate depends on the dtype of the operands, not on that of the bias."""
  text = (
    'ENTRY %m (p: bf16[8,16], q: bf16[16,4], b: f32[4]) -> f32[8,4] {\n'
    '  %p = bf16[8,16] parameter(0)\n  %q = bf16[16,4] parameter(1)\n'
    '  %b = f32[4] parameter(2)\n'
    '  ROOT %r = (f32[8,4], s8[64]) custom-call(%p, %q, %b), '
    'custom_call_target="__cublas$lt$matmul", backend_config={'
    '"gemm_backend_config":{"dot_dimension_numbers":{'
    '"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]},'
    '"precision_config":{"algorithm":"ALG_UNSET"},"epilogue":"BIAS"}}\n}\n'
  )
  (kernel,) = _kernels(text)
  assert kernel.kind is kernels.KernelKind.PRODUCT
  assert (kernel.flops, kernel.rate) == (2 * 8 * 16 * 4, 1.0)
  float32_text = text.replace('bf16', 'f32')
  assert _kernels(float32_text)[0].rate == 0.5
  by = float32_text.replace('ALG_UNSET', 'ALG_DOT_BF16_BF16_F32')
  assert _kernels(by)[0].rate == 1.0
  assert _kernels(text.replace('bf16', 'f8e4m3fn'))[0].rate == 2.0


def test_kernel_time_is_that_of_the_limiting_resource():
  device = accelerators.Accelerator(
    platform='gpu',
    name='x',
    kinds=(),
    flops=10.0,
    memory=1.0,
    bandwidth=4.0,
    inside=1.0,
    outside=1.0,
  )
  arithmetic = kernels.Kernel(
    'a', kernels.KernelKind.PRODUCT, '', 100.0, 8.0, 0.5
  )
  memory = kernels.Kernel('b', kernels.KernelKind.FUSED, '', 0.0, 8.0)
  assert (arithmetic.seconds(device), memory.seconds(device)) == (20.0, 2.0)
  assert arithmetic.expected(device) == pytest.approx(25.0, abs=1e-5)
  assert memory.expected(device) == pytest.approx(2 / 0.9, abs=1e-5)


def test_flops_of_pallas_kernels_follow_from_the_jaxpr():
  import jax
  import jax.numpy as jnp
  from jax.experimental import pallas as pl

  def kernel(a, b, out):
    def body(_, total):
      return total + jnp.dot(a[...], b[...])

    out[...] = jax.lax.fori_loop(0, 3, body, jnp.zeros((8, 16), jnp.float32))

  def call(a, b):
    return pl.pallas_call(
      kernel,
      grid=(4,),
      in_specs=[
        pl.BlockSpec((8, 32), lambda i: (i, 0)),
        pl.BlockSpec((32, 16), lambda i: (0, 0)),
      ],
      out_specs=pl.BlockSpec((8, 16), lambda i: (i, 0)),
      out_shape=jax.ShapeDtypeStruct((32, 16), jnp.float32),
    )(a, b)

  shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((32, 32), (32, 16))]
  flops = pallas.count_flops(jax.make_jaxpr(call)(*shapes).jaxpr)
  expected = 4 * 3 * 2 * 8 * 32 * 16
  assert flops == {(('f32', (32, 16)),): expected}
  (pallas_kernel,) = _kernels(
    'ENTRY %m (p: bf16[32,32], q: bf16[32,16]) -> f32[32,16] {\n'
    '  %p = bf16[32,32]{1,0} parameter(0)\n'
    '  %q = bf16[32,16]{1,0} parameter(1)\n'
    '  ROOT %k = f32[32,16]{1,0} custom-call(%p, %q), '
    'custom_call_target="__gpu$xla.gpu.triton"\n}\n',
    flops,
  )
  assert (pallas_kernel.kind, pallas_kernel.flops) == (
    kernels.KernelKind.PALLAS,
    expected,
  )


@pytest.mark.parametrize(
  ('op_name', 'module'),
  [
    (
      'jit(step)/jvp(Encoder.encode)/Encoder._run/Encoder._layers/while/body/'
      'closed_call/layers.body/layers/layers.mlp_block/mlp/wi/dot_general',
      'layers/mlp/wi',
    ),
    (
      'jit(step)/jvp(E)/layers/attention/attention.attend/btnd,bsnd->bnts/dot',
      'layers/attention',
    ),
    ('jit(step)/jvp(E)/E._layers/while/body/jit(f)/slice', 'layers (scan)'),
    ('jit(step)/transpose(jvp())/dot_general', 'objective'),
    ('jit(step)/jit(_where)/select_n', 'update'),
    (
      'jit(s)/transpose(jvp(M))/while/body/layers/mlp/layers/mlp/wo/dot_general',
      'layers/mlp/wo',
    ),
  ],
)
def test_module_name_is_parsed_from_the_op_name(op_name, module):
  assert kernels.module_name(op_name) == module


@pytest.mark.parametrize(
  ('module', 'part'),
  [
    ('layers/mlp/wi', 'MLP'),
    ('layers_11/mlp/wo', 'MLP'),
    ('layers/attention/attention_memory_gradient', 'attention'),
    ('decoder/layers_3/cross_attention/key', 'attention'),
    ('layers/attention_norm', 'norms'),
    ('embeddings/norm', 'norms'),
    ('head_norm', 'norms'),
    ('embeddings/dropout', 'embeddings'),
    ('layers', 'layers: residuals and dropout'),
    ('layers (scan)', 'layers: residuals and dropout'),
    ('objective', 'head and loss'),
    ('head_dense', 'head and loss'),
    ('update', 'optimizer'),
    ('made_up', 'others'),
  ],
)
def test_part_name_of_modules(module, part):
  assert kernels.part_name(module) == part


@pytest.mark.parametrize(
  ('name', 'products'),
  [('attention_forward', 2), ('attention_memory_gradient', 4)],
)
def test_flops_of_fused_attention_count_all_pairs(name, products):
  """The loop bounds of these kernels are unknown before a run."""
  import jax
  import jax.numpy as jnp
  from jax.experimental import pallas as pl

  def kernel(query, key, out):
    out[...] = query[...] + jnp.sum(key[...])

  def call(query, key):
    return pl.pallas_call(
      kernel,
      name=name,
      out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
    )(query, key)

  query = jax.ShapeDtypeStruct((2, 32, 4, 16), jnp.bfloat16)
  key = jax.ShapeDtypeStruct((2, 48, 4, 16), jnp.bfloat16)
  flops = pallas.count_flops(jax.make_jaxpr(call)(query, key).jaxpr)
  assert flops == {
    (('bf16', query.shape),): products * 2 * 2 * 4 * 32 * 48 * 16
  }
