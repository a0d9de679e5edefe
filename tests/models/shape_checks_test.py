"""Checks of model sizes against the shapes of parameters."""

import dataclasses

import pytest

from xlflax.models import shape_checks


@dataclasses.dataclass
class _Config:
  vocab_size: int = 100
  num_layers: int = 2


_SHAPES = [(100, 8), (8, 8), (2, 8)]


@pytest.mark.parametrize(
  'sizes, shapes',
  [
    ({}, _SHAPES),
    ({'vocab_size': 3000}, _SHAPES),
    # A user-defined model without an embedding table.
    ({'vocab_size': 76, 'num_layers': 1}, [()]),
    ({'vocab_size': 10**6}, [(10**6, 8)]),
    # Layers are counted as an axis or as tensors.
    ({'num_layers': 100}, _SHAPES),
  ],
)
def test_plausible_sizes_are_accepted(sizes, shapes):
  assert shape_checks.find_shape_problems(_Config(**sizes), shapes) == []


@pytest.mark.parametrize(
  'sizes, size',
  [
    ({'vocab_size': 10**12}, 1000000000000),
    ({'num_layers': 10**9}, 1000000000),
  ],
)
def test_implausible_sizes_are_reported(sizes, size):
  (problem,) = shape_checks.find_shape_problems(_Config(**sizes), _SHAPES)
  assert str(size) in problem
