"""Cross-entropy of an output table: plain, chunked and sharded."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.slow import mark_slow
from xlflax.objectives import losses
from xlflax.objectives.cross_entropy import linear_cross_entropy

# Chunks divide 24 evenly. As 23 is prime, its last chunk overlaps.
CASES = [(24, None), (24, 8), (24, 7), (23, 8), (23, 1), (23, 22), (23, 100)]


def _case(vocab, *, rows=6, dtype=jnp.float32):
  rng = np.random.default_rng(vocab)
  arrays = (
    rng.normal(size=shape).astype(np.float32)
    for shape in ((rows, 5), (vocab, 5), (vocab,))
  )
  hidden, table, bias = map(jnp.asarray, arrays)
  return (
    hidden.astype(dtype),
    table,
    bias,
    jnp.asarray(rng.integers(0, vocab, rows), jnp.int32),
  )


def _plain(hidden, table, bias, labels, *, chunk_size=None):
  """Computes the reference loss with plain automatic differentiation."""
  del chunk_size
  logits = hidden.astype(jnp.float32) @ table.T + bias[None]
  return losses.cross_entropy(logits, labels)


@functools.partial(jax.jit, static_argnames=('chunk_size', 'function'))
def _run(
  hidden,
  table,
  bias,
  labels,
  *,
  chunk_size=None,
  function=linear_cross_entropy.linear_cross_entropy,
):
  """Returns losses and correctness, and gradients of a weighted sum."""
  weights = jnp.arange(1.0, labels.shape[0] + 1)

  def total(*arrays):
    result = function(*arrays, labels, chunk_size=chunk_size)
    return jnp.sum(weights * result.loss), result

  gradients, result = jax.grad(total, (0, 1, 2), has_aux=True)(
    hidden, table, bias
  )
  return result, gradients


@pytest.mark.parametrize('chunk_size', [None, 2, 1])
def test_loss_computed_by_hand(chunk_size):
  result, _ = _run(
    jnp.array([[1.0, 0.0], [0.0, 1.0]]),
    jnp.log(jnp.array([[2.0, 1.0], [3.0, 1.0], [5.0, 2.0]])),
    jnp.zeros(3),
    jnp.array([1, 2]),
    chunk_size=chunk_size,
  )
  np.testing.assert_allclose(
    result.loss, [np.log(10 / 3), np.log(4 / 2)], rtol=1e-6
  )
  np.testing.assert_array_equal(result.correct, [0.0, 1.0])


@pytest.mark.parametrize('vocab, chunk_size', CASES)
def test_loss_and_gradients_equal_plain_cross_entropy(vocab, chunk_size):
  """Every token of the vocabulary is a label."""
  hidden, table, bias, _ = _case(vocab, rows=vocab)
  labels = jnp.asarray(np.arange(vocab)[::-1].copy())
  # Half of the predictions are correct.
  hidden = hidden.at[::2].add(3 * table[labels[::2]])
  got, gradients = _run(hidden, table, bias, labels, chunk_size=chunk_size)
  want, plain = _run(hidden, table, bias, labels, function=_plain)
  np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(got.correct, want.correct)
  assert 0 < got.correct.mean() < 1
  for g, w in zip(gradients, plain, strict=True):
    np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('devices', [1, 8])
@pytest.mark.parametrize('vocab', mark_slow([24, 23], slow=[24]))
def test_cpu_chunks_keep_logits_for_the_backward_pass(
  monkeypatch, vocab, devices
):
  """The chunks fit into the CPU cache."""
  monkeypatch.setattr(linear_cross_entropy, '_cpu_chunk_size', lambda *_: 7)
  monkeypatch.setattr(jax, 'device_count', lambda: devices)
  arrays = _case(vocab)
  outputs = linear_cross_entropy._chunked_forward(
    linear_cross_entropy._plan_chunks(vocab, 7, sharded=devices > 1),
    True,
    *arrays,
  )[1][-1]
  assert outputs.size >= arrays[0].shape[0] * vocab
  got, gradients = _run.__wrapped__(*arrays)
  want, plain = _run(*arrays, function=_plain)
  np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(got.correct, want.correct)
  for g, w in zip(gradients, plain, strict=True):
    np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
  'platform, num_labels, rows, want',
  [
    ('cpu', 320, 32000, None),
    ('cpu', 320, 250000, 3276),
    ('cpu', 2048, 250000, 512),
    ('cpu', 10**5, 10**5, 256),
    ('gpu', 320, 250000, None),
  ],
)
def test_cpu_chunk_size(monkeypatch, platform, num_labels, rows, want):
  monkeypatch.setattr(jax, 'default_backend', lambda: platform)
  assert linear_cross_entropy._cpu_chunk_size(num_labels, rows) == want


@pytest.mark.parametrize('chunk_size', [None, 4])
def test_gradient_equals_finite_differences(chunk_size):
  *arrays, labels = _case(9, rows=3)
  rng = np.random.default_rng(0)
  move = [rng.normal(size=a.shape).astype(np.float32) for a in arrays]
  gradients = _run(*arrays, labels, chunk_size=chunk_size)[1]
  up, down = (
    _run(
      *[np.asarray(a) + scale * m for a, m in zip(arrays, move, strict=True)],
      labels,
      chunk_size=chunk_size,
    )[0].loss
    for scale in (np.float32(1e-2), np.float32(-1e-2))
  )
  numerical = (np.arange(1, 4) * np.asarray(up - down)).sum() / 2e-2
  exact = sum((g * m).sum() for g, m in zip(gradients, move, strict=True))
  np.testing.assert_allclose(exact, numerical, rtol=1e-2)


@pytest.mark.parametrize('chunk_size', [None, 8, 7])
def test_losses_are_independent(chunk_size):
  hidden, table, bias, labels = map(np.asarray, _case(24))
  order = np.array([4, 1, 5, 0, 2, 3])
  all_rows, _ = _run(hidden, table, bias, labels, chunk_size=chunk_size)
  moved, _ = _run(
    hidden[order], table, bias, labels[order], chunk_size=chunk_size
  )
  np.testing.assert_allclose(all_rows.loss[order], moved.loss, rtol=1e-5)


@pytest.mark.parametrize('chunk_size', [None, 7, 8])
def test_bfloat16_accumulates_in_float32(chunk_size):
  hidden, table, bias, labels = _case(24, dtype=jnp.bfloat16)
  got, gradients = _run(hidden, table, bias, labels, chunk_size=chunk_size)
  rounded = table.astype(jnp.bfloat16).astype(jnp.float32)
  want, plain = _run(hidden, rounded, bias, labels, function=_plain)
  np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)
  assert [g.dtype for g in gradients] == [
    jnp.bfloat16,
    jnp.float32,
    jnp.float32,
  ]
  for g, w in zip(gradients, plain, strict=True):
    np.testing.assert_allclose(
      np.asarray(g, np.float32), np.asarray(w, np.float32), rtol=0.05, atol=0.05
    )


@pytest.mark.parametrize('chunk_size', [None, 7, 8])
@pytest.mark.parametrize('scale', [0.0, 1e4])
def test_degenerate_inputs_are_finite(chunk_size, scale):
  hidden, table, bias, labels = map(np.asarray, _case(24))
  result, gradients = _run(
    hidden * np.float32(scale),
    table * np.float32(scale),
    bias * 0,
    labels,
    chunk_size=chunk_size,
  )
  assert np.isfinite(result.loss).all()
  assert all(np.isfinite(g).all() for g in gradients)


def test_correctness_has_no_gradient():
  hidden, table, bias, labels = _case(24)
  for chunk_size in (None, 8):

    def total(h, c=chunk_size):
      return linear_cross_entropy.linear_cross_entropy(
        h, table, bias, labels, chunk_size=c
      ).correct.sum()

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(hidden), 0)


@pytest.mark.parametrize(
  'rows, chunk_size, want',
  [
    (32768, 5000, (32768, 8, 4096, 64)),
    (24, 5, (24, 6, 4, 4)),
    (24, 8, (24, 3, 8, 8)),
    (23, 8, (23, 3, 8, 1)),
    (250002, 8192, (250002, 43, 5814, 2)),
  ],
)
def test_chunk_plan_prefers_shardable_chunks(rows, chunk_size, want):
  assert (
    linear_cross_entropy._plan_chunks(rows, chunk_size, sharded=True) == want
  )
  alone = linear_cross_entropy._plan_chunks(rows, chunk_size, sharded=False)
  assert alone == (rows, -(-rows // chunk_size), chunk_size, 1)


def test_single_device_chunks_equal_sharded_chunks(monkeypatch):
  arrays = _case(24)
  grouped = linear_cross_entropy.linear_cross_entropy(*arrays, chunk_size=8)
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  alone = linear_cross_entropy.linear_cross_entropy(*arrays, chunk_size=8)
  np.testing.assert_allclose(grouped.loss, alone.loss, rtol=1e-6)


def _largest_array(function, *args) -> int:
  """Returns the size of the largest array in a jaxpr and its inner jaxprs."""

  def sizes(jaxpr):
    for equation in jaxpr.eqns:
      yield from (
        v.aval.size for v in equation.outvars if hasattr(v.aval, 'size')
      )
      for inner in jax.extend.core.jaxprs_in_params(equation.params):
        yield from sizes(inner)

  return max(sizes(jax.make_jaxpr(function)(*args).jaxpr))


@pytest.mark.parametrize('vocab', [1024, 1021])
def test_chunked_loss_does_not_store_all_logits(vocab):
  arrays = _case(vocab, rows=300)
  for chunk_size, columns in ((None, vocab), (64, 64)):
    largest = _largest_array(
      functools.partial(_run.__wrapped__, chunk_size=chunk_size), *arrays
    )
    assert largest == 300 * columns


@pytest.mark.parametrize('chunk_size', mark_slow([None, 8, 7], slow=[8]))
def test_sharded_arrays_equal_one_device(chunk_size):
  arrays = _case(24, rows=8)
  mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('data', 'tensor'))
  sharded = [
    jax.device_put(array, NamedSharding(mesh, PartitionSpec(axis)))
    for array, axis in zip(
      arrays, ('data', 'tensor', 'tensor', 'data'), strict=True
    )
  ]
  single_device = _run(*arrays, chunk_size=chunk_size)
  all_devices = _run(*sharded, chunk_size=chunk_size)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
    single_device,
    all_devices,
  )
