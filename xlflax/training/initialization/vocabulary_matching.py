"""Matching of tokens between two vocabularies.

MetaXLM (Chi et al. 2021, section 3.2) initializes a cross-lingual model from a
monolingual model with another vocabulary. A token of the target vocabulary is
looked up in the source vocabulary unchanged, then in its normalized form, and
then, with bilingual dictionaries, by its translation.
"""

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from xlflax.data.tokenizers import (
  base_vocabulary,
  token_normalization,
  vocabulary_spec,
)
from xlflax.storage import content_hash
from xlflax.training.initialization import dictionary_translations
from xlflax.utils import class_registry, errors


class Kind(enum.IntEnum):
  """Types of matches between a token and the tokens of another vocabulary."""

  RANDOM = 0  # No match. The token keeps its random initialization.
  SPECIAL = 1  # Special symbol with the same purpose.
  EXACT = 2
  NORMALIZED = 3
  DICTIONARY = 4
  INTERPOLATED = 5  # No match. The embedding is a mixture of others.


class EmbeddingNorms(enum.Enum):
  """Scaling of embeddings that are transferred from another run.

  The embeddings of a trained model are often several times longer than randomly
  initialized ones. In a mixture of both, the norm alone would distinguish
  matched languages from others.
  """

  SOURCE = 'source'  # As in the other run.
  # Scaled by one factor, so that their median equals that of the randomly
  # initialized embeddings. Not scaled if there are none.
  INITIALIZED = 'initialized'


class UnmatchedEmbeddings(enum.Enum):
  """Methods of initializing embeddings without a match in the source run."""

  RANDOM = 'random'  # As in a model that is not initialized from another run.
  # The mean of the transferred embeddings plus the random initialization. The
  # output biases take the mean of the transferred biases.
  MEAN = 'mean'


class EmbeddingMixing(enum.Enum):
  """Methods of interpolating embeddings for tokens without a match."""

  # Mixtures of similar matched tokens (Dobler and de Melo, 2023).
  FOCUS = 'focus'
  # Mixtures of similar source tokens after an alignment of the languages
  # (Minixhofer et al., 2022).
  WECHSEL = 'wechsel'
  # The mean of the source tokens into which the source vocabulary segments the
  # token. Requires no text.
  SUBWORDS = 'subwords'


