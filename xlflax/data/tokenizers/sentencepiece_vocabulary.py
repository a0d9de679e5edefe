"""A vocabulary that is one SentencePiece model over all languages."""

import hashlib
import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import sentencepiece

from xlflax.data.tokenizers import base_vocabulary
from xlflax.data.tokenizers.token_normalization import Notation, word_starts
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors

_SYMBOL = re.compile(r'<lang:(.+)>')


class SentencePieceVocabulary(base_vocabulary.Vocabulary):
  """See `base_vocabulary.Vocabulary`; encodes every language alike.

  Attributes:
    model: the serialized SentencePiece model.
  """

  kind = 'sentencepiece'
  MADE_OF = ('model',)
  library = f'sentencepiece {sentencepiece.__version__}'

  def __init__(self, model: bytes, *, description: Mapping | None = None):
    """Builds it from the bytes of a SentencePiece model.

    Args:
      model: a serialized model whose first pieces are those of the table in
        `xlflax.data.tokenizers.base_vocabulary`.
      description: what to keep of `vocabulary.json`.

    Raises:
      VocabularyError: the bytes are no such model.
    """
    self.model = model
    self.description = dict(description or {})
    self._processor = load_model(model)
    self.spec = _read_spec(self._processor)
    layout = json.dumps([self.spec.special_ids, self.spec.languages])
    self.hash = hashlib.sha256(model + layout.encode()).hexdigest()
    self._silent = frozenset(self.spec.special_ids) - {self.spec.unk_id}

  @classmethod
  def read(cls, directory, description):
    """See `Vocabulary.read`."""
    model = read_model(
      directory, base_vocabulary.MODEL_FILE, description.get('sha256')
    )
    return cls(model, description=description)

  def files(self):
    """See `Vocabulary.files`."""
    return {base_vocabulary.MODEL_FILE: self.model}

  def describe(self):
    """See `Vocabulary.describe`."""
    return super().describe() | {
      'sha256': hashlib.sha256(self.model).hexdigest()
    }

  def encode_batch(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> list[list[int]]:
    """See `Vocabulary.encode_batch`."""
    del language  # All are encoded alike.
    return self._processor.encode(
      list(texts), out_type=int, num_threads=num_threads
    )

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """See `Vocabulary.decode`."""
    return self._processor.decode(
      [int(i) for i in ids if int(i) not in self._silent]
    )

  def piece(self, index: int, *, language: str | None = None) -> str:
    """See `Vocabulary.piece`."""
    return self._processor.id_to_piece(int(index))

  def pieces(self) -> list[str]:
    """All pieces, in the order of their ids."""
    return self._processor.id_to_piece(list(range(self.spec.size)))

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """See `Vocabulary.piece_id`."""
    index = self._processor.piece_to_id(piece)
    if (
      index == self.spec.unk_id
      and piece != base_vocabulary.SPECIAL_PIECES[index]
    ):
      return None
    return index

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """See `Vocabulary.is_byte`."""
    return self._processor.is_byte(int(index))


def read_model(directory: pathlib.Path, name: str, sha256) -> bytes:
  """The bytes of a vocabulary's model file.

  Raises:
    VocabularyError: it is missing, or another than the one described.
  """
  if pathlib.PurePath(str(name)).name != name:
    raise errors.VocabularyError(
      'A file is named that is not in the vocabulary',
      got=name,
      expected=f'the name of a file beside {base_vocabulary.DESCRIPTION_FILE}',
      where=str(directory),
    )
  model = base_vocabulary.read_file(directory / name)
  digest = hashlib.sha256(model).hexdigest()
  if digest != sha256:
    raise errors.VocabularyError(
      f'{name} is not the one that {base_vocabulary.DESCRIPTION_FILE} describes',
      got=f'SHA-256 {digest[:12]}…',
      expected=f'{str(sha256)[:12]}…',
      where=str(directory),
      fix='copy all files of one vocabulary, or train it again',
    )
  return model


def pack_word_starts(pieces: Iterable[str]) -> bytes:
  """`VocabularySpec.word_starts` of entries, in the order of their ids."""
  starts = np.array(word_starts(pieces, Notation.SENTENCEPIECE), np.bool_)
  return np.packbits(starts, bitorder='little').tobytes()


def _languages(pieces: Iterable[str]) -> Iterator[str]:
  """The languages of the symbols that the pieces begin with."""
  for piece in pieces:
    match = _SYMBOL.fullmatch(piece)
    if match is None:
      return
    yield match.group(1)


def load_model(model: bytes) -> sentencepiece.SentencePieceProcessor:
  """The processor of a model; a VocabularyError if the bytes are none."""
  try:
    return sentencepiece.SentencePieceProcessor(model_proto=model)
  except Exception as error:  # The library raises bare RuntimeErrors.
    raise errors.VocabularyError(
      f'Not a SentencePiece model ({error})'
    ) from error


def _read_spec(processor) -> VocabularySpec:
  size = processor.get_piece_size()
  pieces = processor.id_to_piece(list(range(size)))
  first = len(base_vocabulary.SPECIAL_PIECES)
  if tuple(pieces[:first]) != base_vocabulary.SPECIAL_PIECES:
    raise errors.VocabularyError(
      "The model's first pieces are not the special symbols",
      got=', '.join(pieces[:first]),
      expected=', '.join(base_vocabulary.SPECIAL_PIECES),
      fix='train it with `xlflax vocab`',
    )
  symbols = list(itertools.takewhile(processor.is_control, range(first, size)))
  languages = tuple(_languages(pieces[i] for i in symbols))
  other_symbols = symbols[len(languages) :]
  sentinels = tuple(
    i
    for n, i in enumerate(other_symbols)
    if pieces[i] == base_vocabulary.sentinel_token(n)
  )
  last = first + len(languages)
  return VocabularySpec(
    size,
    0,
    1,
    2,
    3,
    4,
    tuple(range(last + len(sentinels))),
    languages,
    language_symbol_ids=tuple(range(first, last)),
    sentinel_ids=sentinels,
    word_starts=pack_word_starts(pieces),
  )
