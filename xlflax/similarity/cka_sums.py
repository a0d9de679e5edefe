"""Hilbert-Schmidt independence criterion (HSIC) between layers of two models.

HSIC is accumulated over batches in constant memory: products of features are
summed batch by batch. All vectors are shifted by the mean of the first batch,
which does not change HSIC. Without the shift, sums of products of vectors far
from the origin would lose precision.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from xlflax.similarity import block_matmul


class Hsic(NamedTuple):
  """Hilbert-Schmidt independence criterion (HSIC), up to a constant factor.

  Attributes:
    across: HSIC between the layers of two models, float64 of shape [L, M], or
      [L] for the diagonal.
    first: HSIC of each layer of the first model with itself, of shape [L].
    second: HSIC of each layer of the second model with itself, of shape [M].
  """

  across: np.ndarray
  first: np.ndarray
  second: np.ndarray


class Sums:
  """Running sums over two models' hidden states, used to compute HSIC."""

  def __init__(
    self,
    first: np.ndarray,
    second: np.ndarray,
    *,
    diagonal: bool,
    debiased: bool,
    dtype: Any,
  ):
    """Initializes the sums without adding a batch.

    The first batch determines the shapes. Its means are subtracted from the
    vectors of all batches.

    Args:
      first: Hidden states of the first model, of shape [L, n, D].
      second: Hidden states of the second model, of shape [M, n, E].
      diagonal: Whether to compare layer i only with layer i.
      debiased: Whether to use the unbiased estimator of HSIC.
      dtype: Data type in which a batch's matrix products are computed. Sums
        over batches are float64.
    """
    self._count = 0
    self._dtype = dtype
    self._models = tuple(_ModelSums(states) for states in (first, second))
    x, y = self._models
    self._groups = (
      _ProductSums(x, y, diagonal, debiased),
      _ProductSums(x, x, True, debiased),
      _ProductSums(y, y, True, debiased),
    )

  def add(self, first: np.ndarray, second: np.ndarray) -> None:
    """Adds hidden states of shapes [L, n, D] and [M, n, E] to the sums."""
    x, y = (
      model.add_shifted(states, self._dtype)
      for model, states in zip(self._models, (first, second), strict=True)
    )
    for group, batches in zip(
      self._groups, ((x, y), (x, x), (y, y)), strict=True
    ):
      group.add(*batches)
    self._count += len(x.values[0])

  def hsic(self) -> Hsic:
    """Returns the HSIC between layers over all sentences added so far."""
    return Hsic(*(group.hsic(self._count) for group in self._groups))


class _Batch(NamedTuple):
  """Shifted vectors of all layers and their squared norms.

  Attributes:
    values: Vectors of the n examples in each layer, a list of arrays of shape
      [n, D].
    norms: Squared norms, float64 of shape [layers, n].
  """

  values: list[np.ndarray]
  norms: np.ndarray


class _ModelSums:
  """Running sums over the hidden states of one model, for each layer."""

  def __init__(self, states: np.ndarray):
    self.origin = np.array(
      [layer.mean(0, dtype=np.float64) for layer in states]
    )
    self.total = np.zeros_like(self.origin)  # [layers, D]
    self.squares = np.zeros(len(self.origin))

  def add_shifted(self, states: np.ndarray, dtype: Any) -> _Batch:
    """Subtracts `origin` from hidden states and adds them to the running sums.

    Args:
      states: Hidden states of shape [layers, n, D].
      dtype: Data type of the returned vectors.

    Returns:
      The shifted hidden states of each layer and their squared norms.
    """
    values, norms = [], []
    for index, layer in enumerate(states):
      shifted = layer.astype(np.float64)
      shifted -= self.origin[index][None]
      self.total[index] += shifted.sum(0)
      norms.append(np.einsum('nd,nd->n', shifted, shifted))
      self.squares[index] += norms[-1].sum()
      values.append(shifted.astype(dtype, copy=False))
    return _Batch(values, np.array(norms))


