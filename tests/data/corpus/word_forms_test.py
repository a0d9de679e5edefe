"""Tests of language-specific case rules and word normalization."""

import pytest

from xlflax.data.corpus import word_forms


@pytest.mark.parametrize(
  ('language', 'text', 'lower'),
  [
    ('tr', 'IŞIK İNSAN', 'ışık insan'),
    ('aze_Latn', 'I\u0307', 'i'),
    ('en', 'IT', 'it'),
    ('', 'IT', 'it'),
    ('el', 'ΛΌΓΟΣ ΣΟΦΟΣ', 'λόγος σοφος'),
    ('de', 'STRAẞE', 'straße'),
    ('kk', 'ҚАЗАҚ', 'қазақ'),
  ],
)
def test_lower(language, text, lower):
  assert word_forms.lower(text, language) == lower


@pytest.mark.parametrize(
  ('language', 'text', 'upper'),
  [
    ('tr', 'ışık iyi', 'IŞIK İYİ'),
    ('en', 'iyi', 'IYI'),
    ('el', 'Αθήνα', 'ΑΘΗΝΑ'),
    ('el', 'Ευρωπαϊκή', 'ΕΥΡΩΠΑΪΚΗ'),
    ('el', 'café', 'CAFÉ'),
    ('lt', 'i\u0307\u0301', 'I\u0301'),
    ('de', 'straße', 'STRASSE'),
  ],
)
def test_upper(language, text, upper):
  assert word_forms.upper(text, language) == upper


@pytest.mark.parametrize(
  ('language', 'text', 'capitalized'),
  [
    ('tr', 'iyi gün', 'İyi gün'),
    ('nl', 'ijs', 'IJs'),
    ('en', 'ijs', 'Ijs'),
    ('ka', 'კატა', 'კატა'),
    ('hr', 'ǆep', 'ǅep'),
    ('en', 'iPhone', 'IPhone'),
    ('en', '', ''),
  ],
)
def test_capitalize(language, text, capitalized):
  assert word_forms.capitalize(text, language) == capitalized


@pytest.mark.parametrize(
  ('language', 'first', 'second'),
  [
    ('el', 'ΑΘΗΝΑ', 'Αθήνα'),
    ('el', 'λόγος', 'ΛΟΓΟΣ'),
    ('el', 'Ευρωπαϊκή', 'ΕΥΡΩΠΑΙΚΗ'),
    ('de', 'STRASSE', 'Straße'),
    ('tr', 'ISPARTA', 'Isparta'),
    ('fr', 'AUJOURD’HUI', "aujourd'hui"),
    ('vi', 'NGƯỜI', 'ngu\u031bo\u031b\u0300i'),
  ],
)
def test_fold_unifies_spellings(language, first, second):
  assert word_forms.fold(first, language) == word_forms.fold(second, language)


def test_fold_distinguishes_dotted_and_dotless_i():
  assert word_forms.fold('KIR', 'tr') != word_forms.fold('KİR', 'tr')


def test_word_index_finds_equivalent_spellings():
  index = word_forms.WordIndex(['e\u0301te\u0301', 'Haus', 'haus'], 'de')
  spellings = ('été', 'Été', 'Haus', 'HAUS', 'x')
  assert [index.find(word) for word in spellings] == [0, 0, 1, 2, None]
