"""Base class for featurizers, and functions shared by all featurizers.

A featurizer converts labeled examples to sequences. A sequence (`Row`) is a
dict that maps batch keys to integer arrays with one number for each token or
word, or to single numbers. Sequences are as long as their text.
`stack_features` pads them to the shapes of a batch.
"""

import dataclasses
import enum
import logging
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.corpus import language_codes
from xlflax.data.dataset_config import PositionIds, SpecialTokenTemplate
from xlflax.data.supervised import labeled_examples
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import logs

Row = dict[str, np.ndarray]


class Field(NamedTuple):
  """Shape and padding value of one batch key.

  Attributes:
    shape: Shape of one sequence's values after padding: () or (length,).
    fill: Padding value. If a batch has fewer sequences than rows, the remaining
      rows consist of this value.
  """

  shape: tuple[int, ...]
  fill: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Featurizer:
  """Base class for featurizers, which convert examples to sequences.

  Attributes:
    separator: Special tokens around two texts in a sequence. Use the same
      template as in pretraining.
    positions: Position ids of the second text: continued from the first text,
      or restarted at 0.
    cuts: Whether to truncate text that exceeds the sequence length (class
      attribute).
  """

  cuts: ClassVar[bool] = False
  # Whether examples can be text pairs, which contain `separator`.
  reads_pairs: ClassVar[bool] = False
  separator: SpecialTokenTemplate = SpecialTokenTemplate.XLMR
  positions: PositionIds = PositionIds.CONTINUOUS

  @property
  def leaves_rows_out(self) -> bool:
    """True if `make` may omit some of the sequences that `texts` returns."""
    return False

  def input_settings(self) -> dict[str, int | str]:
    """Returns the settings of the featurizer that affect the model inputs.

    A head is evaluated with the settings with which it was fine-tuned. The
    settings are the featurizer's number, string and enum fields, represented by
    plain values. Labels and data are not included. The special-token template
    of text pairs is omitted if the featurizer does not read pairs.
    """
    skipped = () if self.reads_pairs else ('separator', 'positions')
    settings: dict[str, int | str] = {}
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if isinstance(value, enum.Enum):
        value = value.value
      if field.name not in skipped and isinstance(value, (int, str)):
        settings[field.name] = value
    return settings

  def fields(self, length: int, spec: VocabularySpec) -> dict[str, Field]:
    """Returns each array's shape and padding, given the sequence length."""
    raise NotImplementedError

  def check_labels(
    self, examples: Iterable[labeled_examples.Example], where: str
  ) -> None:
    """Checks that the label set contains all labels of training examples.

    Args:
      examples: Examples of the featurizer's task family.
      where: Location of the examples, for error messages.

    Raises:
      CorpusError: If the label of an example is not in the label set.
    """
    del examples, where  # Only some featurizers have a label set.

  def make(
    self,
    examples: Sequence[labeled_examples.Example],
    vocabulary: Any,
    *,
    length: int,
  ) -> list[list[Row]]:
    """Converts labeled examples to sequences.

    Args:
      examples: Examples of the featurizer's task family.
      vocabulary: Vocabulary that encodes the texts.
      length: Maximum number of tokens in a sequence, including special tokens.

    Returns:
      The sequences of each example. The list is empty for an example that
      cannot be used.

    Raises:
      CorpusError: If the label of an example is not in the label set.
      VocabularyError: If encoding requires a language that the vocabulary does
        not have.
    """
    raise NotImplementedError

  def texts(
    self,
    examples: Sequence[labeled_examples.Example],
    vocabulary: Any,
    *,
    length: int,
  ) -> list[list[Row]]:
    """Converts examples to sequences without labels.

    The arguments and errors are the same as for `make`, but the examples need
    no label. The sequences are additional inputs of a batch, such as
    translations (`paired_rows`).
    """
    raise NotImplementedError


def text_fields(length: int, spec: VocabularySpec) -> dict[str, Field]:
  """Returns the shape and padding of each array that `text_row` creates."""
  return {
    batch_keys.TOKEN_IDS: Field((length,), spec.pad_id),
    batch_keys.SEGMENT_IDS: Field((length,)),
    batch_keys.POSITIONS: Field((length,)),
    batch_keys.LANGUAGE_IDS: Field((length,)),
    batch_keys.SIDE_IDS: Field((length,)),
  }


