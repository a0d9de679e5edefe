"""From epochs over labelled examples to optimizer steps."""

import math

from xlflax import errors
from xlflax.data.labelled import loader as loader_lib
from xlflax.data.labelled import stream as stream_lib
from xlflax.data.vocabularies import vocabulary as vocabulary_lib

_rows: dict[str, int] = {}


def num_steps(
  *, stream: stream_lib.LabelledStream, vocabulary: str, epochs: float
) -> int:
  """Steps that see each row of a stream so often, rounded up.

  Before: 25 rows, batches of 10, 2 epochs; after: 5 steps. The rows are made
  once for it, as training makes them.

  Args:
    stream: what is trained on.
    vocabulary: directory of the vocabulary.
    epochs: how often each row is seen; not always whole.

  Raises:
    ConfigError: it is no positive number.
    XlflaxError: the rows cannot be made.
  """
  if not epochs > 0:
    raise errors.ConfigError(
      'The number of epochs must be positive',
      got=epochs,
      where=f'stream {stream.name!r}',
    )
  key = f'{vocabulary} {stream!r}'
  if key not in _rows:
    loader = loader_lib.LabelledLoader(
      stream, vocabulary=vocabulary_lib.Vocabulary.load(vocabulary), seed=0
    )
    _rows[key] = loader.num_rows
    loader.close()
  return math.ceil(epochs * _rows[key] / stream.batch_size)
