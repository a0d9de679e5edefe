"""Languages of multilingual checkpoints.

Folders that xlflax exported specify their languages. For most other folders, a
default list of languages is used: The id of a language affects only models with
language embeddings, whose files specify the languages. For all other models, a
language only labels texts. A long list of languages therefore has no
disadvantage, and a model can be trained and evaluated in any language of the
list.
"""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.data.corpus import language_codes
from xlflax.interop.huggingface.architectures.config_options import LANGUAGES
from xlflax.utils import errors

# Languages of CC-100 (Conneau et al., 2020, appendix A) and of the 104 largest
# Wikipedias, on which multilingual BERT was trained, as ISO 639 codes.
DEFAULT = (
  'af',
  'am',
  'an',
  'ar',
  'arz',
  'as',
  'ast',
  'az',
  'azb',
  'ba',
  'bar',
  'be',
  'bg',
  'bn',
  'bpy',
  'br',
  'bs',
  'ca',
  'ce',
  'ceb',
  'cs',
  'cv',
  'cy',
  'da',
  'de',
  'el',
  'en',
  'eo',
  'es',
  'et',
  'eu',
  'fa',
  'fi',
  'fr',
  'fy',
  'ga',
  'gd',
  'gl',
  'gu',
  'ha',
  'he',
  'hi',
  'hr',
  'ht',
  'hu',
  'hy',
  'id',
  'io',
  'is',
  'it',
  'ja',
  'jv',
  'ka',
  'kk',
  'km',
  'kn',
  'ko',
  'ku',
  'ky',
  'la',
  'lb',
  'lmo',
  'lo',
  'lt',
  'lv',
  'mg',
  'min',
  'mk',
  'ml',
  'mn',
  'mr',
  'ms',
  'my',
  'nds',
  'ne',
  'new',
  'nl',
  'nn',
  'no',
  'oc',
  'om',
  'or',
  'pa',
  'pl',
  'pms',
  'pnb',
  'ps',
  'pt',
  'ro',
  'ru',
  'sa',
  'scn',
  'sd',
  'sh',
  'si',
  'sk',
  'sl',
  'so',
  'sq',
  'sr',
  'su',
  'sv',
  'sw',
  'ta',
  'te',
  'tg',
  'th',
  'tl',
  'tr',
  'tt',
  'ug',
  'uk',
  'ur',
  'uz',
  'vi',
  'vo',
  'war',
  'xh',
  'yi',
  'yo',
  'zh',
)


def languages_from_options(options: Mapping) -> tuple[str, ...] | None:
  """Returns the languages in `config.json`, in the order of their ids.

  xlflax exports the languages of a run as `xlflax_languages`. If this option is
  missing, XLM's languages are those of `lang2id`.

  Args:
    options: Contents of `config.json`.

  Returns:
    The languages, or None if config.json does not specify valid ids.

  Raises:
    ConfigError: If `xlflax_languages` is not a list of distinct language codes.
  """
  if LANGUAGES in options:
    return _check_languages(options[LANGUAGES])
  ids_by_language = options.get('lang2id')
  if (
    not isinstance(ids_by_language, dict)
    or not all(type(i) is int for i in ids_by_language.values())
    or sorted(ids_by_language.values()) != list(range(len(ids_by_language)))
  ):
    return None
  return tuple(sorted(ids_by_language, key=ids_by_language.__getitem__))


def _check_languages(codes: Any) -> tuple[str, ...]:
  """Returns the value of `xlflax_languages` after checking it."""
  if (
    not isinstance(codes, list)
    or not codes
    or not all(isinstance(code, str) and code for code in codes)
    or len(set(codes)) < len(codes)
  ):
    raise errors.ConfigError(
      f'The option {LANGUAGES} must list the languages of the model',
      got=repr(codes)[:200],
      expected='a list of distinct language codes',
      where=f'config.json, {LANGUAGES}',
      fix='Export the model again, or pass --languages=LANGUAGE,LANGUAGE.',
    )
  return tuple(codes)


def find_languages(
  folder: pathlib.Path, settings: Mapping, options: Mapping
) -> tuple[str, ...]:
  """Returns the languages of an imported model if the user chooses none.

  Args:
    folder: Folder with tokenizer files.
    settings: Contents of the folder's `tokenizer_config.json`.
    options: Contents of the folder's `config.json`.
  """
  symbols = read_language_symbols(folder, settings, options['model_type'])
  codes, _ = choose_languages(symbols, languages_from_options(options))
  return codes


