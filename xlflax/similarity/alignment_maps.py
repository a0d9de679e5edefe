"""Alignment maps between two models' embedding spaces, saved as files."""

import dataclasses
import io
import json
from typing import Any

import numpy as np

from xlflax.similarity import procrustes, vector_normalization
from xlflax.storage import npz_files
from xlflax.utils import errors, validation


@dataclasses.dataclass(frozen=True)
class SavedMap:
  """Alignment map from one model's layer to a different model's layer.

  Attributes:
    alignment: Orthogonal map and normalizations, without the vectors to which
      they were fitted.
    about: JSON metadata that describes the map's models, languages, layers and
      texts.
    scale: Mean norm of the target's hidden states, divided by the mean norm of
      the source's hidden states.
  """

  alignment: procrustes.Alignment
  about: dict[str, Any]
  scale: float = 1.0


def serialize_map(saved: SavedMap) -> bytes:
  """Serializes an alignment map to the contents of an `.npz` file.

  The arrays are `matrix` (W of shape [D, D]; a row x is mapped to x W^T),
  `source_means` and `target_means` of shape [rounds, D], `scale`, and `about`
  (JSON).
  """
  out = io.BytesIO()
  np.savez(
    out,
    matrix=saved.alignment.matrix,
    source_means=saved.alignment.source.means,
    target_means=saved.alignment.target.means,
    scale=saved.scale,
    about=json.dumps(saved.about, ensure_ascii=False),
  )
  return out.getvalue()


@validation.validate_call
def load_map(path: validation.FilePath) -> SavedMap:
  """Loads an alignment map from an `.npz` file.

  Raises:
    AnalysisError: If the file does not exist, is not a valid map, or contains
      values that are not finite.
  """
  try:
    saved = npz_files.load_arrays(path)
    matrix = saved['matrix']
    normalizations = [
      _normalized(saved[f'{side}_means']) for side in ('source', 'target')
    ]
    about, scale = json.loads(str(saved['about'])), float(saved['scale'])
  except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
    errors.raise_if_system_error(error, path)
    raise errors.AnalysisError(
      'The file must contain an alignment map that was written by '
      '`xlflax analyze procrustes`, but it cannot be read',
      got=str(error),
      where=str(path),
    ) from error
  numbers: list[Any] = [matrix, scale, *(side.means for side in normalizations)]
  if not all(np.isfinite(array).all() for array in numbers):
    raise errors.AnalysisError(
      'The alignment map contains NaN or infinity',
      where=str(path),
      fix='Fit the map again with `xlflax analyze procrustes`.',
    )
  return SavedMap(procrustes.Alignment(matrix, *normalizations), about, scale)


def invert_map(saved: SavedMap) -> SavedMap:
  """Inverts a map by transposing its orthogonal matrix."""
  alignment = saved.alignment
  return dataclasses.replace(
    saved,
    scale=1 / saved.scale,
    alignment=(
      dataclasses.replace(
        alignment,
        matrix=alignment.matrix.T,
        source=alignment.target,
        target=alignment.source,
      )
    ),
  )


def _normalized(means: np.ndarray) -> vector_normalization.Normalized:
  return vector_normalization.Normalized(
    np.zeros((0, means.shape[1]), np.float32), means
  )
