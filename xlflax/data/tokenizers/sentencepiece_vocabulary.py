"""Vocabularies that encode all languages with one SentencePiece model."""

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
  """Vocabulary with a single SentencePiece model for all languages.

  Attributes:
    model: Serialized SentencePiece model.
  """

  kind = 'sentencepiece'
  INIT_ARGUMENTS = ('model',)
  library = f'sentencepiece {sentencepiece.__version__}'

  def __init__(self, model: bytes, *, description: Mapping | None = None):
    """Creates a vocabulary from the bytes of a SentencePiece model.

    Args:
      model: Serialized SentencePiece model, whose vocabulary starts with the
        special symbols in the table of
        `xlflax.data.tokenizers.base_vocabulary`.
      description: Existing content of `vocabulary.json` to preserve.

    Raises:
      VocabularyError: If the bytes are not a SentencePiece model with these
        special symbols.
    """
    self.model = model
    self.description = dict(description or {})
    self._processor = load_model(model)
    self.spec = _read_spec(self._processor)
    layout = json.dumps([self.spec.special_ids, self.spec.languages])
    self.hash = hashlib.sha256(model + layout.encode()).hexdigest()
    self._skipped_ids = frozenset(self.spec.special_ids) - {self.spec.unk_id}

  @classmethod
  def read(cls, directory, description):
    """Creates a vocabulary from its files; see `Vocabulary.read`."""
    model = read_model(
      directory, base_vocabulary.MODEL_FILE, description.get('sha256')
    )
    return cls(model, description=description)

  def files(self):
    """Returns the vocabulary's files; see `Vocabulary.files`."""
    return {base_vocabulary.MODEL_FILE: self.model}

  def describe(self):
    """Returns fields of `vocabulary.json`; see `Vocabulary.describe`."""
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
    """Encodes texts; see `Vocabulary.encode_batch`."""
    del language  # All languages have the same tokens.
    return self._processor.encode(
      list(texts), out_type=int, num_threads=num_threads
    )

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """Decodes token ids to text; see `Vocabulary.decode`."""
    return self._processor.decode(
      [int(i) for i in ids if int(i) not in self._skipped_ids]
    )

  def piece(self, index: int, *, language: str | None = None) -> str:
    """Returns the token with the given id; see `Vocabulary.piece`."""
    return self._processor.id_to_piece(int(index))

  def pieces(self) -> list[str]:
    """Returns all tokens in the order of their ids."""
    return self._processor.id_to_piece(list(range(self.spec.size)))

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """Returns a token's id; see `Vocabulary.piece_id`."""
    index = self._processor.piece_to_id(piece)
    if (
      index == self.spec.unk_id
      and piece != base_vocabulary.SPECIAL_PIECES[index]
    ):
      return None
    return index

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """Returns whether a token is a byte; see `Vocabulary.is_byte`."""
    return self._processor.is_byte(int(index))


def read_model(directory: pathlib.Path, name: str, sha256) -> bytes:
  """Reads a vocabulary's model file and verifies its digest.

  Args:
    directory: Directory of the vocabulary.
    name: Name of the model file.
    sha256: Expected SHA-256 digest of the file.

  Raises:
    VocabularyError: If the file is missing, or if its content does not match
      the digest.
  """
  if pathlib.PurePath(str(name)).name != name:
    raise errors.VocabularyError(
      'The name of the model file must not contain a directory, because the '
      'file must be in the vocabulary directory',
      got=name,
      where=str(directory),
    )
  model = base_vocabulary.read_file(directory / name)
  digest = hashlib.sha256(model).hexdigest()
  if digest != sha256:
    raise errors.VocabularyError(
      f'The SHA-256 digest of the file {name} does not match the digest in '
      f'{base_vocabulary.DESCRIPTION_FILE}',
      got=digest[:12],
      expected=str(sha256)[:12],
      where=str(directory),
      fix='Copy all files of one vocabulary, or train it again.',
    )
  return model


def pack_word_starts(pieces: Iterable[str]) -> bytes:
  """Returns a bit mask of the tokens that start a word (`word_starts`)."""
  starts = np.array(word_starts(pieces, Notation.SENTENCEPIECE), np.bool_)
  return np.packbits(starts, bitorder='little').tobytes()


def _leading_languages(pieces: Iterable[str]) -> Iterator[str]:
  """Yields the languages of the language symbols at the start of a list."""
  for piece in pieces:
    match = _SYMBOL.fullmatch(piece)
    if match is None:
      return
    yield match.group(1)


def load_model(model: bytes) -> sentencepiece.SentencePieceProcessor:
  """Loads a SentencePiece model from its serialized bytes.

  Raises:
    VocabularyError: If the bytes are not a SentencePiece model.
  """
  try:
    return sentencepiece.SentencePieceProcessor(model_proto=model)
  except Exception as error:  # The library raises bare RuntimeErrors.
    raise errors.VocabularyError(
      f'The SentencePiece model cannot be loaded ({error})'
    ) from error


def _read_spec(processor) -> VocabularySpec:
  """Reads the special ids from the tokens of a model."""
  size = processor.get_piece_size()
  pieces = processor.id_to_piece(list(range(size)))
  first_language = len(base_vocabulary.SPECIAL_PIECES)
  if tuple(pieces[:first_language]) != base_vocabulary.SPECIAL_PIECES:
    raise errors.VocabularyError(
      'The SentencePiece model must start with the special symbols of xlflax',
      got=', '.join(pieces[:first_language]),
      expected=', '.join(base_vocabulary.SPECIAL_PIECES),
      fix='Train the model with `xlflax vocab`.',
    )
  symbol_ids = list(
    itertools.takewhile(processor.is_control, range(first_language, size))
  )
  languages = tuple(_leading_languages(pieces[i] for i in symbol_ids))
  sentinel_ids = tuple(
    symbol_id
    for number, symbol_id in enumerate(symbol_ids[len(languages) :])
    if pieces[symbol_id] == base_vocabulary.sentinel_token(number)
  )
  first_sentinel = first_language + len(languages)
  # `xlflax vocab --extend` appends the symbols of further languages.
  num_leading = first_sentinel + len(sentinel_ids)
  appended = {
    match.group(1): index
    for index in range(num_leading, size)
    if processor.is_control(index)
    and (match := _SYMBOL.fullmatch(pieces[index]))
  }
  return VocabularySpec(
    size=size,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(*range(num_leading), *appended.values()),
    languages=(*languages, *appended),
    language_symbol_ids=(
      *range(first_language, first_sentinel),
      *appended.values(),
    ),
    sentinel_ids=sentinel_ids,
    word_starts=pack_word_starts(pieces),
  )
