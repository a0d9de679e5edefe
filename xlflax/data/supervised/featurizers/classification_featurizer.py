"""Rows of texts, and of pairs of texts, that have a class."""

import contextlib
import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.supervised import label_sets, labeled_examples
from xlflax.data.supervised.featurizers import featurizer
from xlflax.data.supervised.readers import file_reading
from xlflax.storage import content_hash
from xlflax.utils import class_registry, errors

UNKNOWN = -1


@class_registry.register('classification_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationRows(featurizer.RowMaker):
  """One row for each text or pair.

  `text_row` shows the tokens; `labels` is the class's number, a single value.
  Examples without a label give no row.

  Before: the pair `a b`, `c` with the label 'neutral', and labels
  ('entailment', 'neutral'); after, with Separator.XLMR: token_ids
  `<s> a b </s> </s> c </s>`, labels 1.

  Attributes:
    labels: names of the classes, in the order of their numbers; as the
      objective has them.
  """

  cuts = True
  reads_pairs = True
  labels: tuple[str, ...]

  def __post_init__(self):
    object.__setattr__(self, 'labels', tuple(self.labels))

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      batch_keys.LABELS: featurizer.Field((), UNKNOWN)
    }

  def make(self, examples, vocabulary, *, length):
    label_sets.check_labels(examples, self.labels, 'the rows of a stream')
    numbers = {label: i for i, label in enumerate(self.labels)}
    labelled = [e for e in examples if e.label is not None]
    rows = iter(self.text_rows(labelled, vocabulary, length=length))
    return [
      []
      if example.label is None
      else [next(rows) | {batch_keys.LABELS: numbers[example.label]}]
      for example in examples
    ]

  def texts(self, examples, vocabulary, *, length):
    return [
      [row] for row in self.text_rows(examples, vocabulary, length=length)
    ]

  def text_rows(
    self,
    examples: Sequence[labeled_examples.ClassifiedText],
    vocabulary,
    *,
    length: int,
  ) -> list[featurizer.Row]:
    """A row for each example, labelled or not, without `labels`.

    Raises:
      ConfigError: the length leaves no room for text.
    """
    first_ids, second_ids = _languages(examples, vocabulary)
    texts = [example.text for example in examples]
    paired = [example.paired_text or '' for example in examples]
    first = vocabulary.encode_each(texts, first_ids)
    second = vocabulary.encode_each(paired, second_ids)
    two = featurizer.num_special(2, self.separator)
    num_special = featurizer.num_special(1, self.separator)
    if length <= two:
      raise errors.ConfigError(
        'Rows have no room for text',
        got=f'{length} tokens',
        expected=f'more than the {two} special ones',
      )
    rows = []
    for example, a, b, *languages in zip(
      examples, first, second, first_ids, second_ids, strict=True
    ):
      if example.paired_text is None:
        sides = [a[: length - num_special]]
      else:
        keep_a, keep_b = longest_first(len(a), len(b), length - two)
        sides = [a[:keep_a], b[:keep_b]]
      rows.append(
        featurizer.text_row(
          sides,
          languages,
          vocabulary.spec,
          separator=self.separator,
          positions=self.positions,
        )
      )
    return rows


@class_registry.register('regression_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionRows(ClassificationRows):
  """One row for each rated text or pair; without a rating there is none.

  `labels` has the bits of the rating as float32, since batches are of int32.

  Attributes:
    labels: none.
  """

  labels: tuple[str, ...] = ()

  def make(self, examples, vocabulary, *, length):
    sequences = self.texts(examples, vocabulary, length=length)
    return [
      [row | {batch_keys.LABELS: int(np.float32(example.score).view(np.int32))}]
      if example.score is not None
      else []
      for example, (row,) in zip(examples, sequences, strict=True)
    ]


@class_registry.register('taught_rows')
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaughtRows(ClassificationRows):
  """Rows of the format `search`, each with the teacher's vector of its line.

  All texts of line n have vector n, counted from 1: that of the text which the
  teacher reads, such as the English one. `vectors` has its bits as float32.

  Attributes:
    vectors: language -> `.npy` file, [lines, D]; a language has one file.
  """

  vectors: Mapping[str, str] = class_registry.known_by_content(
    content_hash.hash_paths
  )

  def fields(self, length, spec):
    vectors = self._of(next(iter(self.vectors), ''))
    return super().fields(length, spec) | {
      batch_keys.VECTORS: featurizer.Field((vectors.shape[1],))
    }

  def make(self, examples, vocabulary, *, length):
    sequences = super().make(examples, vocabulary, length=length)
    held = {code: self._of(code) for code in {x.language for x in examples}}
    for example, rows in zip(examples, sequences, strict=True):
      vectors = held[example.language]
      number = re.fullmatch(r'(\d+)\.\d+', example.id)
      if not number or int(number[1]) > len(vectors):
        raise errors.CorpusError(
          'A line has no vector of the teacher',
          got=f'{len(vectors)} vectors of {example.language}',
          expected='one for each line of one file of the format search',
          where=f'text {example.id}',
        )
      bits = vectors[int(number[1]) - 1].astype(np.float32).view(np.int32)
      rows[:] = [row | {batch_keys.VECTORS: bits} for row in rows]
    return sequences

  def _of(self, language: str) -> np.ndarray:
    path, vectors = self.vectors.get(language), np.zeros(0)
    if path is not None:
      with contextlib.suppress(ValueError):  # no such form
        vectors = np.load(file_reading.require_file(path), mmap_mode='r')
    if vectors.ndim != 2 or vectors.dtype.kind != 'f':
      raise errors.CorpusError(
        "A language has no file of the teacher's vectors",
        got=f'shape {vectors.shape} of {path}',
        expected='numbers [lines, size], saved by numpy.save',
        where=f'TaughtRows.vectors, language {language!r}',
      )
    return vectors


def longest_first(first: int, second: int, capacity: int) -> tuple[int, int]:
  """How much is kept of two texts if tokens are cut off the longer one.

  One token after the other is taken from the end of the longer text, of the
  second where they are equally long (Devlin et al. 2019's data, Hugging
  Face's 'longest_first').

  Before: 5 and 10 tokens, 9 fit; after: (5, 4).

  Args:
    first: tokens of the first text.
    second: tokens of the second.
    capacity: tokens that fit.
  """
  if first + second <= capacity:
    return first, second
  capacity = max(capacity, 0)
  small = capacity // 2
  large = capacity - small
  if first <= large:
    return first, capacity - first
  if second <= small:
    return capacity - second, second
  return large, small


def _languages(examples, vocabulary) -> tuple[np.ndarray, np.ndarray]:
  """Language ids of first and second texts, int32 [N] each."""
  ids_by_code: dict[str, int] = {}

  def number(code: str) -> int:
    if code not in ids_by_code:
      ids_by_code[code] = featurizer.language_id(vocabulary, code)
    return ids_by_code[code]

  first = [number(example.language) for example in examples]
  second = [
    first_id
    if example.paired_language is None
    else number(example.paired_language)
    for example, first_id in zip(examples, first, strict=True)
  ]
  return np.asarray(first, np.int32), np.asarray(second, np.int32)
