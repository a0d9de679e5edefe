"""Reads gettext catalogs, as text (.po) and compiled (.mo)."""

import ast
import dataclasses
import gettext
import pathlib
import re
import struct
from collections.abc import Iterable

from xlflax import errors

# The numbers for which singular and plural translations are looked up: the
# plural of 5 is the most common form where a language has several.
_ONE, _MANY = 1, 5
_FIELD = re.compile(
  r'(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s+(".*")\s*$'
)
_PLURAL_FORMS = re.compile(r'plural\s*=\s*([^;\n]+)')
_MO_MAGIC = 0x950412DE


@dataclasses.dataclass(frozen=True)
class Message:
  """One message: its source text and its translation."""

  source: str
  translation: str


def read_catalog(path: pathlib.Path) -> list[Message]:
  """The translated messages of one .po or .mo file.

  Fuzzy, obsolete and untranslated messages are left out. A message with
  plural forms gives two: the singular with the form for n = 1 and the plural
  with the form for n = 5.

  Raises:
    CorpusError: the file is no gettext catalog.
  """
  try:
    entries = list(
      _mo_entries(path) if path.suffix == '.mo' else _po_entries(path)
    )
    plural = gettext.c2py(_plural_rule(entries))
  except (ValueError, SyntaxError, KeyError, struct.error) as error:
    raise errors.CorpusError(
      'A message catalog cannot be read',
      got=error,
      expected='a gettext .po or .mo file in UTF-8',
      where=path,
      fix='reinstall the package it belongs to',
    ) from error
  return [
    message
    for entry in entries
    if entry['msgid']
    for message in _messages(entry, plural)
    if message.translation
  ]


def _messages(entry: dict[str, str], plural) -> list[Message]:
  if 'msgid_plural' not in entry:
    return [Message(entry['msgid'], entry.get('msgstr', ''))]
  return [
    Message(entry['msgid'], entry.get(f'msgstr[{plural(_ONE)}]', '')),
    Message(entry['msgid_plural'], entry.get(f'msgstr[{plural(_MANY)}]', '')),
  ]


def _plural_rule(entries: list[dict[str, str]]) -> str:
  for entry in entries:
    if not entry['msgid']:
      found = _PLURAL_FORMS.search(entry.get('msgstr', ''))
      if found:
        return found[1].strip()
  return 'n != 1'


def _po_entries(path: pathlib.Path) -> Iterable[dict[str, str]]:
  """Field name -> text of each entry that is not fuzzy."""
  entry: dict[str, str] = {}
  field, fuzzy = '', False
  for line in [*path.read_text(encoding='utf-8').splitlines(), '']:
    line = line.strip()
    # An entry ends at a blank line or where the next one begins.
    begins = line.startswith(('#', 'msgctxt')) or (
      line.startswith('msgid ') and 'msgid' in entry
    )
    if (not line or begins) and 'msgid' in entry:
      # The header is often marked fuzzy, and is needed all the same.
      if not fuzzy or not entry['msgid']:
        yield entry
      entry, field, fuzzy = {}, '', False
    if line.startswith('#'):
      fuzzy = fuzzy or (line.startswith('#,') and 'fuzzy' in line)
      continue
    found = _FIELD.match(line)
    if found:
      field = found[1]
      entry[field] = ast.literal_eval(found[2])
    elif line:
      entry[field] += ast.literal_eval(line)


def _mo_entries(path: pathlib.Path) -> Iterable[dict[str, str]]:
  """The same from the compiled format (GNU gettext manual, section 10.3)."""
  content = path.read_bytes()
  order = '<' if struct.unpack_from('<I', content)[0] == _MO_MAGIC else '>'
  magic, _, count, sources, targets = struct.unpack_from(f'{order}5I', content)
  if magic != _MO_MAGIC:
    raise ValueError('the magic number of .mo files is missing')

  def text(table: int, index: int) -> str:
    size, start = struct.unpack_from(f'{order}2I', content, table + 8 * index)
    return content[start : start + size].decode('utf-8')

  for index in range(count):
    entry = {'msgid': text(sources, index).rpartition('\x04')[2]}
    translation = text(targets, index)
    if '\0' in entry['msgid']:
      entry['msgid'], entry['msgid_plural'] = entry['msgid'].split('\0')[:2]
      entry |= {
        f'msgstr[{form}]': value
        for form, value in enumerate(translation.split('\0'))
      }
    else:
      entry['msgstr'] = translation
    yield entry
