"""Vocabularies of XLM: Moses tokenization, then BPE (Conneau and Lample, 2019).

Text is tokenized with the Moses rules for its language, or with jieba if it is
Chinese. Text without a language is treated as English. Japanese and Thai text
requires word segmenters that are not part of xlflax. It must be segmented in
advance, with spaces between words.
"""

import functools
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from xlflax.data.corpus import word_segmentation
from xlflax.data.tokenizers import base_vocabulary, imported_vocabulary
from xlflax.utils import errors

VOCABULARY = 'vocab.json'
MERGES = 'merges.txt'
_END_OF_WORD = '</w>'
_DEFAULT_LANGUAGE = 'en'
_MAX_CACHED_WORDS = 1 << 18
# Punctuation and digits that replace-unicode-punctuation.perl of Moses converts
# to ASCII.
_ASCII_REPLACEMENTS = str.maketrans(
  dict(
    zip(
      '，、”“∶：？《》）！（；」「～’━〈〉【】％０１２３４５６７８９',
      ',,""::?"")!(;""~\'-<>[]%0123456789',
      strict=True,
    )
  )
  | {'…': '...'}
)
# The script replaces these full stops, with the white space after them, by '.
# '.
_FULL_STOPS = re.compile(r'[。．]\s*')
# Romanian text uses these diacritics inconsistently, so they are removed.
_ROMANIAN_REPLACEMENTS = str.maketrans('ŞşŢţȘșȚțĂăÂâÎî', 'SsTtSsTtAaAaIi')


