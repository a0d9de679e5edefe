"""Rated pairs of texts, from TSV."""

import os
from collections.abc import Mapping

from xlflax.data.labelled import examples as examples_lib
from xlflax.data.labelled import formats
from xlflax.data.labelled.readers import classification, column_checks, files


@formats.register_reader('rated_pairs', example=examples_lib.RatedPair)
def read_rated_pairs(
  path: str | os.PathLike,
  language: str,
  *,
  columns: classification.Columns = classification.TSV_COLUMNS,
  labels: Mapping[str, str | None] | None = None,
  header: classification.Header | str = classification.Header.NONE,
  quoting: classification.Quoting | str = classification.Quoting.NONE,
  paired_language: str | None = None,
) -> files.Reading:
  """Reads a pair a line, its score where the format `tsv` has the label.

  Before: `It rains.<TAB>It pours.<TAB>3.5`; after: `RatedPair(text='It
  rains.', paired_text='It pours.', score=3.5)`. The arguments are those of
  `readers.classification.read_tsv`; `labels` may map names to numbers.

  Raises:
    CorpusError: see there; a score that is no number, a line of one text;
      scores that are the numbers of the lines.
  """
  found, _ = classification.read_columns(
    path,
    language,
    columns=columns,
    labels=labels,
    header=header,
    quoting=quoting,
    paired_language=paired_language,
  )
  rated = [_rated(example, path) for example in found.examples]
  column_checks.check_scores(rated, path)
  return files.Reading(rated)


def _rated(example: examples_lib.ClassifiedText, path):
  try:
    score = None if example.label is None else float(example.label)
  except ValueError:
    score = float('nan')
  if example.paired_text is None or (score is not None and score != score):
    raise files.malformed_line_error(
      'line of rated pairs',
      path,
      f'example {example.id}',
      f'the score {example.label!r} of {files.shorten_quoted(example.text)}',
      expected='two texts and a number',
    )
  return examples_lib.RatedPair(
    id=example.id,
    language=example.language,
    text=example.text,
    paired_text=example.paired_text,
    paired_language=example.paired_language,
    score=score,
  )
