"""Folders of gettext catalogs, read as pages with the same ids."""

import html
import pathlib
import re

from xlflax.data.corpus import word_segmentation
from xlflax.data.corpus_builders import gettext_catalogs
from xlflax.data.corpus_builders.html_pages import Page
from xlflax.storage import bucket_staging
from xlflax.utils import errors

# Letters with their combining marks, which `\w` lacks.
_LETTER = rf'(?:[^\W\d_]|[{word_segmentation.combining_marks()}])'
_SMALL = rf'(?:[^\W\dA-Z_]|[{word_segmentation.combining_marks()}])'
# Keyboard shortcuts of GTK and Qt. A message has at most one: before a letter at
# the beginning of a word, within a word before a small letter, or in brackets
# after the text, as translations into Asian languages have it: `保存(_S)`.
_MARK = re.compile(r'[_&](?=\w)')
_BRACKETS = re.compile(r'\s*[(（\[][_&]\w[)）\]]')
_SHORTCUT = re.compile(
  rf'(?<!\w)[_&](?=\w)|(?<!\S)({_LETTER}+)[_&](?={_SMALL}+[.:…]*(?!\S))'
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
  folder = bucket_staging.stage_input(folder)
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
      for message in gettext_catalogs.read_catalog(path)
    ]
    translated.append(Page(name, dict(messages)))
    original.append(Page(name, {source: source for source, _ in messages}))
  return translated, original


def _line(text: str) -> str:
  """Returns a text on one line, without the mark of a keyboard shortcut.

  `Sa_ve as…` becomes `Save as…`, `保存(_S)…` becomes `保存…`; `&amp; R&D` becomes
  `& R&D` and `my_file.txt` stays.
  """
  text = html.unescape(text)
  if len(_MARK.findall(text)) == 1:
    text = _BRACKETS.sub('', text)
    text = _SHORTCUT.sub(lambda found: found[1] or '', text)
  return ' '.join(text.split())