class _ProductSums:
  """Sums of products between the hidden states of two models.

  In the names of the sums, x [n, D] denotes a layer of the first model, and
  y [n, E] denotes a layer of the second model.
  """

  def __init__(
    self, left: _ModelSums, right: _ModelSums, diagonal: bool, debiased: bool
  ):
    self._models = left, right
    self._diagonal = diagonal
    self._debiased = debiased
    depth, size = left.total.shape
    right_depth, right_size = right.total.shape
    # Number of layers of the second model per layer of the first model.
    self._right_layers = 1 if diagonal else right_depth
    self._xy = [
      np.zeros((size, self._right_layers * right_size)) for _ in range(depth)
    ]
    self._x_yy = np.zeros((depth, right_depth, size))  # x |y|^2
    self._y_xx = np.zeros((right_depth, depth, right_size))  # y |x|^2
    self._xx_yy = np.zeros((depth, right_depth))  # |x|^2 |y|^2

  def add(self, left: _Batch, right: _Batch) -> None:
    """Adds the products of both models' hidden states to the running sums."""
    pending = None
    for i, x, y in self._pairs(left.values, right.values):
      current = i, block_matmul.transposed_matmul(x, y)
      if pending is not None:  # Add while the next product is computed.
        self._xy[pending[0]] += np.asarray(pending[1])
      pending = current
    if pending is not None:
      self._xy[pending[0]] += np.asarray(pending[1])
    if self._debiased:
      for i, x in enumerate(left.values):
        self._x_yy[i] += right.norms @ x
      for j, y in enumerate(right.values):
        self._y_xx[j] += left.norms @ y
      self._xx_yy += left.norms @ right.norms.T

  def hsic(self, n: int) -> np.ndarray:
    """Returns the HSIC between pairs of layers.

    The shape is [L, M] for all pairs of layers, and [L] for pairs of layers
    with the same index.
    """
    right_size = self._models[1].total.shape[1]
    result = np.array(
      [
        [
          self._hsic(
            n,
            i,
            i if self._diagonal else j,
            self._xy[i][:, j * right_size : (j + 1) * right_size],
          )
          for j in range(self._right_layers)
        ]
        for i in range(len(self._xy))
      ]
    )
    return result[:, 0] if self._diagonal else result

  def _pairs(
    self, left: list[np.ndarray], right: list[np.ndarray]
  ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields pairs of vectors of the first and the second model's layers.

    Without `diagonal`, the vectors of all layers of the second model are
    concatenated.

    Yields:
      Index of the first model's layer, and two arrays of shapes [n, D] and
      [n, E].
    """
    concatenated = None if self._diagonal else np.concatenate(right, axis=1)
    for i, x in enumerate(left):
      yield i, x, right[i] if concatenated is None else concatenated

  def _hsic(self, n: int, i: int, j: int, xy: np.ndarray) -> float:
    """Returns the HSIC between layers of the first and the second model.

    Args:
      n: Number of sentences.
      i: Index of the layer of the first model.
      j: Index of the layer of the second model.
      xy: Sum of the products x y^T, of shape [D, E].
    """
    x, y = (
      model.total[layer]
      for model, layer in zip(self._models, (i, j), strict=True)
    )
    if not self._debiased:
      centered = xy - np.outer(x, y) / n
      return float(np.vdot(centered, centered))
    # Terms of the Gram matrices K = X X^T and L = Y Y^T with zero diagonals:
    squares = (
      model.squares[layer]
      for model, layer in zip(self._models, (i, j), strict=True)
    )
    sums = [
      total @ total - square
      for total, square in zip((x, y), squares, strict=True)
    ]  # 1^T K 1, 1^T L 1
    trace = np.vdot(xy, xy) - self._xx_yy[i, j]  # tr(K L)
    total_product = (
      x @ xy @ y
      - x @ self._x_yy[i, j]
      - y @ self._y_xx[j, i]
      + self._xx_yy[i, j]
    )  # 1^T K L 1
    return float(
      trace
      + sums[0] * sums[1] / ((n - 1) * (n - 2))
      - 2 * total_product / (n - 2)
    )
