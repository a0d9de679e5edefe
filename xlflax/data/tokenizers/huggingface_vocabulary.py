"""A vocabulary that is a tokenizer.json of the `tokenizers` library.

WordPiece (BERT), byte-level BPE (RoBERTa), Unigram (XLM-R, mT5): whatever the
file says. What it does to special tokens is turned off: they are never the
encoding of text, and none is added.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tokenizers

from xlflax.data.tokenizers import imported_vocabulary, tokenizer_errors
from xlflax.data.tokenizers.token_normalization import Notation, word_starts

FILE = 'tokenizer.json'
_HIDDEN = '\U000f0000special'  # begins with a private character
_BYTE = re.compile(r'<0x[0-9A-F]{2}>')


class TokenizersVocabulary(imported_vocabulary.ImportedVocabulary):
  """See `base_vocabulary.Vocabulary`; encodes every language alike.

  Attributes:
    content: the bytes of tokenizer.json.
    layout: what that file does not tell.
  """

  kind = 'tokenizers'
  FILES = (FILE,)
  MADE_OF = ('content', 'layout')
  library = f'tokenizers {tokenizers.__version__}'

  def __init__(
    self,
    content: bytes,
    layout: imported_vocabulary.Layout,
    *,
    description: Mapping | None = None,
  ):
    """Raises VocabularyError if the bytes are no tokenizer."""
    self.content = content
    self.layout = layout
    self.description = dict(description or {})
    parsed = _parsed(content)
    self._tokenizer = _load(content)
    self._encoder = _encoder(self._tokenizer)
    self._pieces = _pieces(self._tokenizer)
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
    self._silent = imported_vocabulary.silent_ids(self.spec)

  @classmethod
  def of_files(cls, contents, layout, description):
    """See `ImportedVocabulary.of_files`."""
    return cls(contents[FILE], layout, description=description)

  def files(self):
    """See `Vocabulary.files`."""
    return {FILE: self.content}

  def pair_frame(self) -> list[int] | None:
    """See `Vocabulary.pair_frame`."""
    return self._tokenizer.encode('', '').ids or None

  def encode_batch(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> list[list[int]]:
    """As `encode_ragged`; the library chooses the number of threads."""
    del language, num_threads  # All are encoded alike.
    strings = [
      text.decode() if isinstance(text, bytes) else text for text in texts
    ]
    with tokenizer_errors.converting_tokenizer_errors(
      'The tokenizer cannot encode a text'
    ):
      encodings = self._encoder.encode_batch_fast(
        strings, add_special_tokens=False
      )
    return [encoding.ids for encoding in encodings]

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """See `Vocabulary.decode`."""
    with tokenizer_errors.converting_tokenizer_errors(
      'The tokenizer cannot decode its tokens'
    ):
      return self._tokenizer.decode(
        [int(i) for i in ids if int(i) not in self._silent],
        skip_special_tokens=False,
      )

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """See `Vocabulary.piece_id`."""
    return self._tokenizer.token_to_id(piece)

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """See `Vocabulary.is_byte`."""
    return bool(_BYTE.fullmatch(self.piece(index)))


def _parsed(content: bytes) -> dict:
  """The description in a tokenizer.json; its ids are checked.

  The library takes time and memory for each id that is left out, too.
  """
  with tokenizer_errors.converting_tokenizer_errors(f'Not a {FILE}'):
    parsed = json.loads(content)
    model, added = parsed['model'], parsed.get('added_tokens') or []
    ids = [token['id'] for token in added]
    pieces = model.get('vocab') or {}
    ids += pieces.values() if isinstance(pieces, dict) else range(len(pieces))
    imported_vocabulary.check_ids(ids)
  return parsed


def _load(content: bytes) -> tokenizers.Tokenizer:
  with tokenizer_errors.converting_tokenizer_errors(f'Not a {FILE}'):
    tokenizer = tokenizers.Tokenizer.from_buffer(content)
  tokenizer.no_truncation()
  tokenizer.no_padding()
  tokenizer.encode_special_tokens = True
  return tokenizer


def _encoder(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
  """One that cannot find special tokens in text.

  A Unigram model has them among its pieces, so `encode_special_tokens` is not
  enough: there they get names that no text has.
  """
  description = json.loads(tokenizer.to_str())
  if (description.get('model') or {}).get('type') != 'Unigram':
    return tokenizer
  special = {
    token['id'] for token in description['added_tokens'] if token['special']
  }
  vocabulary = description['model']['vocab']
  for index in special & set(range(len(vocabulary))):
    vocabulary[index][0] = f'{_HIDDEN}{index}'
  description['added_tokens'] = [
    token for token in description['added_tokens'] if token['id'] not in special
  ]
  description['post_processor'] = None
  return _load(json.dumps(description).encode())


def _pieces(tokenizer: tokenizers.Tokenizer) -> list[str]:
  """All tokens by id; ids that are left out get names of their own."""
  vocabulary = tokenizer.get_vocab(with_added_tokens=True)
  size = 1 + max(vocabulary.values(), default=-1)
  pieces = [imported_vocabulary.unused_piece(i) for i in range(size)]
  for piece, index in vocabulary.items():
    pieces[index] = piece
  return pieces


def _word_starts(pieces: Sequence[str], description: dict) -> np.ndarray:
  """Which tokens begin a word, as the kind of tokenizer marks that."""
  model = description.get('model') or {}
  if model.get('type') == 'WordPiece':
    prefix = model.get('continuing_subword_prefix', '##')
    return np.array([not p.startswith(prefix) for p in pieces], np.bool_)
  outside = json.dumps(
    [description.get(part) for part in ('pre_tokenizer', 'decoder')]
  )
  bytewise = 'ByteLevel' in outside
  notation = Notation.BYTE_LEVEL if bytewise else Notation.SENTENCEPIECE
  return np.array(word_starts(pieces, notation), np.bool_)
