"""Retrieval, maps and CKA of states whose relation is known."""

import numpy as np
import pytest

from xlflax.replication import measures


@pytest.fixture(scope='module')
def states():
  return np.random.default_rng(0).normal(size=(3, 80, 8)).astype(np.float32)


def test_a_language_that_only_stands_elsewhere_is_found(states):
  moved = states + np.float32(50.0)  # of unlike length and direction
  found = measures.similarity(states, moved)
  assert found['retrieval'] == 1.0
  assert found['plain_retrieval'] < 0.5
  assert found['cka'] == pytest.approx(1.0, abs=1e-4)


def test_turned_states_are_found_by_the_map(states):
  turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))
  found = measures.similarity(states, states @ turn.astype(np.float32))
  assert found['mapped_retrieval'] == 1.0
  assert found['retrieval'] < 0.5
  assert found['cka'] == pytest.approx(1.0, abs=1e-4)
  assert {'retrieval/0', 'retrieval/2', 'cka/2'} <= found.keys()


def test_states_of_nothing_in_common_are_not_found(states):
  other = np.random.default_rng(2).normal(size=states.shape)
  found = measures.similarity(states, other.astype(np.float32))
  assert max(found['retrieval'], found['mapped_retrieval']) < 0.2
  assert found['cka'] < 0.6
