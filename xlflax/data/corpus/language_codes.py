"""Parser that splits language codes into language, script and region.

Corpora, benchmarks and vocabularies spell the same language differently: `zh`,
`zho`, `cmn`, `zh_CN`, `zho_Hans`, `zh-Hans-CN`. `parse_language_code` parses
ISO 639-1 and 639-3 codes, BCP 47 tags with hyphens or underscores, and the
spellings of FLORES, XTREME, mBART, CC-100, Wikipedia and gettext. All code that
depends on a text's language uses the `LanguageCode` returned by this function.

The underlying tables are those of CLDR and the IANA registry, as provided by
`langcodes`.
"""

import dataclasses
import functools
import re
from collections.abc import Sequence

import langcodes
from langcodes import data_dicts, tag_parser

from xlflax.utils import errors, name_suggestions

# Scripts that are written without spaces between words, by ISO 15924 code.
SCRIPTS_WITHOUT_SPACES = frozenset(
  (
    'Bali',
    'Hani',
    'Hans',
    'Hant',
    'Hira',
    'Java',
    'Jpan',
    'Kana',
    'Khmr',
    'Lana',
    'Laoo',
    'Mymr',
    'Qaag',
    'Talu',
    'Thai',
    'Tibt',
    'Yiii',
  )
)
# Scripts that languages are written in today, in addition to CLDR's likely one.
_OTHER_SCRIPTS = {
  'ace': ('Arab',),
  'az': ('Cyrl', 'Arab'),
  'bjn': ('Arab',),
  'bs': ('Cyrl',),
  'ccp': ('Latn',),
  'cmo': ('Hant',),
  'crh': ('Cyrl',),
  'ff': ('Adlm', 'Arab'),
  'gmv': ('Latn',),
  'gof': ('Latn',),
  'grt': ('Latn',),
  'ha': ('Arab',),
  'iu': ('Latn',),
  'kk': ('Latn', 'Arab'),
  'kok': ('Latn',),
  'kr': ('Arab',),
  'ks': ('Deva',),
  'ku': ('Arab', 'Cyrl'),
  'ky': ('Arab', 'Latn'),
  'lad': ('Latn',),
  'min': ('Arab',),
  'mn': ('Mong',),
  'mni': ('Mtei',),
  'ms': ('Arab',),
  'mww': ('Hmnp',),
  'nan': ('Hant', 'Latn'),
  'nnp': ('Latn',),
  'om': ('Ethi',),
  'pa': ('Arab',),
  'ro': ('Cyrl',),
  'sat': ('Deva', 'Beng', 'Latn'),
  'sd': ('Deva',),
  'shi': ('Arab', 'Latn'),
  'sr': ('Latn',),
  'sus': ('Arab',),
  'taq': ('Tfng',),
  'tcy': ('Mlym',),
  'tg': ('Arab', 'Latn'),
  'tk': ('Cyrl', 'Arab'),
  'tt': ('Latn',),
  'tzm': ('Tfng',),
  'ug': ('Latn', 'Cyrl'),
  'uz': ('Cyrl', 'Arab'),
  'zgh': ('Latn',),
}
# Characters of the scripts that are written without spaces.
TEXT_WITHOUT_SPACES = re.compile(
  '[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1980-\u19ff\u1a20-\u1aaf'
  '\u1b00-\u1b7f\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf'
  '\u4e00-\u9fff\ua000-\ua4cf\ua980-\ua9df\uaa60-\uaa7f\uf900-\ufaff'
  '\uff66-\uff9f\U00020000-\U0003ffff]'
)
# Map from CLDR's canonical code to the code that corpora and models use.
_PREFERRED = {'fil': 'tl'}
# Map from publishers' codes that are not BCP 47 tags to such tags.
_PUBLISHER_CODES = {
  # CC-100. Qaag is CLDR's code for text in the Zawgyi encoding.
  'bn_rom': 'bn-Latn',
  'hi_rom': 'hi-Latn',
  'my_zaw': 'my-Qaag',
  'ns': 'nso',
  'ta_rom': 'ta-Latn',
  'te_rom': 'te-Latn',
  'ur_rom': 'ur-Latn',
  # Editions of Wikipedia.
  'bat_smg': 'sgs',
  'be_x_old': 'be-tarask',
  'cbk_zam': 'cbk',
  'fiu_vro': 'vro',
  'roa_rup': 'rup',
  'simple': 'en',
  'zh_classical': 'lzh',
  'zh_min_nan': 'nan-Latn',
  'zh_yue': 'yue',
  # Locales of CCAligned.
  'cb_iq': 'ckb-IQ',
  'cx_ph': 'ceb-PH',
  'ns_za': 'nso-ZA',
  'sz_pl': 'szl-PL',
  'tz_ma': 'tzm-MA',
  'zz_tr': 'zza-TR',
}
# Map from gettext's modifiers to scripts.
_MODIFIERS = {'latin': 'Latn', 'cyrillic': 'Cyrl', 'shaw': 'Shaw'}
# Macrolanguages whose members are treated as separate languages (Indonesian and
# Minangkabau in addition to Malay, Croatian in addition to Serbian).
_IGNORED_MACROLANGUAGES = frozenset({'ms', 'sh'})
# Codes of large corpora that ISO 639-3 no longer contains.
_RETIRED_CODES = frozenset({'eml'})
# Scripts that include other scripts.
_INCLUDED_SCRIPTS = {'Hani': frozenset({'Hans', 'Hant'})}
# Scripts that CLDR's table of likely subtags lacks, that differ from those of
# the macrolanguage, or that CLDR lists although texts use another script (such
# as the Cypriot syllabary for Ancient Greek).
_LIKELY_SCRIPTS = {
  'anp': 'Deva',
  'azb': 'Arab',
  'ber': 'Tfng',
  'bhd': 'Deva',
  'bns': 'Deva',
  'boy': 'Deva',
  'cmo': 'Hans',
  'crh': 'Latn',
  'dza': 'Arab',
  'grc': 'Grek',
  'hbo': 'Hebr',
  'hlb': 'Deva',
  'kfg': 'Deva',
  'ksw': 'Mymr',
  'mey': 'Arab',
  'mrr': 'Deva',
  'mww': 'Latn',
  'odk': 'Arab',
  'orv': 'Cyrl',
  'sgj': 'Deva',
  'the': 'Deva',
  'uki': 'Orya',
}


