"""Compares xsim and xsim++ with LASER."""

import sys
import types

import numpy as np
import pytest

from tests.official import scorers
from xlflax.evaluation.tasks import similarity_search

pytestmark = pytest.mark.slow


class _Index:
  """Fake faiss index with exact inner product search."""

  def __init__(self, size: int):
    self._vectors = np.zeros((0, size), np.float32)

  def add(self, vectors):
    self._vectors = np.concatenate([self._vectors, vectors])

  def search(self, queries, k: int):
    scores = queries @ self._vectors.T
    order = np.argsort(-scores, axis=1, kind='stable')[:, :k]
    return np.take_along_axis(scores, order, 1), order


def _normalize(vectors):
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope='module')
def laser():
  with pytest.MonkeyPatch.context() as patch:
    if 'faiss' not in sys.modules:
      faiss = types.ModuleType('faiss')
      faiss.IndexFlatIP, faiss.normalize_L2 = _Index, _normalize
      patch.setitem(sys.modules, 'faiss', faiss)
    yield scorers.load_program('LASER', 'source', 'xsim.py')


@pytest.mark.parametrize('margin', ['ratio', 'distance', 'absolute'])
@pytest.mark.parametrize('altered', [0, 60])
def test_error_rates_equal_laser(laser, tmp_path, margin, altered):
  generator = np.random.default_rng(altered)
  for noise in (0.6, 1.0, 2.0):
    first = generator.normal(size=(80, 10)) + 1
    second = first + noise * generator.normal(size=(80, 10))
    near = first[generator.integers(0, 80, altered)]
    more = near + noise * generator.normal(size=(altered, 10))
    sides = [first, np.concatenate([second, more])]
    sides = [side.astype(np.float32) for side in sides]
    # Pairs of sentences have equal texts, so both are correct.
    texts = [str(i // 2) if i < 20 else str(i) for i in range(80 + altered)]
    (tmp_path / 'text').write_text(''.join(f'{line}\n' for line in texts))
    (tmp_path / 'altered').write_text('{}')
    wrong, count, _ = laser.xSIM(
      *(side.copy() for side in sides),
      margin=margin,
      eval_text=str(tmp_path / 'text'),
      augmented_json=str(tmp_path / 'altered') if altered else None,
    )
    assert 0 < wrong < count == 80
    error_rate = similarity_search.search_errors(
      *sides, texts, margin=margin
    ).value
    assert error_rate == pytest.approx(wrong / count, abs=1e-12)
