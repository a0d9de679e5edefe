"""Cross-entropy against the table: whole, chunked, sharded."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.test_util import check_grads

from xlflax.objectives import losses, table_loss

# 24: parts of a table that divide it; 23 is prime: the last part overlaps.
CASES = [(24, None), (24, 8), (24, 7), (23, 8), (23, 1), (23, 22),
         (23, 100)]


def _case(vocab, *, rows=6, dtype=jnp.float32):
  rng = np.random.default_rng(vocab)
  arrays = (rng.normal(size=shape).astype(np.float32)
            for shape in ((rows, 5), (vocab, 5), (vocab,)))
  hidden, table, bias = map(jnp.asarray, arrays)
  return (hidden.astype(dtype), table, bias,
          jnp.asarray(rng.integers(0, vocab, rows), jnp.int32))


_jit = functools.partial(jax.jit, compiler_options={  # compiles faster
    'xla_backend_optimization_level': 0,
    'xla_llvm_disable_expensive_passes': True})
table_cross_entropy = jax.jit(losses.table_cross_entropy,
                              static_argnames='chunk_size')


@jax.jit
def _plain(hidden, table, bias, labels):
  """The loss that the others must equal, by plain autodiff."""
  logits = hidden.astype(jnp.float32) @ table.T + bias[None]
  return losses.cross_entropy(logits, labels)


def _weighted(function, labels):
  """A scalar whose gradient differs from row to row."""
  weights = jnp.arange(labels.shape[0], dtype=jnp.float32)
  return lambda h, t, b: jnp.sum(weights * function(h, t, b, labels).loss)


@pytest.mark.parametrize('chunk_size', [None, 2, 1])
def test_by_hand(chunk_size):
  result = table_cross_entropy(
      jnp.array([[1., 0.], [0., 1.]]), jnp.log(jnp.array([
          [2., 1.], [3., 1.], [5., 2.]])), jnp.zeros(3), jnp.array([1, 2]),
      chunk_size=chunk_size)
  np.testing.assert_allclose(
      result.loss, [np.log(10 / 3), np.log(4 / 2)], rtol=1e-6)
  np.testing.assert_array_equal(result.correct, [0., 1.])


@pytest.mark.parametrize('vocab, chunk_size', CASES)
def test_equals_plain_with_gradients(vocab, chunk_size):
  *arrays, labels = _case(vocab)
  labels = labels.at[0].set(vocab - 1).at[1].set(0)

  def ours(*args):
    return table_cross_entropy(*args, chunk_size=chunk_size)

  got, want = ours(*arrays, labels), _plain(*arrays, labels)
  np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(got.correct, want.correct)
  for g, w in zip(
      _jit(jax.grad(_weighted(ours, labels), (0, 1, 2)))(*arrays),
      _jit(jax.grad(_weighted(_plain, labels), (0, 1, 2)))(*arrays),
      strict=True):
    np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


def test_every_row_of_the_vocabulary_can_be_the_label():
  for vocab, chunk_size in [(12, 5), (13, 5)]:
    hidden, table, bias, _ = _case(vocab, rows=vocab)
    labels = jnp.arange(vocab)
    got = table_cross_entropy(hidden, table, bias, labels,
                                     chunk_size=chunk_size)
    np.testing.assert_allclose(
        got.loss, _plain(hidden, table, bias, labels).loss, rtol=1e-4,
        atol=1e-5)


@pytest.mark.parametrize('chunk_size', [None, 4])
def test_gradient_is_numerical(chunk_size):
  *arrays, labels = _case(9, rows=3)
  check_grads(
      _weighted(lambda *a: table_cross_entropy(
          *a, chunk_size=chunk_size), labels),
      arrays, order=1, modes=['rev'], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize('chunk_size', [None, 4, 5])
def test_rows_are_independent(chunk_size):
  hidden, table, bias, labels = _case(23)
  subset = jnp.array([4, 1])
  whole = table_cross_entropy(hidden, table, bias, labels,
                                     chunk_size=chunk_size)
  part = table_cross_entropy(hidden[subset], table, bias,
                                    labels[subset], chunk_size=chunk_size)
  np.testing.assert_allclose(whole.loss[subset], part.loss, rtol=1e-5)


@pytest.mark.parametrize('chunk_size', [None, 5, 8])
def test_bfloat16_accumulates_in_float32(chunk_size):
  hidden, table, bias, labels = _case(24, dtype=jnp.bfloat16)
  def total(h, t, b):
    return table_cross_entropy(
        h, t, b, labels, chunk_size=chunk_size).loss.sum()
  value, gradients = _jit(jax.value_and_grad(total, (0, 1, 2)))(
      hidden, table, bias)
  rounded = table.astype(jnp.bfloat16).astype(jnp.float32)
  want = _plain(hidden, rounded, bias, labels).loss.sum()
  np.testing.assert_allclose(value, want, rtol=1e-5)
  assert [g.dtype for g in gradients] == [jnp.bfloat16, jnp.float32,
                                          jnp.float32]


@pytest.mark.parametrize('chunk_size', [None, 3, 4])
@pytest.mark.parametrize('scale', [0.0, 1e4])
def test_finite_on_degenerate_input(chunk_size, scale):
  hidden, table, bias, labels = _case(8)
  def total(h, t, b):
    return table_cross_entropy(
        h, t, b, labels, chunk_size=chunk_size).loss.sum()
  value, gradients = _jit(jax.value_and_grad(total, (0, 1, 2)))(
      hidden * scale, table * scale, bias * 0)
  assert np.isfinite(value)
  assert all(np.isfinite(g).all() for g in gradients)


def test_no_gradient_through_correct():
  hidden, table, bias, labels = _case(24)
  for chunk_size in (None, 8):
    def total(h, c=chunk_size):
      return table_cross_entropy(h, table, bias, labels,
                                 chunk_size=c).correct.sum()
    gradient = _jit(jax.grad(total))(hidden)
    np.testing.assert_array_equal(gradient, 0)


def test_plan_prefers_strided_parts_that_shard_further():
  assert table_loss._plan(32768, 5000) == (32768, 8, 4096, True)
  assert table_loss._plan(24, 5) == (24, 6, 4, True)
  assert table_loss._plan(23, 8) == (23, 3, 8, False)


def _largest_array(function, *args) -> int:
  """Elements of the largest array in a function's jaxpr, inner ones too."""
  def sizes(jaxpr):
    for equation in jaxpr.eqns:
      yield from (v.aval.size for v in equation.outvars
                  if hasattr(v.aval, 'size'))
      for inner in jax.extend.core.jaxprs_in_params(equation.params):
        yield from sizes(inner)
  return max(sizes(jax.make_jaxpr(function)(*args).jaxpr))