@dataclasses.dataclass(frozen=True)
class LanguageCode:
  """Language code, parsed as language, script and region.

  Attributes:
    code: Language code in its original spelling.
    language: Shortest ISO 639 code, such as `zh` for `cmn` and `zho`. Codes
      that are not registered, such as `xx1`, are kept.
    script: ISO 15924 code of the script. If the language code does not contain
      a script, the most likely script. None if the script is unknown.
    region: ISO 3166 code, such as `TW`. None if the code has no region.
    macrolanguage: Code of the macrolanguage, such as `zh` for `yue`. Equal to
      `language` if there is no macrolanguage.
  """

  code: str
  language: str
  script: str | None
  region: str | None
  macrolanguage: str

  @property
  def scripts(self) -> frozenset[str]:
    """All scripts in which the language is commonly written.

    If a subtag or region in the code determines the script, the result contains
    only this script.
    """
    if self.script is None:
      return frozenset()
    if _subtags(self.code):
      return frozenset({self.script})
    return frozenset({self.script, *_OTHER_SCRIPTS.get(self.language, ())})

  @property
  def uses_spaces(self) -> bool:
    """True if the language separates words with spaces."""
    return self.script not in SCRIPTS_WITHOUT_SPACES

  @property
  def is_chinese(self) -> bool:
    """True for a Sinitic language that is written in Chinese characters."""
    return self.macrolanguage == 'zh' and self.script in (
      'Hani',
      'Hans',
      'Hant',
    )