def text_row(
  texts: Sequence[np.ndarray],
  languages: Sequence[int],
  spec: VocabularySpec,
  *,
  separator: SpecialTokenTemplate = SpecialTokenTemplate.XLMR,
  positions: PositionIds = PositionIds.CONTINUOUS,
) -> Row:
  """Creates a model input sequence from one or two texts, as in pretraining.

  For example, `[7, 8]` and `[9]` in the languages 0 and 1 with
  SpecialTokenTemplate.XLMR, bos 1 and eos 2 give token_ids `[1, 7, 8, 2, 2, 9,
  2]`, segment_ids all 1, positions `[0, 1, 2, 3, 4, 5, 6]`, language_ids `[0,
  0, 0, 0, 1, 1, 1]` and side_ids `[0, 0, 0, 0, 1, 1, 1]`.

  Args:
    texts: Token ids of one or two texts, which must fit into the sequence.
    languages: Language id of each text.
    spec: Vocabulary specification that provides the special tokens.
    separator: Special tokens between the two texts.
    positions: Position ids of the second text: continued from the first text,
      or restarted at 0.
  """
  prefixes = [
    [spec.bos_id],
    {
      SpecialTokenTemplate.BERT: [],
      SpecialTokenTemplate.XLMR: [spec.eos_id],
      SpecialTokenTemplate.XLM: [spec.bos_id],
    }[separator],
  ]
  segments = [
    np.concatenate([prefix, text, [spec.eos_id]]).astype(np.int32)
    for prefix, text in zip(prefixes, texts, strict=False)
  ]
  sizes = [segment.size for segment in segments]
  total = sum(sizes)
  position_ids = np.arange(total, dtype=np.int32)
  if positions is PositionIds.RESET and len(segments) == 2:
    position_ids[sizes[0] :] -= sizes[0]
  return {
    batch_keys.TOKEN_IDS: np.concatenate(segments),
    batch_keys.SEGMENT_IDS: np.ones(total, np.int32),
    batch_keys.POSITIONS: position_ids,
    batch_keys.LANGUAGE_IDS: np.repeat(
      np.asarray(languages[: len(segments)], np.int32), sizes
    ),
    batch_keys.SIDE_IDS: np.repeat(
      np.arange(len(segments), dtype=np.int32), sizes
    ),
  }


def warn_of_template_mismatch(row_maker: Featurizer, vocabulary: Any) -> None:
  """Warns if text pairs get different special tokens than in pretraining.

  The template of this featurizer is compared with the special-token template in
  the tokenizer files of a published model.
  """
  templates = (
    find_tokenizer_templates(vocabulary) if row_maker.reads_pairs else None
  )
  if templates is None or row_maker.separator in templates:
    return
  logging.warning(
    "Text pairs use separator=%r, but the pretrained model's tokenizer uses "
    'different special tokens for pairs.%s',
    row_maker.separator.value,
    f' Set SEPARATOR={templates[0].value!r}.' if templates else '',
    extra=logs.ONCE,
  )


def find_tokenizer_templates(
  vocabulary: Any,
) -> list[SpecialTokenTemplate] | None:
  """Returns the templates that give the special tokens of a tokenizer's pairs.

  Args:
    vocabulary: Vocabulary, which may be that of a published model.

  Returns:
    The templates with the same special tokens as the text-pair template in the
    tokenizer's own files. Empty if no template has these tokens, and None if
    the files contain no text-pair template.
  """
  tokenizer_ids = vocabulary.encode_empty_pair()
  if tokenizer_ids is None:
    return None
  return [
    template
    for template in SpecialTokenTemplate
    if tokenizer_ids == empty_pair_ids(vocabulary.spec, template)
  ]


def empty_pair_ids(
  spec: VocabularySpec, separator: SpecialTokenTemplate
) -> list[int]:
  """Returns the ids of the special tokens around and between two texts."""
  row = text_row([np.zeros(0, np.int32)] * 2, (0, 0), spec, separator=separator)
  return row[batch_keys.TOKEN_IDS].tolist()


def num_special(num_texts: int, separator: SpecialTokenTemplate) -> int:
  """Returns the number of special tokens in a sequence of one or two texts."""
  return 2 if num_texts == 1 else separator.num_special


def stack_features(
  rows: Sequence[Row], fields: dict[str, Field], *, num_rows: int | None = None
) -> batch_keys.Batch:
  """Stacks and pads sequences into the arrays of a batch.

  Args:
    rows: R sequences to stack.
    fields: Mapping from batch keys to the shape and padding value of a
      sequence's array.
    num_rows: Batch size B >= R. The remaining rows contain the padding values.
      If None, the batch size is R.

  Returns:
    Arrays of type int32 and shape [B, *shape].
  """
  batch_size = len(rows) if num_rows is None else num_rows
  batch = {}
  for key, (shape, fill) in fields.items():
    array = np.full((batch_size, *shape), fill, np.int32)
    for index, row in enumerate(rows):
      value = row[key]
      if shape:
        array[index, : len(value)] = value
      else:
        array[index] = value
    batch[key] = array
  return batch


def language_id(vocabulary, code: str) -> int:
  """Returns a language's id, or 0 if the vocabulary does not have the language.

  The id affects only language embeddings and vocabularies with separate tokens
  for each language.

  Raises:
    VocabularyError: If encoding requires a language that the vocabulary does
      not have.
  """
  matched_code = language_codes.match_language(code, vocabulary.spec.languages)
  if matched_code is not None or vocabulary.needs_language:
    return vocabulary.language_id(matched_code or code)
  return 0
