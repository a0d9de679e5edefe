"""Which pairs of parallel text are hardly translations, by an encoder.

Source: Artetxe and Schwenk (2019, "Margin-based parallel corpus mining with
multilingual sentence embeddings"), section 3: the cosine of a pair in ratio to
the mean cosine of both sentences to their nearest neighbours on the other side.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.similarity import margin_scoring
from xlflax.utils import progress_reporting, validation

# (texts, the language of each) -> vectors [N, D].
Encode = Callable[[Sequence[str], Sequence[str]], np.ndarray]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginFilter:
  """Which pairs of training text are kept.

  Attributes:
    least: margin, as a ratio; the source keeps pairs above 1.06 or so.
    encoder: names the encoder that made the vectors; part of the settings.
    k: neighbours that a pair is compared with.
    group: pairs among which neighbours are sought; so many vectors of either
      side are in memory at a time.
  """

  least: validation.PositiveFloat
  encoder: str
  k: validation.PositiveInt = 4
  group: validation.PositiveInt = 100_000


def find_low_margin_pairs(
  corpus: Corpus,
  files: Iterable[TextFile],
  settings: MarginFilter,
  encode: Encode,
) -> dict[str, np.ndarray]:
  """The pairs that are dropped.

  Args:
    corpus: that the files lie in.
    files: of them, parallel training text is read.
    settings: which pairs are kept.
    encode: gives the vectors of texts.

  Returns:
    Path of a file below the corpus -> number of each pair to be dropped,
    counted from 0, sorted int64 [pairs].
  """
  return {
    file.path.relative_to(corpus.directory).as_posix(): np.flatnonzero(
      _margins(file, settings, encode) < settings.least
    )
    for file in files
    if file.kind is Kind.PARALLEL and file.split == TRAIN
  }


def _margins(
  file: TextFile, settings: MarginFilter, encode: Encode
) -> np.ndarray:
  """The margin of each pair of a file, float64 [pairs]."""
  pairs = (
    corpus_lines.split_columns(line, file.path, number)
    for number, line in corpus_lines.read_text(file.path)
    if line
  )
  margins = [np.zeros(0)]
  while group := list(itertools.islice(pairs, settings.group)):
    with progress_reporting.progress_name(f'margins, {file.path.name}'):
      first, second = (
        encode(texts, [language] * len(texts))
        for language, texts in zip(
          file.languages, zip(*group, strict=True), strict=True
        )
      )
    margins.append(margin_scoring.margin_scores(first, second, k=settings.k))
  return np.concatenate(margins)
