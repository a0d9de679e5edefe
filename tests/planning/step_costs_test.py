"""Costs of functions, compared with FLOPs and bytes counted by hand."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core.primitives import add_jaxvals_p

from xlflax.models import norm_kernels
from xlflax.planning import step_costs
from xlflax.planning.step_costs import Kind
from xlflax.training.devices import flops


def _costs(function, *shapes):
  """Returns the costs of a function of bfloat16 arrays."""
  arguments = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in shapes]
  return step_costs.count_costs(jax.make_jaxpr(function)(*arguments).jaxpr)


def _bytes(costs, kind=Kind.MEMORY):
  return sum(o.count * o.bytes for o in costs.operations if o.kind is kind)


def test_matmul_reads_operands_and_writes_the_result():
  costs = _costs(jnp.dot, (64, 32), (32, 16))
  (matmul,) = costs.operations
  assert matmul.kind is Kind.MATMUL and matmul.rows == 64
  assert matmul.flops == 2 * 64 * 32 * 16
  assert matmul.bytes == 2 * (64 * 32 + 32 * 16 + 64 * 16)


def test_elementwise_operations_are_fused():
  """Two arrays are read and one is written for any intermediate operations."""
  costs = _costs(lambda x, y: jnp.tanh(x * y) + x, (64, 32), (64, 32))
  (kernel,) = costs.operations
  assert kernel.bytes == 3 * 64 * 32 * 2


def test_operations_between_matmuls_are_written_once():
  def mlp(x, w, v):
    return jnp.maximum(x @ w, 0) @ v

  costs = _costs(mlp, (64, 32), (32, 128), (128, 32))
  assert _bytes(costs) == 2 * 64 * 128 * 2  # Read x @ w, write the maximum.


def test_normalization_reads_its_input_twice():
  """The statistics are computed before the result."""

  def normalize(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) - mean**2)

  costs = _costs(normalize, (64, 512))
  array, statistics = 64 * 512 * 2, 64 * 4
  assert 3 * array <= _bytes(costs) <= 3 * array + 8 * statistics


def test_bytes_of_the_gradient_of_normalization():
  """2 reads forward, and x and its gradient twice backward."""

  def loss(x, y):
    mean = x.mean(-1, keepdims=True)
    normal = (x - mean) * jax.lax.rsqrt(
      (x * x).mean(-1, keepdims=True) - mean**2
    )
    return (normal * y).sum()

  costs = _costs(jax.grad(loss), (64, 512), (64, 512))
  array = 64 * 512 * 2
  assert 4 * array <= _bytes(costs) <= 8 * array


def test_reduction_with_two_results_reads_its_operand_once():
  """The result needs the maximum and the sum, so x is read a second time."""

  def log_softmax(x):
    values = x.astype(jnp.float32)
    maximum, total = jax.lax.reduce(
      (values, jnp.ones_like(values)),
      (jnp.float32(-jnp.inf), jnp.float32(0)),
      lambda a, b: (jnp.maximum(a[0], b[0]), a[1] + b[1]),
      (1,),
    )
    return x - (maximum + jnp.log(total))[:, None].astype(x.dtype)

  costs = _costs(log_softmax, (64, 512))
  array, statistics = 64 * 512 * 2, 64 * 4
  assert 3 * array <= _bytes(costs) <= 3 * array + 8 * statistics


def test_loop_bodies_are_counted_per_iteration():
  def layers(x, weights):
    return jax.lax.scan(lambda x, w: (x @ w, None), x, weights)[0]

  costs = _costs(layers, (64, 32), (5, 32, 32))
  assert costs.total('flops') == 5 * 2 * 64 * 32 * 32


def test_in_place_update_counts_only_updated_rows():
  def scatter(table, rows):
    return table.at[jnp.array([3, 5])].add(rows)

  costs = _costs(scatter, (1000, 32), (2, 32))
  assert _bytes(costs) < 10 * 2 * 32 * 2


@pytest.mark.parametrize('has_bias_epilogues', [False, True])
def test_bias_epilogues_are_fused_into_matmuls(has_bias_epilogues):
  """Otherwise, the sum is written before the second matmul reads it. A sum of
  two matrices, or with a matrix that is used twice, is never free."""

  def biased(x, w, bias):
    return ((x @ w).reshape(32, 2, 32) + bias.reshape(1, 2, 32)).reshape(
      32, 64
    ) @ w

  def shared(x, w, bias):
    product = x @ w
    return (product + bias[None, :]) @ w + product

  def add_matrix(x, w, other):
    return (x @ w + other) @ w

  def traffic(function, bias_shape):
    arguments = [
      jax.ShapeDtypeStruct(shape, jnp.bfloat16)
      for shape in ((32, 64), (64, 64), bias_shape)
    ]
    costs = step_costs.count_costs(
      jax.make_jaxpr(function)(*arguments).jaxpr,
      has_bias_epilogues=has_bias_epilogues,
    )
    return sum(
      o.bytes * o.count for o in costs.operations if o.kind is Kind.MEMORY
    )

  array, vector = 32 * 64 * 2, 64 * 2
  assert traffic(biased, (64,)) == (
    0 if has_bias_epilogues else 2 * array + vector
  )
  assert traffic(shared, (64,)) >= 2 * array + vector
  assert traffic(add_matrix, (32, 64)) == 3 * array


@pytest.mark.parametrize(
  'has_accumulation, has_barrier, expected',
  [(True, True, 0), (True, False, 3), (False, False, 4)],
)
def test_gradient_accumulation_is_fused_into_matmuls(
  has_accumulation, has_barrier, expected
):
  """In units of one array. A matmul result that already includes an addition is
  added to another matmul result in a separate kernel, unless a barrier
  separates them. Without accumulation, three arrays are read and one is
  written."""

  def add(x, v, w, gradient):
    total = add_jaxvals_p.bind(x @ v, gradient)
    if has_barrier:
      total = jax.lax.optimization_barrier(total)
    return add_jaxvals_p.bind(x @ w, total) @ w

  arguments = [
    jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    for shape in ((32, 64), (64, 64), (64, 64), (32, 64))
  ]
  costs = step_costs.count_costs(
    jax.make_jaxpr(add)(*arguments).jaxpr, has_accumulation=has_accumulation
  )
  assert _bytes(costs) == expected * 32 * 64 * 2


def test_kernels_without_matmuls_are_limited_by_memory():
  states = jax.ShapeDtypeStruct((64, 256), jnp.bfloat16)
  scale = jax.ShapeDtypeStruct((256,), jnp.float32)
  jaxpr = jax.make_jaxpr(
    functools.partial(norm_kernels.layer_norm_gradient, epsilon=1e-5)
  )(states, scale, states).jaxpr
  costs = step_costs.count_costs(jaxpr)
  (kernel,) = (o for o in costs.operations if o.name == 'layer_norm_gradient')
  assert kernel.kind is Kind.MEMORY and kernel.flops == 0
  # Three arrays, the scale, and two sums of each of the 16 programs.
  assert kernel.bytes == 3 * 64 * 256 * 2 + 256 * 4 + 2 * 16 * 256 * 4
  assert sum(map(flops.count_equation, jaxpr.eqns)) == 0


def test_peak_memory_counts_simultaneously_live_arrays():
  """Two products of 64 x 64 exist while the third is computed."""

  def product(x):
    left, right = x @ x, jnp.tanh(x) @ x
    return left @ right

  costs = _costs(product, (64, 64))
  array = 64 * 64 * 2
  assert 3 * array <= costs.peak_bytes <= 4 * array


def _matmul_equation(function, *shapes, dtype=jnp.bfloat16):
  arguments = [jax.ShapeDtypeStruct(s, dtype) for s in shapes]
  jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
  return next(e for e in jaxpr.eqns if e.primitive.name == 'dot_general')


@pytest.mark.parametrize(
  ('columns', 'dtype', 'is_aligned'),
  [
    (250_002, jnp.bfloat16, False),  # 500,004 bytes are 4 modulo 16.
    (250_008, jnp.bfloat16, True),
    (250_112, jnp.bfloat16, True),
    (119_547, jnp.bfloat16, False),
    (250_004, jnp.float32, True),
    (250_004, jnp.bfloat16, False),
  ],
)
def test_misaligned_rows_of_logits_are_found(columns, dtype, is_aligned):
  equation = _matmul_equation(jnp.dot, (4928, 768), (768, columns), dtype=dtype)
  assert (step_costs.misaligned_arrays(equation) == ()) == is_aligned


def test_heads_of_a_projection_are_merged_for_alignment():
  """12 heads of size 10 are rows of 240 bytes; the scores are not aligned."""

  def project(x, kernel):
    return jnp.einsum('btd,dnh->btnh', x, kernel)

  equation = _matmul_equation(project, (2, 8, 768), (768, 12, 10))
  assert step_costs.misaligned_arrays(equation) == ()

  def score(query, key):
    return jnp.einsum('btnh,bsnh->bnts', query, key)

  equation = _matmul_equation(score, (2, 8, 12, 10), (2, 8, 12, 10))
  assert step_costs.misaligned_arrays(equation) == ('bfloat16[2, 8, 12, 10]',)
