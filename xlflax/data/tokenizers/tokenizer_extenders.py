"""Addition of tokens to SentencePiece and Hugging Face tokenizers.

The ids of existing tokens do not change. New tokens have lower priority than
existing merges (byte-pair encoding), or probabilities that are not lower than
the lowest existing one (unigram models, in which a lower probability would
change the penalty of unknown characters).
"""

import itertools
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tokenizers

from xlflax.data.tokenizers import (
  base_vocabulary,
  huggingface_vocabulary,
  imported_vocabulary,
  sentencepiece_model_file,
  sentencepiece_vocabulary,
  token_normalization,
  tokenizer_errors,
)
from xlflax.data.tokenizers.sentencepiece_model_file import (
  ModelTypeNumber,
  PieceType,
  ScoredPiece,
)
from xlflax.data.tokenizers.subword_merging import NewToken, Word
from xlflax.utils import errors

_SPACE = '▁'
_BYTE = re.compile(r'<0x[0-9A-F]{2}>')
_JOINERS = '\u200c\u200d'
_BATCH_SIZE = 1024


class SegmentedWord(NamedTuple):
  """Word that a tokenizer has split into tokens.

  Attributes:
    tokens: Tokens of the word, with word-boundary marks.
    is_known: Whether the vocabulary can represent the word. If so, the tokens
      contain no unknown token and no byte of an unknown character.
  """

  tokens: Word
  is_known: bool


class TokenizerExtender:
  """Base class for extenders, which add tokens to a vocabulary.

  Attributes:
    needs_parts: Whether the tokenizer can create a new token only by merging
      its parts, as in byte-pair encoding.
    vocabulary: Vocabulary to which tokens are added.
    first_id: Id of the first added token.
  """

  needs_parts: bool
  vocabulary: base_vocabulary.Vocabulary
  first_id: int

  def has_token(self, token: str) -> bool:
    """Returns whether the vocabulary contains a token."""
    raise NotImplementedError

  def count_characters(self, texts: Iterable[str]) -> Counter[str]:
    """Counts the characters of texts. The keys are tokens such as `a` or `##a`.

    The result is empty for tokenizers that compose all characters of bytes.
    """
    raise NotImplementedError

  def split_words(self, texts: Iterable[str]) -> Iterator[SegmentedWord]:
    """Yields the segmented words of texts."""
    raise NotImplementedError

  def join(self, left: str, right: str) -> str:
    """Returns the token that results from merging two adjacent tokens."""
    return left + right

  def can_merge(self, token: str) -> bool:
    """Returns whether a token may be merged with an adjacent token.

    The token must consist of letters of a single word.
    """
    return _is_word_part(token.removeprefix(_SPACE)) or token == _SPACE

  def extend(
    self, tokens: Sequence[NewToken], languages: Sequence[str] = ()
  ) -> base_vocabulary.Vocabulary:
    """Returns a vocabulary with added tokens and languages.

    Args:
      tokens: Tokens to add, in the order of their ids.
      languages: Language codes to add. In a vocabulary trained by xlflax, each
        language has a symbol, whose id precedes those of `tokens`.
    """
    raise NotImplementedError


def make_extender(vocabulary: base_vocabulary.Vocabulary) -> TokenizerExtender:
  """Returns the extender for a vocabulary.

  Raises:
    VocabularyError: If vocabularies of this type cannot be extended.
  """
  if isinstance(vocabulary, sentencepiece_vocabulary.SentencePieceVocabulary):
    return SentencePieceExtender(vocabulary)
  if isinstance(vocabulary, huggingface_vocabulary.TokenizersVocabulary):
    return TokenizersExtender(vocabulary)
  raise errors.VocabularyError(
    'The flag --extend requires a vocabulary with one SentencePiece model, or '
    'a tokenizer that was imported from tokenizer.json',
    got=vocabulary.kind,
  )


