"""Rated pairs of texts, from TSV."""

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
  header: classification_reader.Header
  | str = classification_reader.Header.NONE,
  quoting: classification_reader.Quoting
  | str = classification_reader.Quoting.NONE,
  paired_language: str | None = None,
) -> file_reading.Reading:
  """Reads a pair a line, its score where the format `tsv` has the label.

  Before: `It rains.<TAB>It pours.<TAB>3.5`; after: `RatedPair(text='It
  rains.', paired_text='It pours.', score=3.5)`. The arguments are those of
  `readers.classification.read_tsv`; `labels` may map names to numbers.

  Raises:
    CorpusError: see there; a score that is no number, a line of one text;
      scores that are the numbers of the lines.
  """
  reading, _ = classification_reader.read_columns(
    path,
    language,
    columns=columns,
    labels=labels,
    header=header,
    quoting=quoting,
    paired_language=paired_language,
  )
  rated = [_rated(example, path) for example in reading.examples]
  column_validation.check_scores(rated, path)
  return file_reading.Reading(rated)


def _rated(example: labeled_examples.ClassifiedText, path):
  try:
    score = None if example.label is None else float(example.label)
  except ValueError:
    score = float('nan')
  if example.paired_text is None or (score is not None and score != score):
    raise file_reading.malformed_line_error(
      'line of rated pairs',
      path,
      f'example {example.id}',
      f'the score {example.label!r} of {file_reading.shorten_quoted(example.text)}',
      expected='two texts and a number',
    )
  return labeled_examples.RatedPair(
    id=example.id,
    language=example.language,
    text=example.text,
    paired_text=example.paired_text,
    paired_language=example.paired_language,
    score=score,
  )
