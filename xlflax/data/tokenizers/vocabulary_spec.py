"""What models and objectives need to know of a vocabulary: plain numbers."""

import dataclasses

from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class VocabularySpec:
  """Sizes and special ids of a vocabulary; hashable, free of any library.

  Attributes:
    size: number of entries; ids are 0 .. size - 1.
    pad_id: fills rows up to their length; never attended to.
    bos_id: begins a sequence (`<s>`, `[CLS]`); the first-token state.
    eos_id: ends a sequence and separates (`</s>`, `[SEP]`).
    unk_id: unknown piece.
    mask_id: the mask symbol of masked language modelling.
    special_ids: every id that is not text (the above and language symbols):
      never chosen for prediction, never drawn as a random replacement.
    languages: language codes; the index of a code is its `language_id`.
    language_symbol_ids: id of each language's symbol, in their order; () if
      the vocabulary has none.
    sentinel_ids: ids that stand for dropped spans (T5), in order of use.
    language_words: for each language, runs (start, stop) of the ids that its
      text can have, special ids left out; () if all languages use every id.
    word_starts: bit i % 8 (from the lowest) of byte i // 8 says whether id i
      begins a word; b'' if that is not known.
    words_overlap: whether one id is another word in another language, so that
      the embeddings must be those of the language, too.
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
    named = (self.pad_id, self.bos_id, self.eos_id, self.mask_id)
    if not set(named) <= set(self.special_ids):
      raise ValueError(f'special_ids {self.special_ids} lacks one of {named}.')
    if any(not 0 <= i < self.size for i in self.special_ids):
      raise ValueError(
        f'special ids outside 0..{self.size - 1}: {self.special_ids}.'
      )


_MAX_SENTINELS = 100
MOST_ENTRIES = 1 << 22  # the largest that are published have about 2 ** 20


def check_size(size: int) -> None:
  """Refuses sizes that no vocabulary has, before one is made.

  Raises:
    VocabularyError: there would be more than `MOST_ENTRIES` entries.
  """
  if size > MOST_ENTRIES:
    raise errors.VocabularyError(
      'The vocabulary is far too large',
      got=f'{size:,} entries',
      expected=f'at most {MOST_ENTRIES:,}',
    )


def make_dummy_spec(size: int, *, num_languages: int = 1) -> VocabularySpec:
  """A vocabulary of nothing but sizes, for plans and benchmarks.

  Five special symbols, one symbol for each language, sentinels (an eighth of
  the entries, at most 100), and words that every language uses and that all
  begin a word.

  Raises:
    ConfigError: the size leaves too few words.
  """
  languages = ('en', *(f'l{i}' for i in range(1, num_languages)))
  symbols = tuple(range(5, 5 + num_languages))
  first = 5 + num_languages
  sentinels = tuple(range(first, first + min(_MAX_SENTINELS, size // 8)))
  special = tuple(range(first + len(sentinels)))
  if size < len(special) + 8:
    raise errors.ConfigError(
      'The vocabulary size is too small',
      got=size,
      expected=f'{len(special) + 8} or more',
      where='--vocabulary_size',
    )
  return VocabularySpec(
    size=size,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=special,
    languages=languages,
    language_symbol_ids=symbols,
    sentinel_ids=sentinels,
    language_words=(((len(special), size),),) * num_languages,
    word_starts=b'\xff' * -(-size // 8),
  )
