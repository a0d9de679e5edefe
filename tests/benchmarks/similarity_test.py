"""Tests of the comparison with Faiss and NumPy at small sizes."""

import numpy as np
import pytest

from benchmarks import similarity
from benchmarks.baselines import similarity as baselines
from xlflax.similarity import cka, csls


def _args(*flags):
  return similarity._make_parser().parse_args(flags)


def test_csls_baselines_find_the_same_translations():
  first, second = similarity.make_vectors(300, 64)
  expected = csls.find_nearest(first, second, top=3, k=5).indices
  translations = baselines.csls_numpy(first, second, top=3, k=5)
  np.testing.assert_array_equal(translations, expected)
  assert np.mean(expected[:, 0] == np.arange(300)) > 0.8
  pytest.importorskip('faiss')
  translations = baselines.csls_faiss(first, second, top=3, k=5)
  assert np.mean(translations == expected) > 0.99


@pytest.mark.parametrize('diagonal', [True, False])
def test_cka_baseline_has_the_same_result(diagonal):
  plain = baselines.PlainCKA(diagonal=diagonal)
  ours = cka.LayerCKA(layers='diagonal' if diagonal else 'all')
  count = 0
  for first, second in baselines.generate_states(
    layers=2, sentences=70, size=8, batch=32
  ):
    plain.update(first, second)
    ours.update(first, second)
    count += first.shape[1]
  assert count == 70
  np.testing.assert_allclose(plain.result(), ours.result(), rtol=1e-6)


@pytest.mark.parametrize(
  'part, variants',
  [
    ('csls', ['x/csls', 'numpy/csls']),
    ('cka', ['x/cka', 'x/cka_diagonal', 'numpy/cka']),
  ],
)
def test_variants_agree_and_are_measured(part, variants):
  args = _args(
    part, '--count=200', '--size=8', '--layers=2', '--batch=64', '--k=3'
  )
  measurements = {
    name: getattr(similarity, f'measure_{part}')(name, args)
    for name in variants
  }
  first, *other_outputs = (
    measurement.pop('outputs') for measurement in measurements.values()
  )
  assert all(
    similarity.outputs_agree(part, first, other) for other in other_outputs
  )
  text = similarity.format_table(measurements, scale=4.0, project=400)
  assert text.startswith(
    '| variant | seconds | CPU seconds | peak GiB | CPU minutes at 400 |'
  )
  assert all(
    name in text and measurement['seconds'][0] > 0
    for name, measurement in measurements.items()
  )


def test_outputs_agree_detects_different_results():
  assert not similarity.outputs_agree('csls', [[1], [2]], [[1], [3]])
  assert not similarity.outputs_agree(
    'cka', [[0.5, 0.1], [0.1, 0.5]], [0.5, 0.6]
  )
  assert similarity.outputs_agree('cka', [[0.5, 0.1], [0.1, 0.6]], [0.5, 0.6])
