"""Spanning trees against trying all."""

import itertools

import numpy as np
import pytest

from xlflax.evaluation import tree_decoding


def _is_tree(heads) -> bool:
  """One root, and every word reaches it."""
  if sum(head == 0 for head in heads) != 1:
    return False
  for word in range(1, len(heads) + 1):
    seen = set()
    while word and word not in seen:
      seen.add(word)
      word = heads[word - 1]
    if word:
      return False
  return True


def _best(scores):
  count = len(scores) - 1
  words = np.arange(1, count + 1)
  return max(
    (
      heads
      for heads in itertools.product(range(count + 1), repeat=count)
      if _is_tree(heads)
    ),
    key=lambda heads: scores[words, list(heads)].sum(),
  )


def test_the_docstrings_example():
  scores = np.array([[0, 0, 0], [1, 0, 5], [3, 2, 0]])
  assert tree_decoding.decode(scores).tolist() == [2, 0]


@pytest.mark.parametrize('seed', range(12))
def test_all_trees_of_a_few_words(seed):
  rng = np.random.default_rng(seed)
  scores = rng.normal(0, 5, (5, 5))
  scores[:, 0] += 4 * (seed % 2)  # roots that tempt to take several
  assert tuple(tree_decoding.decode(scores)) == _best(scores)


def test_a_word_alone_and_impossible_arcs():
  assert tree_decoding.decode(np.full((2, 2), -np.inf)).tolist() == [0]
  scores = np.log(
    np.array([[1, 1, 1, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0.5, 0, 0.5, 0]])
    + 1e-300
  )
  scores[0] = np.inf  # is not looked at
  with np.errstate(all='raise'):
    assert tree_decoding.decode(scores).tolist() == [2, 0, 2]
