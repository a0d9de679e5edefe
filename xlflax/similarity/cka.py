"""Linear centered kernel alignment (CKA), accumulated over batches.

Sources: Kornblith et al. (2019, "Similarity of neural network representations
revisited"); ECS (Wu et al., 2020) section 5.2. For centered X and Y, CKA =
||Y^T X||_F^2 / (||X^T X||_F ||Y^T Y||_F). The debiased variant replaces each
squared norm by the unbiased estimator of HSIC (Song et al., 2012, equation 5).
With few sentences and many dimensions, biased CKA is close to 1 for any pair of
representations.

The result over batches equals the result over all sentences at once. Memory use
does not depend on the number of sentences. See `cka_sums`.
"""

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlflax.similarity import vector_checks
from xlflax.similarity.cka_sums import Hsic, Sums
from xlflax.utils import errors, validation

# A layer counts as constant if the root of its HSIC is at most this fraction
# of its squared norms. Rounding errors of equal float32 states amount to about
# 1e-13 of the squared norms.
_CONSTANT = 1e-10
_BYTES = 1 << 28  # Size of the states that are buffered between two updates.
_SENTENCES = (256, 4096)  # Minimum and maximum number of buffered sentences.


class Layers(enum.Enum):
  """Choice of the layer pairs to compare between two models."""

  ALL = 'all'  # Every layer of one model with every layer of the second model.
  DIAGONAL = 'diagonal'  # Layer i with layer i.


class Estimator(enum.Enum):
  """Estimator of CKA."""

  BIASED = 'biased'  # The estimator that Kornblith et al. and ECS use.
  DEBIASED = 'debiased'


@validation.validate_call
def linear_cka(
  first: np.ndarray,
  second: np.ndarray,
  *,
  estimator: Estimator | str = Estimator.BIASED,
) -> float:
  """Computes the CKA between two sets of vectors for the same sentences.

  Args:
    first: Vectors of shape [N, D].
    second: Vectors of shape [N, E]. Row i belongs to the same sentence as row i
      of `first`.
    estimator: Estimator of CKA, BIASED or DEBIASED.

  Returns:
    CKA, at most 1. Biased CKA is at least 0. The result is NaN if all vectors
    of a set are equal.

  Raises:
    AnalysisError: If there are fewer than 2 vectors (4 if debiased), the
      numbers of vectors differ, or a value is not finite.
  """
  cka = LayerCKA(estimator=estimator)
  first = vector_checks.check_axes(first, 'first', 'vectors, dimensions')
  second = vector_checks.check_axes(second, 'second', 'vectors, dimensions')
  cka.update(first[None], second[None])
  return float(cka.result()[0, 0])


