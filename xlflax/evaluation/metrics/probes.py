"""What can be read from vectors: linear and nearest-neighbour probes.

Sources: Alain and Bengio (2017), "Understanding intermediate layers using
linear classifier probes"; the classification and k-NN evaluators of MTEB.
"""

from collections.abc import Callable

import numpy as np

from xlflax.similarity import cosine, neighbors

Probe = Callable[[np.ndarray], np.ndarray]  # [M, D] -> classes [M]


def linear_probe(
  vectors: np.ndarray, labels: np.ndarray, *, penalty: float = 1.0
) -> Probe:
  """Logistic regression on standardised vectors: scikit-learn's.

  Minimises the summed cross-entropy plus penalty / 2 times the squared weights
  without biases. The minimum is unique: nothing is drawn.

  Args:
    vectors: [N, D].
    labels: int [N], classes from 0.
    penalty: of the weights.
  """
  from sklearn import linear_model, pipeline, preprocessing  # slow to import

  if len(np.unique(labels)) < 2:  # which it refuses
    return lambda asked: np.full(len(asked), labels[0])
  classifier = pipeline.make_pipeline(
    preprocessing.StandardScaler(),
    linear_model.LogisticRegression(C=1 / penalty, max_iter=1000),
  )
  return classifier.fit(vectors.astype(np.float64), labels).predict


def nearest_neighbor_probe(
  vectors: np.ndarray, labels: np.ndarray, *, k: int = 10
) -> Probe:
  """The most frequent class of the k nearest vectors by cosine.

  Of equally frequent classes the first one counts.

  Args:
    vectors: [N, D].
    labels: int [N], classes from 0.
    k: how many vote.
  """
  unit_vectors, votes = (
    cosine.normalize_rows(vectors),
    np.eye(labels.max() + 1)[labels],
  )

  def predict(asked: np.ndarray) -> np.ndarray:
    found = neighbors.find_nearest(
      cosine.normalize_rows(asked), unit_vectors, k=k
    )
    return votes[found.indices].sum(1).argmax(1)

  return predict
