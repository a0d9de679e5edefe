"""What the README.md of a published model says about it."""

import pathlib
import re
from collections.abc import Sequence
from typing import Any

from xlflax.data.corpus import language_codes
from xlflax.utils import errors, name_suggestions

# The identifiers that the Hub's model cards may name.
LICENSES = (
  'apache-2.0',
  'mit',
  'openrail',
  'openrail++',
  'bigscience-openrail-m',
  'creativeml-openrail-m',
  'bigcode-openrail-m',
  'bigscience-bloom-rail-1.0',
  'afl-3.0',
  'artistic-2.0',
  'bsl-1.0',
  'bsd',
  'bsd-2-clause',
  'bsd-3-clause',
  'bsd-3-clause-clear',
  'c-uda',
  'cc',
  'cc0-1.0',
  'cc-by-2.0',
  'cc-by-2.5',
  'cc-by-3.0',
  'cc-by-4.0',
  'cc-by-sa-3.0',
  'cc-by-sa-4.0',
  'cc-by-nc-2.0',
  'cc-by-nc-3.0',
  'cc-by-nc-4.0',
  'cc-by-nd-4.0',
  'cc-by-nc-nd-3.0',
  'cc-by-nc-nd-4.0',
  'cc-by-nc-sa-2.0',
  'cc-by-nc-sa-3.0',
  'cc-by-nc-sa-4.0',
  'cdla-sharing-1.0',
  'cdla-permissive-1.0',
  'cdla-permissive-2.0',
  'wtfpl',
  'ecl-2.0',
  'epl-1.0',
  'epl-2.0',
  'etalab-2.0',
  'eupl-1.1',
  'eupl-1.2',
  'agpl-3.0',
  'gfdl',
  'gpl',
  'gpl-2.0',
  'gpl-3.0',
  'lgpl',
  'lgpl-2.1',
  'lgpl-3.0',
  'isc',
  'h-research',
  'intel-research',
  'lppl-1.3c',
  'ms-pl',
  'apple-ascl',
  'apple-amlr',
  'mpl-2.0',
  'odc-by',
  'odbl',
  'openmdw-1.0',
  'osl-3.0',
  'postgresql',
  'ofl-1.1',
  'ncsa',
  'unlicense',
  'zlib',
  'pddl',
  'lgpl-lr',
  'deepfloyd-if-license',
  'fair-noncommercial-research-license',
  'llama2',
  'llama3',
  'llama3.1',
  'llama3.2',
  'llama3.3',
  'llama4',
  'grok2-community',
  'gemma',
  'unknown',
  'other',
)
FILE = 'README.md'
_MOST = 1 << 20  # bytes that are read of it


def check_license(name: str | None) -> None:
  """Raises ConfigError for a licence that the Hub's cards cannot name."""
  if name is not None and name not in LICENSES:
    raise errors.ConfigError(
      'There is no such licence in model cards',
      got=repr(name),
      expected=name_suggestions.some_of(LICENSES),
      where='license',
      fix=name_suggestions.did_you_mean(name, LICENSES)
      or "take 'other', and add license_name to the card",
    )


def hub_languages(codes: Sequence[str]) -> dict[str, list[str]]:
  """The languages of a card: ISO 639 codes, and BCP-47 tags of scripts.

  Before: `['de', 'zh_Hans', 'srp_Latn']`; after: `{'language': ['de', 'zh',
  'sr'], 'language_bcp47': ['zh-Hans', 'sr-Latn']}`. Codes that are none, such
  as a synthetic language's, are left out.
  """
  codes_by_key: dict[str, list[str]] = {'language': [], 'language_bcp47': []}
  for code in codes:
    language, *more = re.split('[_-]', code)
    language = language_codes.short_code(language.lower())
    if not re.fullmatch('[a-z]{2,3}|multilingual', language):
      continue
    codes_by_key['language'].append(language)
    if more:
      codes_by_key['language_bcp47'].append('-'.join([language, *more]))
  return {key: list(dict.fromkeys(v)) for key, v in codes_by_key.items() if v}


def read_card_metadata(folder: pathlib.Path) -> dict[str, Any]:
  """The licence and languages that a folder's README.md states.

  Before: the lines `license: mit`, `language:`, `- en`, `- de` between two
  lines of `---`; after: {'license': 'mit', 'language': ['en', 'de']}.
  """
  path = folder / FILE
  if not path.is_file():
    return {}
  with path.open('rb') as file:
    lines = file.read(_MOST).decode('utf-8', 'replace').splitlines()
  if not lines or lines[0] != '---' or '---' not in lines[1:]:
    return {}
  metadata: dict[str, Any] = {}
  key = None
  for line in lines[1 : lines.index('---', 1)]:
    if line.lstrip().startswith('- ') and key:
      if isinstance(items := metadata.setdefault(key, []), list):
        items.append(_plain(line.lstrip()[2:]))
    elif not line.startswith((' ', '#')) and ':' in line:
      key, _, value = line.partition(':')
      if value.strip():
        metadata[key] = _plain(value)
  if isinstance(metadata.get('language'), str):
    metadata['language'] = [metadata['language']]
  return {k: metadata[k] for k in ('license', 'language') if k in metadata}


def _plain(value: str) -> str:
  return value.strip().strip('"\'')
