"""CSLS with faiss and with plain numpy, and CKA with plain numpy."""

from collections.abc import Iterator

import numpy as np

_BLOCK_ROWS = 1024  # of a block of similarities


def csls_numpy(
  first: np.ndarray, second: np.ndarray, *, top: int, k: int
) -> np.ndarray:
  """Indices [N, top] of second, best first, by blocks of rows.

  Args:
    first: [N, D].
    second: [M, D].
    top: translations of each.
    k: K of CSLS.
  """
  first, second = _normalize(first), _normalize(second)
  of_second = _mean_nearest_similarity(second, first, k)
  found = []
  for i in range(0, len(first), _BLOCK_ROWS):
    scores = first[i : i + _BLOCK_ROWS] @ second.T  # r of first orders nothing
    scores = 2 * scores - of_second[None]
    best = np.argpartition(scores, -top, axis=1)[:, -top:]
    order = np.argsort(-np.take_along_axis(scores, best, 1), 1)
    found.append(np.take_along_axis(best, order, 1))
  return np.concatenate(found)


def _mean_nearest_similarity(
  queries: np.ndarray, keys: np.ndarray, k: int
) -> np.ndarray:
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
  """The same by exact searches: r of second, then with it as a dimension."""
  import faiss

  first, second = _normalize(first), _normalize(second)
  of_second = _search(faiss, second, first, k)[0].mean(1)
  ones = np.ones((len(first), 1), np.float32)
  return _search(
    faiss,
    np.concatenate([first, ones], 1),
    np.concatenate([second, -of_second[:, None] / 2], 1),
    top,
  )[1]


def _search(faiss, queries: np.ndarray, keys: np.ndarray, k: int):
  index = faiss.IndexFlatIP(keys.shape[1])
  index.add(keys)
  return index.search(queries, k)


def _normalize(vectors: np.ndarray) -> np.ndarray:
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class PlainCKA:
  """Sums of products of every two layers in float64."""

  def __init__(self, *, diagonal: bool):
    self._diagonal = diagonal
    self._sums: dict[tuple[str, int, int], np.ndarray] = {}
    self._totals: dict[tuple[str, int], np.ndarray] = {}
    self._count = 0

  def update(self, first: np.ndarray, second: np.ndarray) -> None:
    """Takes in states [L, n, D] and [L, n, D]."""
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
    """[L, L], or [L] on the diagonal."""
    depth = max(i for _, i in self._totals) + 1
    return np.array(
      [
        self._norm('xy', i, i) / self._own(i, i)
        if self._diagonal
        else [self._norm('xy', i, j) / self._own(i, j) for j in range(depth)]
        for i in range(depth)
      ]
    )

  def _add(self, name: str, i: int, j: int, x: np.ndarray, y: np.ndarray):
    self._sums[name, i, j] = self._sums.get((name, i, j), 0) + x.T @ y

  def _norm(self, name: str, i: int, j: int) -> float:
    """Squared Frobenius norm of a centred product."""
    shift = np.outer(self._totals[name[0], i], self._totals[name[1], j])
    return float(np.sum((self._sums[name, i, j] - shift / self._count) ** 2))

  def _own(self, i: int, j: int) -> float:
    return np.sqrt(self._norm('xx', i, i) * self._norm('yy', j, j))


def generate_states(
  *, layers: int, sentences: int, size: int, batch: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """States float32 [layers, n, size] of two models, made of few numbers."""
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