class Matching(NamedTuple):
  """Match in the source vocabulary for each token of the target vocabulary.

  The arrays are ordered by the target tokens' ids.

  Attributes:
    source_ids: Id of the source token that matches each target token, an int32
      array of shape [V]. -1 for a target token without a match.
    kinds: Type of each target token's match (a value of `Kind`), an int8 array
      of shape [V].
    mixed: Ids (int32) and weights (float32) of the source tokens whose mixture
      replaces each INTERPOLATED target token, both of shape [V, K]. None if no
      token is interpolated.
  """

  source_ids: np.ndarray
  kinds: np.ndarray
  mixed: tuple[np.ndarray, np.ndarray] | None = None

  def rows(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source tokens, with weights, that initialize target tokens.

    Both arrays have the shape [V, K]. The weights of tokens without a match are
    0.
    """
    ids = self.source_ids[:, None]
    matched_ids = np.maximum(ids, 0)
    matched_weights = (ids >= 0).astype(np.float32)
    if self.mixed is None:
      return matched_ids, matched_weights

    mixed_ids, mixed_weights = self.mixed
    padding = ((0, 0), (0, mixed_ids.shape[1] - 1))
    return (
      np.where(ids >= 0, np.pad(matched_ids, padding), mixed_ids),
      np.where(ids >= 0, np.pad(matched_weights, padding), mixed_weights),
    )

  def counts(self) -> dict[str, int]:
    """Counts the tokens by type of match: {'exact': 8, 'random': 2, …}."""
    kind_counts = Counter(self.kinds.tolist())
    return {kind.name.lower(): kind_counts[kind] for kind in Kind}


# Patterns of parameters with one row per token.
TOKEN_ROWS = (r'/token$', r'/output_bias$', r'/output$')


@class_registry.register('embedding_transfer')
@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingTransfer:
  """Options for initializing embeddings by token instead of by id.

  Attributes:
    dictionaries: Files or directories of bilingual dictionaries in the format
      of MUSE (`word translation`) or of a corpus
      (`word<TAB>translation[<TAB>weight]`). The file names start with the two
      languages, as in `en-de.txt` (MUSE) or `en-de.tsv` (corpus). In a
      directory, the files with `source_language` in their name are read.
    source_language: Language code of the source vocabulary.
    parameters: Regular expressions that select the parameters with one row per
      token. These are the embeddings, the output bias, and the output table if
      it is not tied.
    norms: Method of scaling transferred embeddings: SOURCE keeps their norms,
      and INITIALIZED scales them to the norms of randomly initialized
      embeddings. Biases are not scaled.
    unmatched: Method of initializing the embeddings of tokens without a match,
      and their output biases.
    text: Corpus directory. If set, the embeddings of tokens without a match are
      interpolated (see `embedding_interpolation`). If None, `unmatched` applies
      to them, unless `mixing` is `'subwords'`.
    mixing: Method of interpolating the embedding of a token without a match.
      With `'subwords'`, which requires no text, it is the mean of the
      embeddings of the token's subwords in the source vocabulary.
  """

  dictionaries: tuple[str, ...] = class_registry.path_field(
    content_hash.hash_paths, default=()
  )
  source_language: str = 'en'
  parameters: tuple[str, ...] = TOKEN_ROWS
  norms: EmbeddingNorms = EmbeddingNorms.SOURCE
  unmatched: UnmatchedEmbeddings = UnmatchedEmbeddings.MEAN
  text: str | None = class_registry.path_field(
    content_hash.hash_paths, default=None
  )
  mixing: EmbeddingMixing = EmbeddingMixing.FOCUS

  def __post_init__(self):
    if self.mixing is EmbeddingMixing.WECHSEL and self.text is None:
      raise errors.ConfigError(
        "mixing='wechsel' requires a corpus directory in the field `text`",
        where=errors.field_location(self, 'text'),
        fix="Set `text`, or set mixing='focus'.",
      )
    if self.mixing is EmbeddingMixing.SUBWORDS and self.text is not None:
      raise errors.ConfigError(
        "`text` must be None if `mixing` is 'subwords', because this method "
        'does not use a corpus',
        got=self.text,
        where=errors.field_location(self, 'text'),
        fix="Remove `text`, or set mixing='focus'.",
      )

  def match(self, target, source) -> Matching:
    """Matches two vocabularies using the configured dictionaries and text.

    Args:
      target: Vocabulary of this run.
      source: Vocabulary of the run that provides embeddings.

    Raises:
      CorpusError: If a dictionary or the text cannot be read.
    """
    token_matching = match_tokens(
      target,
      source,
      dictionary_translations.read_translations(
        self.dictionaries, self.source_language
      ),
    )
    matched = token_matching.source_ids >= 0
    if self.text is None and self.mixing is not EmbeddingMixing.SUBWORDS:
      return token_matching
    # Imported here, because only interpolation requires SciPy.
    from xlflax.training.initialization import embedding_interpolation

    if self.text is None:
      is_special = np.isin(np.arange(len(target)), target.spec.special_ids)
      ids, weights = embedding_interpolation.subword_mixture(
        comparable_tokens(target),
        source,
        comparable_tokens(source),
        matched | is_special,
      )
    elif self.mixing is EmbeddingMixing.FOCUS:
      ids, weights = embedding_interpolation.focus_mixture(
        target, self.text, matched
      )
      ids = token_matching.source_ids[ids]
    else:
      aligned_ids = np.flatnonzero(
        matched & (token_matching.kinds != Kind.SPECIAL)
      )
      ids, weights = embedding_interpolation.wechsel_mixture(
        target,
        source,
        self.text,
        np.stack([aligned_ids, token_matching.source_ids[aligned_ids]], axis=1),
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
  """Finds each target token's match in the source vocabulary.

  Special symbols (padding, begin, end, unknown, mask, language symbols and
  sentinels) are matched by their purpose, and are never matches of text. If the
  target vocabulary is an extension of the source vocabulary
  (`vocabulary_extension`), the tokens of the source vocabulary are matched by
  id. Other tokens are matched in this order:

  1. exact: A token with the same characters and the same position in a word
     (whether it begins the word), independent of how the vocabularies mark it.
  2. normalized: A token that is equal after NFKC normalization and lowercasing.
     Tokens with the same position in a word are preferred, then tokens that are
     already normalized, then lower ids.
  3. dictionary: A token that is a complete word has a translation with a match
     by 1 or 2. The first translation in the order of `translations` is used.

  For example, the target '▁the', '▁The', 'ing', '▁Hund', '▁xyz', the source
  'Ġthe', 'ing', 'Ġdog' and the translation ('Hund', 'dog') result in the kinds
  exact, normalized, exact, dictionary, random.

  Args:
    target: Target `Vocabulary`, of which `spec`, `piece(id)` and the length are
      used.
    source: Source `Vocabulary`, in which matches are looked up.
    translations: Pairs of a word in a target language and a word in the
      source language. They are read once, in order, and not stored.

  Returns:
    The matching of all target tokens.
  """
  lookup = _TokenLookup(source)
  source_ids = np.full(len(target), -1, np.int32)
  kinds = np.zeros(len(target), np.int8)
  for i, j in _match_special_ids(target.spec, source.spec).items():
    source_ids[i], kinds[i] = j, Kind.SPECIAL

  num_kept = _num_kept_ids(target, source)
  source_ids[:num_kept] = np.arange(num_kept)
  special = _special_ids(target.spec)
  is_text = [i not in special for i in range(num_kept)]
  kinds[:num_kept] = np.where(is_text, Kind.EXACT, Kind.SPECIAL)
  unmatched: dict[str, list[int]] = {}
  for i, token in enumerate(_plain_tokens(target)):
    if i in special or i < num_kept:
      continue
    source_ids[i], kinds[i] = lookup.find(token)
    if (
      source_ids[i] < 0
      and token.text
      and token_normalization.may_be_word(token)
    ):
      word = token_normalization.normalize_token(token.text)
      unmatched.setdefault(word, []).append(i)

  for word, translation in translations:
    word = token_normalization.normalize_token(word)
    if word not in unmatched:
      continue
    matched_id, _ = lookup.find(
      token_normalization.PlainToken(translation, True)
    )
    if matched_id >= 0:
      ids = unmatched.pop(word)
      source_ids[ids], kinds[ids] = matched_id, Kind.DICTIONARY
  return Matching(source_ids, kinds)


def _num_kept_ids(target, source) -> int:
  """Returns the number of ids that an extended vocabulary keeps, or 0."""
  description = getattr(target, 'description', {})
  extension = description.get(base_vocabulary.EXTENSION_FIELD) or {}
  if not extension or extension['base_hash'] != source.hash:
    return 0
  return int(extension['base_size'])


class _TokenLookup:
  """Exact and normalized lookup of text tokens in a vocabulary."""

  def __init__(self, vocabulary):
    special = _special_ids(vocabulary.spec)
    self._exact_ids: dict[Any, int] = {}
    self._normalized_ids: dict[Any, int] = {}
    # Tokens that are already normalized have priority over others.
    deferred = []
    for i, token in enumerate(_plain_tokens(vocabulary)):
      if i in special:
        continue
      self._exact_ids.setdefault(token, i)
      text = token_normalization.normalize_token(token.text)
      if text == token.text:
        self._add_normalized(text, token.begins_word, i)
      else:
        deferred.append((text, token.begins_word, i))
    for entry in deferred:
      self._add_normalized(*entry)

  def _add_normalized(self, text: str, begins_word: bool, i: int) -> None:
    if text:
      self._normalized_ids.setdefault((text, begins_word), i)

  def find(self, token: token_normalization.PlainToken) -> tuple[int, Kind]:
    """Returns the id of a token's match and the type of the match.

    Without a match, returns (-1, RANDOM).
    """
    matched_id = self._exact_ids.get(token)
    if matched_id is not None:
      return matched_id, Kind.EXACT
    text = token_normalization.normalize_token(token.text)
    for begins_word in (token.begins_word, not token.begins_word):
      matched_id = self._normalized_ids.get((text, begins_word))
      if matched_id is not None:
        return matched_id, Kind.NORMALIZED
    return -1, Kind.RANDOM


def _plain_tokens(vocabulary) -> list[token_normalization.PlainToken]:
  return token_normalization.plain_tokens(comparable_tokens(vocabulary))


def comparable_tokens(vocabulary) -> list[str]:
  """Lists a vocabulary's tokens in the order of ids, without language tags."""
  piece = getattr(vocabulary, 'bare_piece', vocabulary.piece)
  return [piece(i) for i in range(len(vocabulary))]


def _special_ids(spec: vocabulary_spec.VocabularySpec) -> set[int]:
  return {
    *spec.special_ids,
    spec.unk_id,
    *spec.language_symbol_ids,
    *spec.sentinel_ids,
  }


def _match_special_ids(target, source) -> Mapping[int, int]:
  """Maps ids of special target tokens to source ids of the same purpose."""
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
