"""Linear centred kernel alignment, by sums that grow batch by batch.

Source: Kornblith et al. (2019, "Similarity of neural network representations
revisited"); ECS (Wu et al., 2020) section 5.2: with centred X and Y,
CKA = ||Y^T X||_F^2 / (||X^T X||_F ||Y^T Y||_F). The debiased variant puts the
unbiased estimator of HSIC (Song et al., 2012, equation 5) in place of each
squared norm: for few sentences and many dimensions the plain one is near 1 for
anything.

Everything is a sum over sentences of products of features: the result over
batches is that over all sentences at once, and memory does not depend on
their number.
"""

import enum
from typing import Any, NamedTuple

import numpy as np

from xlflax import enums, errors
from xlflax.analysis import checks

# A layer is constant if its spread is at most this part of its squared norms:
# what rounding leaves of float32 states that should be equal is 1e-13 of them.
_CONSTANT = 1e-10


class Layers(enum.Enum):
  """Which layers of two models are compared."""

  ALL = 'all'  # every layer of one with every layer of the other
  DIAGONAL = 'diagonal'  # layer i with layer i


class Estimator(enum.Enum):
  """How the alignment is estimated."""

  BIASED = 'biased'  # as Kornblith et al. and ECS define it
  DEBIASED = 'debiased'


def linear_cka(first: np.ndarray, second: np.ndarray, *,
               estimator: Estimator | str = Estimator.BIASED) -> float:
  """CKA of two sets of vectors of the same sentences.

  Args:
    first: [N, D].
    second: [N, E], row i for the same sentence as row i of `first`.
    estimator: BIASED or DEBIASED.

  Returns:
    At most 1; at least 0 if biased; NaN if a side is constant.

  Raises:
    AnalysisError: no or not finite vectors, different numbers of them, fewer
      than 2 (debiased: 4).
  """
  sums = LayerCKA(estimator=estimator)
  sums.update(np.asarray(first)[None], np.asarray(second)[None])
  return float(sums.result()[0, 0])


class LayerCKA:
  """Running sums for the CKA of the layers of two models.

      sums = LayerCKA()
      for first, second in batches:  # [L, n, D], [M, n, E]
        sums.update(first, second)
      sums.result()  # [L, M]
  """

  def __init__(self, *, layers: Layers | str = Layers.ALL,
               estimator: Estimator | str = Estimator.BIASED,
               dtype: Any = np.float64):
    """Starts without sentences.

    Args:
      layers: ALL pairs of layers, or the DIAGONAL.
      estimator: BIASED or DEBIASED.
      dtype: what the products of a batch are computed in; sums over batches
        are float64 in any case.
    """
    self._layers = enums.of_value(layers, Layers, where='layers')
    self._debiased = enums.of_value(
        estimator, Estimator, where='estimator') is Estimator.DEBIASED
    self._dtype = dtype
    self._sides: tuple[list[_Side], list[_Side]] = ([], [])
    self._products: dict[tuple[str, int, int], _Products] = {}
    self.count = 0

  def update(self, first: np.ndarray, second: np.ndarray) -> None:
    """Takes in n sentences.

    Args:
      first: states [L, n, D] of one model.
      second: states [M, n, E] of the other for the same sentences.

    Raises:
      AnalysisError: not finite, different n, or other shapes than before.
    """
    self._check(first, second)
    if not self.count:
      self._sides = ([_Side(layer[0]) for layer in first],
                     [_Side(layer[0]) for layer in second])
    batches = [[side.update(layer, self._dtype) for side, layer in zip(
        sides, states, strict=True)]
               for sides, states in zip(self._sides, (first, second),
                                        strict=True)]
    for key in self._keys():
      side, i, j = key
      left = batches[1 if side == 'second' else 0][i]
      right = batches[0 if side == 'first' else 1][j]
      if key not in self._products:
        self._products[key] = _Products(
            left.values.shape[1], right.values.shape[1], self._debiased)
      self._products[key].update(left, right)
    self.count += first.shape[1]

  def result(self) -> np.ndarray:
    """CKA: [L, M] for all layers, [L] for the diagonal.

    Raises:
      AnalysisError: fewer than 2 (debiased: 4) sentences.
    """
    least = 4 if self._debiased else 2
    if self.count < least:
      raise errors.AnalysisError(
          'Too few sentences for CKA', got=self.count,
          expected=f'at least {least}')
    own = [[self._own(name, i) for i in range(len(sides))]
           for name, sides in zip(('first', 'second'), self._sides,
                                  strict=True)]
    if self._layers is Layers.DIAGONAL:
      return np.array([self._cross(i, i) / (own[0][i] * own[1][i])
                       for i in range(len(own[0]))])
    return np.array([[self._cross(i, j) / (own[0][i] * own[1][j])
                      for j in range(len(own[1]))]
                     for i in range(len(own[0]))])

  def _keys(self):
    """Which products are needed: of each side with itself, and across."""
    sizes = [len(side) for side in self._sides]
    for name, size in zip(('first', 'second'), sizes, strict=True):
      yield from ((name, i, i) for i in range(size))
    for i in range(sizes[0]):
      across = (i,) if self._layers is Layers.DIAGONAL else range(sizes[1])
      yield from (('across', i, j) for j in across)

  def _cross(self, i: int, j: int) -> float:
    return self._products['across', i, j].hsic(
        self.count, self._sides[0][i], self._sides[1][j])

  def _own(self, name: str, i: int) -> float:
    """Root of a side's own HSIC; NaN if the layer is constant."""
    side = self._sides[0 if name == 'first' else 1][i]
    value = self._products[name, i, i].hsic(self.count, side, side)
    spread = np.sqrt(max(value, 0))
    return spread if spread > _CONSTANT * side.raw else np.nan

  def _check(self, first, second):
    for states, name in ((first, 'the first model'),
                         (second, 'the second model')):
      for layer in states:
        checks.vectors(layer, name)
    checks.paired(first[0], second[0])
    if self._layers is Layers.DIAGONAL and len(first) != len(second):
      raise errors.AnalysisError(
          'Models of different depths have no diagonal',
          got=f'{len(first)} and {len(second)} layers',
          expected="as many, or layers='all'")
    sizes = [[len(side.total) for side in sides] for sides in self._sides]
    given = [[states.shape[2]] * len(states) for states in (first, second)]
    if self.count and sizes != given:
      raise errors.AnalysisError(
          'States of another model than before', got=str(given),
          expected=str(sizes))


