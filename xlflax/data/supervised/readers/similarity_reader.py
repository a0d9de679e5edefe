"""Reader for text pairs with similarity scores, in TSV files."""

import math
import os
from collections.abc import Mapping

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import (
  classification_reader,
  column_validation,
  file_reading,
)


@file_formats.register_reader('rated_pairs', example=labeled_examples.RatedPair)
def read_rated_pairs(
  path: str | os.PathLike,
  language: str,
  *,
  columns: classification_reader.Columns = classification_reader.TSV_COLUMNS,
  labels: Mapping[str, str | None] | None = None,
  has_header: bool = False,
  quoting: classification_reader.Quoting
  | str = classification_reader.Quoting.NONE,
  paired_language: str | None = None,
) -> file_reading.Reading:
  """Reads one text pair per line, with its score in the label column.

  For example, the line `It rains.<TAB>It pours.<TAB>3.5` gives a `RatedPair`
  with the text 'It rains.', the paired text 'It pours.' and the score 3.5. The
  arguments are those of `classification_reader.read_tsv`, and `labels` may map
  names to scores.

  Raises:
    CorpusError: If a line is invalid, as documented by
      `classification_reader.read_tsv`; if a score is not a number; if a line
      has only one text; or if the scores are line numbers.
  """
  reading, _ = classification_reader.read_columns(
    path,
    language,
    columns=columns,
    labels=labels,
    has_header=has_header,
    quoting=quoting,
    paired_language=paired_language,
    check_label=_check_score,
  )
  pairs = [_to_rated_pair(example, path) for example in reading.examples]
  column_validation.check_scores(pairs, path)
  return file_reading.Reading(pairs)


def _check_score(label: str, path, number: int) -> None:
  """Raises a CorpusError if a label is not a number."""
  try:
    is_number = not math.isnan(float(label))
  except ValueError:
    is_number = False
  if not is_number:
    raise file_reading.malformed_line_error(
      'The score must be a number', path, number, got=repr(label)
    )


def _to_rated_pair(example: labeled_examples.ClassifiedText, path):
  """Converts the label of an example to a score."""
  if example.paired_text is None:
    raise file_reading.malformed_line_error(
      'Each line must contain two texts, but this line contains only one',
      path,
      f'example {example.id}',
      got=file_reading.shorten_quoted(example.text),
    )
  return labeled_examples.RatedPair(
    id=example.id,
    language=example.language,
    text=example.text,
    paired_text=example.paired_text,
    paired_language=example.paired_language,
    score=None if example.label is None else float(example.label),
  )
