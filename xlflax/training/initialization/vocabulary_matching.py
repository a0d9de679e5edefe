"""Which token of a source vocabulary each token of a target's stands for.

MetaXLM (Chi et al. 2021, section 3.2) starts a cross-lingual model from a
monolingual one with another vocabulary: a token is looked up as it is, then in
its normalised form, then, with bilingual dictionaries, by its translation.
"""

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from xlflax.data.tokenizers import token_normalization, vocabulary_spec
from xlflax.storage import content_hash
from xlflax.training.initialization import (
  dictionary_translations,
  embedding_interpolation,
)
from xlflax.utils import class_registry, errors


class Kind(enum.IntEnum):
  """By which look-up a token was found."""

  RANDOM = 0  # by none: it keeps its random initialisation
  SPECIAL = 1  # the symbol of the same purpose
  EXACT = 2
  NORMALISED = 3
  DICTIONARY = 4
  INTERPOLATED = 5  # by none: it is put together from those that are found


class Norms(enum.Enum):
  """How long the rows of matched tokens are at first.

  Embeddings of a trained model are often several times longer than fresh
  ones; beside these, languages that are matched and those that are not are
  told apart by their length alone.
  """

  SOURCE = 'source'  # as in the other run
  # All multiplied by one number, after which their median is that of the rows
  # that are fresh; as they are where none is.
  FRESH = 'fresh'


class Mixing(enum.Enum):
  """How rows of tokens that no look-up finds are put together from text."""

  MATCHED = 'matched'  # from matched tokens that they are near (FOCUS)
  # From source tokens that they are near, by a map between languages (WECHSEL).
  TRANSLATED = 'translated'


class Matching(NamedTuple):
  """For each target token, in the order of their ids:

  Attributes:
    source_ids: int32 [V], ids of the source vocabulary; -1 for none.
    kinds: int8 [V], of `Kind`.
    mixed: int32 [V, K] and float32 [V, K]: source ids and their weights, of
      tokens that are INTERPOLATED; None where none is.
  """

  source_ids: np.ndarray
  kinds: np.ndarray
  mixed: tuple[np.ndarray, np.ndarray] | None = None

  def rows(self) -> tuple[np.ndarray, np.ndarray]:
    """Source ids and weights [V, K] of all tokens; weights 0 for none."""
    ids = self.source_ids[:, None]
    plain = np.maximum(ids, 0), (ids >= 0).astype(np.float32)
    if self.mixed is None:
      return plain
    wide = ((0, 0), (0, self.mixed[0].shape[1] - 1))
    source_rows, weights = (
      np.where(ids >= 0, np.pad(plain_rows, wide), mixed)
      for plain_rows, mixed in zip(plain, self.mixed, strict=True)
    )
    return source_rows, weights

  def counts(self) -> dict[str, int]:
    """How many tokens each look-up found: {'exact': 8, 'random': 2, …}."""
    kind_counts = Counter(self.kinds.tolist())
    return {kind.name.lower(): kind_counts[kind] for kind in Kind}


# Patterns of parameters that have a row for each token.
TOKEN_ROWS = (r'/token$', r'/output_bias$', r'/output$')


@class_registry.register('vocabulary_matching')
@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyMatching:
  """Rows of the embeddings by token instead of by id; see `match`.

  Attributes:
    dictionaries: files or folders of bilingual dictionaries (`+Dict`), in
      MUSE's format (`word translation`) or a corpus's (`word<TAB>translation
      [<TAB>weight]`), named `<l1>-<l2>…`. Of a folder, those are read that
      have `source_language` in their name.
    source_language: the language of the source vocabulary.
    parameters: patterns of the parameters that have one row per token: the
      embeddings, the output's bias, and its table where it is not tied.
    norms: of the rows of tables (biases stay as they are).
    text: a corpus directory; with it rows of tokens that no look-up finds are
      put together from others (`interpolated_rows`).
    mixing: from which.
  """

  dictionaries: tuple[str, ...] = class_registry.known_by_content(
    content_hash.hash_paths, default=()
  )
  source_language: str = 'en'
  parameters: tuple[str, ...] = TOKEN_ROWS
  norms: Norms = Norms.FRESH
  text: str | None = class_registry.known_by_content(
    content_hash.hash_paths, default=None
  )
  mixing: Mixing = Mixing.MATCHED

  def __post_init__(self):
    if self.mixing is Mixing.TRANSLATED and self.text is None:
      raise errors.ConfigError(
        'Rows across languages need text',
        got='no text',
        expected='a corpus directory',
        where='VocabularyMatching.text',
        fix="set it, or leave out mixing='translated'",
      )

  def match(self, target, source) -> Matching:
    """`match` with the entries of these dictionaries, and with this text."""
    token_matching = match_tokens(
      target,
      source,
      dictionary_translations.read_translations(
        self.dictionaries, self.source_language
      ),
    )
    if self.text is None:
      return token_matching
    matched = token_matching.source_ids >= 0
    if self.mixing is Mixing.MATCHED:
      ids, weights = embedding_interpolation.focus_mixture(
        target, self.text, matched
      )
      ids = token_matching.source_ids[ids]
    else:
      taught = np.flatnonzero(matched & (token_matching.kinds != Kind.SPECIAL))
      ids, weights = embedding_interpolation.wechsel_mixture(
        target,
        source,
        self.text,
        np.stack([taught, token_matching.source_ids[taught]], axis=1),
        self.source_language,
      )
      weights = np.where(matched[:, None], 0, weights)
    kinds = np.where(
      weights.any(axis=1), Kind.INTERPOLATED, token_matching.kinds
    )
    return token_matching._replace(
      kinds=kinds.astype(np.int8), mixed=(ids, weights)
    )


