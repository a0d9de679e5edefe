"""Folders of HTML pages whose paragraphs have the same ids in each language."""

import html.parser
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from xlflax.storage import bucket_staging
from xlflax.utils import errors

# Elements that hold a paragraph of their own.
_BLOCKS = frozenset(
  {
    'p',
    'h1',
    'h2',
    'h3',
    'h4',
    'h5',
    'h6',
    'li',
    'td',
    'th',
    'dt',
    'dd',
    'caption',
    'pre',
  }
)
_VOID = frozenset(
  {
    'br',
    'hr',
    'img',
    'input',
    'link',
    'meta',
    'area',
    'base',
    'col',
    'wbr',
    'source',
  }
)
_SILENT = frozenset(('script', 'style', 'noscript'))


class Page(NamedTuple):
  """A page of one language.

  Attributes:
    name: the same in all languages, such as 'text/swriter/main0215.html'.
    paragraphs: id -> text on one line, in the order of the page.
  """

  name: str
  paragraphs: dict[str, str]


def read_folder(
  folder: pathlib.Path, *, element: str | None = None
) -> Iterator[Page]:
  """Yields the pages below a folder, in the order of their names.

  Args:
    folder: holds `**/*.html`; the path below it is a page's name.
    element: id of the element that holds the text; None: all of the page.

  Raises:
    CorpusError: there is no page, or one is not UTF-8.
  """
  folder = bucket_staging.stage_input(folder)
  files = sorted(folder.rglob('*.html'))
  if not files:
    raise errors.CorpusError(
      'A folder holds no HTML pages',
      got=str(folder),
      expected='files **/*.html',
      fix='name the folder of one language, such as help/ru/text',
    )
  for path in files:
    try:
      text = path.read_text(encoding='utf-8')
    except UnicodeDecodeError as error:
      raise errors.CorpusError(
        'A page is not UTF-8', got=str(error), where=str(path)
      ) from error
    yield Page(
      path.relative_to(folder).as_posix(),
      parse_paragraphs(text, element=element),
    )


def parse_paragraphs(
  text: str, *, element: str | None = None
) -> dict[str, str]:
  """Returns id -> text of the paragraphs of a page.

  Before: `<div id="a"><p id="1">One <b>two</b></p><p>x</p></div>`; after:
  `{'1': 'One two'}`. What has no id of its own and what is `hidden` is left
  out; of an id that comes twice the first counts.

  Args:
    text: HTML.
    element: id of the element whose paragraphs count; None: all.
  """
  reader = _Reader(element)
  reader.feed(text)
  reader.close()
  return {name: line for name, line in reader.found.items() if line}


class _Reader(html.parser.HTMLParser):
  """Collects the text of blocks that have an id."""

  def __init__(self, element: str | None):
    super().__init__(convert_charrefs=True)
    self.found: dict[str, str] = {}
    self._element = element
    # Open elements: tag, its part in the reading.
    self._open: list[tuple[str, str]] = []
    self._inside = element is None
    self._hidden = 0
    self._name: str | None = None
    self._parts: list[str] = []

  def handle_starttag(self, tag, attrs):
    if tag in _VOID:
      if tag == 'br':
        self._parts.append(' ')
      return
    if tag in _BLOCKS:
      self._parts.append(' ')
      if self._open and self._open[-1][0] in ('p', tag):  # its end is implied
        self._close_part(self._open.pop()[1])
    attributes = dict(attrs)
    part = ''
    if tag in _SILENT or 'hidden' in attributes:
      part = 'hidden'
      self._hidden += 1
    elif not self._inside and attributes.get('id') == self._element:
      part, self._inside = 'element', True
    elif self._starts_paragraph(tag, attributes):
      part, self._name, self._parts = 'paragraph', attributes['id'], []
    self._open.append((tag, part))

  def _starts_paragraph(self, tag: str, given: dict) -> bool:
    return bool(
      self._inside
      and not self._hidden
      and self._name is None
      and tag in _BLOCKS
      and given.get('id')
    )

  def handle_endtag(self, tag):
    if tag in _BLOCKS:
      self._parts.append(' ')
    if not any(tag == name for name, _ in self._open):
      return
    while self._open:
      name, part = self._open.pop()
      self._close_part(part)
      if name == tag:
        return

  def _close_part(self, part: str) -> None:
    if part == 'hidden':
      self._hidden -= 1
    elif part == 'element':
      self._inside = False
    elif part == 'paragraph':
      assert self._name is not None
      line = ' '.join(''.join(self._parts).split())
      self.found.setdefault(self._name, line)
      self._name = None

  def handle_data(self, data):
    if self._name is not None and not self._hidden:
      self._parts.append(data)

  def close(self):
    super().close()
    while self._open:  # elements that the page leaves open
      self._close_part(self._open.pop()[1])
