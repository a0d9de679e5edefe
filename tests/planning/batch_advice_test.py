"""Tests of advice about larger batches."""

import re

import pytest

from xlflax.planning import recommendations
from xlflax.training.devices import machine_topology

_GIB = 2**30
_H200 = machine_topology.parse_topology('gpu:H200:1')


def _advise(machine=_H200, **changes):
  values = dict(
    total=15 * _GIB, state=5 * _GIB, seconds=0.06, update_seconds=0.0025
  )
  return recommendations.advise_batch(machine, **values | changes)


def test_larger_batch_is_recommended():
  """Doubling twice saves 1.25 ms and 0.63 ms of 60 ms, at least 1 % each."""
  (text,) = _advise()
  assert re.search(r'\b4 times', text)
  assert '45.0 GiB' in text  # 5 + 4 * (15 - 5)
  assert '1.9 ms' in text  # 2.5 - 2.5 / 4


@pytest.mark.parametrize(
  'changes',
  [
    dict(total=100 * _GIB),  # does not fit
    dict(update_seconds=0.001),  # saves less than 1 %
    dict(total=_GIB // 2, state=0),  # a tiny model
    dict(machine=machine_topology.parse_topology('cpu:8')),
  ],
)
def test_larger_batch_is_not_recommended(changes):
  assert _advise(**changes) == []
