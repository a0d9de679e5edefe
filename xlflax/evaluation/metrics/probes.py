"""Probing classifiers for vectors: linear and nearest-neighbor.

Sources: Alain and Bengio (2017), "Understanding intermediate layers using
linear classifier probes"; the classification and k-NN evaluators of MTEB.
"""

from collections.abc import Callable

import numpy as np

from xlflax.similarity import cosine, neighbors

# Function from vectors of shape [M, D] to classes of shape [M].
Probe = Callable[[np.ndarray], np.ndarray]


def linear_probe(
  vectors: np.ndarray, labels: np.ndarray, *, penalty: float = 1.0
) -> Probe:
  """Fits scikit-learn's logistic regression to standardized vectors.

  The objective is the summed cross-entropy plus penalty / 2 times the squared
  weights without biases. Its minimum is unique, so the result does not depend
  on a seed.

  Args:
    vectors: Array of training vectors of shape [N, D].
    labels: Class index of each vector, an int array of shape [N]. The smallest
      index is 0.
    penalty: Coefficient of the L2 penalty on the weights.

  Returns:
    Function that predicts classes.
  """
  from sklearn import linear_model, pipeline, preprocessing  # slow to import

  if len(np.unique(labels)) < 2:  # scikit-learn requires two classes.
    return lambda queries: np.full(len(queries), labels[0])
  classifier = pipeline.make_pipeline(
    preprocessing.StandardScaler(),
    linear_model.LogisticRegression(C=1 / penalty, max_iter=1000),
  )
  return classifier.fit(vectors.astype(np.float64), labels).predict


def nearest_neighbor_probe(
  vectors: np.ndarray, labels: np.ndarray, *, k: int = 10
) -> Probe:
  """Fits a k-nearest-neighbors classifier with cosine similarity.

  Ties are resolved in favor of the class with the lowest number.

  Args:
    vectors: Array of training vectors of shape [N, D].
    labels: Class index of each vector, an int array of shape [N]. The smallest
      index is 0.
    k: Number of nearest neighbors that vote.

  Returns:
    Function that predicts classes.
  """
  unit_vectors = cosine.normalize_rows(vectors)
  votes = np.eye(labels.max() + 1)[labels]

  def predict(queries: np.ndarray) -> np.ndarray:
    nearest = neighbors.find_nearest(
      cosine.normalize_rows(queries), unit_vectors, k=k
    )
    return votes[nearest.indices].sum(1).argmax(1)

  return predict
