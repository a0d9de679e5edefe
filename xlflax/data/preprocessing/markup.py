"""Detection and removal of HTML markup and program code in lines of text.

Only elements of the HTML standard are markup. Other text in angle brackets,
such as `<unk>` or `a < b`, is preserved. `html.parser` is not used, because it
treats all of these as tags and requires complete documents. A document in a
corpus can be part of a page, and an element can extend over several of its
lines.
"""

import html
import html.entities
import re

# Elements of the HTML standard and its obsolete elements. Their content is
# text, which is separated from the surrounding text by a space.
_BLOCK_ELEMENTS = (
  *('address', 'applet', 'area', 'article', 'aside', 'audio', 'base'),
  *('basefont', 'blockquote', 'body', 'br', 'button', 'caption', 'center'),
  *('col', 'colgroup', 'datalist', 'dd', 'details', 'dialog', 'dir', 'div'),
  *('dl', 'dt', 'embed', 'fieldset', 'figcaption', 'figure', 'footer', 'form'),
  *('frame', 'frameset', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'head', 'header'),
  *('hgroup', 'hr', 'html', 'img', 'input', 'label', 'legend', 'li', 'link'),
  *('main', 'map', 'menu', 'meta', 'meter', 'nav', 'noframes', 'ol'),
  *('optgroup', 'option', 'output', 'p', 'param', 'picture', 'pre'),
  *('progress', 'section', 'select', 'source', 'summary', 'table', 'tbody'),
  *('td', 'textarea', 'tfoot', 'th', 'thead', 'title', 'tr', 'track', 'ul'),
  'video',
)
# Elements within a word or sentence, which are removed without a trace.
_INLINE_ELEMENTS = (
  *('a', 'abbr', 'acronym', 'b', 'bdi', 'bdo', 'big', 'cite', 'code', 'data'),
  *('del', 'dfn', 'em', 'font', 'i', 'ins', 'kbd', 'mark', 'q', 's', 'samp'),
  *('small', 'span', 'strike', 'strong', 'sub', 'sup', 'time', 'tt', 'u'),
  *('var', 'wbr'),
)
# Elements with content that is not text of the page.
_HIDDEN_ELEMENTS = (
  *('canvas', 'iframe', 'noscript', 'object', 'script', 'style', 'svg'),
  'template',
)
_NAMES = '|'.join((*_BLOCK_ELEMENTS, *_INLINE_ELEMENTS, *_HIDDEN_ELEMENTS))
_MARKUP = re.compile(
  rf"""
  (?P<comment> <!-- )
  | <!doctype\b[^<>]*+> | <\?xml\b[^<>]*+> | <!\[CDATA\[ | \]\]>
  | <(?P<end>/?)(?P<name>{_NAMES})
    (?: (?:[\s/](?:[^<>"']|"[^"]*+"|'[^']*+')*+)?>
      | \s[^<>]*+>
      | (?P<unclosed> \s+[\w:-]+\s*+=[^<>]*+$ ) )
  """,
  re.IGNORECASE | re.VERBOSE,
)
_CHARACTER_REFERENCE = re.compile(r'&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z]\w*);')
_COMMENT_END = re.compile('-->')
_TAG_END = re.compile('>')
_END_TAGS = {
  name: re.compile(rf'</{name}\s*>', re.IGNORECASE) for name in _HIDDEN_ELEMENTS
}
# Maximum number of lines of an element, comment or tag that is not closed.
_MAX_HIDDEN_LINES = 500

# Statements of JavaScript, rules of CSS, and JSON objects.
_CODE = re.compile(
  r"""
  \bfunction\s*[\w$]*\s*\([^()]*\)\s*\{
  | (?:^|[;{}(]\s*)(?:var|let|const)\s+[\w$]+\s*=
  | (?:^|[^\w.])(?:window|document|console|jQuery|localStorage|navigator)
    (?:\.[\w$]+)+\s*[(=\[]
  | \$\(\s*(?:['"]|document\b|window\b|function\b|this\b)
  | \)\s*=>\s*[{(]
  | \b(?:if|for|while|switch|catch)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\{
  | ^\s*[\w$]+(?:\.[\w$]+)*\((?:[^()]|\([^()]*\))*+\)\s*;\s*$
  | ^\s*(?:@media\b|@import\b|@font-face\b)
  | ^\s*[\w\s.\#:,>*\[\]="'()-]+\{\s*(?:[\w-]+\s*:[^{};]+;?\s*)+\}
  | ^\s*(?:-\w+-)?(?:background|border|color|display|float|font|height|margin
    |max-width|opacity|overflow|padding|position|text-align|width|z-index)
    (?:-[a-z]+)*\s*:\s*[^;{}]+;\s*\}?\s*$
  | ^\s*[\[{]+\s*"[^"]+"\s*:
  """,
  re.VERBOSE,
)


def has_markup(line: str) -> bool:
  """Returns whether a line contains HTML tags or character references.

  For example, `5 < 6 & 7 <unk>` has no markup, but `<b>5</b>` and `a&nbsp;b`
  have markup.
  """
  if '<' in line and _MARKUP.search(line):
    return True
  return '&' in line and any(
    _is_character_reference(match[0])
    for match in _CHARACTER_REFERENCE.finditer(line)
  )


def is_code(line: str) -> bool:
  """Returns whether a line contains JavaScript, a CSS rule or a JSON object.

  For example, `window.dataLayer = window.dataLayer || [];` is code.
  """
  return _CODE.search(line) is not None


class MarkupRemover:
  """Removes HTML markup from a document whose lines are passed in order.

  Tags and comments are removed. Elements such as `script` and `style` are
  removed with their content, which may extend over several lines. Character
  references are replaced by their characters.
  """

  def __init__(self):
    self.start_document()

  def start_document(self) -> None:
    """Resets the state at the start of a new document."""
    # Pattern that ends the current comment, tag or hidden element.
    self._end: re.Pattern | None = None
    self._num_hidden_lines = 0

  def remove(self, line: str) -> str:
    """Removes the markup from a line. The result is '' if no text remains.

    For example, `<p>One<br>two</p><script>x()</script>` becomes `One two`.
    """
    if self._end is None and '<' not in line and '&' not in line:
      return line
    if self._end is not None:
      self._num_hidden_lines += 1
      if self._num_hidden_lines > _MAX_HIDDEN_LINES:
        self.start_document()
    chunks = []
    position = 0
    while True:
      if self._end is not None:
        match = self._end.search(line, position)
        if match is None:
          break
        position = match.end()
        self.start_document()
      match = _MARKUP.search(line, position)
      chunks.append(line[position : match.start() if match else None])
      if match is None:
        break
      chunks.append(self._open_element(match))
      position = match.end()
    if chunks == [line] and '&' not in line:
      return line
    text = _CHARACTER_REFERENCE.sub(
      lambda reference: html.unescape(reference[0]), ''.join(chunks)
    )
    return ' '.join(text.split())

  def _open_element(self, match: re.Match) -> str:
    """Updates the state for a tag, and returns the text that replaces it."""
    name = (match['name'] or '').lower()
    if match['comment']:
      self._end = _COMMENT_END
    elif match['unclosed']:
      self._end = _TAG_END
    elif name in _END_TAGS and not match['end'] and not match[0].endswith('/>'):
      self._end = _END_TAGS[name]
    return '' if name in _INLINE_ELEMENTS else ' '


def _is_character_reference(text: str) -> bool:
  return text[1] == '#' or text[1:] in html.entities.html5
