"""Folders of gettext catalogs, read as pages with the same ids."""

import html
import pathlib
import re

from xlflax.data.aligned import message_catalog
from xlflax.data.aligned.pages import Page
from xlflax.foundation import errors
from xlflax.storage import mirrors

# Of GTK and Qt: one a message, before a letter; within a word before a small
# one.
_MARK = re.compile(r'[_&](?=\w)')
_SHORTCUT = re.compile(
  r'(?<!\w)[_&](?=\w)|(?<!\S)([^\W\d_]+)[_&](?=[^\W\dA-Z_]+[.:…]*(?!\S))'
)


def read_folder(folder: pathlib.Path) -> tuple[list[Page], list[Page]]:
  """Returns the pages of a language and those that they translate.

  A catalog is a page; a message's source text is its id.

  Args:
    folder: holds `**/*.po` or `**/*.mo` of one language; the path below it is
      a page's name.

  Raises:
    CorpusError: there is no catalog, or one cannot be read.
  """
  folder = mirrors.here(folder)
  files = sorted({*folder.rglob('*.po'), *folder.rglob('*.mo')})
  if not files:
    raise errors.CorpusError(
      'A folder holds no gettext catalogs',
      got=str(folder),
      expected='files **/*.po or **/*.mo of one language',
    )
  translated, original = [], []
  for path in files:
    name = path.relative_to(folder).with_suffix('').as_posix()
    messages = [
      (_line(message.source), _line(message.translation))
      for message in message_catalog.read_catalog(path)
    ]
    translated.append(Page(name, dict(messages)))
    original.append(Page(name, {source: source for source, _ in messages}))
  return translated, original


def _line(text: str) -> str:
  """Text on one line, without the mark of a keyboard shortcut.

  Before: `Sa_ve as…`, `&amp; R&D`, `my_file.txt`; after: `Save as…`, `& R&D`,
  `my_file.txt`.
  """
  text = html.unescape(text)
  if len(_MARK.findall(text)) == 1:
    text = _SHORTCUT.sub(lambda found: found[1] or '', text)
  return ' '.join(text.split())
