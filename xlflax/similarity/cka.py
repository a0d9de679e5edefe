"""Linear centred kernel alignment, by sums that grow batch by batch.

Source: Kornblith et al. (2019, "Similarity of neural network representations
revisited"); ECS (Wu et al., 2020) section 5.2: with centred X and Y,
CKA = ||Y^T X||_F^2 / (||X^T X||_F ||Y^T Y||_F). The debiased variant puts the
unbiased estimator of HSIC (Song et al., 2012, equation 5) in place of each
squared norm: for few sentences and many dimensions the plain one is near 1 for
anything.

The result over batches is that over all sentences at once, and memory does not
depend on their number: see `cka_sums`.
"""

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import checks
from xlflax.similarity.cka_sums import Hsic, Sums

# A layer is constant if its spread is at most this part of its squared norms:
# what rounding leaves of float32 states that should be equal is 1e-13 of them.
_CONSTANT = 1e-10
_BYTES = 1 << 28  # of states that wait for their products
_SENTENCES = (256, 4096)  # that wait, at least and at most


class Layers(enum.Enum):
  """The pairs of layers that are compared."""

  ALL = 'all'  # every layer of one with every layer of the other
  DIAGONAL = 'diagonal'  # layer i with layer i


class Estimator(enum.Enum):
  """How the alignment is estimated."""

  BIASED = 'biased'  # as Kornblith et al. and ECS define it
  DEBIASED = 'debiased'


@validation.validate_call
def linear_cka(
  first: np.ndarray,
  second: np.ndarray,
  *,
  estimator: Estimator | str = Estimator.BIASED,
) -> float:
  """Computes the CKA of two sets of vectors of the same sentences.

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
  first = checks.shaped(first, 'first', 'vectors, dimensions')
  second = checks.shaped(second, 'second', 'vectors, dimensions')
  sums.update(first[None], second[None])
  return float(sums.result()[0, 0])


class LayerCKA:
  """CKA of the layers of two models, over batches of sentences.

  sums = LayerCKA()
  for first, second in batches:  # [L, n, D], [M, n, E]
    sums.update(first, second)
  sums.result()  # [L, M]
  """

  @validation.validate_call
  def __init__(
    self,
    *,
    layers: Layers | str = Layers.ALL,
    estimator: Estimator | str = Estimator.BIASED,
    dtype: Any = np.float64,
  ):
    """Starts without sentences.

    Args:
      layers: ALL pairs of layers, or the DIAGONAL.
      estimator: BIASED or DEBIASED.
      dtype: of the products of a batch: float64 or, three times as fast,
        float32; sums over batches are always float64.
    """
    self._diagonal = (
      validation.validate(layers, Layers, name='layers') is Layers.DIAGONAL
    )
    self._debiased = (
      validation.validate(estimator, Estimator, name='estimator')
      is Estimator.DEBIASED
    )
    self._dtype = dtype
    self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
    self._sums: Sums | None = None
    self._sizes: list[tuple[int, int]] = []  # layers and features
    self._squares: list[np.ndarray] = []  # of all states, of each layer
    self.count = 0

  @validation.validate_call
  def update(self, first: np.ndarray, second: np.ndarray) -> None:
    """Adds n sentences.

    Args:
      first: states [L, n, D] of one model.
      second: states [M, n, E] of the other for the same sentences.

    Raises:
      AnalysisError: not finite, different n, or other shapes than before.
    """
    self._check(first, second)
    squares = [
      np.array([_square(layer) for layer in side]) for side in (first, second)
    ]
    if not self.count:
      self._sizes = [(len(side), side.shape[2]) for side in (first, second)]
      self._squares = [np.zeros(len(side)) for side in squares]
    self._squares = [
      total + found for total, found in zip(self._squares, squares, strict=True)
    ]
    self._waiting.append((np.array(first), np.array(second)))
    self.count += first.shape[1]
    if sum(one.shape[1] for one, _ in self._waiting) >= self._room():
      self._add(*self._joined())

  def result(self) -> np.ndarray:
    """Returns the CKA: [L, M] for all layers, [L] for the diagonal.

    Raises:
      AnalysisError: fewer than 2 (debiased: 4) sentences.
    """
    least = 4 if self._debiased else 2
    if self.count < least:
      raise errors.AnalysisError(
        'Too few sentences for CKA',
        got=self.count,
        expected=f'at least {least}',
      )
    found = self._hsic()
    first, second = (
      _spread(own, squares)
      for own, squares in zip(
        (found.first, found.second), self._squares, strict=True
      )
    )
    if self._diagonal:
      return found.across / (first * second)
    return found.across / (first[:, None] * second[None])

  def _hsic(self) -> Hsic:
    if self._waiting:
      self._add(*self._joined())
    assert self._sums is not None
    return self._sums.hsic()

  def _room(self) -> int:
    """Returns how many sentences are collected for one fast product."""
    states = sum(depth * size for depth, size in self._sizes)
    return int(np.clip(_BYTES // (4 * states), *_SENTENCES))

  def _joined(self) -> tuple[np.ndarray, np.ndarray]:
    first, second = (
      np.concatenate(side, axis=1) for side in zip(*self._waiting, strict=True)
    )
    self._waiting = [(first, second)]
    return first, second

  def _add(self, first: np.ndarray, second: np.ndarray) -> None:
    if self._sums is None:
      self._sums = Sums(
        first,
        second,
        diagonal=self._diagonal,
        debiased=self._debiased,
        dtype=self._dtype,
      )
    self._sums.add(first, second)
    self._waiting = []

  def _check(self, first, second):
    for states, name in ((first, 'first'), (second, 'second')):
      checks.shaped(states, name, 'layers, sentences, dimensions')
    for states, name in (
      (first, 'the first model'),
      (second, 'the second model'),
    ):
      for layer in states:
        checks.vectors(layer, name)
    checks.paired(first[0], second[0])
    if self._diagonal and len(first) != len(second):
      raise errors.AnalysisError(
        'Models of different depths have no diagonal',
        got=f'{len(first)} and {len(second)} layers',
        expected="as many, or layers='all'",
      )
    given = [(len(states), states.shape[2]) for states in (first, second)]
    if self.count and self._sizes != given:
      raise errors.AnalysisError(
        'States of another model than before',
        got=_shapes(given),
        expected=_shapes(self._sizes),
      )


def _square(layer: np.ndarray) -> float:
  """The sum of squared norms of [n, D]."""
  return float(np.einsum('nd,nd->', layer, layer, dtype=np.float64))


def _spread(own: np.ndarray, squares: np.ndarray) -> np.ndarray:
  """Roots of layers' own HSIC; NaN for constant layers."""
  spread = np.sqrt(np.maximum(own, 0))
  return np.where(spread > _CONSTANT * squares, spread, np.nan)


def _shapes(sizes: Sequence[tuple[int, int]]) -> str:
  return ' and '.join(f'{depth} layers of {size}' for depth, size in sizes)
