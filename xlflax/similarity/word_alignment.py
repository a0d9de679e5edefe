"""Links between the words of a sentence and its translation.

Words are vectors (the mean of their subwords' states at a layer). Sources:
SimAlign (Jalili Sabet et al., 2020) for mutual argmax; Chi et al. (2021,
"Improving pretrained cross-lingual language models via self-labeled word
alignment") section 3 for optimal transport with entropy, which MetaXLM (Chi et
al., 2022) section 4.4 evaluates every layer by.

All functions take any leading axes, such as layers.
"""

import enum
from collections.abc import Iterable

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import checks

Link = tuple[int, int]

_MIN_REGULARIZATION = 0.01  # below, exp(-2 / r) ^ 2 is no double any more


class Method(enum.Enum):
  """How links follow from the similarities of words."""

  ARGMAX = 'argmax'  # each word is the other's most similar
  TRANSPORT = 'transport'  # each source word and where most of it goes
  MUTUAL_TRANSPORT = 'mutual_transport'  # and most of the target comes from it


class Mass(enum.Enum):
  """The share of a sentence that a word has."""

  UNIFORM = 'uniform'
  NORM = 'norm'  # the length of its vector (Yokoi et al., 2020)


@validation.validate_call
def methods_of(
  names: Iterable[Method | str], *, where: str
) -> tuple[Method, ...]:
  """Methods by name, at least one.

  Raises:
    ConfigError: a name is of none, or there is none; it names `where`.
  """
  found = tuple(validation.validate(name, Method, name=where) for name in names)
  if not found:
    raise errors.ConfigError(
      'Word alignment needs a method',
      got='none',
      expected=' or '.join(method.value for method in Method),
      where=where,
    )
  return found


@validation.validate_call
def cosine(source: np.ndarray, target: np.ndarray) -> np.ndarray:
  """Computes cosine similarities of words.

  Args:
    source: [..., M, D].
    target: [..., N, D].

  Returns:
    [..., M, N] float64; those of a zero vector are 0.

  Raises:
    AnalysisError: no words, or of different sizes.
  """
  for side, name in ((source, 'source'), (target, 'target')):
    checks.shaped(side, name, '..., words, dimensions')
  checks.same_dimension(source, target)
  source, target = (_unit(side.astype(np.float64)) for side in (source, target))
  return source @ np.swapaxes(target, -1, -2)


