"""What can be read from vectors: linear and nearest-neighbour probes.

Sources: Alain and Bengio (2017), "Understanding intermediate layers using
linear classifier probes"; the classification and k-NN evaluators of MTEB.
"""

from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from xlflax.similarity import cosine, neighbours

Probe = Callable[[np.ndarray], np.ndarray]  # [M, D] -> classes [M]


def linear(
  vectors: np.ndarray, labels: np.ndarray, *, penalty: float = 1.0
) -> Probe:
  """Logistic regression on standardised vectors.

  Minimises the summed cross-entropy plus penalty / 2 times the squared weights
  without biases, as scikit-learn's LogisticRegression at C = 1 / penalty does.
  The minimum is unique: nothing is drawn.

  Args:
    vectors: [N, D].
    labels: int [N], classes from 0.
    penalty: of the weights.
  """
  centre, scale = vectors.mean(0, dtype=np.float64), vectors.std(0)
  scale = np.where(scale > 0, scale, 1.0)

  def features(found: np.ndarray) -> np.ndarray:
    standard = (found - centre) / scale
    return np.concatenate([standard, np.ones((len(found), 1))], 1)

  inside, targets = features(vectors), np.eye(labels.max() + 1)[labels]
  shape = inside.shape[1], targets.shape[1]

  def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
    weights = flat.reshape(shape)
    logs = special.log_softmax(inside @ weights, axis=1)  # [N, C]
    decayed = penalty * np.append(weights[:-1], np.zeros((1, shape[1])), 0)
    slope = inside.T @ (np.exp(logs) - targets) + decayed
    value = np.sum(decayed * weights) / 2 - np.sum(logs * targets)
    return float(value), slope.ravel()

  found = optimize.minimize(
    loss, np.zeros(shape).ravel(), jac=True, method='L-BFGS-B'
  )
  weights = found.x.reshape(shape)
  return lambda asked: (features(asked) @ weights).argmax(1)


def nearest(vectors: np.ndarray, labels: np.ndarray, *, k: int = 10) -> Probe:
  """The most frequent class of the k nearest vectors by cosine.

  Of equally frequent classes the first one counts.

  Args:
    vectors: [N, D].
    labels: int [N], classes from 0.
    k: how many vote.
  """
  known, votes = cosine.unit_rows(vectors), np.eye(labels.max() + 1)[labels]

  def predict(asked: np.ndarray) -> np.ndarray:
    found = neighbours.nearest(cosine.unit_rows(asked), known, k=k)
    return votes[found.indices].sum(1).argmax(1)

  return predict
