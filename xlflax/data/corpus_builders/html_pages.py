"""Reader for folders of HTML pages whose paragraphs have ids."""

import html.parser
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from xlflax.storage import bucket_staging
from xlflax.utils import errors

# Elements whose content is a paragraph.
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
# Elements without an end tag.
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
# Elements whose content is not text.
_SILENT = frozenset(('script', 'style', 'noscript'))


class Page(NamedTuple):
  """HTML page in one language, split into paragraphs.

  Attributes:
    name: Name of the page, which is the same in all languages, such as
      'text/swriter/main0215.html'.
    paragraphs: Mapping from paragraph ids to single-line texts, in the order of
      the page.
  """

  name: str
  paragraphs: dict[str, str]


def read_folder(
  folder: pathlib.Path, *, element: str | None = None
) -> Iterator[Page]:
  """Yields all pages in a folder and its subfolders, ordered by name.

  Args:
    folder: Folder with files `**/*.html`. A file's path relative to the folder
      is the name of the page.
    element: Id of the element that contains the text. If None, the text of the
      entire page is read.

  Raises:
    CorpusError: If the folder contains no page, or if a page is not valid
      UTF-8.
  """
  folder = bucket_staging.stage_input(folder)
  files = sorted(folder.rglob('*.html'))
  if not files:
    raise errors.CorpusError(
      'The folder does not contain any HTML pages. It must contain files that '
      'match **/*.html',
      got=str(folder),
      fix='Pass a folder with the pages in one language, such as help/ru/text.',
    )
  for path in files:
    try:
      text = path.read_text(encoding='utf-8')
    except UnicodeDecodeError as error:
      raise errors.CorpusError(
        'The HTML page is not valid UTF-8', got=str(error), where=str(path)
      ) from error
    yield Page(
      path.relative_to(folder).as_posix(),
      parse_paragraphs(text, element=element),
    )


def parse_paragraphs(
  text: str, *, element: str | None = None
) -> dict[str, str]:
  """Returns a page's paragraphs as a mapping from ids to texts.

  For example, `<div id="a"><p id="1">One <b>two</b></p><p>x</p></div>` becomes
  `{'1': 'One two'}`. Paragraphs without an id and `hidden` elements are
  ignored. The text of a paragraph without words is ''. If an id occurs twice,
  the first paragraph is returned.

  Args:
    text: HTML source.
    element: Id of the element whose paragraphs are returned. If None, the
      paragraphs of the entire page are returned.
  """
  parser = _ParagraphParser(element)
  parser.feed(text)
  parser.close()
  return parser.paragraphs


class _ParagraphParser(html.parser.HTMLParser):
  """Parser that collects the text of blocks with an id.

  Attributes:
    paragraphs: Mapping from paragraph ids to single-line texts.
  """

  def __init__(self, element: str | None):
    super().__init__(convert_charrefs=True)
    self.paragraphs: dict[str, str] = {}
    self._element = element
    # Tags and roles of the open elements. A role is 'hidden', 'element',
    # 'paragraph', or '' for elements without a role.
    self._open_elements: list[tuple[str, str]] = []
    self._is_inside = element is None
    self._hidden_depth = 0
    self._paragraph_id: str | None = None
    self._texts: list[str] = []

  def handle_starttag(self, tag, attrs):
    if tag in _VOID:
      if tag == 'br':
        self._texts.append(' ')
      return

    if tag in _BLOCKS:
      self._texts.append(' ')
      # The end tag of the previous block is implied.
      if self._open_elements and self._open_elements[-1][0] in ('p', tag):
        self._close_element(self._open_elements.pop()[1])

    attributes = dict(attrs)
    role = ''
    if tag in _SILENT or 'hidden' in attributes:
      role = 'hidden'
      self._hidden_depth += 1
    elif not self._is_inside and attributes.get('id') == self._element:
      role = 'element'
      self._is_inside = True
    elif self._starts_paragraph(tag, attributes):
      role = 'paragraph'
      self._paragraph_id = attributes['id']
      self._texts = []
    self._open_elements.append((tag, role))

  def _starts_paragraph(self, tag: str, attributes: dict) -> bool:
    return bool(
      self._is_inside
      and not self._hidden_depth
      and self._paragraph_id is None
      and tag in _BLOCKS
      and attributes.get('id')
    )

  def handle_endtag(self, tag):
    if tag in _BLOCKS:
      self._texts.append(' ')
    if not any(tag == open_tag for open_tag, _ in self._open_elements):
      return
    while self._open_elements:
      open_tag, role = self._open_elements.pop()
      self._close_element(role)
      if open_tag == tag:
        return

  def _close_element(self, role: str) -> None:
    if role == 'hidden':
      self._hidden_depth -= 1
    elif role == 'element':
      self._is_inside = False
    elif role == 'paragraph':
      assert self._paragraph_id is not None
      line = ' '.join(''.join(self._texts).split())
      self.paragraphs.setdefault(self._paragraph_id, line)
      self._paragraph_id = None

  def handle_data(self, data):
    if self._paragraph_id is not None and not self._hidden_depth:
      self._texts.append(data)

  def close(self):
    super().close()
    # Elements without an end tag end with the page.
    while self._open_elements:
      self._close_element(self._open_elements.pop()[1])
