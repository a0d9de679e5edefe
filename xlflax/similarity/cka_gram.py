"""HSIC of layers from Gram matrices, for few sentences.

With few sentences for the number of features, the Gram matrices of all layers
[n, n] cost less than the products of all pairs of layers [D, E].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlflax.similarity import products
from xlflax.similarity.cka_sums import Hsic

_ENTRIES = 1 << 24  # of the Gram matrices that are in memory together


def is_cheaper(
  n: int, first: tuple[int, int], second: tuple[int, int], *, diagonal: bool
) -> bool:
  """Returns whether Gram matrices take fewer multiplications than `cka_sums`.

  Args:
    n: sentences.
    first: layers and features of one model.
    second: those of the other.
    diagonal: whether layer i is compared with layer i only.
  """
  (depth, size), (others, other_size) = first, second
  pairs = depth if diagonal else depth * others
  gram = n * n * (depth * size + others * other_size + pairs + depth + others)
  features = n * (
    pairs * size * other_size + depth * size**2 + others * other_size**2
  )
  return gram < features


def hsic(
  first: np.ndarray,
  second: np.ndarray,
  *,
  diagonal: bool,
  debiased: bool,
  dtype: Any,
) -> Hsic:
  """Computes HSIC up to a factor, from all sentences at once.

  Args:
    first: states [L, n, D] of one model.
    second: states [M, n, E] of the other.
    diagonal: whether layer i is compared with layer i only.
    debiased: whether HSIC is the unbiased estimator.
    dtype: of the products.
  """
  sides = [
    [_centred(layer, dtype) for layer in states] for states in (first, second)
  ]
  n = len(sides[0][0])
  step = max(1, _ENTRIES // (n * sum(map(len, sides))))
  traces: list[np.ndarray] = [np.zeros(())] * 3
  sums = [np.zeros((len(side), n)) for side in sides]  # K 1
  for start in range(0, n, step):
    rows = slice(start, start + step)
    x, y = ([_gram(layer, rows, debiased) for layer in side] for side in sides)
    if debiased:
      for side, matrices in zip(sums, (x, y), strict=True):
        side[:, rows] = [one.sum(1, dtype=np.float64) for one in matrices]
    traces = [
      total + found
      for total, found in zip(
        traces,
        (_traces(x, y, diagonal), _traces(x, x, True), _traces(y, y, True)),
        strict=True,
      )
    ]
  if debiased:
    traces = [
      trace + _correction(a, b, along)
      for trace, a, b, along in zip(
        traces,
        (sums[0], *sums),
        (sums[1], *sums),
        (diagonal, True, True),
        strict=True,
      )
    ]
  return Hsic(*traces)


def _centred(layer: np.ndarray, dtype: Any) -> np.ndarray:
  found = layer.astype(np.float64)
  return (found - found.mean(0)[None]).astype(dtype, copy=False)


def _gram(layer: np.ndarray, rows: slice, debiased: bool) -> np.ndarray:
  """Rows of X X^T, for the unbiased estimator with zeros on the diagonal."""
  found = np.asarray(products.inner(layer[rows], layer))
  if debiased:
    found = found.copy()
    found[np.arange(len(found)), rows.start + np.arange(len(found))] = 0
  return found


def _traces(
  x: Sequence[np.ndarray], y: Sequence[np.ndarray], diagonal: bool
) -> np.ndarray:
  """Sums of entrywise products: [L, M], or [L] on the diagonal."""
  if diagonal:
    return np.array(
      [np.vdot(a, b) for a, b in zip(x, y, strict=True)], np.float64
    )
  return np.array([[np.vdot(a, b) for b in y] for a in x], np.float64)


def _correction(x: np.ndarray, y: np.ndarray, diagonal: bool) -> np.ndarray:
  """Returns what row sums [L, n] and [M, n] add to tr(K L)."""
  n = x.shape[1]
  if diagonal:
    totals, product = x.sum(1) * y.sum(1), np.einsum('ln,ln->l', x, y)
  else:
    totals, product = np.outer(x.sum(1), y.sum(1)), x @ y.T
  return totals / ((n - 1) * (n - 2)) - 2 * product / (n - 2)
