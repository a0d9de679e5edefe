"""Tests of filters of web text and of the reasons they report."""

import pytest

from tests.errors import raises_error
from xlflax.data.preprocessing import text_filters
from xlflax.data.preprocessing.text_filters import TextFilters
from xlflax.utils import errors


def _reason(*texts, languages=('en',), **filters):
  return text_filters.find_drop_reason(texts, languages, TextFilters(**filters))


@pytest.mark.parametrize(
  'texts, filters, expected',
  [
    (('привет мир',), {'min_script_share': 0.5}, 'another script'),
    (('hello мир',), {'min_script_share': 0.5}, None),
    (('12:30, 5 %',), {'min_script_share': 1.0, 'min_letters': 0}, None),
    (('abc',), {'min_characters': 4}, 'too short'),
    (('abc',), {'max_characters': 2}, 'too long'),
    (('abc',), {'min_characters': 3, 'max_characters': 3}, None),
    (('abc',), {}, None),
    (('le cafÃ©',), {}, None),
    (('le cafÃ©',), {'drop_wrong_encoding': True}, 'wrong encoding'),
    (('le caf\ufffd',), {'drop_wrong_encoding': True}, 'wrong encoding'),
    (('le café',), {'drop_wrong_encoding': True}, None),
  ],
)
def test_drop_reason_of_lines(texts, filters, expected):
  assert _reason(*texts, **filters) == expected


def test_drop_reason_of_pairs():
  sides = ('yes', 'that is so, I think')
  options = {'languages': ('en', 'en')}
  assert _reason(*sides, **options, max_ratio=3) == 'unequal lengths'
  assert _reason(*sides, **options, max_ratio=7) is None
  assert _reason(*sides, **options, min_characters=4) == 'too short'
  reason = _reason(
    'a cat', 'кошка', languages=('en', 'bg'), min_script_share=0.9
  )
  assert reason is None
  reason = _reason(
    'a cat', 'koshka', languages=('en', 'bg'), min_script_share=0.9
  )
  assert reason == 'another script'


@pytest.mark.parametrize(
  'sides, expected',
  [
    (('Save As…', 'save as'), 'equal sides'),
    (('Ｗｏｒｄ', 'word'), 'equal sides'),
    (
      ('Opens the file in the folder', 'Opens the file in this folder'),
      'nearly equal sides',
    ),
    (('The cat sleeps', 'Kissa nukkuu'), None),
    (('Rosa Parks was arrested.', 'Rosa Parks fue arrestada.'), None),
    (('page 12', '12'), 'no letters'),
  ],
)
def test_copied_pairs_are_dropped(sides, expected):
  assert _reason(*sides, languages=('en', 'fi')) == expected


def test_copies_are_kept_for_language_varieties_or_if_disabled():
  same = ('Save as', 'Save as')
  assert _reason(*same, languages=('en', 'fi'), max_similarity=1) is None
  assert _reason(*same, languages=('en_GB', 'en')) is None
  assert _reason(*same, languages=('zh_Hans', 'zh_Hant')) is None


@pytest.mark.parametrize('text', ['12:30, 5 %', '…', '1234'])
def test_lines_without_letters_are_dropped(text):
  assert _reason(text) == 'no letters'
  assert _reason(text, min_letters=0) is None
  assert _reason('ab 12', min_letters=3) == 'few letters'
  assert _reason('कि', languages=('hi',)) is None


@pytest.mark.parametrize(
  'language, scripts',
  [
    ('en', {'Latn'}),
    ('zh_Hans', {'Hani'}),
    ('ja', {'Hani', 'Hira', 'Kana'}),
    ('ko', {'Hang', 'Hani'}),
    ('sr_Latn', {'Latn'}),
    ('sr', {'Cyrl', 'Latn'}),
    ('sr_RS', {'Cyrl'}),
    ('pa_PK', {'Arab'}),
    ('ug', {'Arab', 'Latn', 'Cyrl'}),
    ('tk', {'Latn', 'Cyrl', 'Arab'}),
    ('hi', {'Deva'}),
    ('my_zaw', {'Mymr'}),
    ('ur_Aran', {'Arab'}),
    ('hi_rom', {'Latn'}),
  ],
)
def test_scripts_of_languages(language, scripts):
  assert text_filters.scripts_of_language(language) == scripts


def test_language_with_unknown_script_is_rejected():
  with raises_error(errors.CorpusError, got='qqq'):
    text_filters.scripts_of_language('qqq')


@pytest.mark.parametrize(
  'settings, got',
  [
    ({'min_script_share': 2}, 2),
    ({'max_ratio': 0.5}, 0.5),
    ({'max_ratio': float('nan')}, 'nan'),
    ({'min_characters': -1}, -1),
    ({'min_characters': 9, 'max_characters': 8}, 8),
  ],
)
def test_invalid_settings_are_rejected(settings, got):
  with raises_error(errors.ConfigError, got=got):
    TextFilters(**settings)
