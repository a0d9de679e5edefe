"""Reader for text (.po) and compiled (.mo) gettext catalogs, based on polib."""

import collections
import dataclasses
import gettext
import pathlib
import re
import struct
from collections.abc import Iterator

from xlflax.utils import errors

# Numbers for which singular and plural translations are looked up. The plural
# form for 5 is the most common one in languages with several plural forms.
_SINGULAR_NUMBER = 1
_PLURAL_NUMBER = 5
_PLURAL_FORMS = re.compile(r'plural\s*=\s*([^;\n]+)')

_NAME_DOMAINS = ('iso3166-1', 'iso4217', 'iso15924', 'iso639-5')
_NAME_LOCALES = {'zh': 'zh_CN', 'pt': 'pt_BR', 'no': 'nb_NO'}
_MAX_WORDS_PER_NAME = 3


@dataclasses.dataclass(frozen=True)
class Message:
  """Message of a gettext translation catalog: source text and translation."""

  source: str
  translation: str


def read_catalog(
  path: pathlib.Path, dropped: collections.Counter[str] | None = None
) -> list[Message]:
  """Returns the translated messages in a .po or .mo file.

  Fuzzy, obsolete and untranslated messages are dropped. A message with plural
  forms gives two messages: the singular text with the translation for n = 1,
  and the plural text with the translation for n = 5.

  Args:
    path: Path of the catalog.
    dropped: Counter of dropped messages by reason ('fuzzy', 'obsolete' or 'no
      translation'). The function updates it. If None, dropped messages are not
      counted.

  Raises:
    CorpusError: If the file is not a gettext catalog.
  """
  import polib

  open_catalog = polib.mofile if path.suffix == '.mo' else polib.pofile
  try:
    catalog = open_catalog(str(path), encoding='utf-8')
    plural = gettext.c2py(_plural_rule(catalog.metadata))
    messages = []
    for entry in catalog:
      for message in _messages(entry, plural):
        reason = _find_drop_reason(entry, message)
        if reason is None:
          messages.append(message)
        elif dropped is not None:
          dropped[reason] += 1
    return messages
  except (OSError, ValueError, KeyError, struct.error) as error:
    raise errors.CorpusError(
      'The message catalog cannot be read. It must be a gettext file (.po or '
      '.mo) in UTF-8',
      got=error,
      where=path,
      fix='Reinstall the software package that contains the file.',
    ) from error


def read_names(language: str, locales: pathlib.Path) -> dict[str, str]:
  """Returns pycountry's translations of English names, such as country names.

  These are names of countries, currencies, scripts and language families. A
  name is dropped if it has more than three words, if it contains an explanation
  in brackets, or if its translation equals the English name. The result is
  empty if pycountry does not support the language.

  Args:
    language: Language code.
    locales: Path of pycountry's folder `locales`.
  """
  locale = _NAME_LOCALES.get(language, language)
  translations: dict[str, str] = {}
  for domain in _NAME_DOMAINS:
    path = locales / locale / 'LC_MESSAGES' / f'{domain}.mo'
    if not path.exists():
      continue
    for message in read_catalog(path):
      pair = (message.source.strip(), message.translation.strip())
      if pair[0] != pair[1] and all(map(_is_name, pair)):
        translations.setdefault(*pair)
  return translations


def _plural_rule(metadata: dict[str, str]) -> str:
  """Returns a catalog's C expression that selects a plural form.

  If there is no expression, the English expression is returned.
  """
  match = _PLURAL_FORMS.search(metadata.get('Plural-Forms', ''))
  return match[1].strip() if match else 'n != 1'


def _messages(entry, plural) -> Iterator[Message]:
  """Yields the messages of a catalog entry: singular and, if any, plural."""
  if not entry.msgid_plural:
    yield Message(entry.msgid, entry.msgstr)
    return
  forms = entry.msgstr_plural
  yield Message(entry.msgid, forms.get(plural(_SINGULAR_NUMBER), ''))
  yield Message(entry.msgid_plural, forms.get(plural(_PLURAL_NUMBER), ''))


def _find_drop_reason(entry, message: Message) -> str | None:
  """Returns the reason to drop a message of an entry, or None to keep it."""
  if entry.obsolete:
    return 'obsolete'
  if 'fuzzy' in entry.flags:
    return 'fuzzy'
  return None if message.translation else 'no translation'


def _is_name(text: str) -> bool:
  has_valid_length = 0 < len(text.split()) <= _MAX_WORDS_PER_NAME
  return has_valid_length and not any(c in text for c in '(;,\t\n')
