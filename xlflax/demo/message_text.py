"""Conversion of user-interface messages to plain sentences."""

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
# Replaces placeholders. No message contains this private use character.
_MARK = '\ue000'
_MARK_IN_WORD = re.compile(f'[^\\W_]{_MARK}|{_MARK}[^\\W_]')
_INVISIBLE = '\N{LEFT-TO-RIGHT MARK}\N{RIGHT-TO-LEFT MARK}\N{SOFT HYPHEN}'
_DELETE_INVISIBLE = {ord(character): None for character in _INVISIBLE}


def plain_text(message: str) -> str:
  """Removes placeholders, markup and keyboard accelerators from a UI message.

  For example, `<b>The %(name)s “%(obj)s” was &amp; is deleted.</b>` becomes
  `The was & is deleted.` Spaces are collapsed, and empty quotes and brackets
  are removed. The result is '' if no letter remains.
  """
  text = html.unescape(_TAG.sub(' ', message))
  text = _TAG.sub(' ', text).translate(_DELETE_INVISIBLE)
  text = _PLACEHOLDER.sub(' ', text).replace('%%', '%')
  text = _ACCELERATOR.sub('', text)
  text = _EMPTY_QUOTES.sub(' ', text)
  text = _SPACE_BEFORE.sub(r'\1', ' '.join(text.split()))
  text = _COLON_BEFORE.sub('', text)
  text = text.strip(' -–—:,;/=')
  return text if _LETTER.search(text) else ''


def is_fragment(source: str) -> bool:
  """Returns whether a message has a placeholder inside a word, as in `{}th`."""
  return _MARK_IN_WORD.search(_PLACEHOLDER.sub(_MARK, source)) is not None


def normalize(text: str) -> str:
  """Returns a text's case-folded letters and digits, for comparisons.

  Other characters are replaced by single spaces. For example,
  `Enter a valid URL.` becomes `enter a valid url`.
  """
  text = unicodedata.normalize('NFKC', text).casefold()
  characters = (
    character if unicodedata.category(character)[0] in 'LMN' else ' '
    for character in text
  )
  return ' '.join(''.join(characters).split())
