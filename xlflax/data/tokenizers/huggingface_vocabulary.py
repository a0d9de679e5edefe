"""Vocabularies read from a `tokenizer.json` file (Hugging Face `tokenizers`).

All tokenizer types are supported, such as WordPiece (BERT), byte-level BPE
(RoBERTa) and Unigram (XLM-R, mT5). The special-token processing that the file
defines is disabled. Text is never encoded as special tokens, and no special
tokens are added.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tokenizers

from xlflax.data.tokenizers import imported_vocabulary, tokenizer_errors
from xlflax.data.tokenizers.token_normalization import Notation, word_starts

FILE = 'tokenizer.json'
# Prefix that replaces special tokens. Its first character is in a Unicode
# private use area, so it does not occur in text.
_HIDDEN_PREFIX = '\U000f0000special'
_BYTE = re.compile(r'<0x[0-9A-F]{2}>')


class TokenizersVocabulary(imported_vocabulary.ImportedVocabulary):
  """Vocabulary that is read from a Hugging Face `tokenizer.json` file.

  Attributes:
    content: Content of the `tokenizer.json` file, as bytes.
    layout: Vocabulary properties that `tokenizer.json` does not specify, such
      as languages and the embedding size.
  """

  kind = 'tokenizers'
  FILES = (FILE,)
  INIT_ARGUMENTS = ('content', 'layout')
  library = f'tokenizers {tokenizers.__version__}'

  def __init__(
    self,
    content: bytes,
    layout: imported_vocabulary.Layout,
    *,
    description: Mapping | None = None,
  ):
    """Creates a vocabulary from the bytes of tokenizer.json.

    Args:
      content: Content of the `tokenizer.json` file, as bytes.
      layout: Vocabulary properties that `tokenizer.json` does not specify, such
        as languages and the embedding size.
      description: Existing content of `vocabulary.json` to preserve.

    Raises:
      VocabularyError: If the bytes are not a valid `tokenizer.json` file.
    """
    self.content = content
    self.layout = layout
    self.description = dict(description or {})
    parsed = _parse(content)
    self._tokenizer = _load(content)
    self._encoder = _make_encoder(self._tokenizer)
    self._pieces = _list_tokens(self._tokenizer)
    special = [
      i
      for i, token in self._tokenizer.get_added_tokens_decoder().items()
      if token.special
    ]
    self.spec = imported_vocabulary.make_spec(
      layout,
      self._pieces,
      special=special,
      word_starts=_word_starts(self._pieces, parsed),
    )
    self.hash = layout.digest(self.kind, self.files(), self.spec.size)
    self._skipped_ids = imported_vocabulary.find_skipped_ids(self.spec)

  @classmethod
  def from_files(cls, contents, layout, description):
    """Creates a vocabulary; see `ImportedVocabulary.from_files`."""
    return cls(contents[FILE], layout, description=description)

  def files(self):
    """Returns the vocabulary's files; see `Vocabulary.files`."""
    return {FILE: self.content}

  def encode_empty_pair(self) -> list[int] | None:
    """Returns a pair's special tokens; see `Vocabulary.encode_empty_pair`."""
    return self._tokenizer.encode('', '').ids or None

  def encode_batch(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> list[list[int]]:
    """Encodes texts, with a number of threads chosen by `tokenizers`.

    See `Vocabulary.encode_batch`.
    """
    del language  # All languages have the same tokens.
    del num_threads  # The library chooses the number.
    strings = [
      text.decode() if isinstance(text, bytes) else text for text in texts
    ]
    with tokenizer_errors.converting_tokenizer_errors(
      'The text cannot be encoded'
    ):
      encodings = self._encoder.encode_batch_fast(
        strings, add_special_tokens=False
      )
    return [encoding.ids for encoding in encodings]

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """Decodes token ids to text; see `Vocabulary.decode`."""
    with tokenizer_errors.converting_tokenizer_errors(
      'The token ids cannot be decoded'
    ):
      return self._tokenizer.decode(
        [int(i) for i in ids if int(i) not in self._skipped_ids],
        skip_special_tokens=False,
      )

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """Returns a token's id; see `Vocabulary.piece_id`."""
    return self._tokenizer.token_to_id(piece)

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """Returns whether a token is a byte; see `Vocabulary.is_byte`."""
    return bool(_BYTE.fullmatch(self.piece(index)))


def _parse(content: bytes) -> dict:
  """Parses tokenizer.json and checks its ids.

  The ids are checked before the library loads the file, because unused ids also
  cost the library time and memory.
  """
  with tokenizer_errors.converting_tokenizer_errors(
    f'The file {FILE} cannot be read'
  ):
    parsed = json.loads(content)
    model, added = parsed['model'], parsed.get('added_tokens') or []
    ids = [token['id'] for token in added]
    pieces = model.get('vocab') or {}
    ids += pieces.values() if isinstance(pieces, dict) else range(len(pieces))
    imported_vocabulary.check_ids(ids)
  return parsed


def _load(content: bytes) -> tokenizers.Tokenizer:
  """Loads a tokenizer without truncation, padding and special tokens."""
  with tokenizer_errors.converting_tokenizer_errors(
    f'The file {FILE} cannot be read'
  ):
    tokenizer = tokenizers.Tokenizer.from_buffer(content)
  tokenizer.no_truncation()
  tokenizer.no_padding()
  tokenizer.encode_special_tokens = True
  return tokenizer


def _make_encoder(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
  """Returns a tokenizer that never encodes text as special tokens.

  The library's option `encode_special_tokens` is not sufficient for a Unigram
  model, because its vocabulary contains the special tokens. These tokens are
  therefore renamed to strings that do not occur in text.
  """
  description = json.loads(tokenizer.to_str())
  if (description.get('model') or {}).get('type') != 'Unigram':
    return tokenizer
  special = {
    token['id'] for token in description['added_tokens'] if token['special']
  }
  vocabulary = description['model']['vocab']
  for index in special & set(range(len(vocabulary))):
    vocabulary[index][0] = f'{_HIDDEN_PREFIX}{index}'
  description['added_tokens'] = [
    token for token in description['added_tokens'] if token['id'] not in special
  ]
  description['post_processor'] = None
  return _load(json.dumps(description).encode())


def _list_tokens(tokenizer: tokenizers.Tokenizer) -> list[str]:
  """Returns all tokens by id, with a placeholder for each unused id."""
  vocabulary = tokenizer.get_vocab(with_added_tokens=True)
  size = 1 + max(vocabulary.values(), default=-1)
  pieces = [imported_vocabulary.unused_token(i) for i in range(size)]
  for piece, index in vocabulary.items():
    pieces[index] = piece
  return pieces


def _word_starts(pieces: Sequence[str], description: dict) -> np.ndarray:
  """Returns which tokens start a word, according to the tokenizer's notation.

  Args:
    pieces: All tokens, in the order of their ids.
    description: Parsed content of `tokenizer.json`.

  Returns:
    Array of shape [tokens], bool.
  """
  model = description.get('model') or {}
  if model.get('type') == 'WordPiece':
    prefix = model.get('continuing_subword_prefix', '##')
    return np.array([not p.startswith(prefix) for p in pieces], np.bool_)
  components = json.dumps(
    [description.get('pre_tokenizer'), description.get('decoder')]
  )
  is_byte_level = 'ByteLevel' in components
  notation = Notation.BYTE_LEVEL if is_byte_level else Notation.SENTENCEPIECE
  return np.array(word_starts(pieces, notation), np.bool_)
