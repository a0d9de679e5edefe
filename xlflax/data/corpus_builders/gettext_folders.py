"""Reader that converts the gettext catalogs in a folder to pages of text."""

import collections
import html
import pathlib
import re

from xlflax.data.corpus import word_segmentation
from xlflax.data.corpus_builders import gettext_catalogs
from xlflax.data.corpus_builders.html_pages import Page
from xlflax.storage import bucket_staging
from xlflax.utils import errors

# Letters with their combining marks, which `\w` does not match.
_LETTER = rf'(?:[^\W\d_]|[{word_segmentation.combining_marks()}])'
_SMALL = rf'(?:[^\W\dA-Z_]|[{word_segmentation.combining_marks()}])'
# Marks of keyboard shortcuts in GTK and Qt. A message has at most one mark:
# before a letter at the beginning of a word, within a word before a lowercase
# letter, or in brackets after the text, as in translations into Asian
# languages: `保存(_S)`.
_MARK = re.compile(r'[_&](?=\w)')
_BRACKETS = re.compile(r'\s*[(（\[][_&]\w[)）\]]')
_SHORTCUT = re.compile(
  rf'(?<!\w)[_&](?=\w)|(?<!\S)({_LETTER}+)[_&](?={_SMALL}+[.:…]*(?!\S))'
)


def read_folder(
  folder: pathlib.Path, dropped: collections.Counter[str] | None = None
) -> tuple[list[Page], list[Page]]:
  """Reads gettext catalogs as pages of translations and pages of source texts.

  Each catalog is one page of each kind. The source text of a message is its id.

  Args:
    folder: Folder with files `**/*.po` or `**/*.mo` in one language. A file's
      path relative to the folder is the name of the page.
    dropped: Counter of dropped messages by reason. The function updates it
      (`gettext_catalogs.read_catalog`).

  Raises:
    CorpusError: If the folder contains no catalog, or if a catalog cannot be
      read.
  """
  folder = bucket_staging.stage_input(folder)
  files = sorted({*folder.rglob('*.po'), *folder.rglob('*.mo')})
  if not files:
    raise errors.CorpusError(
      'The folder does not contain any gettext catalogs. It must contain files '
      'that match **/*.po or **/*.mo',
      got=str(folder),
      fix='Pass a folder with catalogs in one language.',
    )
  translated_pages, source_pages = [], []
  for path in files:
    name = path.relative_to(folder).with_suffix('').as_posix()
    messages = [
      (_clean_message(message.source), _clean_message(message.translation))
      for message in gettext_catalogs.read_catalog(path, dropped)
    ]
    translated_pages.append(Page(name, dict(messages)))
    source_pages.append(Page(name, {source: source for source, _ in messages}))
  return translated_pages, source_pages


def _clean_message(text: str) -> str:
  """Returns a message on one line, without the mark of a keyboard shortcut.

  For example, `Sa_ve as…` becomes `Save as…`, `保存(_S)…` becomes `保存…`, and
  `&amp; R&D` becomes `& R&D`. `my_file.txt` is not changed.
  """
  text = html.unescape(text)
  if len(_MARK.findall(text)) == 1:
    text = _BRACKETS.sub('', text)
    text = _SHORTCUT.sub(lambda match: match[1] or '', text)
  return ' '.join(text.split())
