"""Optional processing of plain text: Moses's, and Chinese segmentation.

That of ECS, which follows XLM: punctuation is normalised (Unicode's into
ASCII's, quotes, the spaces around them, numbers' separators), characters that
do not print are dropped, text is tokenised; Chinese is cut into words instead.
Source: Koehn et al., "Moses: Open Source Toolkit for Statistical Machine
Translation" (2007), through sacremoses.
"""

import dataclasses
import re
import unicodedata

from xlflax.data.corpus import segmentation
from xlflax.foundation import schema, user_modules

_JOINERS = '\u200c\u200d'


@schema.checked
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
    code = segmentation.primary(language)
    self._steps = []
    if processing.moses:
      self._steps += _moses_steps(
        code, tokenize=not segmentation.is_unsegmented(language)
      )
    if processing.segment_chinese and code in segmentation.CHINESE:
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
  sentencex = user_modules.optional(
    'sentencex',
    'Splitting text into sentences needs sentencex',
    fix="pip install '.[web]' in a checkout of xlflax",
  )
  found = sentencex.segment(segmentation.primary(language), text)
  return [part for sentence in found if (part := sentence.strip())]


def _moses_steps(language: str, *, tokenize: bool) -> list:
  """Functions from text to text."""
  sacremoses = user_modules.optional(
    'sacremoses',
    "Moses's processing needs sacremoses",
    fix='pip install sacremoses',
  )
  normalizer = sacremoses.MosesPunctNormalizer(
    lang=language, pre_replace_unicode_punct=True
  )
  steps = [normalizer.normalize, drop_unprintable]
  if tokenize:
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    steps.append(
      lambda text: tokenizer.tokenize(text, return_str=True, escape=False)
    )
  return steps


def drop_unprintable(text: str) -> str:
  """Makes control and format characters spaces.

  But not the joiners U+200C and U+200D, which Persian and Indic text needs.
  """
  if text.isprintable():
    return text
  return ''.join(
    ' ' if unicodedata.category(c)[0] == 'C' and c not in _JOINERS else c
    for c in text
  )


def _segment_chinese(text: str) -> str:
  words = segmentation.chinese_words()(text)
  return re.sub(r'\s+', ' ', ' '.join(words))
