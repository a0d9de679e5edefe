"""Word alignment between a sentence and its translation.

A word vector is the mean of its subwords' hidden states at a layer. Sources:
SimAlign (Jalili Sabet et al., 2020) for mutual argmax; Chi et al. (2021,
"Improving pretrained cross-lingual language models via self-labeled word
alignment") section 3 for entropic optimal transport, with which MetaXLM (Chi et
al., 2022) section 4.4 evaluates every layer.

All functions accept any leading axes, such as layers.
"""

import enum
from collections.abc import Iterable

import numpy as np

from xlflax.similarity import vector_checks
from xlflax.utils import errors, validation

Link = tuple[int, int]

_MIN_REGULARIZATION = 0.01  # Below this value, exp(-2 / r) ^ 2 underflows.


class Method(enum.Enum):
  """Method that derives alignment links from word similarities."""

  ARGMAX = 'argmax'  # Pairs of words that are each other's most similar word.
  TRANSPORT = 'transport'  # Target word with the most mass per source word.
  MUTUAL_TRANSPORT = 'mutual_transport'  # As transport, in both directions.


class Mass(enum.Enum):
  """Method of weighting a sentence's words in optimal transport."""

  UNIFORM = 'uniform'
  NORM = 'norm'  # Proportional to the norm of the vector (Yokoi et al., 2020).


@validation.validate_call
def parse_methods(
  names: Iterable[Method | str], *, where: str
) -> tuple[Method, ...]:
  """Parses the names of word alignment methods.

  Args:
    names: Word alignment methods or their names.
    where: Location that the error message reports.

  Raises:
    ConfigError: If a name is unknown, or if `names` is empty.
  """
  methods = tuple(
    validation.validate(name, Method, name=where) for name in names
  )
  if not methods:
    raise errors.ConfigError(
      'Word alignment requires at least one method',
      expected=' or '.join(method.value for method in Method),
      where=where,
    )
  return methods


