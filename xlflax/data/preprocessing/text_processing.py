"""Optional processing of plain text: Moses's, and Chinese segmentation.

That of ECS, which follows XLM: punctuation is normalised (Unicode's into
ASCII's, quotes, the spaces around them, numbers' separators), characters that
do not print are dropped, text is tokenised; Chinese is cut into words instead.
Source: Koehn et al., "Moses: Open Source Toolkit for Statistical Machine
Translation" (2007), through sacremoses.
"""

import dataclasses
import functools
import re
import unicodedata

from xlflax.data.corpus import language_codes, word_segmentation
from xlflax.utils import user_modules, validation

# Joiners inside words of Persian and Indic text.
_JOINERS = '\u200c\u200d'
# Separates words of Khmer, Thai and Burmese without a visible space.
_ZERO_WIDTH_SPACE = '\u200b'
# Ends of sentences in Khmer and Tibetan, for which sentencex has no rules.
_SENTENCE_END = re.compile('(?<=[\u17d4\u17d5])\\s*|(?<=[\u0f0d\u0f0e])\\s+')


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcessing:
  """What is done to every line.

  Attributes:
    moses: normalise punctuation, drop control characters, and tokenise.
      Languages without spaces between words are not tokenised.
    segment_chinese: cut Chinese into words by jieba.
    split_sentences: a line of monolingual text becomes a line for each of its
      sentences, before all else; by sentencex, which has rules of many
      languages and takes those of a related one for others. Pairs stay.
  """

  moses: bool = False
  segment_chinese: bool = False
  split_sentences: bool = False


class Processor:
  """Processes lines of one language."""

  def __init__(self, language: str, processing: TextProcessing):
    """Makes a processor.

    Raises:
      ConfigError: sacremoses or jieba is needed and not installed.
    """
    code = language_codes.parse_language_code(language)
    self._steps = []
    if processing.moses:
      self._steps += _moses_steps(code.language, tokenize=code.uses_spaces)
    if processing.segment_chinese and code.is_chinese:
      self._steps.append(_segment_chinese)

  def __call__(self, line: str) -> str:
    """One processed line; a line of which nothing is left stays as it is.

    With Moses for 'en', before: `It’s 1,000… isn't (it)?`; after:
    `It 's 1,000 ... isn 't ( it ) ?`. With segmentation for 'zh', before:
    `我来到北京清华大学。`; after: `我 来到 北京 清华大学 。`.
    """
    text = line
    for step in self._steps:
      text = step(text)
    return ' '.join(text.split()) or line


def sentences_of(text: str, language: str) -> list[str]:
  """The sentences of a text, without the spaces between them.

  Before, in English: `Dr. Smith went home. He slept!`; after: `Dr. Smith went
  home.`, `He slept!`.

  Raises:
    ConfigError: sentencex is not installed.
  """
  sentencex = user_modules.import_optional(
    'sentencex',
    'Splitting text into sentences needs sentencex',
    fix="pip install '.[web]' in a checkout of xlflax",
  )
  sentences = sentencex.segment(language_codes.short_code(language), text)
  return [
    stripped
    for sentence in sentences
    for part in _SENTENCE_END.split(sentence)
    if (stripped := part.strip())
  ]


def _moses_steps(language: str, *, tokenize: bool) -> list:
  """Functions from text to text."""
  sacremoses = user_modules.import_optional(
    'sacremoses',
    "Moses's processing needs sacremoses",
    fix='pip install sacremoses',
  )
  normalizer = sacremoses.MosesPunctNormalizer(
    lang=language, pre_replace_unicode_punct=True
  )
  kept = _JOINERS if tokenize else _JOINERS + _ZERO_WIDTH_SPACE
  steps = [normalizer.normalize, functools.partial(drop_unprintable, kept=kept)]
  if tokenize:
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    steps.append(functools.partial(_tokenize, tokenizer))
  return steps


def _tokenize(tokenizer, text: str) -> str:
  """Tokenizes text without splitting words at characters unknown to Moses.

  Moses' table of letters lacks combining marks, joiners and scripts beyond the
  basic multilingual plane, and would make each of them a token. They are
  replaced by letters that do not occur in the text, and back.
  """
  unknown = sorted(
    {
      character
      for character in text
      if character in _JOINERS
      or unicodedata.category(character)[0] == 'M'
      or (ord(character) > 0xFFFF and character.isalnum())
    }
  )
  if not unknown:
    return tokenizer.tokenize(text, return_str=True, escape=False)
  unused = (c for c in map(chr, range(0x1200, 0x1249)) if c not in text)
  substitutes: dict[str, str | int | None] = dict(
    zip(unknown, unused, strict=False)
  )
  substituted = text.translate(str.maketrans(substitutes))
  tokenized = tokenizer.tokenize(substituted, return_str=True, escape=False)
  for mark, letter in substitutes.items():
    tokenized = tokenized.replace(str(letter), mark)
  return tokenized


def drop_unprintable(text: str, *, kept: str = _JOINERS) -> str:
  """Replaces control and format characters by spaces, except those in `kept`."""
  if text.isprintable():
    return text
  return ''.join(
    ' ' if unicodedata.category(c)[0] == 'C' and c not in kept else c
    for c in text
  )


def _segment_chinese(text: str) -> str:
  segmented = word_segmentation.chinese_words()(text)
  return re.sub(r'\s+', ' ', ' '.join(segmented))