class XLMVocabulary(imported_vocabulary.ImportedVocabulary):
  """Vocabulary of an XLM model, with language-dependent tokenization.

  Attributes:
    contents: Mapping from the names of the vocabulary's two files to their
      contents.
    layout: Vocabulary properties that the files do not specify, such as
      languages and special tokens.
    lower: Whether to convert text to lower case and remove accents.
  """

  kind = 'xlm_bpe'
  FILES = (VOCABULARY, MERGES)
  INIT_ARGUMENTS = ('contents', 'layout', 'lower')
  needs_language = True

  def __init__(
    self,
    contents: Mapping[str, bytes],
    layout: imported_vocabulary.Layout,
    *,
    lower: bool,
    description: Mapping | None = None,
  ):
    """Creates a vocabulary from the contents of vocab.json and merges.txt.

    Args:
      contents: Mapping from the names of the vocabulary's two files to their
        contents.
      layout: Vocabulary properties that the files do not specify, such as
        languages and special tokens.
      lower: Whether to convert text to lower case and remove accents.
      description: Existing content of `vocabulary.json` to preserve.

    Raises:
      VocabularyError: If one of the files is malformed.
    """
    self.contents = dict(contents)
    self.layout = layout
    self.lower = lower
    self.description = dict(description or {})
    self._ids_by_token, self._ranks = _parse(contents)
    self._pieces = [
      imported_vocabulary.unused_token(i)
      for i in range(1 + max(self._ids_by_token.values()))
    ]
    for piece, index in self._ids_by_token.items():
      self._pieces[index] = piece
    special = [
      i
      for piece, i in self._ids_by_token.items()
      if re.fullmatch(r'<special\d+>', piece)
    ]
    # The tokens mark the end of a word, not its start.
    word_starts = np.zeros(len(self._pieces), np.bool_)
    self.spec = imported_vocabulary.make_spec(
      layout, self._pieces, special=special, word_starts=word_starts
    )
    self.hash = layout.digest(
      f'{self.kind}:{lower}', self.files(), self.spec.size
    )
    self._skipped_ids = frozenset(self.spec.special_ids) - {self.spec.unk_id}
    self._encode_word_cached = functools.lru_cache(_MAX_CACHED_WORDS)(
      self._encode_word
    )

  @classmethod
  def from_files(cls, contents, layout, description):
    """Creates a vocabulary; see `ImportedVocabulary.from_files`."""
    lower = bool(description.get('lower', True))
    return cls(contents, layout, lower=lower, description=description)

  def files(self):
    """Returns the vocabulary's files; see `Vocabulary.files`."""
    return self.contents

  def describe(self):
    """Returns fields of `vocabulary.json`; see `Vocabulary.describe`."""
    return super().describe() | {'lower': self.lower}

  def encode_ragged(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Encodes texts; see `Vocabulary.encode_ragged`."""
    del num_threads
    split = _make_splitter(language or _DEFAULT_LANGUAGE)
    rows = [
      self._encode(split, text.decode() if isinstance(text, bytes) else text)
      for text in texts
    ]
    return base_vocabulary.flatten_ids(rows)

  def _encode(self, split, text: str) -> list[int]:
    """Encodes a text, given the function that splits it into words."""
    text_words = split(text)
    if self.lower:
      text_words = _lowercase_without_accents(' '.join(text_words)).split(' ')
    return [
      i for word in text_words if word for i in self._encode_word_cached(word)
    ]

  def _encode_word(self, word: str) -> tuple[int, ...]:
    """Encodes a word by BPE.

    The pair with the lowest rank is merged repeatedly until the word contains
    no pair from the list of merges.
    """
    symbols = [*word[:-1], word[-1] + _END_OF_WORD]
    while len(symbols) > 1:
      pairs = list(itertools.pairwise(symbols))
      best = min(pairs, key=lambda pair: self._ranks.get(pair, np.inf))
      if best not in self._ranks:
        break
      symbols = _merge_pair(symbols, best)
    return tuple(
      self._ids_by_token.get(symbol, self.spec.unk_id) for symbol in symbols
    )

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """Decodes token ids to text; see `Vocabulary.decode`."""
    pieces = [
      self.piece(int(i)) for i in ids if int(i) not in self._skipped_ids
    ]
    return ''.join(pieces).replace(_END_OF_WORD, ' ').strip()

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """Returns a token's id; see `Vocabulary.piece_id`."""
    return self._ids_by_token.get(piece)

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """Returns whether a token is a byte; see `Vocabulary.is_byte`."""
    self.piece(index)  # Raises a VocabularyError for an invalid id.
    return False


def _parse(contents: Mapping[str, bytes]):
  """Parses the vocabulary file and the BPE merges file.

  Returns:
    The id of each token, and the rank of each merged pair.

  Raises:
    VocabularyError: If a file is missing or malformed.
  """
  try:
    ids_by_token = {
      str(piece): int(index)
      for piece, index in json.loads(contents[VOCABULARY]).items()
    }
    lines = contents[MERGES].decode().split('\n')[:-1]
    ranks = {tuple(line.split()[:2]): i for i, line in enumerate(lines)}
  except (
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
  ) as error:
    raise errors.VocabularyError(
      f'The files {VOCABULARY} and {MERGES} of the XLM vocabulary cannot be '
      'read',
      got=str(error),
    ) from error
  if not ids_by_token:
    raise errors.VocabularyError(f'The file {VOCABULARY} contains no tokens.')
  imported_vocabulary.check_ids(ids_by_token.values())
  return ids_by_token, ranks


def _merge_pair(symbols: list[str], pair: tuple[str, str]) -> list[str]:
  """Merges all occurrences of a token pair in a word, from left to right."""
  merged: list[str] = []
  i = 0
  while i < len(symbols):
    if tuple(symbols[i : i + 2]) == pair:
      merged.append(pair[0] + pair[1])
      i += 2
    else:
      merged.append(symbols[i])
      i += 1
  return merged


@functools.cache
def _make_splitter(language: str):
  """Returns the function that splits text of a language into words."""
  primary = re.split('[-_]', language)[0]
  if primary in ('ja', 'th'):  # The user has segmented the text.
    return lambda text: _normalize(text, primary).split()
  if primary == 'zh':
    cut = word_segmentation.chinese_words()
    return lambda text: _normalize(' '.join(cut(text)), primary).split()
  tokenizer = _import_sacremoses().MosesTokenizer(lang=primary)

  def split(text: str) -> list[str]:
    text = _normalize(text, primary)
    if primary == 'ro':
      text = text.translate(_ROMANIAN_REPLACEMENTS)
    return tokenizer.tokenize(text, return_str=False, escape=False)

  return split


def _import_sacremoses():
  """Imports sacremoses on first use, because it compiles many patterns."""
  import sacremoses

  return sacremoses


@functools.cache
def _make_normalizer(language: str):
  return _import_sacremoses().MosesPunctNormalizer(lang=language)


def _normalize(text: str, language: str) -> str:
  """Normalizes a text like three preprocessing scripts of Moses.

  These steps replace Unicode punctuation, normalize punctuation and remove
  non-printable characters.
  """
  text = _FULL_STOPS.sub('. ', text.translate(_ASCII_REPLACEMENTS))
  text = _make_normalizer(language).normalize(text)
  return ''.join(c for c in text if not unicodedata.category(c).startswith('C'))


def _lowercase_without_accents(text: str) -> str:
  """Converts a text to lower case and removes combining marks."""
  decomposed = unicodedata.normalize('NFD', text.lower())
  return ''.join(
    c for c in decomposed if unicodedata.category(c) != 'Mn'
  ).lower()
