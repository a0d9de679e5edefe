import pycountry
import pytest

from xlflax.data import language_codes

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.mark.parametrize(
  'code, languages, expected',
  [
    ('swh', ('en', 'sw'), 'sw'),
    ('swh', ('sw', 'swh'), 'swh'),
    ('swh', ('swa', 'en'), 'swa'),
    ('cmn', ('en', 'zh_CN'), 'zh_CN'),
    ('cmn', ('zh-Hans', 'zh-Hant'), None),
    ('de', ('deu', 'en'), 'deu'),
    ('tur', ('en', 'de'), None),
    ('gsw', ('de', 'gsw'), 'gsw'),
  ],
)
def test_a_code_finds_the_languages_that_mean_it(code, languages, expected):
  assert language_codes.match(code, languages) == expected


@pytest.mark.parametrize(
  'code', ['ara', 'cmn', 'deu', 'fra', 'hin', 'jpn', 'rus', 'spa', 'swh', 'tur']
)
def test_the_languages_of_the_shipped_test_data_have_short_codes(code):
  assert len(language_codes.short_code(code)) == 2


def test_the_table_agrees_with_the_standard():
  # Individual languages whose two letters are those of their macrolanguage,
  # or (cmn) of the language they are commonly called.
  macro = {'cmn': 'zho', 'pes': 'fas', 'swh': 'swa', 'lvs': 'lav', 'zsm': 'msa'}
  for code, short in language_codes._TWO_LETTERS.items():
    language = pycountry.languages.get(alpha_3=macro.get(code, code))
    assert language.alpha_2 == short, code


def test_an_unknown_language_gets_id_0_and_one_note(vocabulary):
  notes = []
  for _ in range(2):
    assert language_codes.language_id(vocabulary, 'tur', notes) == 0
  assert len(notes) == 1
  assert 'no language tur' in notes[0]
  assert language_codes.language_id(vocabulary, 'jpn', notes) == 2