class LayerCKA:
  """Accumulator that computes the CKA between two models' layers over batches.

  ```
  cka = LayerCKA()
  for first, second in batches:  # [L, n, D], [M, n, E]
    cka.update(first, second)
  cka.result()  # [L, M]
  ```
  """

  @validation.validate_call
  def __init__(
    self,
    *,
    layers: Layers | str = Layers.ALL,
    estimator: Estimator | str = Estimator.BIASED,
    dtype: Any = np.float64,
  ):
    """Initializes the accumulator with zero sentences.

    Args:
      layers: Pairs of layers to compare: ALL pairs, or the DIAGONAL pairs
        (layer i with layer i).
      estimator: Estimator of CKA, BIASED or DEBIASED.
      dtype: Data type in which a batch's matrix products are computed, float64
        or float32. float32 is three times as fast. Sums over batches are always
        float64.
    """
    self._diagonal = (
      validation.validate(layers, Layers, name='layers') is Layers.DIAGONAL
    )
    self._debiased = (
      validation.validate(estimator, Estimator, name='estimator')
      is Estimator.DEBIASED
    )
    self._dtype = dtype
    self._buffer: list[tuple[np.ndarray, np.ndarray]] = []
    self._sums: Sums | None = None
    self._sizes: list[tuple[int, int]] = []  # (layers, features) per model
    self._squares: list[np.ndarray] = []  # sums of squares per layer
    self.count = 0

  @validation.validate_call
  def update(self, first: np.ndarray, second: np.ndarray) -> None:
    """Updates the running sums with the hidden states of n sentences.

    Args:
      first: Hidden states of the first model, of shape [L, n, D].
      second: Hidden states of the second model for the same sentences, of shape
        [M, n, E].

    Raises:
      AnalysisError: If a value is not finite, the numbers of sentences differ,
        or the numbers of layers or dimensions differ from the previous batch.
    """
    self._check(first, second)
    squares = [
      np.array([_square(layer) for layer in states])
      for states in (first, second)
    ]
    if not self.count:
      self._sizes = [
        (len(states), states.shape[2]) for states in (first, second)
      ]
      self._squares = [np.zeros(len(states)) for states in squares]
    self._squares = [
      total + square
      for total, square in zip(self._squares, squares, strict=True)
    ]
    self._buffer.append((np.array(first), np.array(second)))
    self.count += first.shape[1]
    if (
      sum(states.shape[1] for states, _ in self._buffer) >= self._buffer_size()
    ):
      self._add(*self._concatenate_buffer())

  def result(self) -> np.ndarray:
    """Returns the CKA of all layer pairs, or only of pairs with equal index.

    The shape is [L, M] for all pairs of layers, and [L] for the pairs (i, i).

    Raises:
      AnalysisError: If there are fewer than 2 sentences (4 if debiased).
    """
    minimum = 4 if self._debiased else 2
    if self.count < minimum:
      raise errors.AnalysisError(
        f'CKA requires at least {minimum} sentences', got=self.count
      )
    hsic = self._hsic()
    first, second = (
      _spread(own_hsic, squares)
      for own_hsic, squares in zip(
        (hsic.first, hsic.second), self._squares, strict=True
      )
    )
    if self._diagonal:
      return hsic.across / (first * second)
    return hsic.across / (first[:, None] * second[None])

  def _hsic(self) -> Hsic:
    """Returns the HSIC of all sentences, including buffered ones."""
    if self._buffer:
      self._add(*self._concatenate_buffer())
    assert self._sums is not None
    return self._sums.hsic()

  def _buffer_size(self) -> int:
    """Returns the number of sentences to buffer for one matrix product."""
    values_per_sentence = sum(depth * size for depth, size in self._sizes)
    return int(np.clip(_BYTES // (4 * values_per_sentence), *_SENTENCES))

  def _concatenate_buffer(self) -> tuple[np.ndarray, np.ndarray]:
    """Concatenates the buffered sentences of each model."""
    first, second = (
      np.concatenate(side, axis=1) for side in zip(*self._buffer, strict=True)
    )
    self._buffer = [(first, second)]
    return first, second

  def _add(self, first: np.ndarray, second: np.ndarray) -> None:
    """Adds buffered sentences to the sums and clears the buffer."""
    if self._sums is None:
      self._sums = Sums(
        first,
        second,
        diagonal=self._diagonal,
        debiased=self._debiased,
        dtype=self._dtype,
      )
    self._sums.add(first, second)
    self._buffer = []

  def _check(self, first, second):
    for states, name in ((first, 'first'), (second, 'second')):
      vector_checks.check_axes(states, name, 'layers, sentences, dimensions')
    for states, name in (
      (first, 'the first model'),
      (second, 'the second model'),
    ):
      for layer in states:
        vector_checks.check_vectors(layer, name)
    vector_checks.check_same_length(first[0], second[0])
    if self._diagonal and len(first) != len(second):
      raise errors.AnalysisError(
        "layers='diagonal' requires that both models have the same number of "
        f'layers, but found {len(first)} and {len(second)} layers',
        fix="Pass models with the same number of layers, or set layers='all'.",
      )
    sizes = [(len(states), states.shape[2]) for states in (first, second)]
    if self.count and self._sizes != sizes:
      raise errors.AnalysisError(
        'All batches must contain hidden states of the same two models',
        got=_shapes(sizes),
        expected=_shapes(self._sizes),
      )


def _square(layer: np.ndarray) -> float:
  """Returns the sum of the squared norms of vectors [n, D]."""
  return float(np.einsum('nd,nd->', layer, layer, dtype=np.float64))


def _spread(own_hsic: np.ndarray, squares: np.ndarray) -> np.ndarray:
  """Returns roots of each layer's HSIC with itself, NaN for constant layers."""
  spread = np.sqrt(np.maximum(own_hsic, 0))
  return np.where(spread > _CONSTANT * squares, spread, np.nan)


def _shapes(sizes: Sequence[tuple[int, int]]) -> str:
  return ' and '.join(f'{depth} layers of {size}' for depth, size in sizes)
