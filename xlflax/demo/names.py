"""Dictionaries of names from pycountry's catalogs."""

import pathlib

from xlflax.demo import message_catalog

_DOMAINS = ('iso3166-1', 'iso4217', 'iso15924', 'iso639-5')
_LOCALES = {'zh': 'zh_CN', 'pt': 'pt_BR', 'no': 'nb_NO'}
_MAX_WORDS = 3


def dictionary(language: str, locales: pathlib.Path) -> dict[str, str]:
  """English name -> its name in `language`: countries, currencies, scripts.

  Names of more than three words and explanations in brackets are left out,
  and names without a translation of their own. A language that pycountry
  does not know has an empty dictionary.

  Args:
    language: language code.
    locales: pycountry's folder `locales`.
  """
  folder = locales / _LOCALES.get(language, language) / 'LC_MESSAGES'
  found: dict[str, str] = {}
  for path in (folder / f'{domain}.mo' for domain in _DOMAINS):
    if not path.exists():
      continue
    for message in message_catalog.read_catalog(path):
      pair = (message.source.strip(), message.translation.strip())
      if pair[0] != pair[1] and all(map(_is_name, pair)):
        found.setdefault(*pair)
  return found


def _is_name(text: str) -> bool:
  return 0 < len(text.split()) <= _MAX_WORDS and not any(
    character in text for character in '(;,\t\n'
  )
