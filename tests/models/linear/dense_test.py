"""Sharded weights and embedding tables, and their communication."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests.training import tiny
from xlflax.models import compile_targets, embeddings
from xlflax.models.linear import dense
from xlflax.training.devices import partitioning

_FSDP = PartitionSpec(None, 'fsdp')
_BOTH = ('data', 'fsdp')


def _compiled(partitioner, function, *arguments):
  """Compiles the gradient of the first argument, sharded like it."""
  with partitioner.scope():
    return (
      jax.jit(
        jax.grad(function), out_shardings=NamedSharding(partitioner.mesh, _FSDP)
      )
      .lower(*arguments)
      .compile()
    )


def _largest_collective(program) -> int:
  """Returns the number of elements of the largest array of a collective."""
  lines = re.findall(
    r'= (.*) (?:all-\w+|reduce-scatter|collective-permute)\(', program.as_text()
  )
  shapes = re.findall(r'\[([\d,]+)\]', ' '.join(lines))
  return max(int(np.prod([int(n) for n in s.split(',')])) for s in shapes)


def test_large_embedding_table_is_not_communicated():
  """Only ids and embeddings are exchanged, not the table or its gradient."""
  partitioner = partitioning.Partitioner(fsdp=8)
  table = jax.random.normal(jax.random.key(0), (4096, 16))
  ids = jax.random.randint(jax.random.key(1), (8, 12), 0, 4096)

  def loss(table, ids):
    return jnp.square(embeddings.embedding_lookup(table, ids, 'vocab')).sum()

  split = jax.device_put(table, NamedSharding(partitioner.mesh, _FSDP))
  ids = jax.device_put(ids, partitioner.batch_sharding)
  program = _compiled(partitioner, loss, split, ids)
  assert _largest_collective(program) <= ids.size * 16
  want = np.zeros(table.shape, np.float32)
  np.add.at(want, np.asarray(ids), 2 * np.asarray(table)[np.asarray(ids)])
  np.testing.assert_allclose(program(split, ids), want, rtol=1e-6)


@pytest.mark.parametrize('width, columns', [(16, _BOTH), (12, 'fsdp')])
def test_embedding_columns_are_sharded_over_all_devices(width, columns):
  """Columns that all devices cannot divide are sharded over `fsdp`."""
  partitioner = partitioning.Partitioner(
    data=2, fsdp=4, rules=(*partitioning.DEFAULT_RULES, ('columns', _BOTH))
  )
  table = jax.random.normal(jax.random.key(0), (4096, width))
  ids = jax.random.randint(jax.random.key(1), (8, 12), 0, 4096)
  sharding = partitioner.shardings(
    nn.LogicallyPartitioned(table, ('vocab', 'columns'))
  )
  assert sharding.spec == PartitionSpec('tensor', columns)

  def loss(table, ids):
    rows = embeddings.embedding_lookup(table, ids, 'vocab')
    head = dense.gather_output_table(table, jnp.float32)
    return jnp.square(rows).sum() + jnp.square(head[:8]).sum()

  def lookup(table, ids):
    return jnp.square(embeddings.embedding_lookup(table, ids, 'vocab')).sum()

  want = jax.grad(loss)(table, ids)
  split = jax.device_put(table, sharding)
  ids = jax.device_put(ids, partitioner.batch_sharding)
  with partitioner.scope():
    got = jax.jit(jax.grad(loss), out_shardings=sharding)(split, ids)
    alone = jax.jit(jax.grad(lookup), out_shardings=sharding).lower(split, ids)
  np.testing.assert_allclose(got, want, rtol=1e-6)
  if columns == _BOTH:
    assert _largest_collective(alone.compile()) <= ids.size * width


def test_gradients_of_a_tied_table_are_added_while_sharded():
  """XLA adds the gradients on each device before it sums them over nodes.

  Otherwise, XLA:GPU would sum the gradients of the lookup and of the head over
  the nodes separately.
  """
  partitioner = partitioning.Partitioner(data=2, fsdp=4)
  table = jax.random.normal(jax.random.key(0), (4096, 16))
  ids = jax.random.randint(jax.random.key(1), (8, 12), 0, 4096)

  def loss(table, ids):
    rows = embeddings.embedding_lookup(table, ids, 'vocab')
    head = dense.gather_output_table(table, jnp.bfloat16)
    return jnp.square(jnp.einsum('bth,vh->btv', rows, head)).mean()

  with (
    partitioner.scope(),
    compile_targets.compiling_for(compile_targets.Target('gpu', (9, 0))),
  ):
    jaxpr = jax.make_jaxpr(jax.grad(loss))(table, ids).jaxpr
  makers = {str(v): e for e in jaxpr.eqns for v in e.outvars}
  (added,) = [e for e in jaxpr.eqns if e.primitive.name == 'add_any']
  for part in added.invars:
    maker = makers[str(part)]
    assert maker.primitive.name == 'sharding_constraint'
    assert maker.params['sharding'].spec == PartitionSpec('tensor', 'fsdp')
    assert part.aval.dtype == jnp.float32
  want = jax.grad(loss)(table, ids)
  split = jax.device_put(table, NamedSharding(partitioner.mesh, _FSDP))
  ids = jax.device_put(ids, partitioner.batch_sharding)
  program = _compiled(partitioner, loss, split, ids)
  np.testing.assert_allclose(program(split, ids), want, rtol=1e-4, atol=1e-6)


def test_gpus_flatten_biases_with_several_axes():
  """The program adds a bias of shape [6] to [4, 6] with equal values."""
  config = tiny.make_model().config
  linear = dense.Linear(config, (2, 3), ('embed', 'heads', 'kv'))
  inputs = jax.random.normal(jax.random.key(0), (4, 5))
  params = {
    'kernel': jax.random.normal(jax.random.key(1), (5, 2, 3)),
    'bias': jax.random.normal(jax.random.key(2), (2, 3)),
  }

  def apply(inputs):
    return linear.apply({'params': params}, inputs)

  expected = apply(inputs)
  with compile_targets.compiling_for(compile_targets.Target('gpu', (9, 0))):
    jaxpr = jax.make_jaxpr(apply)(inputs).jaxpr
    np.testing.assert_allclose(apply(inputs), expected, rtol=1e-6)
  (addition,) = (e for e in jaxpr.eqns if e.primitive.name == 'add')
  assert addition.outvars[0].aval.shape == (4, 6)