@validation.validate_call
def cosine_similarities(source: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Computes the cosine similarities between source and target words.

  Args:
    source: Source word vectors of shape [..., M, D].
    target: Target word vectors of shape [..., N, D].

  Returns:
    Similarities, float64 of shape [..., M, N]. The similarities of a zero
    vector are 0.

  Raises:
    AnalysisError: If an array has fewer than two axes, or if D differs between
      the arrays.
  """
  for side, name in ((source, 'source'), (target, 'target')):
    vector_checks.check_axes(side, name, '..., words, dimensions')
  vector_checks.check_same_dimension(source, target)
  source, target = (_unit(side.astype(np.float64)) for side in (source, target))
  return source @ np.swapaxes(target, -1, -2)


@validation.validate_call
def word_weights(
  words: np.ndarray, mass: Mass | str = Mass.UNIFORM
) -> np.ndarray:
  """Computes the weight (mass) of each word for optimal transport.

  Args:
    words: Word vectors of shape [..., M, D].
    mass: Method of weighting the words: UNIFORM for equal weights, or NORM for
      weights proportional to the vectors' norms.

  Returns:
    Weights, float64 of shape [..., M], which sum to 1.

  Raises:
    AnalysisError: If the array has fewer than two axes.
  """
  vector_checks.check_axes(words, 'words', '..., words, dimensions')
  if validation.validate(mass, Mass, name='mass') is Mass.UNIFORM:
    return np.full(words.shape[:-1], 1 / words.shape[-2])
  norms = np.linalg.norm(words.astype(np.float64), axis=-1)
  norms = np.where(norms.sum(-1, keepdims=True) > 0, norms, 1)
  # Optimal transport requires positive mass for every word.
  norms = np.maximum(norms, 1e-6 * norms.max(-1, keepdims=True))
  return norms / norms.sum(-1, keepdims=True)


@validation.validate_call
def transport_plan(
  similarity: np.ndarray,
  source_mass: np.ndarray,
  target_mass: np.ndarray,
  *,
  regularization: float = 0.1,
  max_rounds: validation.NonNegativeInt = 1000,
  tolerance: validation.NonNegativeFloat = 1e-6,
) -> np.ndarray:
  """Computes an entropic optimal transport plan with the Sinkhorn algorithm.

  The plan P maximizes sum P S + r H(P) with row sums `source_mass` and column
  sums `target_mass`, where H is the entropy (Cuturi, 2013). `ot.sinkhorn` of
  POT solves the same problem for the cost -S.

  Args:
    similarity: Similarities S of shape [..., M, N], between -1 and 1.
    source_mass: Positive weights of shape [..., M], which sum to 1.
    target_mass: Positive weights of shape [..., N], which sum to 1.
    regularization: Entropic regularization r. The smaller the value, the closer
      the plan is to a permutation.
    max_rounds: Maximum number of iterations.
    tolerance: Relative error of the row sums at or below which the iteration
      ends.

  Returns:
    P, float64 of shape [..., M, N].

  Raises:
    AnalysisError: If the regularization is below 0.01, or the shapes of the
      arguments do not match.
  """
  vector_checks.check_axes(similarity, 'similarity', '..., words, words')
  leading_axes, (rows, columns) = similarity.shape[:-2], similarity.shape[-2:]
  vector_checks.check_shape((*leading_axes, rows), source_mass, 'source_mass')
  vector_checks.check_shape(
    (*leading_axes, columns), target_mass, 'target_mass'
  )
  if regularization < _MIN_REGULARIZATION:
    raise errors.AnalysisError(
      f'`regularization` must be at least {_MIN_REGULARIZATION}, because '
      'smaller values cause underflow',
      got=regularization,
    )
  kernel = np.exp(
    (similarity - similarity.max((-1, -2), keepdims=True)) / regularization
  )  # [..., M, N]
  rows = np.ones_like(source_mass)
  columns = _scale(target_mass, _sums(kernel, rows, axis=-2))
  for iteration in range(max_rounds):
    row_sums = _sums(kernel, columns, axis=-1)
    if iteration % 10 == 0 and np.all(
      np.abs(rows * row_sums - source_mass) <= tolerance * source_mass
    ):
      break
    rows = _scale(source_mass, row_sums)
    columns = _scale(target_mass, _sums(kernel, rows, axis=-2))
  return rows[..., :, None] * kernel * columns[..., None, :]


@validation.validate_call
def link_matrix(
  similarity: np.ndarray,
  method: Method | str,
  *,
  plan: np.ndarray | None = None,
  threshold: float | None = None,
) -> np.ndarray:
  """Returns a boolean mask of the linked word pairs.

  | method | condition for a link between i and j |
  | --- | --- |
  | argmax | S_ij is the greatest of row i and of column j. |
  | transport | P_ij is the greatest of row i. |
  | mutual_transport | P_ij is the greatest of row i and of column j. |

  With a threshold t, the condition for row i is that P_ij > t times the sum of
  row i of P, and the condition for column j is that P_ij > t times the sum of
  column j. For argmax, S_ij must also exceed t. A word can then have
  several links, or none.

  Args:
    similarity: Similarities S of shape [..., M, N].
    method: Word alignment method: ARGMAX, TRANSPORT or MUTUAL_TRANSPORT.
    plan: Transport plan P of shape [..., M, N]. The transport methods require
      it.
    threshold: Threshold t between 0 and 1. If None, the greatest entry of each
      row or column is linked.

  Returns:
    Boolean mask of shape [..., M, N].

  Raises:
    AnalysisError: If `plan` is missing for a transport method, or if the shapes
      differ.
  """
  vector_checks.check_axes(similarity, 'similarity', '..., words, words')
  if plan is not None:
    vector_checks.check_shape(similarity.shape, plan, 'plan')
  method = validation.validate(method, Method, name='method')
  if method is Method.ARGMAX:
    links = _greatest(similarity, -1) & _greatest(similarity, -2)
    return links if threshold is None else links & (similarity > threshold)
  if plan is None:
    raise errors.AnalysisError(
      'The requested word alignment method requires a transport plan',
      got=method.value,
      fix='Pass plan=transport_plan(...).',
    )
  links = _exceeding(plan, -1, threshold)
  if method is Method.MUTUAL_TRANSPORT:
    links &= _exceeding(plan, -2, threshold)
  return links


@validation.validate_call
def matrix_to_links(matrix: np.ndarray) -> frozenset[Link]:
  """Returns the index pairs (i, j) at which a mask [M, N] is True.

  Raises:
    AnalysisError: If the array is not a matrix.
  """
  matrix = vector_checks.check_axes(matrix, 'matrix', 'words, words')
  return frozenset(
    zip(*(axis.tolist() for axis in np.nonzero(matrix)), strict=True)
  )


def _exceeding(
  plan: np.ndarray, axis: int, threshold: float | None
) -> np.ndarray:
  """Returns a mask of the greatest entries, or of those above a threshold."""
  if threshold is None:
    return _greatest(plan, axis)
  return plan > threshold * plan.sum(axis, keepdims=True)


def _greatest(scores: np.ndarray, axis: int) -> np.ndarray:
  """Returns a mask of the first greatest entry along an axis."""
  argmax = np.expand_dims(scores.argmax(axis), axis)
  shape = [1] * scores.ndim
  shape[axis] = -1
  return argmax == np.arange(scores.shape[axis]).reshape(shape)


def _sums(kernel: np.ndarray, weights: np.ndarray, *, axis: int) -> np.ndarray:
  """Returns weighted sums of a kernel [..., M, N] along its rows or columns."""
  return np.einsum(
    '...mn,...n->...m' if axis == -1 else '...mn,...m->...n', kernel, weights
  )


def _scale(target: np.ndarray, current: np.ndarray) -> np.ndarray:
  return target / np.maximum(current, np.finfo(np.float64).tiny)


def _unit(vectors: np.ndarray) -> np.ndarray:
  norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(norms > 0, norms, 1)