class SentencePieceExtender(TokenizerExtender):
  """Extender that adds tokens to a SentencePiece model trained by xlflax."""

  def __init__(
    self, vocabulary: sentencepiece_vocabulary.SentencePieceVocabulary
  ):
    self.vocabulary: sentencepiece_vocabulary.SentencePieceVocabulary = (
      vocabulary
    )
    self.first_id = vocabulary.spec.size
    self._processor = sentencepiece_vocabulary.load_model(vocabulary.model)
    self._model_type = sentencepiece_model_file.read_model_type(
      vocabulary.model
    )
    self.needs_parts = self._model_type is ModelTypeNumber.BPE

  def has_token(self, token: str) -> bool:
    """Returns whether a token exists; see `TokenizerExtender.has_token`."""
    return self._processor.piece_to_id(token) != self.vocabulary.spec.unk_id

  def count_characters(self, texts: Iterable[str]) -> Counter[str]:
    """Counts characters; see `TokenizerExtender.count_characters`."""
    return Counter(
      itertools.chain.from_iterable(map(self._processor.normalize, texts))
    )

  def split_words(self, texts: Iterable[str]) -> Iterator[SegmentedWord]:
    """Yields segmented words; see `TokenizerExtender.split_words`."""
    for batch in _split_batches(texts):
      for tokens in self._processor.encode(batch, out_type=str):
        yield from _split_at_spaces(tokens, self._is_known)

  def extend(self, tokens, languages=()):
    """Adds tokens; see `TokenizerExtender.extend`."""
    normal_scores = [
      self._processor.get_score(i)
      for i in range(self.first_id)
      if not (
        self._processor.is_control(i)
        or self._processor.is_unknown(i)
        or self._processor.is_byte(i)
      )
    ]
    scores = (
      _merge_scores(min(normal_scores), len(tokens))
      if self.needs_parts
      else _unigram_scores(tokens, self.first_id, min(normal_scores))
    )
    symbols = [
      ScoredPiece(base_vocabulary.language_symbol(code), 0.0, PieceType.CONTROL)
      for code in languages
      if code not in self.vocabulary.spec.languages
    ]
    pieces = [
      ScoredPiece(token.text, score)
      for token, score in zip(tokens, scores, strict=True)
    ]
    return sentencepiece_vocabulary.SentencePieceVocabulary(
      sentencepiece_model_file.append_pieces(
        self.vocabulary.model, [*symbols, *pieces]
      )
    )

  def _is_known(self, token: str) -> bool:
    index = self._processor.piece_to_id(token)
    return index != self.vocabulary.spec.unk_id and not _BYTE.fullmatch(token)


class TokenizersExtender(TokenizerExtender):
  """Extender that adds tokens to a `tokenizer.json` file.

  WordPiece, Unigram and byte-pair encoding are supported, the last one over
  bytes or characters.
  """

  def __init__(self, vocabulary: huggingface_vocabulary.TokenizersVocabulary):
    self.vocabulary: huggingface_vocabulary.TokenizersVocabulary = vocabulary
    self._content: dict[str, Any] = json.loads(vocabulary.content)
    self._model_type = self._content['model'].get('type') or 'BPE'
    if self._model_type not in ('BPE', 'Unigram', 'WordPiece'):
      raise errors.VocabularyError(
        'The flag --extend requires a tokenizer with a BPE, Unigram or '
        'WordPiece model',
        got=self._model_type,
      )
    self.needs_parts = self._model_type == 'BPE'
    components = [self._content.get(k) for k in ('pre_tokenizer', 'decoder')]
    self._is_byte_level = 'ByteLevel' in json.dumps(components)
    self._prefix = ''
    if self._model_type == 'WordPiece':
      self._prefix = self._content['model'].get(
        'continuing_subword_prefix', '##'
      )
    with tokenizer_errors.converting_tokenizer_errors(
      'The tokenizer cannot be read'
    ):
      self._tokenizer = tokenizers.Tokenizer.from_buffer(vocabulary.content)
    self._tokenizer.no_truncation()
    self._tokenizer.no_padding()
    self._tokenizer.encode_special_tokens = True
    self._ids = self._tokenizer.get_vocab(with_added_tokens=True)
    self.first_id = 1 + max(self._ids.values())

  def has_token(self, token: str) -> bool:
    """Returns whether a token exists; see `TokenizerExtender.has_token`."""
    return token in self._ids

  def count_characters(self, texts: Iterable[str]) -> Counter[str]:
    """Counts characters; see `TokenizerExtender.count_characters`."""
    counts: Counter[str] = Counter()
    if self._is_byte_level:
      return counts
    normalizer = self._tokenizer.normalizer
    pre_tokenizer = self._tokenizer.pre_tokenizer
    for text in texts:
      normalized = normalizer.normalize_str(text) if normalizer else text
      words = [normalized]
      if pre_tokenizer:
        words = [w for w, _ in pre_tokenizer.pre_tokenize_str(normalized)]
      for word in words:
        counts.update(word[:1])
        counts.update(self._prefix + character for character in word[1:])
    return counts

  def split_words(self, texts: Iterable[str]) -> Iterator[SegmentedWord]:
    """Yields segmented words; see `TokenizerExtender.split_words`."""
    for batch in _split_batches(texts):
      with tokenizer_errors.converting_tokenizer_errors(
        'The texts cannot be encoded'
      ):
        encodings = self._tokenizer.encode_batch(
          batch, add_special_tokens=False
        )
      for encoding in encodings:
        pairs = zip(encoding.word_ids, encoding.tokens, strict=True)
        for _, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
          tokens = [token for _, token in group]
          if self._is_byte_level or self._prefix:
            yield SegmentedWord(tuple(tokens), all(map(self._is_known, tokens)))
          else:
            yield from _split_at_spaces(tokens, self._is_known)

  def join(self, left: str, right: str) -> str:
    """Merges two adjacent tokens; see `TokenizerExtender.join`."""
    return left + right.removeprefix(self._prefix)

  def can_merge(self, token: str) -> bool:
    """Returns whether merges of a token are allowed; see the base class."""
    if self._is_byte_level:
      content = token_normalization.byte_level_content(token)
      return content is not None and _is_word_part_in_bytes(content)
    if self._prefix:
      return _is_word_part(token.removeprefix(self._prefix))
    return super().can_merge(token)

  def extend(self, tokens, languages=()):
    """Adds tokens; see `TokenizerExtender.extend`."""
    layout = self.vocabulary.layout
    languages = [code for code in languages if code not in layout.languages]
    if languages and layout.symbols:
      raise errors.VocabularyError(
        'The flag --new_languages must contain only languages of the '
        'tokenizer, because the tokenizer has one symbol for each language and '
        'no symbol can be added',
        got=', '.join(languages),
        expected='one of ' + ', '.join(layout.languages),
      )
    model = dict(self._content['model'])
    if self._model_type == 'Unigram':
      model['vocab'] = self._extended_scores(tokens)
    else:
      # The library numbers special tokens that the model does not contain after
      # the tokens of the model, so the model must contain them.
      ids = {token: self.first_id + i for i, token in enumerate(_texts(tokens))}
      all_ids = model['vocab'] | self._ids | ids
      model['vocab'] = dict(sorted(all_ids.items(), key=lambda item: item[1]))
    if self._model_type == 'BPE':
      merges = model.get('merges') or []
      is_text = bool(merges) and isinstance(merges[0], str)
      model['merges'] = merges + [
        ' '.join(token.parts) if is_text else list(token.parts)
        for token in tokens
        if token.parts
      ]
    content = json.dumps(self._content | {'model': model}, ensure_ascii=False)
    size = self.first_id + len(tokens)
    return huggingface_vocabulary.TokenizersVocabulary(
      content.encode(),
      imported_vocabulary.Layout(
        layout.roles,
        (*layout.languages, *languages),
        max(layout.size or 0, size),
        layout.symbols,
      ),
    )

  def _extended_scores(self, tokens: Sequence[NewToken]) -> list[list[Any]]:
    """Returns a Unigram model's old and new tokens with their scores."""
    scored = [list(entry) for entry in self._content['model']['vocab']]
    lowest = min(score for _, score in scored)
    # Added tokens that are not in the model precede the new tokens.
    texts_by_id = {index: text for text, index in self._ids.items()}
    for index in range(len(scored), self.first_id):
      text = texts_by_id.get(index, imported_vocabulary.unused_token(index))
      scored.append([text, lowest])
    scores = _unigram_scores(tokens, self.first_id, lowest)
    return scored + [list(pair) for pair in zip(_texts(tokens), scores)]  # noqa: B905

  def _is_known(self, token: str) -> bool:
    unk = self._content['model'].get('unk_token')
    if self._model_type == 'Unigram':
      return token in self._ids and not _BYTE.fullmatch(token)
    return token != unk and not _BYTE.fullmatch(token)


