"""Maps between the spaces of two models, saved on disk."""

import dataclasses
import io
import json
from typing import Any

import numpy as np

from xlflax.foundation import errors, validation
from xlflax.similarity import normalization, procrustes
from xlflax.storage import arrays


@dataclasses.dataclass(frozen=True)
class SavedMap:
  """A map from a layer of one model to a layer of another.

  Attributes:
    alignment: the map; without the vectors that it was learned from.
    about: models, languages, layer and text of the map; JSON values.
    scale: mean length of the target's states divided by that of the source's.
  """

  alignment: procrustes.Alignment
  about: dict[str, Any]
  scale: float = 1.0


def to_bytes(saved: SavedMap) -> bytes:
  """Returns the content of an `.npz` file.

  It has `matrix` W [D, D] (a row x is mapped to x W^T), `source_means` and
  `target_means` [rounds, D], `scale`, and `about` (JSON).
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
def load(path: validation.FilePath) -> SavedMap:
  """Reads the content of such a file.

  Raises:
    AnalysisError: there is none, it is another kind of file, or not finite.
  """
  try:
    saved = arrays.read(path)
    matrix = saved['matrix']
    sides = [
      _normalized(saved[f'{side}_means']) for side in ('source', 'target')
    ]
    about, scale = json.loads(str(saved['about'])), float(saved['scale'])
  except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
    errors.check_system(error, path)
    raise errors.AnalysisError(
      'A map cannot be read',
      got=str(error),
      where=str(path),
      expected='a file that `xlflax analyze procrustes` wrote',
    ) from error
  numbers: list[Any] = [matrix, scale, *(side.means for side in sides)]
  if not all(np.isfinite(array).all() for array in numbers):
    raise errors.AnalysisError(
      'A map is not finite',
      got='NaN or infinity',
      where=str(path),
      fix='learn it anew',
    )
  return SavedMap(procrustes.Alignment(matrix, *sides), about, scale)


def inverse(saved: SavedMap) -> SavedMap:
  """Returns the inverse: the transpose of an orthogonal map [D, D]."""
  one = saved.alignment
  return dataclasses.replace(
    saved,
    scale=1 / saved.scale,
    alignment=(
      dataclasses.replace(
        one, matrix=one.matrix.T, source=one.target, target=one.source
      )
    ),
  )


def _normalized(means: np.ndarray) -> normalization.Normalized:
  return normalization.Normalized(
    np.zeros((0, means.shape[1]), np.float32), means
  )
