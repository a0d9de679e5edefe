"""XLM's vocabulary: words by Moses, then BPE codes (Conneau and Lample, 2019).

The words depend on the language: Moses' rules for it, jieba for Chinese. Text
without a language is read as English. Japanese and Thai need segmenters that
are not part of xlflax: segment such text before, with spaces between words.
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
_END = '</w>'
_DEFAULT_LANGUAGE = 'en'
_MAX_REMEMBERED = 1 << 18
# Punctuation and digits that Moses' replace-unicode-punctuation.perl makes
# ASCII; of two full stops, with the space after them.
_PLAIN = str.maketrans(
  dict(
    zip(
      '，、”“∶：？《》）！（；」「～’━〈〉【】％０１２３４５６７８９',
      ',,""::?"")!(;""~\'-<>[]%0123456789',
      strict=True,
    )
  )
  | {'…': '...'}
)
_STOPS = re.compile(r'[。．]\s*')
# Romanian without the diacritics that its texts write or leave out.
_ROMANIAN = str.maketrans('ŞşŢţȘșȚțĂăÂâÎî', 'SsTtSsTtAaAaIi')


class XLMVocabulary(imported_vocabulary.ImportedVocabulary):
  """See `base_vocabulary.Vocabulary`.

  Attributes:
    contents: name -> bytes of the two files.
    layout: what the files do not tell.
    lower: whether text is lowercased and loses its accents.
  """

  kind = 'xlm_bpe'
  FILES = (VOCABULARY, MERGES)
  MADE_OF = ('contents', 'layout', 'lower')
  needs_language = True

  def __init__(
    self,
    contents: Mapping[str, bytes],
    layout: imported_vocabulary.Layout,
    *,
    lower: bool,
    description: Mapping | None = None,
  ):
    """Raises VocabularyError if the files are not vocab.json and merges.txt.

    Args:
      contents: name -> bytes of the two files.
      layout: what the files do not tell.
      lower: whether text is lowercased and loses its accents.
      description: what to keep of `vocabulary.json`.
    """
    self.contents = dict(contents)
    self.layout = layout
    self.lower = lower
    self.description = dict(description or {})
    self._place, self._ranks = _parse(contents)
    self._pieces = [
      imported_vocabulary.unused_piece(i)
      for i in range(1 + max(self._place.values()))
    ]
    for piece, index in self._place.items():
      self._pieces[index] = piece
    special = [
      i
      for piece, i in self._place.items()
      if re.fullmatch(r'<special\d+>', piece)
    ]
    inside = np.zeros(len(self._pieces), np.bool_)  # nothing marks a start
    self.spec = imported_vocabulary.make_spec(
      layout, self._pieces, special=special, word_starts=inside
    )
    self.hash = layout.digest(
      f'{self.kind}:{lower}', self.files(), self.spec.size
    )
    self._silent = frozenset(self.spec.special_ids) - {self.spec.unk_id}
    self._word_ids = functools.lru_cache(_MAX_REMEMBERED)(self._encode_word)

  @classmethod
  def of_files(cls, contents, layout, description):
    """See `ImportedVocabulary.of_files`."""
    lower = bool(description.get('lower', True))
    return cls(contents, layout, lower=lower, description=description)

  def files(self):
    """See `Vocabulary.files`."""
    return self.contents

  def describe(self):
    """See `Vocabulary.describe`."""
    return super().describe() | {'lower': self.lower}

  def encode_ragged(
    self,
    texts: Sequence[str],
    *,
    language: str | None = None,
    num_threads: int = 1,
  ) -> tuple[np.ndarray, np.ndarray]:
    """See `Vocabulary.encode_ragged`."""
    del num_threads
    split = _splitter(language or _DEFAULT_LANGUAGE)
    rows = [
      self._encode(split, text.decode() if isinstance(text, bytes) else text)
      for text in texts
    ]
    return base_vocabulary.flatten_ids(rows)

  def _encode(self, split, text: str) -> list[int]:
    split_words = split(text)
    if self.lower:
      split_words = _plain(' '.join(split_words)).split(' ')
    return [i for word in split_words if word for i in self._word_ids(word)]

  def _encode_word(self, word: str) -> tuple[int, ...]:
    """BPE: the first merge in the list that applies, until none does."""
    parts = [*word[:-1], word[-1] + _END]
    while len(parts) > 1:
      pairs = list(itertools.pairwise(parts))
      best = min(pairs, key=lambda pair: self._ranks.get(pair, np.inf))
      if best not in self._ranks:
        break
      parts = _merge(parts, best)
    return tuple(self._place.get(part, self.spec.unk_id) for part in parts)

  def decode(self, ids: Iterable[int], *, language: str | None = None) -> str:
    """See `Vocabulary.decode`."""
    pieces = [self.piece(int(i)) for i in ids if int(i) not in self._silent]
    return ''.join(pieces).replace(_END, ' ').strip()

  def piece_id(self, piece: str, *, language: str | None = None) -> int | None:
    """See `Vocabulary.piece_id`."""
    return self._place.get(piece)

  def is_byte(self, index: int, *, language: str | None = None) -> bool:
    """See `Vocabulary.is_byte`."""
    self.piece(index)  # Raises.
    return False


def _parse(contents: Mapping[str, bytes]):
  """(piece -> id, pair -> rank) of the two files."""
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
      "Not the files of XLM's vocabulary",
      got=str(error),
      expected=f'{VOCABULARY} and {MERGES}',
    ) from error
  if not ids_by_token:
    raise errors.VocabularyError(f'{VOCABULARY} has no entries')
  imported_vocabulary.check_ids(ids_by_token.values())
  return ids_by_token, ranks


def _merge(parts: list[str], pair: tuple[str, str]) -> list[str]:
  """All occurrences of a pair, from the left, joined."""
  merged: list[str] = []
  i = 0
  while i < len(parts):
    if tuple(parts[i : i + 2]) == pair:
      merged.append(pair[0] + pair[1])
      i += 2
    else:
      merged.append(parts[i])
      i += 1
  return merged


@functools.cache
def _splitter(language: str):
  """Text of a language -> its words."""
  primary = re.split('[-_]', language)[0]
  if primary in ('ja', 'th'):  # segmented before, by the user
    return lambda text: _normalize(text, primary).split()
  if primary == 'zh':
    cut = word_segmentation.chinese_words()
    return lambda text: _normalize(' '.join(cut(text)), primary).split()
  tokenizer = _moses().MosesTokenizer(lang=primary)

  def split(text: str) -> list[str]:
    text = _normalize(text, primary)
    if primary == 'ro':
      text = text.translate(_ROMANIAN)
    return tokenizer.tokenize(text, return_str=False, escape=False)

  return split


def _moses():
  """sacremoses, imported when it is needed: it compiles all its patterns."""
  import sacremoses

  return sacremoses


@functools.cache
def _normalizer(language: str):
  return _moses().MosesPunctNormalizer(lang=language)


def _normalize(text: str, language: str) -> str:
  """Moses' three scripts: punctuation made plain, normalised, printable."""
  text = _STOPS.sub('. ', text.translate(_PLAIN))
  text = _normalizer(language).normalize(text)
  return ''.join(c for c in text if not unicodedata.category(c).startswith('C'))


def _plain(text: str) -> str:
  """Lower case, without combining marks."""
  decomposed = unicodedata.normalize('NFD', text.lower())
  return ''.join(
    c for c in decomposed if unicodedata.category(c) != 'Mn'
  ).lower()
