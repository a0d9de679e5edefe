"""Model card metadata: licenses and languages in README.md."""

import pathlib
import re
from collections.abc import Sequence
from typing import Any

from xlflax.data.corpus import language_codes
from xlflax.utils import errors, name_suggestions

# License identifiers that the Hugging Face Hub accepts in model cards.
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
_MAX_BYTES = 1 << 20  # Maximum number of bytes that are read from README.md.


def check_license(name: str | None) -> None:
  """Checks that a license identifier is valid in a model card.

  Args:
    name: License identifier. If None, the check passes.

  Raises:
    ConfigError: If the Hub does not accept the license identifier in model
      cards.
  """
  if name is not None and name not in LICENSES:
    raise errors.ConfigError(
      '`license` must be a license identifier that the Hugging Face Hub '
      'accepts in model cards',
      got=repr(name),
      expected=name_suggestions.format_choices(LICENSES),
      fix=name_suggestions.did_you_mean(name, LICENSES)
      or "Pass 'other', and add license_name to the card.",
    )


def hub_languages(codes: Sequence[str]) -> dict[str, list[str]]:
  """Returns a model card's language metadata.

  The metadata contains ISO 639 codes and, for languages with a script, BCP-47
  tags. For example, `['de', 'zh_Hans', 'srp_Latn']` becomes `{'language':
  ['de', 'zh', 'sr'], 'language_bcp47': ['zh-Hans', 'sr-Latn']}`. Codes that are
  not ISO 639 codes, such as codes of synthetic languages, are skipped.

  Args:
    codes: Language codes of a vocabulary or a model card.
  """
  codes_by_key: dict[str, list[str]] = {'language': [], 'language_bcp47': []}
  for code in codes:
    language, *subtags = re.split('[_-]', code)
    language = language_codes.short_code(language.lower())
    if not re.fullmatch('[a-z]{2,3}|multilingual', language):
      continue
    codes_by_key['language'].append(language)
    if subtags:
      codes_by_key['language_bcp47'].append('-'.join([language, *subtags]))
  return {
    key: list(dict.fromkeys(languages))
    for key, languages in codes_by_key.items()
    if languages
  }


def read_card_metadata(folder: pathlib.Path) -> dict[str, Any]:
  """Reads the license and the languages from the README.md of a folder.

  For example, the lines `license: mit`, `language:`, `- en`, `- de` between two
  lines of `---` become {'license': 'mit', 'language': ['en', 'de']}.

  Args:
    folder: Folder of a published model.

  Returns:
    The keys `license` and `language`, as far as README.md specifies them.
  """
  path = folder / FILE
  if not path.is_file():
    return {}
  with path.open('rb') as file:
    lines = file.read(_MAX_BYTES).decode('utf-8', 'replace').splitlines()
  if not lines or lines[0] != '---' or '---' not in lines[1:]:
    return {}
  metadata: dict[str, Any] = {}
  key = None
  for line in lines[1 : lines.index('---', 1)]:
    if line.lstrip().startswith('- ') and key:
      items = metadata.setdefault(key, [])
      if isinstance(items, list):
        items.append(_strip_quotes(line.lstrip()[2:]))
    elif not line.startswith((' ', '#')) and ':' in line:
      key, _, value = line.partition(':')
      if value.strip():
        metadata[key] = _strip_quotes(value)
  if isinstance(metadata.get('language'), str):
    metadata['language'] = [metadata['language']]
  return {
    key: metadata[key] for key in ('license', 'language') if key in metadata
  }


def _strip_quotes(value: str) -> str:
  return value.strip().strip('"\'')
