"""From labelled examples to rows of a batch: the interface, and what all share.

A row is a dict of integer arrays: one number for each token of the row, one
for each of its words, or a single number. Rows are as long as their text;
`stack_features` pads them to the arrays of a batch.
"""

import dataclasses
import enum
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xlflax.data import batch_keys
from xlflax.data.corpus import language_codes
from xlflax.data.dataset_config import Positions, Separator
from xlflax.data.supervised import labeled_examples
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec

Row = dict[str, np.ndarray]


class Field(NamedTuple):
  """One key of a batch.

  Attributes:
    shape: of one row's values after padding: () or (length,).
    fill: what pads it; in rows without an example, too.
  """

  shape: tuple[int, ...]
  fill: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowMaker:
  """Base of what makes rows of a task family's examples.

  Attributes:
    separator: special tokens between two texts; as in pretraining.
    positions: whether positions of a second text run on.
    cuts: of the class; whether what does not fit into a row is left out.
  """

  cuts: ClassVar[bool] = False
  reads_pairs: ClassVar[bool] = False  # of texts, framed by `separator`
  separator: Separator = Separator.XLMR
  positions: Positions = Positions.RUNNING

  @property
  def leaves_rows_out(self) -> bool:
    """Whether `make` gives fewer rows of an example than `texts`."""
    return False

  def input_settings(self) -> dict[str, int | str]:
    """Returns the settings that decide on the tokens of a sequence.

    A head is evaluated with the settings that it was fine-tuned with. Numbers
    and enums count, by their plain values; labels and data do not. The
    template of text pairs is left out if the examples have no pairs.
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
    """The keys of a batch of rows of `length` tokens."""
    raise NotImplementedError

  def make(
    self,
    examples: Sequence[labeled_examples.Example],
    vocabulary: Any,
    *,
    length: int,
  ) -> list[list[Row]]:
    """The rows of each example; [] for one that is of no use.

    Args:
      examples: of the family.
      vocabulary: a `xlflax.data.tokenizers.base_vocabulary.Vocabulary`.
      length: tokens a row, at most, special tokens included.

    Raises:
      CorpusError: an example has a label that the rows do not know.
      VocabularyError: the language is needed, and the vocabulary lacks it.
    """
    raise NotImplementedError

  def texts(
    self,
    examples: Sequence[labeled_examples.Example],
    vocabulary: Any,
    *,
    length: int,
  ) -> list[list[Row]]:
    """The rows of each example without what is to be predicted.

    The arguments and errors are those of `make`, but examples need no label:
    they are read beside others, such as translations (`paired_rows`).
    """
    raise NotImplementedError


def text_fields(length: int, spec: VocabularySpec) -> dict[str, Field]:
  """The keys that `text_row` gives."""
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
  separator: Separator = Separator.XLMR,
  positions: Positions = Positions.RUNNING,
) -> Row:
  """One or two texts with their special tokens, as pretraining reads them.

  Before: `[7, 8]`, `[9]` in languages 0, 1, Separator.XLMR; after, with bos 1
  and eos 2: token_ids `[1, 7, 8, 2, 2, 9, 2]`, segment_ids all 1, positions
  `[0, 1, 2, 3, 4, 5, 6]`, language_ids `[0, 0, 0, 0, 1, 1, 1]`, side_ids
  `[0, 0, 0, 0, 1, 1, 1]`.

  Args:
    texts: token ids of one or two texts, already cut to fit.
    languages: language id of each.
    spec: special tokens.
    separator: what stands between two texts.
    positions: whether those of the second run on.
  """
  prefixes = [
    [spec.bos_id],
    {
      Separator.BERT: [],
      Separator.XLMR: [spec.eos_id],
      Separator.XLM: [spec.bos_id],
    }[separator],
  ]
  pieces = [
    np.concatenate([prefix, text, [spec.eos_id]]).astype(np.int32)
    for prefix, text in zip(prefixes, texts, strict=False)
  ]
  sizes = [piece.size for piece in pieces]
  total = sum(sizes)
  running = np.arange(total, dtype=np.int32)
  if positions is Positions.RESET and len(pieces) == 2:
    running[sizes[0] :] -= sizes[0]
  return {
    batch_keys.TOKEN_IDS: np.concatenate(pieces),
    batch_keys.SEGMENT_IDS: np.ones(total, np.int32),
    batch_keys.POSITIONS: running,
    batch_keys.LANGUAGE_IDS: np.repeat(
      np.asarray(languages[: len(pieces)], np.int32), sizes
    ),
    batch_keys.SIDE_IDS: np.repeat(
      np.arange(len(pieces), dtype=np.int32), sizes
    ),
  }


def warn_of_frame(maker: RowMaker, vocabulary: Any) -> None:
  """Warns if the tokenizer of a published model frames pairs otherwise."""
  frame = vocabulary.pair_frame() if maker.reads_pairs else None
  if frame is None or frame == pair_frame(vocabulary.spec, maker.separator):
    return
  fitting = [
    f'SEPARATOR={other.value!r}'
    for other in Separator
    if frame == pair_frame(vocabulary.spec, other)
  ]
  logging.warning(
    'Pairs of texts are separated as separator=%r says; the tokenizer that '
    'the model was pretrained with has other special symbols there%s.',
    maker.separator.value,
    f' ({fitting[0]})' if fitting else '',
  )


def pair_frame(spec: VocabularySpec, separator: Separator) -> list[int]:
  """The special symbols of a pair: its row, if both texts are empty."""
  row = text_row([np.zeros(0, np.int32)] * 2, (0, 0), spec, separator=separator)
  return row[batch_keys.TOKEN_IDS].tolist()


def num_special(num_texts: int, separator: Separator) -> int:
  """Special tokens in a row of one or two texts."""
  return 2 if num_texts == 1 else separator.num_special


def stack_features(
  rows: Sequence[Row], fields: dict[str, Field], *, num_rows: int | None = None
) -> batch_keys.Batch:
  """Rows as the arrays of a batch.

  Args:
    rows: R of them.
    fields: the keys, with the shapes to pad to.
    num_rows: B >= R rows in the batch; the others hold what fills. None: R.

  Returns:
    int32 arrays [B, *shape].
  """
  count = len(rows) if num_rows is None else num_rows
  batch = {}
  for key, (shape, fill) in fields.items():
    array = np.full((count, *shape), fill, np.int32)
    for index, row in enumerate(rows):
      value = row[key]
      if shape:
        array[index, : len(value)] = value
      else:
        array[index] = value
    batch[key] = array
  return batch


def language_id(vocabulary, code: str) -> int:
  """The id of a language; 0 for one that the vocabulary does not know.

  Only language embeddings and vocabularies with pieces of each language's own
  make use of it.

  Raises:
    VocabularyError: the language is needed to encode, and not known.
  """
  matched_code = language_codes.match_language(code, vocabulary.spec.languages)
  if matched_code is not None or vocabulary.needs_language:
    return vocabulary.language_id(matched_code or code)
  return 0
