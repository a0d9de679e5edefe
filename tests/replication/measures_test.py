"""Retrieval, maps and CKA of states whose relation is known."""

import types

import numpy as np
import pytest

from tests.training.vocabularies import Pieces
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


def test_share_of_the_variance_between_languages(states):
  assert measures.offset_share(states, states) == pytest.approx(0.0)
  shift = np.zeros(8)
  shift[0] = 2.0
  both = np.concatenate([states, states + shift], axis=1)
  whole = ((both - both.mean(1, keepdims=True)) ** 2).mean(1).sum(-1)
  found = measures.offset_share(states, states + shift)
  np.testing.assert_allclose(found, 1.0 / whole)  # each mean stands 1 aside
  far = measures.offset_share(states, states + 1000 * shift)
  assert far == pytest.approx(1.0, abs=1e-4)


def test_norms_of_rows_by_script():
  vocabulary = Pieces(('▁the', 'ing', '▁дом'))
  table = np.zeros((len(vocabulary) + 2, 3))
  ids = [vocabulary.all.index(piece) for piece in ('▁the', 'ing', '▁дом')]
  table[ids, 0] = 1.0, 3.0, 7.0
  setup = types.SimpleNamespace(vocabulary=vocabulary)
  found = measures.norms(setup, {'model': {'embeddings': {'token': table}}})
  assert found['norm/cyrillic'] == 7.0 and found['norm/latin'] <= 2.0
  assert measures.norms(setup, {'model': {'language_specific': {}}}) == {}


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