def match_tokens(
  target, source, translations: Iterable[tuple[str, str]] = ()
) -> Matching:
  """Finds each target token in the source vocabulary.

  Special symbols (padding, begin, end, unknown, mask, language symbols and
  sentinels) go by purpose, and text never matches one. Of the others, in
  this order:

  1. exact: a token of the same characters that stands at the same place of a
     word (begins it or not), however the two vocabularies mark that;
  2. normalised: NFKC and lower case make it one with a source token; that at
     the same place of a word is preferred to another, then one that is
     written in the normalised way, then the lower id;
  3. dictionary: a token that is a whole word has a translation that 1 or 2
     finds; the first in the order of `translations`.

  Before: target '▁the', '▁The', 'ing', '▁Hund', '▁xyz', source 'Ġthe', 'ing',
  'Ġdog' and ('Hund', 'dog'); after: kinds exact, normalised, exact,
  dictionary, random.

  Args:
    target: a `Vocabulary`; its `spec`, `piece(id)` and length are used.
    source: likewise.
    translations: (word of the target's languages, word of the source's); read
      once, in order, never held.

  Returns:
    The matching, [len(target)].
  """
  finder = _Finder(source)
  source_ids = np.full(len(target), -1, np.int32)
  kinds = np.zeros(len(target), np.int8)
  for i, j in _same_purpose(target.spec, source.spec).items():
    source_ids[i], kinds[i] = j, Kind.SPECIAL
  special = _special_ids(target.spec)
  unmatched: dict[str, list[int]] = {}
  for i, form in enumerate(_forms(target)):
    if i in special:
      continue
    source_ids[i], kinds[i] = finder(form)
    if (
      source_ids[i] < 0 and form.text and token_normalization.may_be_word(form)
    ):
      unmatched.setdefault(
        token_normalization.normalize_token(form.text), []
      ).append(i)
  for word, translation in translations:
    word = token_normalization.normalize_token(word)
    if word not in unmatched:
      continue
    matched_id, _ = finder(token_normalization.PlainToken(translation, True))
    if matched_id >= 0:
      ids = unmatched.pop(word)
      source_ids[ids], kinds[ids] = matched_id, Kind.DICTIONARY
  return Matching(source_ids, kinds)


class _Finder:
  """Looks forms up among a vocabulary's tokens of text."""

  def __init__(self, vocabulary):
    special = _special_ids(vocabulary.spec)
    self._exact: dict[Any, int] = {}
    self._normal: dict[Any, int] = {}
    later = []
    for i, form in enumerate(_forms(vocabulary)):
      if i in special:
        continue
      self._exact.setdefault(form, i)
      text = token_normalization.normalize_token(form.text)
      if text == form.text:
        self._add(text, form.begins_word, i)
      else:
        later.append((text, form.begins_word, i))
    for entry in later:
      self._add(*entry)

  def _add(self, text: str, begins_word: bool, i: int) -> None:
    if text:
      self._normal.setdefault((text, begins_word), i)

  def __call__(self, form: token_normalization.PlainToken) -> tuple[int, Kind]:
    """(id, by which look-up), or (-1, RANDOM)."""
    matched_id = self._exact.get(form)
    if matched_id is not None:
      return matched_id, Kind.EXACT
    text = token_normalization.normalize_token(form.text)
    for begins_word in (form.begins_word, not form.begins_word):
      matched_id = self._normal.get((text, begins_word))
      if matched_id is not None:
        return matched_id, Kind.NORMALISED
    return -1, Kind.RANDOM


def _forms(vocabulary) -> list[token_normalization.PlainToken]:
  return token_normalization.plain_tokens(comparable_tokens(vocabulary))


def comparable_tokens(vocabulary) -> list[str]:
  """The piece of each id; without its language, where that is part of it."""
  piece = getattr(vocabulary, 'bare_piece', vocabulary.piece)
  return [piece(i) for i in range(len(vocabulary))]


def _special_ids(spec: vocabulary_spec.VocabularySpec) -> set[int]:
  return {
    *spec.special_ids,
    spec.unk_id,
    *spec.language_symbol_ids,
    *spec.sentinel_ids,
  }


def _same_purpose(target, source) -> Mapping[int, int]:
  """Special id of the target -> that of the source with the same purpose."""
  pairs = {
    getattr(target, name): getattr(source, name)
    for name in ('pad_id', 'bos_id', 'eos_id', 'unk_id', 'mask_id')
  }
  pairs |= dict(zip(target.sentinel_ids, source.sentinel_ids, strict=False))
  symbols = dict(
    zip(source.languages, source.language_symbol_ids, strict=False)
  )
  for code, i in zip(
    target.languages, target.language_symbol_ids, strict=False
  ):
    if code in symbols:
      pairs[i] = symbols[code]
  return pairs
