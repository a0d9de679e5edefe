"""Tests of the lower bound of communication, compared with counts by hand."""

import math

import jax

from tests.training import tiny, training_setup_test
from xlflax.planning import communication_lower_bound
from xlflax.training import param_tree, training_setup
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers


def _sent(mesh, **fields):
  """Returns the sent bytes and the sizes of sharded and replicated parameters."""
  setup = training_setup.Setup(
    training_setup_test.make_settings(
      partitioner=partitioning.Partitioner(**mesh), **fields
    )
  )
  split, replicated = {}, {}
  for name, leaf in param_tree.flatten_params(
    setup.factory.abstract_sharded.params
  ).items():
    leaves = replicated if leaf.sharding.is_fully_replicated else split
    leaves[name] = math.prod(leaf.shape)
  return communication_lower_bound.minimum_bytes_sent(setup), split, replicated


def test_replicated_gradients_are_all_reduced():
  sent, split, replicated = _sent({'data': 8})
  assert not split and sent == 4 * 2 * 7 / 8 * sum(replicated.values())
  half, *_ = _sent({'data': 8}, model=tiny.make_model(dtype='bfloat16'))
  assert half == sent / 2


def test_sharded_parameters_are_gathered_and_gradients_scattered():
  """Two devices share a copy, and four devices have the same half."""
  mesh = {'data': 4, 'fsdp': 2}
  sent, split, replicated = _sent(mesh)
  halves = sum(split.values()) / 2
  assert halves > sum(replicated.values()) > 0
  gradients = halves * (1 + 2 * 3 / 4) + 2 * 7 / 8 * sum(replicated.values())
  assert sent == 4 * (halves + gradients)
  frozen = optimizers.AdamW(learning_rate=0.1, frozen=('token',))
  less, *_ = _sent(mesh, optimizer=frozen)
  table = split['model/embeddings/token'] / 2
  assert sent - less == 4 * table * (1 + 2 * 3 / 4)


def test_one_device_sends_nothing():
  assert _sent({'devices': tuple(jax.devices()[:1])})[0] == 0
