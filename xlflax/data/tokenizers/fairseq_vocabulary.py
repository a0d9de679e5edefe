"""A SentencePiece model whose ids another program has moved.

| layout | ids |
| --- | --- |
| `fairseq` | `<s>`, `<pad>`, `</s>`, `<unk>`, the model's words, `<mask>` |
| `t5` | the model's own, then `<extra_id_99>` … `<extra_id_0>` |
| `deberta` | the model's own, then `[MASK]` |

The first is XLM-R's and, with symbols of languages before `<mask>`, mBART's;
the second that of T5 and mT5; the third
that of DeBERTa-v2 and -v3.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece

from xlflax.data.tokenizers import (
  base_vocabulary,
  imported_vocabulary,
  vocabulary_spec,
)
from xlflax.data.tokenizers import sentencepiece_vocabulary as single
from xlflax.data.tokenizers.token_normalization import Notation, word_starts
from xlflax.utils import errors

FILE = 'sentencepiece.bpe.model'


class IdLayout(enum.StrEnum):
  """How ids follow from those of the model."""

  FAIRSEQ = 'fairseq'
  T5 = 't5'
  DEBERTA = 'deberta'


class MovedSentencePieceVocabulary(imported_vocabulary.ImportedVocabulary):
  """See `base_vocabulary.Vocabulary`; encodes every language alike.

  Attributes:
    model: the serialized SentencePiece model.
    id_layout: how ids follow from the model's.
    layout: what the model does not tell.
    extra_ids: number of T5's sentinels that follow the model's pieces.
    codes: mBART's symbols of languages, in the order of their ids.
    model_ids: the id of each of the model's own pieces.
  """

  kind = 'sentencepiece_moved'
  FILES = (FILE,)
  MADE_OF = ('model', 'layout', 'id_layout', 'extra_ids', 'codes')
  library = f'sentencepiece {sentencepiece.__version__}'

  def __init__(
    self,
    model: bytes,
    layout: imported_vocabulary.Layout,
    *,
    id_layout: IdLayout,
    extra_ids: int = 0,
    codes: Sequence[str] = (),
    description: Mapping | None = None,
  ):
    """Raises VocabularyError if the bytes are no SentencePiece model."""
    self.model = model
    self.layout = layout
    self.id_layout = id_layout
    if type(extra_ids) is not int or extra_ids < 0:
      raise errors.VocabularyError(
        'The number of sentinels is no number', got=extra_ids, where='extra_ids'
      )
    vocabulary_spec.check_size(extra_ids)
    self.extra_ids = extra_ids
    self.codes = tuple(codes)
    self.description = dict(description or {})
    self._processor = single.load_model(model)
    self.model_ids, self._pieces = self._move(self._processor)
    self._own = {int(i): n for n, i in enumerate(self.model_ids)}
    starts = np.array(word_starts(self._pieces, Notation.SENTENCEPIECE))
    self._codes = {
      piece: len(self._pieces) - 1 - len(self.codes) + i
      for i, piece in enumerate(self.codes)
    }
    self.spec = imported_vocabulary.make_spec(
      layout,
      self._pieces,
      special=tuple(self._codes.values()),
      word_starts=starts,
    )
    self.hash = layout.digest(
      ':'.join([self.kind, id_layout.value, str(extra_ids), *self.codes]),
      self.files(),
      self.spec.size,
    )
    self._silent = imported_vocabulary.silent_ids(self.spec)

  def _move(self, processor) -> tuple[np.ndarray, list[str]]:
    """(the id of each of the model's pieces, all pieces in order)."""
    model_tokens = processor.id_to_piece(
      list(range(processor.get_piece_size()))
    )
    if self.id_layout is not IdLayout.FAIRSEQ:
      extra = [f'<extra_id_{i}>' for i in reversed(range(self.extra_ids))]
      if self.id_layout is IdLayout.DEBERTA and '[MASK]' not in model_tokens:
        extra = ['[MASK]']
      return np.arange(len(model_tokens), dtype=np.int32), model_tokens + extra
    first = ('<unk>', '<s>', '</s>')
    if tuple(model_tokens[:3]) != first:
      raise errors.VocabularyError(
        "The SentencePiece model does not begin with fairseq's symbols",
        got=', '.join(model_tokens[:3]),
        expected=', '.join(first),
      )
    ids = np.arange(len(model_tokens), dtype=np.int32) + 1
    ids[:3] = 3, 0, 2
    begin = ['<s>', '<pad>', '</s>', '<unk>']
    return ids, [*begin, *model_tokens[3:], *self.codes, '<mask>']

  @classmethod
  def of_files(cls, contents, layout, description):
    """See `ImportedVocabulary.of_files`."""
    try:
      moved: dict[str, Any] = {
        'id_layout': IdLayout(description['id_layout']),
        'extra_ids': int(description.get('extra_ids', 0)),
        'codes': tuple(description.get('codes', ())),
      }
    except (KeyError, ValueError, TypeError) as error:
      raise errors.VocabularyError(
        f'The vocabulary lacks how ids follow from its {FILE}',
        got=f'{type(error).__name__}: {error}',
        where=base_vocabulary.DESCRIPTION_FILE,
      ) from error
    return cls(contents[FILE], layout, description=description, **moved)

  def files(self):
    """See `Vocabulary.files`."""
    return {FILE: self.model}

  def describe(self):
    """See `Vocabulary.describe`."""
    return super().describe() | {
      'id_layout': self.id_layout.value,
      'extra_ids': self.extra_ids,
      'codes': list(self.codes),
    }

  def encode_ragged(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> tuple[np.ndarray, np.ndarray]:
    """See `Vocabulary.encode_ragged`."""
    del language  # All are encoded alike.
    rows = self._processor.encode(
      list(texts), out_type=int, num_threads=num_threads
    )
    ids, lengths = base_vocabulary.flatten_ids(rows)
    return self.model_ids[ids], lengths

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """See `Vocabulary.decode`."""
    return self._processor.decode(
      [self._own[int(i)] for i in ids if int(i) not in self._silent]
    )

  def pieces(self) -> list[str]:
    """All pieces, in the order of their ids, without unused rows."""
    return list(self._pieces)

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """See `Vocabulary.piece_id`."""
    if piece in self._pieces[-(self.extra_ids + 1) :]:
      return self._pieces.index(piece)
    if piece in self._codes:
      return self._codes[piece]
    if piece in self._pieces[:4]:
      return self._pieces.index(piece)
    model_id = self._processor.piece_to_id(piece)
    return (
      None
      if model_id == self._processor.unk_id()
      else int(self.model_ids[model_id])
    )

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """See `Vocabulary.is_byte`."""
    self.piece(index)  # Raises.
    return index in self._own and self._processor.is_byte(self._own[index])
