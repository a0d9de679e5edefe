"""Filter for parallel text, based on margin scores of sentence embeddings.

Source: Artetxe and Schwenk (2019, "Margin-based parallel corpus mining with
multilingual sentence embeddings"), section 3. The margin of a pair is its
cosine similarity divided by the mean cosine similarity between both sentences
and their nearest neighbors in the other language.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from xlflax.data.corpus import corpus_directory
from xlflax.data.corpus.corpus_directory import TRAIN, Corpus
from xlflax.data.corpus.corpus_files import Kind, TextFile
from xlflax.similarity import margin_scoring
from xlflax.utils import progress_reporting, validation

# Function from texts and the language of each text to embeddings of shape
# [texts, features].
Encode = Callable[[Sequence[str], Sequence[str]], np.ndarray]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginFilter:
  """Settings for the margin filter.

  Attributes:
    min_margin: Minimum margin score of the pairs to keep. The paper keeps pairs
      above about 1.06.
    encoder: Name of the encoder that computes the embeddings, which is recorded
      with the settings.
    num_neighbors: Number of nearest neighbors of each sentence.
    group_size: Number of pairs in a group. Neighbors are searched within a
      group, and the embeddings of one group at a time are held in memory.
  """

  min_margin: validation.PositiveFloat
  encoder: str
  num_neighbors: validation.PositiveInt = 4
  group_size: validation.PositiveInt = 100_000


def find_low_margin_pairs(
  corpus: Corpus,
  files: Iterable[TextFile],
  settings: MarginFilter,
  encode: Encode,
) -> dict[str, np.ndarray]:
  """Finds the training pairs with a margin score below the minimum.

  Args:
    corpus: Corpus that contains the files.
    files: Files to filter. Only parallel training text is read.
    settings: Settings for the filter.
    encode: Function that computes the embeddings of texts.

  Returns:
    A mapping from file paths, relative to the corpus directory, to the sorted
    zero-based indices of the pairs to drop, int64 of shape [pairs].
  """
  return {
    corpus_directory.relative_path(file): np.flatnonzero(
      _margins(file, settings, encode) < settings.min_margin
    )
    for file in files
    if file.kind is Kind.PARALLEL and file.split == TRAIN
  }


def _margins(
  file: TextFile, settings: MarginFilter, encode: Encode
) -> np.ndarray:
  """Returns the margin of each pair of a file, float64 of shape [pairs]."""
  pairs = corpus_directory.read_texts(file)
  margins = [np.zeros(0)]
  while group := list(itertools.islice(pairs, settings.group_size)):
    with progress_reporting.progress_name(f'margins, {file.path.name}'):
      sides = zip(*group, strict=True)
      first, second = (
        encode(texts, [language] * len(texts))
        for language, texts in zip(file.languages, sides, strict=True)
      )
    margins.append(
      margin_scoring.margin_scores(first, second, k=settings.num_neighbors)
    )
  return np.concatenate(margins)