@functools.lru_cache(maxsize=4096)
def parse_language_code(code: str) -> LanguageCode:
  """Parses a language code in any common spelling.

  For example, `parse_language_code('cmn_Hant')` has the language `zh` and the
  script `Hant`. `parse_language_code('pa_PK')` has the script `Arab`, and
  `parse_language_code('sr@latin')` has the script `Latn`.

  Args:
    code: Language code such as `sw`, `swh`, `pt-br`, `sr_Latn`, `zh_TW`,
      `en_XX` or `uz@cyrillic`.

  Returns:
    The parsed code. A code that is malformed or not registered is treated as a
    separate language with an unknown script.
  """
  main, _, modifier = _to_language_tag(code).partition('@')
  main = main.partition('.')[0]
  try:
    tag = langcodes.Language.get(main)
  except (tag_parser.LanguageTagError, ValueError):
    tag = None
  if tag is None or not tag.language:
    return LanguageCode(code, code, None, None, code)
  language = data_dicts.NORMALIZED_MACROLANGUAGES.get(
    tag.language, tag.language
  )
  macrolanguage = data_dicts.MACROLANGUAGES.get(language, language)
  if macrolanguage in _IGNORED_MACROLANGUAGES:
    macrolanguage = language
  return LanguageCode(
    code=code,
    language=_PREFERRED.get(language, language),
    script=tag.script
    or _MODIFIERS.get(modifier.lower())
    or _likely_script(tag),
    region=None if tag.territory == 'XX' else tag.territory,
    macrolanguage=_PREFERRED.get(macrolanguage, macrolanguage),
  )


def is_registered(code: str) -> bool:
  """Returns whether a code denotes a language of ISO 639.

  Private-use codes (`qaa` to `qtz`) and codes of language groups are
  registered. For example, `ja`, `jpn`, `ja_JP` and `roa` are registered, and
  `jp` is not.

  Args:
    code: Language code in any spelling that `parse_language_code` supports.
  """
  main = _to_language_tag(code).partition('@')[0].partition('.')[0]
  try:
    language = langcodes.Language.get(main).language
  except (tag_parser.LanguageTagError, ValueError):
    return False
  if language is None or language in _RETIRED_CODES:
    return True
  return langcodes.Language.make(
    language=language
  ).is_valid() or name_suggestions.is_standard_code(language)


def short_code(code: str) -> str:
  """Returns a language's shortest ISO 639 code, such as `sw` for `swh`."""
  return parse_language_code(code).language


def language_identity(code: str) -> tuple[str, str | None, str | None]:
  """Returns (language, script, region), which is equal for equivalent codes.

  For example, `ru`, `rus` and `ru_Cyrl` are equivalent.

  Args:
    code: Language code in any spelling that `parse_language_code` supports.
  """
  parsed = parse_language_code(code)
  return parsed.language, parsed.script, parsed.region


def normalize_code(code: str) -> str:
  """Shortens a language code to the subtags that identify the language.

  The script is included only if it is not the language's usual one. For
  example, `swh_Latn` becomes `sw`, `rus-Latn` becomes `ru_Latn`, and
  `zho_Hant` becomes `zh_Hant`. `cmn_Hani`, Chinese in either script, becomes
  `zh`.

  Args:
    code: Language code in any spelling that `parse_language_code` supports.
  """
  parsed = parse_language_code(code)
  usual_script = parse_language_code(parsed.language).script or 'Latn'
  subtags: list[str] = []
  if parsed.script not in (usual_script, None) and (
    usual_script not in _INCLUDED_SCRIPTS.get(parsed.script or '', ())
  ):
    subtags.append(str(parsed.script))
  if parsed.region:
    subtags.append(parsed.region)
  # Variants, such as `aran1260`, have five to eight characters.
  tags = re.split('[-_]', _to_language_tag(code).partition('@')[0])[1:]
  subtags += [tag for tag in tags if 5 <= len(tag) <= 8]
  return '_'.join((parsed.language, *subtags))


