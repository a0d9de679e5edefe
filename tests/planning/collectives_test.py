"""Tests of counting collectives in compiled programs."""

import numpy as np
import pytest

from tests.planning import sharded_programs
from xlflax.planning import collectives, replica_groups
from xlflax.training.devices import accelerators

Collective = collectives.Collective


def test_collectives_of_a_handwritten_program():
  counts = collectives.find_collectives(
    sharded_programs.TEXT, devices=4, per_node=2
  )
  assert dict(counts) == {
    Collective('all-gather', 4, 2, 'bf16', (8, 4), 64): 3,
    Collective('reduce-scatter', 4, 2, 'f32', (8, 4), 128): 3,
    Collective('all-reduce', 2, 2, 'f32', (6, 8), 192): 1,
    Collective('collective-permute', 2, 1, 'f32', (6, 8), 192): 1,
  }


def test_groups_of_one_device_are_ignored():
  text = sharded_programs.TEXT.replace('{{0,2},{1,3}}', '{{0},{1},{2},{3}}')
  counts = collectives.find_collectives(text, devices=4, per_node=2)
  assert 'all-reduce' not in {c.kind for c in counts}


@pytest.mark.parametrize(
  ('collective', 'sent', 'outside'),
  [
    # 4 devices in 2 nodes exchange 64 bytes. A device sends 3 shards of 16 bytes.
    # Each node receives the half of the other node over two links.
    (Collective('all-gather', 4, 2, 'f32', (), 64), 48, 16),
    (Collective('reduce-scatter', 4, 2, 'f32', (), 64), 48, 16),
    (Collective('all-reduce', 4, 2, 'f32', (), 64), 96, 32),
    # Each device sends half of its shards to the other node over its own link.
    (Collective('all-to-all', 4, 2, 'f32', (), 64), 48, 32),
    (Collective('collective-permute', 2, 2, 'f32', (), 64), 64, 64),
    (Collective('collective-permute', 2, 1, 'f32', (), 64), 64, 0),
    (Collective('all-reduce', 8, 1, 'f32', (), 64), 112, 0),
  ],
)
def test_sent_bytes_of_collectives(collective, sent, outside):
  assert collective.sent == sent
  assert collective.sent_outside == outside


def test_seconds_are_limited_by_the_slower_link():
  device = accelerators.Accelerator(
    platform='gpu',
    name='x',
    kinds=(),
    flops=1,
    memory=1,
    bandwidth=1,
    inside=100,
    outside=10,
  )
  within = Collective('all-gather', 4, 1, 'f32', (), 400)
  across = Collective('all-gather', 4, 2, 'f32', (), 400)
  assert within.seconds(device) == 300 / 100
  assert across.seconds(device) == max(300 / 100, 100 / 10)
  one_each = Collective('all-reduce', 2, 2, 'f32', (), 400)
  assert one_each.seconds(device) == 2 * 200 / 10


@pytest.mark.parametrize(
  ('attributes', 'expected'),
  [
    ('replica_groups={{0,1},{2,3}}, x=1', [[0, 1], [2, 3]]),
    ('replica_groups=[2,2]<=[4]', [[0, 1], [2, 3]]),
    ('replica_groups=[2,2]<=[2,2]T(1,0)', [[0, 2], [1, 3]]),
    ("replica_groups=mesh['a'=2,'b'=2] {'a'}, x", [[0, 2], [1, 3]]),
    ("replica_groups=mesh['a'=2,'b'=2] {'a','b'}", [[0, 1, 2, 3]]),
    (
      "replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}, x",
      [[0, 2], [1, 3]],
    ),
    ("replica_groups=mesh['a'=4] {'a':(2)2}", [[0, 1], [2, 3]]),
    ("replica_groups=mesh['a'=4] {'a':(1)2}", [[0, 2], [1, 3]]),
    ('replica_groups={}', [[0, 1, 2, 3]]),
    ('', [[0, 1, 2, 3]]),
    ('source_target_pairs={{0,1},{3,2}}', [[0, 1], [3, 2]]),
  ],
)
def test_replica_groups_are_parsed(attributes, expected):
  np.testing.assert_array_equal(
    replica_groups.parse_replica_groups(attributes, 4), expected
  )


def test_unknown_format_of_replica_groups_is_rejected():
  with pytest.raises(ValueError, match='replica_groups=<new>'):
    replica_groups.parse_replica_groups('replica_groups=<new>', 4)


@pytest.fixture(scope='module')
def compiled():
  """Program of 6 scanned layers of 64 x 64 on data 2 x fsdp 4 devices."""
  return sharded_programs.layers(data=2, fsdp=4)


def test_collectives_of_a_compiled_program(compiled):
  """Weights are gathered in bfloat16, twice for each layer; the gradient is
  scattered in a node and reduced across nodes."""
  counts = collectives.find_collectives(compiled, devices=8, per_node=4)
  assert (
    counts[Collective('all-gather', 4, 1, 'bf16', (64, 64), 64 * 64 * 2)]
    == 2 * 6
  )
  assert sum(n for c, n in counts.items() if c.kind == 'all-gather') == 12
  reduced = {c: n for c, n in counts.items() if c.kind != 'all-gather'}
  assert sum(c.bytes * n for c, n in reduced.items() if c.nodes == 2) in (
    6 * 64 * 64 * 2,
    6 * 64 * 64 * 2 / 4,
  )
  assert sum(c.bytes * n for c, n in reduced.items() if c.nodes == 1) in (
    0,
    6 * 64 * 64 * 2,
  )
