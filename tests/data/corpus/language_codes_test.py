"""Tests of language codes."""

import pytest

from tests.data.corpus import code_lists
from xlflax.data.corpus import language_codes

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.mark.parametrize(
  'code, languages, expected',
  [
    ('swh', ('en', 'sw'), 'sw'),
    ('swh', ('sw', 'swh'), 'swh'),
    ('swh', ('swa', 'en'), 'swa'),
    ('cmn', ('en', 'zh_CN'), 'zh_CN'),
    ('cmn', ('zh-Hans', 'zh-Hant'), 'zh-Hans'),
    ('zho_Hant', ('zh_CN', 'zh_TW'), 'zh_TW'),
    ('zho_Hant', ('zh',), 'zh'),
    ('srp_Latn', ('sr_Cyrl', 'sr_Latn'), 'sr_Latn'),
    ('yue_Hant', ('en', 'zh'), 'zh'),
    ('arz_Arab', ('en', 'ar'), 'ar'),
    ('nob_Latn', ('no', 'sv'), 'no'),
    ('no', ('nb', 'nn'), None),
    ('hrv', ('sr', 'bs'), None),
    ('ind', ('ms',), None),
    ('de', ('deu', 'en'), 'deu'),
    ('tur', ('en', 'de'), None),
    ('gsw', ('de', 'gsw'), 'gsw'),
  ],
)
def test_match_language(code, languages, expected):
  assert language_codes.match_language(code, languages) == expected


@pytest.mark.parametrize(
  'spellings, language, script',
  [
    (('zh', 'zho', 'cmn', 'zh_CN', 'zho_Hans', 'zh-Hans-CN'), 'zh', 'Hans'),
    (('zh_TW', 'zh-TW', 'zho_Hant', 'cmn-Hant', 'zh-tw'), 'zh', 'Hant'),
    (('pt', 'por', 'pt-br', 'pt_BR', 'por_Latn'), 'pt', 'Latn'),
    (('sr@latin', 'sr_Latn', 'srp-Latn'), 'sr', 'Latn'),
    (('sw', 'swh', 'swa', 'swh_Latn', 'sw_KE'), 'sw', 'Latn'),
    (('pa_PK', 'pa-Arab', 'pan_Arab'), 'pa', 'Arab'),
    (('en_XX', 'eng', 'en-US', 'en_GB.UTF-8', 'eng_Latn'), 'en', 'Latn'),
    (('tl', 'fil', 'tgl_Latn'), 'tl', 'Latn'),
    (('he', 'iw', 'heb_Hebr'), 'he', 'Hebr'),
    (('hi_rom', 'hi-Latn', 'hin_Latn'), 'hi', 'Latn'),
    (('my_zaw', 'my_Qaag'), 'my', 'Qaag'),
    (('ns', 'ns_ZA', 'nso', 'nso_Latn'), 'nso', 'Latn'),
    (('zh_classical', 'zh-classical', 'lzh'), 'lzh', 'Hans'),
    (('zh_min_nan', 'zh-min-nan', 'nan_Latn'), 'nan', 'Latn'),
    (('zh_yue', 'yue', 'yue_Hant'), 'yue', 'Hant'),
    (('be-x-old', 'be_tarask', 'be'), 'be', 'Cyrl'),
    (('fiu-vro', 'vro'), 'vro', 'Latn'),
    (('bat_smg', 'sgs'), 'sgs', 'Latn'),
    (('cb_IQ', 'ckb', 'ckb_Arab'), 'ckb', 'Arab'),
  ],
)
def test_spellings_of_one_language_are_equal(spellings, language, script):
  parsed = [language_codes.parse_language_code(code) for code in spellings]
  assert {code.language for code in parsed} == {language}
  assert {code.script for code in parsed} == {script}


@pytest.mark.parametrize(
  'code', ['', 'xx1', 'english', '@', '_', 'zz zz', '\n']
)
def test_unregistered_codes_are_kept_unchanged(code):
  parsed = language_codes.parse_language_code(code)
  assert parsed.language == parsed.macrolanguage == code
  assert parsed.script is None
  assert parsed.uses_spaces


_SCRIPTS_WITHOUT_SPACES = (
  *('Hani', 'Hans', 'Hant', 'Hira', 'Jpan', 'Khmr', 'Laoo', 'Mymr'),
  *('Thai', 'Tibt'),
)
# MTEB lists of romanized text, and codes whose script is a mistake in MTEB.
_TRANSLITERATED = dict.fromkeys(
  (
    *('amh', 'ara', 'arb', 'asm', 'bel', 'ben', 'bul', 'ell', 'fas', 'guj'),
    *('heb', 'hin', 'hye', 'jpn', 'kan', 'kat', 'khm', 'kor', 'lao', 'mal'),
    *('mar', 'mkd', 'mon', 'mya', 'nep', 'npi', 'ori', 'pan', 'pus', 'rus'),
    *('san', 'sin', 'snd', 'tam', 'tel', 'tha', 'ukr', 'urd', 'yid', 'zho'),
  ),
  ('Latn',),
) | {'aak': ('Arab',), 'max': ('Deva',), 'uig': ('Hans',)}
# Scripts that contain another script, or that share its characters.
_CONTAINED_SCRIPTS = {
  **{'Hang': 'Kore', 'Hira': 'Jpan'},
  **{'Hans': 'Hani', 'Hant': 'Hani'},
}


