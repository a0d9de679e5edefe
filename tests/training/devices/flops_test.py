"""Tests of model FLOPs, compared with counts by hand."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.training import tiny
from xlflax.models import compile_targets
from xlflax.models.attention import attention_backends
from xlflax.models.encoder_config import AttentionBackend
from xlflax.objectives import objective_base
from xlflax.objectives.cross_entropy.linear_cross_entropy import (
  linear_cross_entropy,
)
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.devices import flops, partitioning


def _shape(*shape, dtype=jnp.float32):
  return jax.ShapeDtypeStruct(shape, dtype)


def test_matmul_flops():
  assert flops.count_forward(jnp.matmul, _shape(3, 5), _shape(5, 7)) == (
    2 * 3 * 5 * 7
  )


def test_flops_of_a_batched_contraction_over_two_axes():
  def product(a, b):
    return jnp.einsum('bijk,bjkl->bil', a, b)

  assert flops.count_forward(
    product, _shape(2, 3, 4, 5), _shape(2, 4, 5, 6)
  ) == (2 * 2 * 3 * 4 * 5 * 6)


def test_elementwise_operations_are_not_counted():
  assert flops.count_forward(lambda a: jnp.tanh(a) + a.sum(), _shape(9, 9)) == 0


def test_scan_counts_every_iteration():
  def loop(a, bs):
    return lax.scan(lambda a, b: (a @ b, None), a, bs)[0]

  assert flops.count_forward(loop, _shape(4, 4), _shape(10, 4, 4)) == (
    10 * 2 * 4**3
  )


def test_nested_jit_calls_are_counted():
  inner = jax.jit(lambda a, b: a @ b)

  def loop(a, bs):
    return lax.scan(lambda a, b: (inner(a, b) @ b, None), a, bs)[0]

  assert flops.count_forward(loop, _shape(4, 4), _shape(3, 4, 4)) == (
    3 * 2 * 2 * 4**3
  )


@pytest.mark.parametrize('mesh', [None, dict(data=4, tensor=2)])
def test_fused_attention_flops_do_not_depend_on_the_mesh(mesh):
  def attend(query, key, value):
    return attention_backends.dot_product_attention(
      query, key, value, None, backend=AttentionBackend.FUSED
    )

  shapes = [_shape(4, 16, 2, 16)] + [_shape(4, 32, 2, 16)] * 2
  scope = partitioning.Partitioner(**mesh).scope if mesh else nullcontext
  with scope():
    assert flops.count_forward(attend, *shapes) == 4 * 4 * 16 * 32 * 2 * 16


def test_fused_attention_flops_on_tpus():
  """TPU kernels have heads before positions."""

  def attend(query, key, value):
    return attention_backends.dot_product_attention(
      query, key, value, None, backend=AttentionBackend.FUSED
    )

  shapes = [_shape(4, n, 2, 16, dtype='bfloat16') for n in (128, 256, 256)]
  with compile_targets.compiling_for(compile_targets.Target('tpu')):
    assert flops.count_forward(attend, *shapes) == 4 * 4 * 128 * 256 * 2 * 16


def test_conditionals_count_the_most_expensive_branch():
  def either(flag, a):
    return lax.cond(flag, lambda a: a @ a @ a, lambda a: a @ a, a)

  assert flops.count_forward(either, _shape(dtype=bool), _shape(4, 4)) == (
    2 * 2 * 4**3
  )


def test_convolution_flops_do_not_depend_on_the_layout():
  def convolve(layout):
    return lambda x, k: lax.conv_general_dilated(
      x, k, (1,), 'SAME', dimension_numbers=layout
    )

  expected_flops = (
    2 * (2 * 10 * 7) * (3 * 5)
  )  # outputs x kernel size x input channels
  assert (
    flops.count_forward(
      convolve(('NHC', 'HIO', 'NHC')), _shape(2, 10, 5), _shape(3, 5, 7)
    )
    == expected_flops
  )
  assert (
    flops.count_forward(
      convolve(('NCH', 'OIH', 'NCH')), _shape(2, 5, 10), _shape(7, 5, 3)
    )
    == expected_flops
  )


def test_custom_gradients_count_their_forward_pass_once():
  product = jax.custom_vjp(jnp.matmul)
  product.defvjp(
    lambda a, b: (a @ b, (a, b)),
    lambda saved, g: (g @ saved[1].T, saved[0].T @ g),
  )
  tangent = jax.custom_jvp(lambda a: a @ a)
  tangent.defjvp(lambda p, t: (p[0] @ p[0], t[0] @ p[0] + p[0] @ t[0]))
  assert flops.count_forward(product, _shape(4, 4), _shape(4, 4)) == 2 * 4**3
  assert flops.count_forward(tangent, _shape(4, 4)) == 2 * 4**3


def test_recomputation_is_not_counted():
  def layer(a):
    return jnp.sum(jnp.tanh(a @ a) @ a)

  a = _shape(4, 4)
  assert flops.count_training_step(layer, a) == 3 * 2 * 2 * 4**3
  assert flops.count_training_step(jax.checkpoint(layer), a) == (
    flops.count_training_step(layer, a)
  )


@pytest.mark.parametrize('chunk_size', [None, 16])
def test_flops_of_the_vocabulary_loss(chunk_size):
  def loss(hidden, table, bias, labels):
    return linear_cross_entropy(
      hidden, table, bias, labels, chunk_size=chunk_size
    ).loss

  assert (
    flops.count_forward(
      loss,
      _shape(10, 8),
      _shape(64, 8),
      _shape(64),
      _shape(10, dtype=jnp.int32),
    )
    == 2 * 10 * 64 * 8
  )


def test_cudnn_attention_flops_equal_those_of_xla():
  """Only the primitive is traced, because the kernel requires a GPU."""
  fused = pytest.importorskip('jax._src.cudnn.fused_attention_stablehlo')
  primitive = jax.extend.core.Primitive('dot_product_attention_fwd_wrapper')
  primitive.def_abstract_eval(lambda q, k, v: q)
  assert primitive.name == (fused._dot_product_attention_fwd_p_wrapper.name)
  query, key = _shape(2, 6, 4, 8), _shape(2, 10, 4, 8)
  plain = flops.count_forward(
    lambda q, k, v: jax.nn.dot_product_attention(q, k, v, implementation='xla'),
    query,
    key,
    key,
  )
  assert flops.count_forward(primitive.bind, query, key, key) == plain
  assert plain == 2 * 2 * (2 * 6 * 10 * 4 * 8)


@pytest.mark.parametrize(
  'fields',
  [
    {},
    dict(scan_layers=False),
    dict(remat='full'),
    dict(head_dim=6),
    dict(attention_dropout_rate=0.1),
  ],
)
def test_flops_of_a_masked_lm_step(fields):
  """A layer has 4 projections, 2 attention matmuls and 2 MLP matmuls."""
  model = tiny.make_model(**fields)
  rows, length, hidden, mlp, vocab = 8, 20, 16, 32, 64
  inner = 2 * fields.get('head_dim', 8)  # heads x head size
  objective = masked_lm.MaskedLM()
  params = tiny.make_factory(model=model).abstract.params
  batch = {
    key: _shape(rows, length, dtype=jnp.int32) for key in tiny.make_batch()
  }

  def loss(params, batch):
    return objective(
      model,
      params,
      batch,
      objective_base.ObjectiveContext(
        vocabulary=tiny.SPEC,
        step=jnp.int32(0),
        train=True,
        rng=jax.random.key(0),
      ),
    ).loss.total

  layer = 4 * hidden * inner + 2 * length * inner + 2 * hidden * mlp
  chosen = rows * 3  # 15 % of 20 tokens
  head = chosen * (hidden * hidden + hidden * vocab)
  gather = rows * 3 * length * hidden  # gather of hidden states by a matmul
  counted = flops.count_forward(loss, params, batch)
  assert counted - 2 * (2 * rows * length * layer + head) in (0, 2 * gather)


def test_sharded_operations_without_output_are_ignored():
  """A kernel without dropout leaves an empty sharded operation."""
  mesh = jax.make_mesh((1,), ('data',))

  def split(x):
    jax.shard_map(
      lambda: (), mesh=mesh, in_specs=(), out_specs=(), check_vma=False
    )()
    return x @ x

  assert flops.count_forward(split, jnp.ones((2, 2))) == 2 * 2**3
