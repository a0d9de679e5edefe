"""Tests that one-pass CSLS equals CSLS in two passes."""

import numpy as np
import pytest

from xlflax.similarity import block_matmul, csls, csls_search, neighbors

_BLOCKS = block_matmul.Blocks(8, 16)


def _unit(vectors):
  vectors = np.asarray(vectors, np.float32)
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _sides(kind, count=120, size=12):
  rng = np.random.default_rng(3)
  if kind == 'noise':
    return rng.normal(size=(2, count, size))
  shared = rng.normal(size=(count // 10, size))[
    rng.integers(0, count // 10, count)
  ] + rng.normal(size=(count, size))
  hubs = np.where(rng.random((2, count, 1)) < 0.1, 8, 1)
  return shared + 0.3 * rng.normal(size=(2, count, size)) + hubs


def _two_passes(queries, keys, top, k):
  of_keys = neighbors.find_nearest(keys, queries, k=k).scores.mean(1)
  return neighbors.find_nearest(queries, keys, k=top, penalties=of_keys / 2)


@pytest.mark.parametrize('kind', ['noise', 'clusters'])
@pytest.mark.parametrize('top, k', [(1, 10), (5, 3), (40, 10)])
@pytest.mark.parametrize('rows', [120, 97])
def test_one_pass_search_equals_two_pass_search(kind, top, k, rows):
  queries, keys = map(_unit, _sides(kind))
  queries = queries[:rows]
  expected = _two_passes(queries, keys, top, k)
  searched = csls_search.search_keys(
    queries, keys, top=top, k=k, blocks=_BLOCKS
  )
  np.testing.assert_array_equal(searched.neighbors.indices, expected.indices)
  np.testing.assert_allclose(
    searched.neighbors.scores, expected.scores, atol=1e-6
  )
  np.testing.assert_allclose(
    searched.query_means,
    neighbors.find_nearest(queries, keys, k=k).scores.mean(1),
    atol=1e-6,
  )


def test_few_queries_are_searched_again(monkeypatch):
  again = []
  nearest = neighbors.find_nearest
  monkeypatch.setattr(
    neighbors,
    'find_nearest',
    lambda queries, *a, **b: (
      again.append(len(queries)) or nearest(queries, *a, **b)
    ),
  )
  queries, keys = map(_unit, _sides('clusters', count=400))
  csls_search.search_keys(queries, keys, top=1, k=3, blocks=_BLOCKS)
  assert sum(again) <= 0.2 * len(queries)


def test_ties_select_the_first_keys():
  same = _unit(np.ones((60, 4)))
  neighbors = csls_search.search_keys(same, same, top=2, k=3, blocks=_BLOCKS)
  assert neighbors.neighbors.indices.tolist() == [[0, 1]] * 60


def test_csls_uses_one_pass_for_many_queries(monkeypatch):
  called = []
  search = csls_search.search_keys
  monkeypatch.setattr(
    csls_search,
    'search_keys',
    lambda *a, **b: called.append(len(a[0])) or search(*a, **b),
  )
  queries, keys = _sides('noise')
  long = csls.find_nearest(queries, keys, top=3, k=4, blocks=_BLOCKS)
  short = csls.find_nearest(queries, keys, top=3, k=4)
  assert called == [120]
  np.testing.assert_array_equal(long.indices, short.indices)
  np.testing.assert_allclose(long.scores, short.scores, atol=1e-5)


def test_large_matmuls_in_xla_give_the_same_neighbors(monkeypatch):
  monkeypatch.setattr(block_matmul, '_LARGE', 1)
  queries, keys = map(_unit, _sides('clusters'))
  expected = _two_passes(queries, keys, 3, 4)
  monkeypatch.setattr(block_matmul, '_LARGE', 1 << 40)
  neighbors = csls_search.search_keys(
    queries, keys, top=3, k=4, blocks=_BLOCKS
  ).neighbors
  np.testing.assert_array_equal(neighbors.indices, expected.indices)
  np.testing.assert_allclose(neighbors.scores, expected.scores, atol=1e-6)
