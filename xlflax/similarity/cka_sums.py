"""HSIC of layers from sums over batches, in memory that does not grow.

Products of features are summed batch by batch. Vectors are shifted by the mean
of the first batch, which does not change HSIC: sums of products of vectors far
from 0 would lose digits.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from xlflax.similarity import products


class Hsic(NamedTuple):
  """HSIC up to a factor that CKA does not depend on.

  Attributes:
    across: float64 [L, M], of the layers of two models; [L] on the diagonal.
    first: [L], of each layer of the first with itself.
    second: [M], of each layer of the second with itself.
  """

  across: np.ndarray
  first: np.ndarray
  second: np.ndarray


class Sums:
  """Sums over batches of the states of two models."""

  def __init__(
    self,
    first: np.ndarray,
    second: np.ndarray,
    *,
    diagonal: bool,
    debiased: bool,
    dtype: Any,
  ):
    """Starts from the first batch without adding it.

    Args:
      first: states [L, n, D] of one model.
      second: states [M, n, E] of the other.
      diagonal: whether layer i is compared with layer i only.
      debiased: whether HSIC is the unbiased estimator.
      dtype: of the products of a batch; sums over batches are float64.
    """
    self._count = 0
    self._dtype = dtype
    self._sides = tuple(_Side(states) for states in (first, second))
    x, y = self._sides
    self._groups = (
      _Products(x, y, diagonal, debiased),
      _Products(x, x, True, debiased),
      _Products(y, y, True, debiased),
    )

  def add(self, first: np.ndarray, second: np.ndarray) -> None:
    """Adds n sentences: [L, n, D] and [M, n, E]."""
    x, y = (
      side.shifted(states, self._dtype)
      for side, states in zip(self._sides, (first, second), strict=True)
    )
    for group, both in zip(self._groups, ((x, y), (x, x), (y, y)), strict=True):
      group.add(*both)
    self._count += len(x.values[0])

  def hsic(self) -> Hsic:
    return Hsic(*(group.hsic(self._count) for group in self._groups))


class _Batch(NamedTuple):
  """Shifted vectors of the layers and their squared norms.

  Attributes:
    values: of each layer [n, D].
    norms: float64 [layers, n].
  """

  values: list[np.ndarray]
  norms: np.ndarray


class _Side:
  """Sums of the layers of one model."""

  def __init__(self, states: np.ndarray):
    self.origin = np.array(
      [layer.mean(0, dtype=np.float64) for layer in states]
    )
    self.total = np.zeros_like(self.origin)  # [layers, D]
    self.squares = np.zeros(len(self.origin))

  def shifted(self, states: np.ndarray, dtype: Any) -> _Batch:
    """Adds [layers, n, D] and returns it shifted."""
    values, norms = [], []
    for place, layer in enumerate(states):
      found = layer.astype(np.float64)
      found -= self.origin[place][None]
      self.total[place] += found.sum(0)
      norms.append(np.einsum('nd,nd->n', found, found))
      self.squares[place] += norms[-1].sum()
      values.append(found.astype(dtype, copy=False))
    return _Batch(values, np.array(norms))


class _Products:
  """Sums of products of the layers x [n, D] and y [n, E] of two sides."""

  def __init__(self, left: _Side, right: _Side, diagonal: bool, debiased: bool):
    self._sides = left, right
    self._diagonal = diagonal
    self._debiased = debiased
    depth, size = left.total.shape
    others, other_size = right.total.shape
    self._others = 1 if diagonal else others  # of each layer
    self._xy = [
      np.zeros((size, self._others * other_size)) for _ in range(depth)
    ]
    self._x_yy = np.zeros((depth, others, size))  # x |y|^2
    self._y_xx = np.zeros((others, depth, other_size))  # y |x|^2
    self._xx_yy = np.zeros((depth, others))  # |x|^2 |y|^2

  def add(self, left: _Batch, right: _Batch) -> None:
    waiting = None
    for i, x, y in self._pairs(left.values, right.values):
      following = i, products.product(x, y)
      if waiting is not None:  # sums while the next is being computed
        self._xy[waiting[0]] += np.asarray(waiting[1])
      waiting = following
    if waiting is not None:
      self._xy[waiting[0]] += np.asarray(waiting[1])
    if self._debiased:
      for i, x in enumerate(left.values):
        self._x_yy[i] += right.norms @ x
      for j, y in enumerate(right.values):
        self._y_xx[j] += left.norms @ y
      self._xx_yy += left.norms @ right.norms.T

  def hsic(self, n: int) -> np.ndarray:
    """[L, M], or [L] on the diagonal."""
    others = self._sides[1].total.shape[1]
    found = np.array(
      [
        [
          self._hsic(
            n,
            i,
            i if self._diagonal else j,
            self._xy[i][:, j * others : (j + 1) * others],
          )
          for j in range(self._others)
        ]
        for i in range(len(self._xy))
      ]
    )
    return found[:, 0] if self._diagonal else found

  def _pairs(
    self, left: list[np.ndarray], right: list[np.ndarray]
  ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields (layer, [n, D], [n, E] of all layers side by side, or of it)."""
    together = None if self._diagonal else np.concatenate(right, axis=1)
    for i, x in enumerate(left):
      yield i, x, right[i] if together is None else together

  def _hsic(self, n: int, i: int, j: int, xy: np.ndarray) -> float:
    x, y = (
      side.total[place] for side, place in zip(self._sides, (i, j), strict=True)
    )
    if not self._debiased:
      centred = xy - np.outer(x, y) / n
      return float(np.vdot(centred, centred))
    # Of the Gram matrices K = X X^T and L = Y Y^T with zeros on the diagonal:
    squares = (
      side.squares[place]
      for side, place in zip(self._sides, (i, j), strict=True)
    )
    sums = [
      total @ total - square
      for total, square in zip((x, y), squares, strict=True)
    ]  # 1^T K 1, 1^T L 1
    trace = np.vdot(xy, xy) - self._xx_yy[i, j]  # tr(K L)
    product = (
      x @ xy @ y
      - x @ self._x_yy[i, j]
      - y @ self._y_xx[j, i]
      + self._xx_yy[i, j]
    )  # 1^T K L 1
    return float(
      trace + sums[0] * sums[1] / ((n - 1) * (n - 2)) - 2 * product / (n - 2)
    )
