"""Featurizers for texts and text pairs with a class, score or embedding."""

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

UNKNOWN = -1  # Padding value of labels.


@class_registry.register('classification_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationFeaturizer(featurizer.Featurizer):
  """Featurizer for texts and text pairs that are labeled with a class.

  It creates one sequence for each text or text pair. `text_row` documents the
  sequence's tokens. `labels` is the index of the class. Examples without a
  label produce no sequence.

  For example, the pair `a b`, `c` with the label 'neutral', the label set
  ('entailment', 'neutral') and SpecialTokenTemplate.XLMR gives the tokens
  `<s> a b </s> </s> c </s>` and the value 1 of `labels`.

  Attributes:
    labels: Names of the classes in the order of their indices. The names must
      equal the labels of the objective.
  """

  cuts = True
  reads_pairs = True
  labels: tuple[str, ...]

  def __post_init__(self):
    object.__setattr__(self, 'labels', tuple(self.labels))

  def check_labels(self, examples, where):
    label_sets.check_training_labels(examples, self.labels, where)

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      batch_keys.LABELS: featurizer.Field((), UNKNOWN)
    }

  def make(self, examples, vocabulary, *, length):
    self.check_labels(examples, 'examples of a dataset')
    label_indices = {label: i for i, label in enumerate(self.labels)}
    labeled = [example for example in examples if example.label is not None]
    rows = iter(self.text_rows(labeled, vocabulary, length=length))
    return [
      []
      if example.label is None
      else [next(rows) | {batch_keys.LABELS: label_indices[example.label]}]
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
    """Returns one sequence for each example, without the `labels` key.

    Raises:
      ConfigError: If the length leaves no space for text.
    """
    first_ids, second_ids = _languages(examples, vocabulary)
    texts = [example.text for example in examples]
    paired = [example.paired_text or '' for example in examples]
    first = vocabulary.encode_each(texts, first_ids)
    second = vocabulary.encode_each(paired, second_ids)
    num_special_single = featurizer.num_special(1, self.separator)
    num_special_pair = featurizer.num_special(2, self.separator)
    if length <= num_special_pair:
      raise errors.ConfigError(
        f'The sequence length must be greater than {num_special_pair}, '
        f'because a pair of texts requires {num_special_pair} special tokens',
        got=length,
      )
    rows = []
    for example, first_tokens, second_tokens, *languages in zip(
      examples, first, second, first_ids, second_ids, strict=True
    ):
      if example.paired_text is None:
        sides = [first_tokens[: length - num_special_single]]
      else:
        first_size, second_size = longest_first(
          len(first_tokens), len(second_tokens), length - num_special_pair
        )
        sides = [first_tokens[:first_size], second_tokens[:second_size]]
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


@class_registry.register('regression_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionFeaturizer(ClassificationFeaturizer):
  """Featurizer for texts and text pairs that are labeled with a score.

  It creates one sequence for each text or text pair. `labels` contains the bits
  of the float32 score, because all batch arrays have the type int32. Examples
  without a score produce no sequence.

  Attributes:
    labels: Unused setting, inherited from the base class.
  """

  labels: tuple[str, ...] = ()

  def check_labels(self, examples, where):
    del examples, where  # A score is not a label.

  def make(self, examples, vocabulary, *, length):
    sequences = self.texts(examples, vocabulary, length=length)
    return [
      [row | {batch_keys.LABELS: int(np.float32(example.score).view(np.int32))}]
      if example.score is not None
      else []
      for example, (row,) in zip(examples, sequences, strict=True)
    ]


@class_registry.register('distillation_featurizer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationFeaturizer(ClassificationFeaturizer):
  """Featurizer that adds a teacher's sentence embedding to each sequence.

  It reads examples in the file format `search`. All texts in line n, counted
  from 1, have the embedding n, which the teacher computed from one of them,
  usually the English text. The `vectors` key of a sequence contains the bits of
  the float32 embedding.

  Attributes:
    vectors: For each language, the path of a `.npy` file with the teacher's
      embeddings, of shape [lines, D]. Each language has exactly one file.
  """

  vectors: Mapping[str, str] = class_registry.path_field(
    content_hash.hash_paths
  )

  def fields(self, length, spec):
    vectors = self._load_vectors(next(iter(self.vectors), ''))
    return super().fields(length, spec) | {
      batch_keys.VECTORS: featurizer.Field((vectors.shape[1],))
    }

  def make(self, examples, vocabulary, *, length):
    sequences = super().make(examples, vocabulary, length=length)
    languages = {example.language for example in examples}
    vectors_by_language = {code: self._load_vectors(code) for code in languages}
    for example, rows in zip(examples, sequences, strict=True):
      vectors = vectors_by_language[example.language]
      match = re.fullmatch(r'(\d+)\.\d+', example.id)
      if not match or int(match[1]) > len(vectors):
        raise errors.CorpusError(
          f'The teacher embeddings of the language {example.language!r} must '
          'have one vector for each line of a single file in `search` '
          f'format. The number of vectors is {len(vectors)}, but the text with '
          f'the id {example.id!r} has no vector',
          where=errors.field_location(self, 'vectors'),
        )
      bits = vectors[int(match[1]) - 1].astype(np.float32).view(np.int32)
      rows[:] = [row | {batch_keys.VECTORS: bits} for row in rows]
    return sequences

  def _load_vectors(self, language: str) -> np.ndarray:
    """Maps the vectors of a language into memory, shape [lines, D]."""
    path = self.vectors.get(language)
    vectors = np.zeros(0)
    if path is not None:
      # A file that is not in `.npy` format fails the check below.
      with contextlib.suppress(ValueError):
        vectors = np.load(file_reading.require_file(path), mmap_mode='r')
    if vectors.ndim != 2 or vectors.dtype.kind != 'f':
      raise errors.CorpusError(
        f'The teacher embeddings of the language {language!r} must be an '
        'array of floating-point numbers of shape [lines, size], saved with '
        f'`numpy.save`. The array in {path} has the shape {vectors.shape} and '
        f'the data type {vectors.dtype}',
        where=errors.field_location(self, 'vectors'),
      )
    return vectors


def longest_first(first: int, second: int, capacity: int) -> tuple[int, int]:
  """Returns the lengths of two texts after truncation to a total `capacity`.

  Tokens are removed one by one from the end of the longer text. If both texts
  have the same length, a token of the second text is removed (data of Devlin et
  al., 2019; 'longest_first' in Hugging Face). For example, texts of 5 and 10
  tokens with a capacity of 9 are truncated to (5, 4).

  Args:
    first: Number of tokens of the first text.
    second: Number of tokens of the second text.
    capacity: Maximum total number of tokens in both texts.
  """
  if first + second <= capacity:
    return first, second
  capacity = max(capacity, 0)
  smaller_half = capacity // 2
  larger_half = capacity - smaller_half
  if first <= larger_half:
    return first, capacity - first
  if second <= smaller_half:
    return capacity - second, second
  return larger_half, smaller_half


def _languages(examples, vocabulary) -> tuple[np.ndarray, np.ndarray]:
  """Returns the language ids of the first and second texts, int32 [N] each."""
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
