"""Optional processing of text with Moses rules, jieba and sentencex.

The processing follows ECS, which follows XLM. Punctuation is normalized
(Unicode to ASCII, quotation marks, surrounding spaces, separators of numbers),
unprintable characters are dropped, and text is tokenized. Chinese text is
segmented into words instead. Source: Koehn et al., "Moses: Open Source Toolkit
for Statistical Machine Translation" (2007), through sacremoses.
"""

import dataclasses
import functools
import re
import unicodedata

from xlflax.data.corpus import language_codes, word_segmentation
from xlflax.utils import user_modules, validation

# Joiners inside words of Persian and Indic text.
_JOINERS = '\u200c\u200d'
# Invisible word separator of Khmer, Thai and Burmese.
_ZERO_WIDTH_SPACE = '\u200b'
# Sentence boundaries in Khmer and Tibetan, for which sentencex has no rules.
_SENTENCE_END = re.compile('(?<=[\u17d4\u17d5])\\s*|(?<=[\u0f0d\u0f0e])\\s+')


def remove_nulls(texts: tuple[str, ...]) -> tuple[str, ...]:
  """Removes NUL characters, which occur only in damaged files.

  Other programs do not accept them as part of text.

  Args:
    texts: Texts of a line: a single text, or source and target.
  """
  if not any('\0' in text for text in texts):
    return texts
  return tuple(text.replace('\0', '').strip() for text in texts)


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcessing:
  """Settings for processing lines of text.

  Attributes:
    moses: Whether to normalize punctuation, drop control characters, and
      tokenize text. Text in languages without spaces between words is not
      tokenized.
    segment_chinese: Whether to segment Chinese text into words with jieba.
    split_sentences: Whether to split lines of monolingual text into sentences
      with sentencex before they are filtered and processed. Deduplication
      compares the original lines, so repeated sentences of different lines
      remain. For languages without rules, sentencex uses the rules of a related
      language. Pairs are not split.
    strip_markup: Whether to remove HTML markup from lines before all other
      processing, including the filters (`markup.MarkupRemover`). Lines without
      other text are dropped.
  """

  moses: bool = False
  segment_chinese: bool = False
  split_sentences: bool = False
  strip_markup: bool = False


class Processor:
  """Callable that applies the enabled Moses and jieba steps to a line of text.

  `TextProcessing` selects the steps for the language.
  """

  def __init__(self, language: str, processing: TextProcessing):
    """Creates a processor.

    Args:
      language: Language code.
      processing: Settings for processing lines.

    Raises:
      ConfigError: If sacremoses or jieba is required but not installed.
    """
    code = language_codes.parse_language_code(language)
    self._steps = []
    if processing.moses:
      self._steps += _moses_steps(code.language, tokenize=code.uses_spaces)
    if processing.segment_chinese and code.is_chinese:
      self._steps.append(_segment_chinese)

  def __call__(self, line: str) -> str:
    """Processes a line. If the result is empty, the line is returned unchanged.

    With Moses for 'en', `It’s 1,000… isn't (it)?` becomes
    `It 's 1,000 ... isn 't ( it ) ?`. With segmentation for 'zh', `我来到北京清华大学。`
    becomes `我 来到 北京 清华大学 。`.
    """
    text = line
    for step in self._steps:
      text = step(text)
    return ' '.join(text.split()) or line


def split_sentences(text: str, language: str) -> list[str]:
  """Splits a text into sentences and drops the spaces between them.

  For example, `Dr. Smith went home. He slept!` in English becomes
  `Dr. Smith went home.`, `He slept!`.

  Raises:
    ConfigError: If sentencex is not installed.
  """
  sentencex = user_modules.import_optional(
    'sentencex',
    'Sentence splitting requires the package sentencex',
    fix='Run `pip install ".[web]"` in a checkout of xlflax.',
  )
  sentences: list[str] = []
  for segment in sentencex.segment(language_codes.short_code(language), text):
    sentences += map(str.strip, _SENTENCE_END.split(segment))
  return [sentence for sentence in sentences if sentence]


def _moses_steps(language: str, *, tokenize: bool) -> list:
  """Returns the steps of Moses processing as functions from text to text."""
  sacremoses = user_modules.import_optional(
    'sacremoses',
    'Moses processing requires the package sacremoses',
    fix='Run `pip install sacremoses`.',
  )
  normalizer = sacremoses.MosesPunctNormalizer(
    lang=language, pre_replace_unicode_punct=True
  )
  allowed = _JOINERS if tokenize else _JOINERS + _ZERO_WIDTH_SPACE
  steps = [
    normalizer.normalize,
    functools.partial(drop_unprintable, allowed=allowed),
  ]
  if tokenize:
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    steps.append(functools.partial(_tokenize, tokenizer))
  return steps


def _tokenize(tokenizer, text: str) -> str:
  """Tokenizes text by Moses rules, with support for combining marks.

  Moses' table of letters does not contain combining marks, joiners and scripts
  beyond the basic multilingual plane, so that each of these characters would
  become a token. They are therefore replaced by letters that do not occur in
  the text, and restored after tokenization.
  """
  missing_letters = sorted(
    {
      character
      for character in text
      if character in _JOINERS
      or unicodedata.category(character)[0] == 'M'
      or (ord(character) > 0xFFFF and character.isalnum())
    }
  )
  if not missing_letters:
    return tokenizer.tokenize(text, return_str=True, escape=False)
  unused = (c for c in map(chr, range(0x1200, 0x1249)) if c not in text)
  substitutes: dict[str, str | int | None] = dict(
    zip(missing_letters, unused, strict=False)
  )
  substituted = text.translate(str.maketrans(substitutes))
  tokenized = tokenizer.tokenize(substituted, return_str=True, escape=False)
  for mark, letter in substitutes.items():
    tokenized = tokenized.replace(str(letter), mark)
  return tokenized


def drop_unprintable(text: str, *, allowed: str = _JOINERS) -> str:
  """Replaces control and format characters with spaces.

  Args:
    text: Text in any script.
    allowed: Control and format characters that are not replaced.
  """
  if text.isprintable():
    return text
  return ''.join(
    ' ' if unicodedata.category(c)[0] == 'C' and c not in allowed else c
    for c in text
  )


def _segment_chinese(text: str) -> str:
  segmented = word_segmentation.chinese_words()(text)
  return re.sub(r'\s+', ' ', ' '.join(segmented))
