"""Checks of the shapes and values of vector arrays."""

import numpy as np

from xlflax.utils import errors

_BLOCK = 1 << 22  # Number of values that are checked at once.


def check_vectors(array: np.ndarray, name: str) -> np.ndarray:
  """Checks that an array [N, D] consists of N > 0 finite vectors.

  Args:
    array: Array to validate.
    name: Noun for the error message 'The vectors of <name> must be …'.

  Raises:
    AnalysisError: If the array is not a matrix, is empty, or contains a value
      that is not finite.
  """
  array = np.asarray(array)
  if array.ndim != 2 or not array.size:
    raise errors.AnalysisError(
      f'The vectors of {name} must be a non-empty array of shape [vectors, '
      'dimensions]',
      got=array.shape,
    )
  step = max(1, _BLOCK // array.shape[1])
  for start in range(0, len(array), step):
    finite = np.isfinite(array[start : start + step]).all(-1)
    if not finite.all():
      raise errors.AnalysisError(
        f'The vectors of {name} must be finite, but row '
        f'{start + int(finite.argmin())} contains NaN or infinity',
        fix='Check that all parameters in the checkpoint are finite.',
      )
  return array


def check_same_dimension(first: np.ndarray, second: np.ndarray) -> None:
  """Raises AnalysisError if two arrays differ in their last dimension."""
  if first.shape[-1] != second.shape[-1]:
    raise errors.AnalysisError(
      'Both sets of vectors must have the same number of dimensions, but found '
      f'{first.shape[-1]} and {second.shape[-1]} dimensions'
    )


def check_same_length(first: np.ndarray, second: np.ndarray) -> None:
  """Raises AnalysisError if two arrays have different lengths."""
  if len(first) != len(second):
    raise errors.AnalysisError(
      'Paired sets of vectors must contain the same number of vectors, but '
      f'found {len(first)} and {len(second)} vectors'
    )


def check_axes(array: np.ndarray, name: str, axes: str) -> np.ndarray:
  """Checks that an array has the expected axes, and returns the array.

  Args:
    array: Array to validate.
    name: Name of the array for the error message.
    axes: Names of the expected axes, such as 'sentences, dimensions'. '...,
      words' accepts any leading axes.

  Raises:
    AnalysisError: If the array does not have the expected number of axes.
  """
  array = np.asarray(array)
  names = axes.removeprefix('..., ').split(', ')
  is_valid = array.ndim == len(names)
  if axes.startswith('...'):
    is_valid = array.ndim >= len(names)
  if not is_valid:
    raise errors.AnalysisError(
      f'`{name}` must be an array with the axes [{axes}]',
      got=array.shape,
      fix='Pass a single array. To add a leading axis, use array[None].',
    )
  return array


def check_shape(
  expected: tuple[int, ...], array: np.ndarray, name: str
) -> None:
  """Raises AnalysisError if an array does not have the expected shape."""
  if array.shape != expected:
    raise errors.AnalysisError(
      f'`{name}` must have the shape {expected} to match the other arrays',
      got=array.shape,
      fix='Pass arrays for the same words in the same order.',
    )
