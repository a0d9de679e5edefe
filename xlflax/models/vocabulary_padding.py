"""Parameter shapes and counts without the vocabulary's padding rows.

The number of rows of these parameters is the size of the vocabulary, rounded up
to a multiple of `pad_vocab_size_multiple`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.models import encoder_config

# Parameters with a row for each token, and the axis of these rows.
_ROW_AXES = (
  (re.compile(r'(^|/)(token|output)$'), -2),
  (re.compile(r'(^|/)output_bias$'), -1),
)


def unpadded_shape(
  name: str, shape: Sequence[int], config: Any
) -> tuple[int, ...]:
  """Returns a parameter's shape without the padding rows of the vocabulary.

  Args:
    name: Name of the parameter, such as 'model/embeddings/token'.
    shape: Shape of the parameter, including padding rows.
    config: Configuration of the model, which specifies the size of its
      vocabulary. If it is not a `TransformerConfig`, there are no padded rows.
  """
  unpadded = list(shape)
  if not isinstance(config, encoder_config.TransformerConfig):
    return tuple(unpadded)
  sizes: Any = config  # Both subclasses have a `table_size`.
  for pattern, axis in _ROW_AXES:
    if (
      pattern.search(name)
      and len(shape) >= -axis
      and shape[axis] == sizes.table_size
    ):
      unpadded[axis] = sizes.vocab_size
  return tuple(unpadded)


def count_unpadded(shapes: Mapping[str, Sequence[int]], config: Any) -> int:
  """Counts scalar parameters, excluding the padding rows of the vocabulary.

  Args:
    shapes: Mapping from the name of each parameter to its shape, including
      padding rows.
    config: Configuration of the model, which specifies the size of its
      vocabulary.
  """
  return sum(
    math.prod(unpadded_shape(name, shape, config))
    for name, shape in shapes.items()
  )
