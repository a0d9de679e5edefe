"""Baselines for CSLS (faiss and NumPy) and for CKA (NumPy)."""

from collections.abc import Iterator

import numpy as np

_BLOCK_ROWS = 1024  # Rows per block of similarities.


def csls_numpy(
  first: np.ndarray, second: np.ndarray, *, top: int, k: int
) -> np.ndarray:
  """Finds each query's nearest keys by CSLS with NumPy, in blocks of queries.

  Args:
    first: Query vectors of shape [N, D].
    second: Key vectors of shape [M, D].
    top: Number of nearest neighbors to return per query.
    k: Number of neighbors over which CSLS averages similarities.

  Returns:
    Indices into `second` of shape [N, top], best first.
  """
  first, second = _normalize(first), _normalize(second)
  second_similarity = _mean_nearest_similarity(second, first, k)
  blocks = []
  for i in range(0, len(first), _BLOCK_ROWS):
    scores = (
      first[i : i + _BLOCK_ROWS] @ second.T
    )  # The mean of `first` does not change the order.
    scores = 2 * scores - second_similarity[None]
    candidates = np.argpartition(scores, -top, axis=1)[:, -top:]
    order = np.argsort(-np.take_along_axis(scores, candidates, 1), 1)
    blocks.append(np.take_along_axis(candidates, order, 1))
  return np.concatenate(blocks)


def _mean_nearest_similarity(
  queries: np.ndarray, keys: np.ndarray, k: int
) -> np.ndarray:
  """Returns the mean similarity of each query to its k nearest keys."""
  return np.concatenate(
    [
      np.partition(queries[i : i + _BLOCK_ROWS] @ keys.T, -k, axis=1)[
        :, -k:
      ].mean(1)
      for i in range(0, len(queries), _BLOCK_ROWS)
    ]
  )


def csls_faiss(
  first: np.ndarray, second: np.ndarray, *, top: int, k: int
) -> np.ndarray:
  """Finds each query's nearest keys by CSLS with exact faiss searches.

  The first search computes the mean similarity of each vector in `second` to
  its neighbors. The second search uses these means as an additional dimension.

  Args:
    first: Query vectors of shape [N, D].
    second: Key vectors of shape [M, D].
    top: Number of nearest neighbors to return per query.
    k: Number of neighbors over which CSLS averages similarities.

  Returns:
    Indices into `second` of shape [N, top], best first.
  """
  import faiss

  first, second = _normalize(first), _normalize(second)
  second_similarity = _search(faiss, second, first, k)[0].mean(1)
  ones = np.ones((len(first), 1), np.float32)
  return _search(
    faiss,
    np.concatenate([first, ones], 1),
    np.concatenate([second, -second_similarity[:, None] / 2], 1),
    top,
  )[1]


def _search(faiss, queries: np.ndarray, keys: np.ndarray, k: int):
  """Returns the similarities and indices of the k nearest keys."""
  index = faiss.IndexFlatIP(keys.shape[1])
  index.add(keys)
  return index.search(queries, k)


def _normalize(vectors: np.ndarray) -> np.ndarray:
  """Scales vectors to unit length."""
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class PlainCKA:
  """NumPy accumulator for CKA between the layers of two models."""

  def __init__(self, *, diagonal: bool):
    self._diagonal = diagonal
    self._sums: dict[tuple[str, int, int], np.ndarray] = {}
    self._totals: dict[tuple[str, int], np.ndarray] = {}
    self._count = 0

  def update(self, first: np.ndarray, second: np.ndarray) -> None:
    """Adds a batch of two models' hidden states to the running sums.

    Args:
      first: Hidden states of shape [layers, sentences, size].
      second: Hidden states of the second model, with the same shape as `first`.
    """
    x, y = (np.asarray(side, np.float64) for side in (first, second))
    for i, layer in enumerate(x):
      self._add('xx', i, i, layer, layer)
      self._add('yy', i, i, y[i], y[i])
      for j in (i,) if self._diagonal else range(len(y)):
        self._add('xy', i, j, layer, y[j])
    for name, side in (('x', x), ('y', y)):
      for i, layer in enumerate(side):
        self._totals[name, i] = self._totals.get((name, i), 0) + layer.sum(0)
    self._count += x.shape[1]

  def result(self) -> np.ndarray:
    """Returns CKA for all pairs of layers, or only for equal layer indices."""
    depth = max(i for _, i in self._totals) + 1
    return np.array(
      [
        self._norm('xy', i, i) / self._self_norm(i, i)
        if self._diagonal
        else [
          self._norm('xy', i, j) / self._self_norm(i, j) for j in range(depth)
        ]
        for i in range(depth)
      ]
    )

  def _add(self, name: str, i: int, j: int, x: np.ndarray, y: np.ndarray):
    """Adds the product of two layers' hidden states to the running sum."""
    self._sums[name, i, j] = self._sums.get((name, i, j), 0) + x.T @ y

  def _norm(self, name: str, i: int, j: int) -> float:
    """Returns the squared Frobenius norm of a centered product."""
    shift = np.outer(self._totals[name[0], i], self._totals[name[1], j])
    return float(np.sum((self._sums[name, i, j] - shift / self._count) ** 2))

  def _self_norm(self, i: int, j: int) -> float:
    """Returns the norm by which the similarity of two layers is divided."""
    return np.sqrt(self._norm('xx', i, i) * self._norm('yy', j, j))


def generate_states(
  *, layers: int, sentences: int, size: int, batch: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yields batches of synthetic hidden states for two models.

  The hidden states in all batches are derived from one random batch.

  Args:
    layers: Number of layers.
    sentences: Total number of sentences.
    size: Size of the hidden states.
    batch: Sentences per batch.

  Yields:
    Two arrays, float32 of shape [layers, n, size].
  """
  random = np.random.default_rng(0)
  shape = layers, min(batch, sentences), size
  first = random.standard_normal(shape, np.float32)
  second = random.standard_normal(shape, np.float32) + first
  for start in range(0, sentences, batch):
    count = min(batch, sentences - start)
    lengths = random.uniform(0.5, 1.5, (1, count, 1)).astype(np.float32)
    yield tuple(
      np.roll(side, start // batch, 2)[:, :count] * lengths
      for side in (first, second)
    )
