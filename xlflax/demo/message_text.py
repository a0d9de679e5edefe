"""Turns messages of a user interface into plain sentences."""

import html
import re
import unicodedata

# %(name)s, %(count)d, %s, %1$d, %.2f and {name}, {0}, {x:.2f}.
_PLACEHOLDER = re.compile(
  r'%\(\w+\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]'
  r'|(?<!%)%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa](?![a-zA-Z])'
  r'|\{[\w.\[\]]*(?:![rsa])?(?::[^{}]*)?\}'
)
_TAG = re.compile(r'</?[a-zA-Z][^<>]*>')
# `(&F)` and `(_F)`, as East Asian translations write it, `&File`, `_File`.
_ACCELERATOR = re.compile(
  r'\s*[(（][&_]\w[)）]|(?<!\w)&(?=[^\W_])|(?<!\w)_(?=[^\W_]+\b(?!_))'
)
_EMPTY_QUOTES = re.compile(
  r'“\s*”|„\s*[“”]|«\s*»|»\s*«|‘\s*’|‚\s*[‘’]|「\s*」|『\s*』|《\s*》|"\s*"'
  r"|(?<!\w)'\s*'(?!\w)|[(（]\s*[)）]|\[\s*\]|”\s*”|’\s*’|`[\s.]*`"
)
_SPACE_BEFORE = re.compile(r'\s+([,.;:!?)…。、，؟،；：！？])(?!\w)')
_COLON_BEFORE = re.compile(r'\s*[:：]\s*(?=[.。]$)')
_LETTER = re.compile(r'[^\W\d_]')
# Stands for a placeholder; a private character, so not in any message.
_MARK = '\ue000'
_GLUED = re.compile(f'[^\\W_]{_MARK}|{_MARK}[^\\W_]')
_NEVER = '\N{LEFT-TO-RIGHT MARK}\N{RIGHT-TO-LEFT MARK}\N{SOFT HYPHEN}'
_DELETED = {ord(character): None for character in _NEVER}


def plain_text(message: str) -> str:
  """The message without placeholders, markup and accelerators.

  Before: `<b>The %(name)s “%(obj)s” was &amp; is deleted.</b>`; after:
  `The was & is deleted.` Spaces are collapsed, empty quotes and brackets
  removed. The result is '' if no letter is left.
  """
  text = html.unescape(_TAG.sub(' ', message))
  text = _TAG.sub(' ', text).translate(_DELETED)
  text = _PLACEHOLDER.sub(' ', text).replace('%%', '%')
  text = _ACCELERATOR.sub('', text)
  text = _EMPTY_QUOTES.sub(' ', text)
  text = _SPACE_BEFORE.sub(r'\1', ' '.join(text.split()))
  text = _COLON_BEFORE.sub('', text)
  text = text.strip(' -–—:,;/=')
  return text if _LETTER.search(text) else ''


def is_fragment(source: str) -> bool:
  """Whether a placeholder stands inside a word, as in `{}th`."""
  return _GLUED.search(_PLACEHOLDER.sub(_MARK, source)) is not None


def normalise(text: str) -> str:
  """Letters and digits in lower case with single spaces: equal means the same.

  Before: `Enter a valid URL.`; after: `enter a valid url`.
  """
  text = unicodedata.normalize('NFKC', text).casefold()
  kept = (
    character if unicodedata.category(character)[0] in 'LMN' else ' '
    for character in text
  )
  return ' '.join(''.join(kept).split())
