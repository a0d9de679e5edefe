"""Languages of multilingual checkpoints, where the files do not tell them.

A language's id matters only to models with language embeddings, which name
their languages; to others it is a label of text. So a long list does no harm,
and a model can be trained and evaluated on any of its languages.
"""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence

from xlflax.data.corpus import language_codes
from xlflax.utils import errors

# Those of CC-100 (Conneau et al., 2020, appendix A) and of the 104 largest
# Wikipedias, as BERT's multilingual model was trained on, in ISO 639 codes.
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


def from_options(options: dict) -> tuple[str, ...] | None:
  """The languages that config.json names (XLM's `lang2id`), by id."""
  ids_by_language = options.get('lang2id')
  if (
    not isinstance(ids_by_language, dict)
    or not all(type(i) is int for i in ids_by_language.values())
    or sorted(ids_by_language.values()) != list(range(len(ids_by_language)))
  ):
    return None
  return tuple(sorted(ids_by_language, key=ids_by_language.__getitem__))


# In the order of their ids, which the SentencePiece model does not tell: those
# of mBART (Liu et al., 2020, table 1), then those that mBART-50 adds (Tang et
# al., 2020, table 1).
_FIRST = (
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
_MORE = (
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
# mBART's en_XX, NLLB's eng_Latn, M2M-100's __en__.
_SYMBOL = re.compile(
  r'[a-z]{2,3}_[A-Z]{2}|[a-z]{3}_[A-Z][a-z]{3}|__[a-z]{2,3}__'
)


def symbols_of(
  folder: pathlib.Path, settings: Mapping, model_type: str
) -> tuple[str, ...]:
  """The symbols of a folder's tokenizer, in the order of their ids.

  Args:
    folder: a folder as `save_pretrained` writes it.
    settings: of its tokenizer_config.json.
    model_type: of its config.json; only mBART and M2M-100 have symbols.
  """
  if model_type not in ('mbart', 'm2m_100'):
    return ()
  path = folder / 'tokenizer.json'
  if path.is_file():
    try:
      added = json.loads(path.read_bytes()).get('added_tokens', [])
      ids_by_symbol = {
        entry['content']: int(entry['id'])
        for entry in added
        if _SYMBOL.fullmatch(entry['content'])
      }
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
      return ()  # who reads the tokenizer complains
    return tuple(sorted(ids_by_symbol, key=ids_by_symbol.__getitem__))
  if model_type == 'm2m_100':
    return ()  # its older files are not read
  if 'MBart50' in str(settings.get('tokenizer_class', '')):
    return _FIRST + _MORE
  return _FIRST


def choose_languages(
  symbols: Sequence[str], wanted: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """(codes of languages, the symbol of each).

  Args:
    symbols: from `symbols_of`.
    wanted: codes of languages, or None for all; 'en' stands for eng_Latn, but
      'zh' for neither of zho_Hans and zho_Hant.

  Raises:
    VocabularyError: a language that is wanted has no symbol.
  """
  if not symbols:
    return tuple(wanted or DEFAULT), ()
  by_code = {_code(symbol): symbol for symbol in symbols}
  chosen = tuple(wanted or by_code)
  matches = [_match(code, tuple(by_code)) for code in chosen]
  missing = [c for c, match in zip(chosen, matches, strict=True) if not match]
  if missing:
    raise errors.VocabularyError(
      'The tokenizer has no symbol for some languages',
      got=', '.join(missing),
      expected='of ' + ', '.join(by_code),
      where='--languages',
    )
  return chosen, tuple(by_code[match] for match in matches if match)


def _match(code: str, codes: Sequence[str]) -> str | None:
  """The one of a tokenizer's codes: 'en' means eng_Latn, if there is one."""
  if code in codes:
    return code
  same = [
    candidate
    for candidate in codes
    if language_codes.short_code(candidate.partition('_')[0]) == code
  ]
  return same[0] if len(same) == 1 else None


def _code(symbol: str) -> str:
  """A symbol's code: en_XX and __en__ are 'en', eng_Latn is itself."""
  if re.fullmatch(r'[a-z]{3}_[A-Z][a-z]{3}', symbol):
    return symbol  # a language may have several scripts
  return symbol.strip('_').partition('_')[0]
