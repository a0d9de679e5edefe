"""Compares the probes with the classifiers of scikit-learn."""

import numpy as np
import pytest
from sklearn import linear_model, neighbors, pipeline, preprocessing

from xlflax.evaluation.metrics import probes


@pytest.fixture(scope='module')
def data():
  """Vectors of three overlapping classes, with one constant dimension."""
  rng = np.random.default_rng(0)
  labels = rng.integers(3, size=160)
  vectors = rng.normal(size=(160, 12)) * np.arange(12)
  vectors[:, 3] += 4 * labels
  return vectors.astype(np.float32), labels


@pytest.mark.parametrize('penalty', [0.1, 1.0, 30.0])
def test_linear_probe_equals_scikit_learn(data, penalty):
  vectors, labels = data
  train, test = vectors[:100], vectors[100:]
  theirs = pipeline.make_pipeline(
    preprocessing.StandardScaler(),
    linear_model.LogisticRegression(C=1 / penalty, max_iter=1000, tol=1e-8),
  ).fit(train, labels[:100])
  predicted = probes.linear_probe(train, labels[:100], penalty=penalty)(test)
  assert (predicted == theirs.predict(test)).mean() > 0.98
  assert 0.4 < (predicted == labels[100:]).mean() < 0.95
  again = probes.linear_probe(train, labels[:100], penalty=penalty)(test)
  assert (predicted == again).all()


def test_nearest_neighbor_probe_equals_scikit_learn(data):
  vectors, labels = data
  train, test = vectors[:100], vectors[100:]
  theirs = neighbors.KNeighborsClassifier(7, metric='cosine').fit(
    train, labels[:100]
  )
  predicted = probes.nearest_neighbor_probe(train, labels[:100], k=7)(test)
  np.testing.assert_array_equal(predicted, theirs.predict(test))
  everything = probes.nearest_neighbor_probe(train, labels[:100], k=1000)(test)
  assert (everything == np.bincount(labels[:100]).argmax()).all()


def test_single_class_is_always_predicted():
  vectors = np.eye(4, dtype=np.float32)
  for probe in (probes.linear_probe, probes.nearest_neighbor_probe):
    predicted = probe(vectors, np.zeros(4, int))(vectors)
    assert predicted.tolist() == [0, 0, 0, 0]