@validation.validate_call
def masses(words: np.ndarray, mass: Mass | str = Mass.UNIFORM) -> np.ndarray:
  """Computes the share of a sentence that each word has.

  Args:
    words: [..., M, D].
    mass: UNIFORM, or proportional to the vectors' lengths.

  Returns:
    [..., M] float64, sums to 1.

  Raises:
    AnalysisError: these are no words.
  """
  checks.shaped(words, 'words', '..., words, dimensions')
  if validation.validate(mass, Mass, name='mass') is Mass.UNIFORM:
    return np.full(words.shape[:-1], 1 / words.shape[-2])
  length = np.linalg.norm(words.astype(np.float64), axis=-1)
  length = np.where(length.sum(-1, keepdims=True) > 0, length, 1)
  # A word without any mass could not be transported.
  length = np.maximum(length, 1e-6 * length.max(-1, keepdims=True))
  return length / length.sum(-1, keepdims=True)


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
  """Computes entropic optimal transport by Sinkhorn's iteration.

  The plan P maximises sum P S + r H(P) with row sums `source_mass` and column
  sums `target_mass`; H is the entropy. (Cuturi, 2013; the problem that
  `ot.sinkhorn` of POT solves for the cost -S.)

  Args:
    similarity: S [..., M, N] in -1..1.
    source_mass: [..., M], positive, sums to 1.
    target_mass: [..., N], positive, sums to 1.
    regularization: r; the smaller, the closer to a permutation.
    max_rounds: rounds at most.
    tolerance: rounds end when no row sum is off by more than this part of it.

  Returns:
    P [..., M, N] float64.

  Raises:
    AnalysisError: the regularization is below 0.01, or shapes do not fit.
  """
  checks.shaped(similarity, 'similarity', '..., words, words')
  front, (rows, columns) = similarity.shape[:-2], similarity.shape[-2:]
  checks.fitting((*front, rows), source_mass, 'source_mass')
  checks.fitting((*front, columns), target_mass, 'target_mass')
  if regularization < _MIN_REGULARIZATION:
    raise errors.AnalysisError(
      'The transport cannot be computed with so little entropy',
      got=regularization,
      expected=f'at least {_MIN_REGULARIZATION}',
      where='regularization',
    )
  kernel = np.exp(
    (similarity - similarity.max((-1, -2), keepdims=True)) / regularization
  )  # [..., M, N]
  rows = np.ones_like(source_mass)
  columns = _scale(target_mass, _sums(kernel, rows, axis=-2))
  for done in range(max_rounds):
    reached = _sums(kernel, columns, axis=-1)
    if done % 10 == 0 and np.all(
      np.abs(rows * reached - source_mass) <= tolerance * source_mass
    ):
      break
    rows = _scale(source_mass, reached)
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
  """Returns which words are linked.

  | method | links i, j if |
  | --- | --- |
  | argmax | S_ij is the greatest of row i and of column j |
  | transport | P_ij is the greatest of row i |
  | mutual_transport | P_ij is the greatest of row i and of column j |

  With a threshold t, the condition on row i is P_ij > t of the row's mass, and
  that on column j P_ij > t of the column's (of P; for argmax: S_ij > t in
  addition), so that a word can have several links, or none.

  Args:
    similarity: S [..., M, N].
    method: one of the above.
    plan: P [..., M, N], for the methods of transport.
    threshold: t in 0..1; None: the greatest.

  Returns:
    bool [..., M, N].

  Raises:
    AnalysisError: transport without a plan, or one of another shape.
  """
  checks.shaped(similarity, 'similarity', '..., words, words')
  if plan is not None:
    checks.fitting(similarity.shape, plan, 'plan')
  method = validation.validate(method, Method, name='method')
  if method is Method.ARGMAX:
    links = _greatest(similarity, -1) & _greatest(similarity, -2)
    return links if threshold is None else links & (similarity > threshold)
  if plan is None:
    raise errors.AnalysisError(
      'Links by transport need a plan',
      got=method.value,
      fix='give plan=transport_plan(...)',
    )
  links = _most(plan, -1, threshold)
  if method is Method.MUTUAL_TRANSPORT:
    links &= _most(plan, -2, threshold)
  return links


@validation.validate_call
def to_links(matrix: np.ndarray) -> frozenset[Link]:
  """Returns the pairs (i, j) where bool [M, N] is true.

  Raises:
    AnalysisError: it is no matrix.
  """
  matrix = checks.shaped(matrix, 'matrix', 'words, words')
  return frozenset(
    zip(*(axis.tolist() for axis in np.nonzero(matrix)), strict=True)
  )


def _most(plan: np.ndarray, axis: int, threshold: float | None) -> np.ndarray:
  """Marks entries that are greatest along an axis, or above their share."""
  if threshold is None:
    return _greatest(plan, axis)
  return plan > threshold * plan.sum(axis, keepdims=True)


def _greatest(scores: np.ndarray, axis: int) -> np.ndarray:
  """Marks the first greatest entry along an axis."""
  places = np.expand_dims(scores.argmax(axis), axis)
  shape = [1] * scores.ndim
  shape[axis] = -1
  return places == np.arange(scores.shape[axis]).reshape(shape)


def _sums(kernel: np.ndarray, weights: np.ndarray, *, axis: int) -> np.ndarray:
  """Weighted sums of a kernel [..., M, N] along its rows or columns."""
  return np.einsum(
    '...mn,...n->...m' if axis == -1 else '...mn,...m->...n', kernel, weights
  )


def _scale(wanted: np.ndarray, reached: np.ndarray) -> np.ndarray:
  return wanted / np.maximum(reached, np.finfo(np.float64).tiny)


def _unit(vectors: np.ndarray) -> np.ndarray:
  length = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.where(length > 0, length, 1)