@pytest.mark.parametrize('code', code_lists.FLORES_200)
def test_flores_codes_are_parsed(code):
  iso, script = code.split('_')
  parsed = language_codes.parse_language_code(code)
  assert parsed.script == script
  assert parsed.uses_spaces == (
    script
    not in ('Hans', 'Hant', 'Jpan', 'Thai', 'Laoo', 'Khmr', 'Mymr', 'Tibt')
  )
  # The plain code, the hyphenated tag and the short code are equivalent.
  for spelling in (f'{iso}-{script}', f'{parsed.language}_{script}'):
    other = language_codes.parse_language_code(spelling)
    assert (other.language, other.script) == (parsed.language, script)


def test_flores_codes_match_vocabularies_of_short_codes():
  short = sorted({language_codes.short_code(c) for c in code_lists.FLORES_200})
  for code in code_lists.FLORES_200:
    assert language_codes.match_language(
      code, short
    ) == language_codes.short_code(code)


@pytest.mark.parametrize('code', code_lists.XTREME)
def test_xtreme_codes_are_short(code):
  assert language_codes.short_code(code) == code


@pytest.mark.parametrize('code, short', code_lists.TATOEBA)
def test_tatoeba_codes_are_shortened(code, short):
  assert language_codes.short_code(code) == short


@pytest.mark.parametrize('code, iso', code_lists.UNIVERSAL_DEPENDENCIES)
def test_universal_dependencies_codes_are_equivalent(code, iso):
  """Treebanks use the short code, and their metadata the ISO 639-3 code."""
  first, second = map(language_codes.parse_language_code, (code, iso))
  assert first.language == second.language
  assert first.script == second.script


def test_mteb_codes_are_parsed():
  """MTEB always specifies the script."""
  assert len(code_lists.MTEB) == 1199
  for code in code_lists.MTEB:
    iso, script = code.split('-')
    parsed = language_codes.parse_language_code(code)
    assert parsed.script == script
    assert parsed.uses_spaces == (script not in _SCRIPTS_WITHOUT_SPACES), code
    spellings = (f'{iso}_{script}', f'{parsed.language}-{script}', iso)
    for spelling in spellings:
      other = language_codes.parse_language_code(spelling)
      assert other.language == parsed.language, (code, spelling)
    plain = language_codes.parse_language_code(iso)
    is_transliterated = script in _TRANSLITERATED.get(iso, ())
    if plain.script is None:
      assert script in ('Latn', 'Zxxx'), code
    elif not is_transliterated:
      contained = {_CONTAINED_SCRIPTS.get(s, s) for s in plain.scripts}
      assert _CONTAINED_SCRIPTS.get(script, script) in contained, code
      assert plain.uses_spaces or not parsed.uses_spaces or iso == 'nan', code


@pytest.mark.parametrize(
  'code, scripts',
  [
    ('crh', {'Latn', 'Cyrl'}),
    ('grc', {'Grek'}),
    ('mww', {'Latn', 'Hmnp'}),
    ('hbo', {'Hebr'}),
    ('cmo', {'Hans', 'Hant'}),
  ],
)
def test_scripts_of_a_language(code, scripts):
  assert language_codes.parse_language_code(code).scripts == scripts


def test_unknown_language_has_id_0_and_is_noted_once(vocabulary):
  notes = []
  for _ in range(2):
    assert language_codes.language_id(vocabulary, 'tur', notes) == 0
  assert len(notes) == 1
  assert language_codes.language_id(vocabulary, 'jpn', notes) == 2


@pytest.mark.parametrize(
  'code, expected',
  [
    ('swh_Latn', 'sw'),
    ('rus-Latn', 'ru_Latn'),
    ('cmn_Hani', 'zh'),
    ('zh_TW', 'zh_Hant_TW'),
    ('oci_Latn_aran1260', 'oc_aran1260'),
    ('sr@latin', 'sr_Latn'),
    ('hi_rom', 'hi_Latn'),
    ('zh_classical', 'lzh'),
    ('be_x_old', 'be_tarask'),
    ('simple', 'en'),
    ('xx1', 'xx1'),
  ],
)
def test_normalize_code(code, expected):
  assert language_codes.normalize_code(code) == expected


@pytest.mark.parametrize(
  'code',
  # Includes withdrawn, ISO 639-2/B, ISO 639-5, private use and new codes.
  ['ja', 'jpn', 'zho_Hans', 'en_XX', 'sr@latin', 'simple', 'zh_min_nan', 'se']
  + ['in', 'iw', 'eml', 'ger', 'roa', 'qaa', 'tok_Latn', 'oci_Latn_aran1260'],
)
def test_is_registered_accepts_registered_codes(code):
  assert language_codes.is_registered(code)


@pytest.mark.parametrize(
  'code', ['jp', 'jp_JP', 'cz', 'dk', 'gr', 'ua', 'xx', 'xx1', 'german', '1']
)
def test_is_registered_rejects_unregistered_codes(code):
  assert not language_codes.is_registered(code)
