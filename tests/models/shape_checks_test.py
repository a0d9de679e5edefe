"""Sizes that no model with some parameters has."""

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
    (
      {'vocab_size': 76, 'num_layers': 1},
      [()],
    ),  # a model of a user's own, without a table
    ({'vocab_size': 10**6}, [(10**6, 8)]),
    ({'num_layers': 100}, _SHAPES),  # unrolled or stacked: an axis or a tensor
  ],
)
def test_sizes_that_a_model_has(sizes, shapes):
  assert shape_checks.find_shape_problems(_Config(**sizes), shapes) == []


@pytest.mark.parametrize(
  'sizes, size',
  [
    ({'vocab_size': 10**12}, 1000000000000),
    ({'num_layers': 10**9}, 1000000000),
  ],
)
def test_sizes_that_no_model_has(sizes, size):
  (problem,) = shape_checks.find_shape_problems(_Config(**sizes), _SHAPES)
  assert str(size) in problem