def _split_batches(texts: Iterable[str]) -> Iterator[list[str]]:
  iterator = iter(texts)
  while batch := list(itertools.islice(iterator, _BATCH_SIZE)):
    yield batch


def _texts(tokens: Sequence[NewToken]) -> list[str]:
  return [token.text for token in tokens]


def _merge_scores(lowest: float, num_tokens: int) -> list[float]:
  """Returns scores for new merges, which are applied after existing merges."""
  first = math.floor(lowest) - 1
  return [float(first - i) for i in range(num_tokens)]


def _unigram_scores(
  tokens: Sequence[NewToken], num_existing: int, lowest: float
) -> list[float]:
  """Returns log probabilities of new tokens in a unigram model.

  The distribution of the extended model is treated as a mixture, in which the
  weight of the new tokens is their fraction of the vocabulary.

  Args:
    tokens: New tokens with their counts.
    num_existing: Number of existing tokens.
    lowest: Lowest log probability of an existing token, which is also the lower
      limit of the result.
  """
  total = sum(token.num_occurrences for token in tokens)
  weight = len(tokens) / (num_existing + len(tokens))
  return [
    max(
      lowest, math.log(weight * max(token.num_occurrences, 1) / max(total, 1))
    )
    for token in tokens
  ]


def _split_at_spaces(
  tokens: Iterable[str], is_known
) -> Iterator[SegmentedWord]:
  """Divides tokens into words, which begin at tokens with a space marker."""
  word: list[str] = []
  for token in tokens:
    if token.startswith(_SPACE) and word:
      yield SegmentedWord(tuple(word), all(map(is_known, word)))
      word = []
    word.append(token)
  if word:
    yield SegmentedWord(tuple(word), all(map(is_known, word)))


def _is_word_part(text: str) -> bool:
  """Returns whether a text consists of letters and combining marks."""
  return bool(text) and all(
    unicodedata.category(c)[0] in 'LM' or c in _JOINERS for c in text
  )


def _is_word_part_in_bytes(content: bytes) -> bool:
  """Returns whether UTF-8 bytes can be part of a word.

  Incomplete characters at the ends are accepted.
  """
  text = content.removeprefix(b' ').decode(errors='replace')
  stripped = text.strip('\ufffd')
  return bool(text) and (not stripped or _is_word_part(stripped))