def uses_spaces(code: str) -> bool:
  """Returns whether a language separates words with spaces."""
  return parse_language_code(code).uses_spaces


def match_language(code: str, languages: Sequence[str]) -> str | None:
  """Finds the code in `languages` that denotes the same language as `code`.

  Candidates are tried in this order: a code with the same spelling, with the
  same language and script, with the same language, and the macrolanguage in
  either direction.

  Args:
    code: Language code to find, such as `cmn_Hans`.
    languages: Language codes of a vocabulary or benchmark.

  Returns:
    One of `languages`, or None if no code matches or if several match equally
    well.
  """
  if code in languages:
    return code
  parsed_code = parse_language_code(code)
  if parsed_code.language in languages and _scripts_agree(
    parsed_code, parse_language_code(parsed_code.language)
  ):
    return parsed_code.language
  candidates = [parse_language_code(language) for language in languages]
  same_language = [c for c in candidates if c.language == parsed_code.language]
  same_script = [c for c in same_language if _scripts_agree(parsed_code, c)]
  related = [
    c
    for c in candidates
    if c.language == parsed_code.macrolanguage
    or c.macrolanguage == parsed_code.language
  ]
  for group in (same_script, same_language, related):
    if group:
      # A spelling without script or region is the default of the language.
      plain = [c for c in group if c.code == c.language or not _subtags(c.code)]
      group = plain if len(plain) == 1 else group
      return group[0].code if len(group) == 1 else None
  return None


def language_id(
  vocabulary, code: str, notes: list[str], *, required: bool = False
) -> int:
  """Returns a language's id in a vocabulary.

  Args:
    vocabulary: Vocabulary that the run uses.
    code: Language code to find.
    notes: List to which a note is appended if the vocabulary lacks the
      language.
    required: Whether to require that the vocabulary contains the language,
      because the model has language-specific parameters. If False, the id is
      used only for language embeddings.

  Returns:
    The id, or 0 if the vocabulary lacks the language.

  Raises:
    VocabularyError: If `required` is True and the vocabulary lacks the
      language.
  """
  matched = match_language(code, vocabulary.spec.languages)
  if matched is not None:
    return vocabulary.language_id(matched)
  if required:
    raise errors.VocabularyError(
      'The model has no parameters for the requested language',
      got=code,
      expected='one of ' + ', '.join(vocabulary.spec.languages),
      fix=name_suggestions.suggest_language(code, vocabulary.spec.languages),
    )
  note = (
    f'the vocabulary does not contain the language {code}; models with '
    f'language embeddings use the embedding of {vocabulary.spec.languages[0]}'
  )
  if note not in notes:
    notes.append(note)
  return 0


def _scripts_agree(first: LanguageCode, second: LanguageCode) -> bool:
  """Returns True if the scripts of two codes are equal or unknown."""
  return None in (first.script, second.script) or first.script == second.script


def _subtags(code: str) -> list[str]:
  return re.split('[-_@]', _to_language_tag(code))[1:]


def _to_language_tag(code: str) -> str:
  """Replaces a publisher's code by the language tag that it stands for."""
  return _PUBLISHER_CODES.get(code.lower().replace('-', '_'), code)


def _likely_script(tag: langcodes.Language) -> str | None:
  """Returns a language's most likely script in its region (from CLDR)."""
  language = tag.language or ''
  if language in _LIKELY_SCRIPTS:
    return _LIKELY_SCRIPTS[language]
  for key in (
    f'{language}-{tag.territory}',
    language,
    data_dicts.NORMALIZED_MACROLANGUAGES.get(language, language),
    data_dicts.MACROLANGUAGES.get(language, language),
  ):
    subtags = data_dicts.LIKELY_SUBTAGS.get(key)
    if subtags:
      return subtags.split('-')[1]
  return data_dicts.DEFAULT_SCRIPTS.get(language)