class _Batch(NamedTuple):
  """Some vectors of a layer [n, D], shifted, and their squared norms [n]."""

  values: np.ndarray
  norms: np.ndarray


class _Side:
  """Sums of one layer of one model, shifted by its first vector."""

  def __init__(self, origin: np.ndarray):
    self._origin = origin.astype(np.float64)
    self.total = np.zeros(len(origin))  # [D]
    self.squares = 0.0
    self.raw = 0.0  # squared norms before the shift

  def update(self, layer: np.ndarray, dtype) -> _Batch:
    """Takes in [n, D]; returns it shifted, which CKA does not notice.

    Sums of products of vectors that are far from 0 would lose digits.
    """
    values = layer.astype(np.float64)
    self.raw += float(np.vdot(values, values))
    values -= self._origin[None]
    norms = np.einsum('nd,nd->n', values, values)
    self.total += values.sum(0)
    self.squares += float(norms.sum())
    return _Batch(values.astype(dtype, copy=False), norms)


class _Products:
  """Sums of products of two layers x [n, D] and y [n, E]."""

  def __init__(self, left: int, right: int, debiased: bool):
    self._debiased = debiased
    self._xy = np.zeros((left, right))
    self._x_yy = np.zeros(left)  # x |y|^2
    self._y_xx = np.zeros(right)  # y |x|^2
    self._xx_yy = 0.0  # |x|^2 |y|^2

  def update(self, left: _Batch, right: _Batch) -> None:
    self._xy += left.values.T @ right.values
    if self._debiased:
      self._x_yy += right.norms @ left.values
      self._y_xx += left.norms @ right.values
      self._xx_yy += float(left.norms @ right.norms)

  def hsic(self, n: int, x: _Side, y: _Side) -> float:
    """HSIC up to a factor that CKA does not depend on."""
    if not self._debiased:
      centred = self._xy - np.outer(x.total, y.total) / n
      return float(np.vdot(centred, centred))
    # Of the Gram matrices K = X X^T and L = Y Y^T with zeros on the diagonal:
    trace = np.vdot(self._xy, self._xy) - self._xx_yy  # tr(K L)
    sums = ((x.total @ x.total - x.squares)  # 1^T K 1 1^T L 1
            * (y.total @ y.total - y.squares))
    product = (x.total @ self._xy @ y.total - x.total @ self._x_yy
               - y.total @ self._y_xx + self._xx_yy)  # 1^T K L 1
    return float(trace + sums / ((n - 1) * (n - 2)) - 2 * product / (n - 2))
