"""Vocabularies whose ids differ from the ids of their SentencePiece model.

| layout | order of ids |
| --- | --- |
| `fairseq` | `<s>`, `<pad>`, `</s>`, `<unk>`, the model's tokens, `<mask>` |
| `t5` | the model's tokens, then `<extra_id_99>` … `<extra_id_0>` |
| `deberta` | the model's tokens, then `[MASK]` |

XLM-R uses the first layout. mBART also uses it, with language symbols before
`<mask>`. T5 and mT5 use the second layout, and DeBERTa-v2 and DeBERTa-v3 use
the third.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece

from xlflax.data.tokenizers import (
  base_vocabulary,
  imported_vocabulary,
  sentencepiece_vocabulary,
  vocabulary_spec,
)
from xlflax.data.tokenizers.token_normalization import Notation, word_starts
from xlflax.utils import errors

FILE = 'sentencepiece.bpe.model'


class IdLayout(enum.StrEnum):
  """Convention for token ids that differ from the SentencePiece model's ids."""

  FAIRSEQ = 'fairseq'
  T5 = 't5'
  DEBERTA = 'deberta'


class MovedSentencePieceVocabulary(imported_vocabulary.ImportedVocabulary):
  """SentencePiece vocabulary with the token ids of fairseq, T5 or DeBERTa.

  Attributes:
    model: Serialized SentencePiece model.
    id_layout: Convention for the order of token ids: that of fairseq, T5 or
      DeBERTa (see the table in the module's docstring).
    layout: Vocabulary properties that the SentencePiece model does not specify,
      such as languages and special tokens.
    extra_ids: Number of T5 sentinels that follow the model's tokens.
    codes: Language symbols of mBART, in the order of their ids. Empty for
      models other than mBART.
    model_ids: Vocabulary id of each token of the SentencePiece model, int32 of
      shape [model tokens].
  """

  kind = 'sentencepiece_moved'
  FILES = (FILE,)
  INIT_ARGUMENTS = ('model', 'layout', 'id_layout', 'extra_ids', 'codes')
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
    """Creates a vocabulary from a SentencePiece model.

    Args:
      model: Serialized SentencePiece model.
      layout: Vocabulary properties that the SentencePiece model does not
        specify, such as languages and special tokens.
      id_layout: Convention for the order of token ids: that of fairseq, T5 or
        DeBERTa (see the table in the module's docstring).
      extra_ids: Number of T5 sentinels that follow the model's tokens.
      codes: Language symbols of mBART, in the order of their ids. Empty for
        models other than mBART.
      description: Existing content of `vocabulary.json` to preserve.

    Raises:
      VocabularyError: If the bytes are not a SentencePiece model, or the model
        does not match the layout.
    """
    self.model = model
    self.layout = layout
    self.id_layout = id_layout
    if type(extra_ids) is not int or extra_ids < 0:
      raise errors.VocabularyError(
        '`extra_ids`, the number of T5 sentinels, must be a non-negative '
        'integer',
        got=extra_ids,
      )
    vocabulary_spec.check_size(extra_ids)
    self.extra_ids = extra_ids
    self.codes = tuple(codes)
    self.description = dict(description or {})
    self._processor = sentencepiece_vocabulary.load_model(model)
    self.model_ids, self._pieces = self._assign_ids(self._processor)
    self._model_index_by_id = {
      int(token_id): index for index, token_id in enumerate(self.model_ids)
    }
    starts = np.array(word_starts(self._pieces, Notation.SENTENCEPIECE))
    self._ids_by_code = {
      piece: len(self._pieces) - 1 - len(self.codes) + i
      for i, piece in enumerate(self.codes)
    }
    self.spec = imported_vocabulary.make_spec(
      layout,
      self._pieces,
      special=tuple(self._ids_by_code.values()),
      word_starts=starts,
    )
    self.hash = layout.digest(
      ':'.join([self.kind, id_layout.value, str(extra_ids), *self.codes]),
      self.files(),
      self.spec.size,
    )
    self._skipped_ids = imported_vocabulary.find_skipped_ids(self.spec)

  def _assign_ids(self, processor) -> tuple[np.ndarray, list[str]]:
    """Returns the id of each token of the model, and all tokens by id."""
    model_tokens = processor.id_to_piece(
      list(range(processor.get_piece_size()))
    )
    if self.id_layout is not IdLayout.FAIRSEQ:
      extra_tokens = [
        f'<extra_id_{i}>' for i in reversed(range(self.extra_ids))
      ]
      if self.id_layout is IdLayout.DEBERTA and '[MASK]' not in model_tokens:
        extra_tokens = ['[MASK]']
      ids = np.arange(len(model_tokens), dtype=np.int32)
      return ids, model_tokens + extra_tokens
    expected_tokens = ('<unk>', '<s>', '</s>')
    if tuple(model_tokens[:3]) != expected_tokens:
      raise errors.VocabularyError(
        'The first tokens of the SentencePiece model must be the special '
        'symbols of fairseq',
        got=', '.join(model_tokens[:3]),
        expected=', '.join(expected_tokens),
      )
    ids = np.arange(len(model_tokens), dtype=np.int32) + 1
    ids[:3] = 3, 0, 2
    special_tokens = ['<s>', '<pad>', '</s>', '<unk>']
    return ids, [*special_tokens, *model_tokens[3:], *self.codes, '<mask>']

  @classmethod
  def from_files(cls, contents, layout, description):
    """Creates a vocabulary; see `ImportedVocabulary.from_files`."""
    try:
      arguments: dict[str, Any] = {
        'id_layout': IdLayout(description['id_layout']),
        'extra_ids': int(description.get('extra_ids', 0)),
        'codes': tuple(description.get('codes', ())),
      }
    except (KeyError, ValueError, TypeError) as error:
      raise errors.VocabularyError(
        'One of the fields `id_layout`, `extra_ids` and `codes` of the '
        f'vocabulary is missing or invalid ({type(error).__name__}: {error})',
        where=base_vocabulary.DESCRIPTION_FILE,
      ) from error
    return cls(contents[FILE], layout, description=description, **arguments)

  def files(self):
    """Returns the vocabulary's files; see `Vocabulary.files`."""
    return {FILE: self.model}

  def describe(self):
    """Returns fields of `vocabulary.json`; see `Vocabulary.describe`."""
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
    """Encodes texts; see `Vocabulary.encode_ragged`."""
    del language  # All languages have the same tokens.
    rows = self._processor.encode(
      list(texts), out_type=int, num_threads=num_threads
    )
    ids, lengths = base_vocabulary.flatten_ids(rows)
    return self.model_ids[ids], lengths

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """Decodes token ids to text; see `Vocabulary.decode`."""
    return self._processor.decode(
      [
        self._model_index_by_id[int(i)]
        for i in ids
        if int(i) not in self._skipped_ids
      ]
    )

  def pieces(self) -> list[str]:
    """Returns all tokens in the order of their ids, excluding unused ids."""
    return list(self._pieces)

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """Returns a token's id; see `Vocabulary.piece_id`."""
    if piece in self._pieces[-(self.extra_ids + 1) :]:
      return self._pieces.index(piece)
    if piece in self._ids_by_code:
      return self._ids_by_code[piece]
    if piece in self._pieces[:4]:
      return self._pieces.index(piece)
    model_id = self._processor.piece_to_id(piece)
    return (
      None
      if model_id == self._processor.unk_id()
      else int(self.model_ids[model_id])
    )

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """Returns whether a token is a byte; see `Vocabulary.is_byte`."""
    self.piece(index)  # Raises a VocabularyError for an invalid id.
    return index in self._model_index_by_id and self._processor.is_byte(
      self._model_index_by_id[index]
    )
