"""Vocabulary specification for models and objectives: sizes and special ids."""

import dataclasses

from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class VocabularySpec:
  """Size, special ids and languages of a vocabulary.

  Attributes:
    size: Number of tokens. The ids are 0 to size - 1.
    pad_id: Id of the padding token, which fills sequences up to their length
      and is never attended to.
    bos_id: Id of the token that starts a sequence (`<s>`, `[CLS]`). In
      first-token pooling, its hidden state represents the sequence.
    eos_id: Id of the token that ends a sequence and separates texts (`</s>`,
      `[SEP]`).
    unk_id: Id of the unknown token.
    mask_id: Id of the mask token for masked language modeling.
    special_ids: Ids of all tokens that do not represent text, including
      `pad_id`, `bos_id`, `eos_id`, `unk_id`, `mask_id` and the language
      symbols. These tokens are never selected for prediction and never drawn as
      random replacements.
    languages: Language codes. The index of a code is its `language_id`.
    language_symbol_ids: Id of each language's symbol, in the order of
      `languages`. Empty if the vocabulary has no language symbols.
    sentinel_ids: Ids of the sentinels that represent dropped spans (T5), in the
      order in which they are used.
    language_words: Ids that can occur in the text of each language, excluding
      special ids, as half-open ranges (start, stop). Empty if all languages use
      all ids.
    word_starts: Bit mask of the tokens that start a word. Id i is represented
      by bit i % 8 of byte i // 8, counted from the lowest bit. Empty if the
      word starts are unknown.
    words_overlap: Whether an id represents different tokens in different
      languages, so that each language requires its own embeddings.
  """

  size: validation.PositiveInt
  pad_id: validation.NonNegativeInt
  bos_id: validation.NonNegativeInt
  eos_id: validation.NonNegativeInt
  unk_id: validation.NonNegativeInt
  mask_id: validation.NonNegativeInt
  special_ids: tuple[validation.NonNegativeInt, ...]
  languages: tuple[str, ...]
  language_symbol_ids: tuple[validation.NonNegativeInt, ...] = ()
  sentinel_ids: tuple[validation.NonNegativeInt, ...] = ()
  language_words: tuple[
    tuple[tuple[validation.NonNegativeInt, validation.NonNegativeInt], ...], ...
  ] = ()
  word_starts: bytes = b''
  words_overlap: bool = False

  def __post_init__(self):
    required_ids = (self.pad_id, self.bos_id, self.eos_id, self.mask_id)
    if not set(required_ids) <= set(self.special_ids):
      raise ValueError(
        '`special_ids` must contain the padding, bos, eos and mask ids '
        f'{required_ids}, but it contains only {self.special_ids}.'
      )
    if any(not 0 <= i < self.size for i in self.special_ids):
      raise ValueError(
        f'All `special_ids` must be between 0 and {self.size - 1}, but they '
        f'are {self.special_ids}.'
      )


_MAX_SENTINELS = 100
# The largest published vocabularies have about 2 ** 20 tokens.
MAX_SIZE = 1 << 22


def check_size(size: int) -> None:
  """Checks that a vocabulary size is plausible before memory is allocated.

  Raises:
    VocabularyError: If the size is larger than `MAX_SIZE`.
  """
  if size > MAX_SIZE:
    raise errors.VocabularyError(
      f'A vocabulary must have at most {MAX_SIZE:,} tokens', got=size
    )


def make_dummy_spec(size: int, *, num_languages: int = 1) -> VocabularySpec:
  """Returns a dummy vocabulary's specification, for planning and benchmarks.

  The dummy vocabulary has five special symbols, one symbol for each language,
  sentinels (one eighth of the tokens, but at most 100), and text tokens. All
  text tokens start a word and are used by all languages.

  Args:
    size: Number of tokens.
    num_languages: Number of languages.

  Raises:
    ConfigError: If fewer than eight tokens would remain for text.
  """
  languages = ('en', *(f'l{i}' for i in range(1, num_languages)))
  language_symbol_ids = tuple(range(5, 5 + num_languages))
  first_sentinel = 5 + num_languages
  num_sentinels = min(_MAX_SENTINELS, size // 8)
  num_special = first_sentinel + num_sentinels
  if size < num_special + 8:
    raise errors.ConfigError(
      f'The flag --vocabulary_size must be at least {num_special + 8}, because '
      f'the vocabulary has {num_special} special tokens and requires at least '
      '8 tokens for text',
      got=size,
    )
  return VocabularySpec(
    size=size,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=tuple(range(num_special)),
    languages=languages,
    language_symbol_ids=language_symbol_ids,
    sentinel_ids=tuple(range(first_sentinel, num_special)),
    language_words=(((num_special, size),),) * num_languages,
    word_starts=b'\xff' * -(-size // 8),
  )