# Language symbols in the order of their ids, which the SentencePiece model does
# not contain: the symbols of mBART (Liu et al., 2020, table 1), and the symbols
# that mBART-50 adds (Tang et al., 2020, table 1).
_MBART_SYMBOLS = (
  'ar_AR',
  'cs_CZ',
  'de_DE',
  'en_XX',
  'es_XX',
  'et_EE',
  'fi_FI',
  'fr_XX',
  'gu_IN',
  'hi_IN',
  'it_IT',
  'ja_XX',
  'kk_KZ',
  'ko_KR',
  'lt_LT',
  'lv_LV',
  'my_MM',
  'ne_NP',
  'nl_XX',
  'ro_RO',
  'ru_RU',
  'si_LK',
  'tr_TR',
  'vi_VN',
  'zh_CN',
)
_MBART_50_SYMBOLS = (
  'af_ZA',
  'az_AZ',
  'bn_IN',
  'fa_IR',
  'he_IL',
  'hr_HR',
  'id_ID',
  'ka_GE',
  'km_KH',
  'mk_MK',
  'ml_IN',
  'mn_MN',
  'mr_IN',
  'pl_PL',
  'ps_AF',
  'pt_XX',
  'sv_SE',
  'sw_KE',
  'ta_IN',
  'te_IN',
  'th_TH',
  'tl_XX',
  'uk_UA',
  'ur_PK',
  'xh_ZA',
  'gl_ES',
  'sl_SI',
)
# Language symbols such as en_XX (mBART), eng_Latn (NLLB) and __en__ (M2M-100).
_SYMBOL = re.compile(
  r'[a-z]{2,3}_[A-Z]{2}|[a-z]{3}_[A-Z][a-z]{3}|__[a-z]{2,3}__'
)


def read_language_symbols(
  folder: pathlib.Path, settings: Mapping, model_type: str
) -> tuple[str, ...]:
  """Returns a tokenizer's language symbols, such as `en_XX`, sorted by id.

  Args:
    folder: Folder written by `save_pretrained`.
    settings: Contents of the folder's `tokenizer_config.json`.
    model_type: Model type in the folder's `config.json`. Only mBART and M2M-100
      have language symbols.
  """
  if model_type not in ('mbart', 'm2m_100'):
    return ()
  path = folder / 'tokenizer.json'
  if path.is_file():
    try:
      added_tokens = json.loads(path.read_bytes()).get('added_tokens', [])
      ids_by_symbol = {
        token['content']: int(token['id'])
        for token in added_tokens
        if _SYMBOL.fullmatch(token['content'])
      }
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
      return ()  # `read_tokenizer` reports the error.
    return tuple(sorted(ids_by_symbol, key=ids_by_symbol.__getitem__))
  if model_type == 'm2m_100':
    return ()  # The files that preceded tokenizer.json are not supported.
  if 'MBart50' in str(settings.get('tokenizer_class', '')):
    return _MBART_SYMBOLS + _MBART_50_SYMBOLS
  return _MBART_SYMBOLS


def choose_languages(
  symbols: Sequence[str], languages: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Selects a vocabulary's languages and their symbols.

  Args:
    symbols: Language symbols, as returned by `read_language_symbols`.
    languages: Language codes chosen by the user. The code 'en' selects the
      symbol eng_Latn, but 'zh' is ambiguous and selects neither zho_Hans nor
      zho_Hant. If None, all languages with a symbol are used, or `DEFAULT` if
      there are no symbols.

  Returns:
    The codes of the languages and the symbol of each.

  Raises:
    VocabularyError: If the tokenizer has no symbol for a chosen language.
  """
  if not symbols:
    return tuple(languages or DEFAULT), ()
  symbol_by_code = {_language_code(symbol): symbol for symbol in symbols}
  codes = tuple(languages or symbol_by_code)
  matches = [_match_code(code, tuple(symbol_by_code)) for code in codes]
  missing = [
    code for code, match in zip(codes, matches, strict=True) if not match
  ]
  if missing:
    raise errors.VocabularyError(
      'The tokenizer does not have a language symbol for every language in '
      '--languages',
      got=', '.join(missing),
      expected=', '.join(symbol_by_code),
    )
  return codes, tuple(symbol_by_code[match] for match in matches if match)


def _match_code(code: str, codes: Sequence[str]) -> str | None:
  """Returns the only tokenizer code that matches a language code, or None.

  For example, 'en' matches eng_Latn.
  """
  if code in codes:
    return code
  matches = [
    candidate
    for candidate in codes
    if language_codes.short_code(candidate.partition('_')[0]) == code
  ]
  return matches[0] if len(matches) == 1 else None


def _language_code(symbol: str) -> str:
  """Returns the language code of a symbol.

  The code of en_XX and __en__ is 'en'. eng_Latn is itself a code.
  """
  if re.fullmatch(r'[a-z]{3}_[A-Z][a-z]{3}', symbol):
    return symbol  # A language can have several scripts.
  return symbol.strip('_').partition('_')[0]