@pytest.mark.parametrize('vocab', [1024, 1021])
def test_chunked_never_holds_all_logits(vocab):
  hidden, table, bias, labels = _case(vocab, rows=300)
  def total(h, t, b, chunk_size):
    return table_cross_entropy(
        h, t, b, labels, chunk_size=chunk_size).loss.sum()
  for chunk_size, bound in ((None, False), (64, True)):
    gradient = jax.grad(lambda *a, c=chunk_size: total(*a, c), (0, 1, 2))
    largest = _largest_array(gradient, hidden, table, bias)
    assert (largest < 300 * vocab) == bound


@pytest.mark.parametrize('chunk_size', [None, 8, 10])
def test_sharded_table_and_rows_equal_one_device(chunk_size):
  hidden, table, bias, labels = _case(32, rows=8)
  mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('data', 'tensor'))
  def put(array, *axes):
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))
  function = _jit(jax.value_and_grad(
      lambda h, t, b, y: table_cross_entropy(
          h, t, b, y, chunk_size=chunk_size).loss.sum(), (0, 1, 2)))
  value, gradients = function(hidden, table, bias, labels)
  sharded = function(put(hidden, 'data'), put(table, 'tensor'),
                     put(bias, 'tensor'), put(labels, 'data'))
  np.testing.assert_allclose(value, sharded[0], rtol=1e-5)
  for one, many in zip(gradients, sharded[1], strict=True):
    np.testing.assert_allclose(one, many, rtol=1e-4, atol=1e-5)
