"""Tests of dictionary matches in text and of sampled translations."""

import numpy as np
import pytest

from xlflax.data.dictionaries.bilingual_dictionary import (
  Dictionary,
  Entry,
  translations_by_word,
)
from xlflax.data.dictionaries.dictionary_matcher import Case, TranslationTable


def _table(language, *entries, languages=('en', 'de')):
  dictionary = Dictionary(languages, tuple(Entry(*e, 1.0) for e in entries))
  return TranslationTable(
    language, translations_by_word(language, [dictionary])
  )


def _find_matches(table, *texts):
  """Returns (first word of the match, number of words, cased translation)."""
  parts = table.split(texts)
  matches = table.find(parts)
  return [
    (
      parts[2 * word + 1],
      size,
      Case(case).apply(table.texts[number], table.languages[number]),
    )
    for word, size, entry, case in zip(
      *map(np.ndarray.tolist, matches[:4]), strict=True
    )
    for number in table.choose(np.array([entry]), np.zeros(1)).tolist()
  ]


@pytest.mark.parametrize(
  'text, expected',
  [
    ('cat', 'katze'),
    ('Cat', 'Katze'),
    ('CAT', 'KATZE'),
    ('Mouse', None),
    ('Germany', 'Deutschland'),
    ('GERMANY', 'DEUTSCHLAND'),
    ('germany', None),
    ('A', 'Ein'),
    ('May', 'Mai'),
    ('may', 'darf'),
    ('NEW YORK', 'NEU-YORK'),
    ('new york', None),
    ('Red hot', 'Glühend heiß'),
    ('don’t', 'nicht'),
    ("Don't", 'Nicht'),
    ('cafe\u0301', 'Kaffee'),
  ],
)
def test_translations_follow_the_case_of_the_text(text, expected):
  table = _table(
    'en',
    ('cat', 'katze'),
    ('Germany', 'Deutschland'),
    ('a', 'ein'),
    ('May', 'Mai'),
    ('may', 'darf'),
    ('New York', 'Neu-York'),
    ('red hot', 'glühend heiß'),
    ("don't", 'nicht'),
    ('café', 'Kaffee'),
  )
  matches = _find_matches(table, text)
  assert [t for _, _, t in matches] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
  ('languages', 'entry', 'text', 'expected'),
  [
    (('tr', 'en'), ('insan', 'human'), 'İnsan', 'Human'),
    (('tr', 'en'), ('ışık', 'light'), 'IŞIK', 'LIGHT'),
    (('tur_Latn', 'en'), ('insan', 'human'), 'İNSAN', 'HUMAN'),
    (('en', 'tr'), ('good', 'iyi'), 'Good', 'İyi'),
    (('en', 'az'), ('dog', 'it'), 'DOG', 'İT'),
    (('el', 'en'), ('λόγος', 'word'), 'ΛΌΓΟΣ', 'WORD'),
    (('el', 'en'), ('Αθήνα', 'Athens'), 'ΑΘΗΝΑ', 'ATHENS'),
    (('en', 'el'), ('word', 'λόγος'), 'WORD', 'ΛΟΓΟΣ'),
    (('de', 'en'), ('Straße', 'street'), 'STRASSE', 'STREET'),
    (('en', 'nl'), ('ice', 'ijs'), 'Ice', 'IJs'),
    (('en', 'ka'), ('cat', 'კატა'), 'Cat', 'კატა'),
    (('vi', 'en'), ('người', 'person'), 'Ngu\u031bo\u031b\u0300i', 'Person'),
  ],
)
def test_case_rules_of_languages(languages, entry, text, expected):
  table = _table(languages[0], entry, languages=languages)
  assert [t for _, _, t in _find_matches(table, text)] == [expected]


def test_longest_entry_is_matched_first():
  table = _table(
    'en',
    ('new', 'neu'),
    ('new york', 'NY'),
    ('new york city', 'NYC'),
    ('york', 'Yorck'),
  )
  assert _find_matches(
    table, 'new  york city, new york, new york', 'york new'
  ) == [
    ('new', 3, 'NYC'),
    ('new', 2, 'NY'),
    ('new', 2, 'NY'),
    ('york', 1, 'Yorck'),
    ('new', 1, 'neu'),
  ]


def test_matches_do_not_cross_lines_or_punctuation():
  table = _table('en', ('new york', 'NY'))
  assert _find_matches(table, 'new', 'york') == []
  assert _find_matches(table, 'new, york') == []


def test_punctuation_around_an_entry_is_ignored():
  table = _table(
    'en', ('etc.', 'usw.'), ('U.S. army', 'US-Armee'), ('...', '…')
  )
  assert _find_matches(table, 'etc. the U.S. army') == [
    ('etc', 1, 'usw'),
    ('U', 3, 'US-Armee'),
  ]
  assert len(table) == 2 and table.skipped == 1


def test_matches_have_positions_and_lines():
  table = _table('en', ('a', 'x'), ('b c', 'y z'))
  matches = table.find(table.split(['q a', '', 'b c a', 'a']))
  assert matches.num_words == 6
  assert matches.lines[matches.words].tolist() == [0, 2, 2, 3]
  assert matches.places[matches.words].tolist() == [1, 0, 2, 0]
  assert matches.sizes.tolist() == [1, 2, 1, 1]
  assert table.costs[table.choose(matches.entries, np.zeros(4))].tolist() == [
    1,
    2,
    1,
    1,
  ]


def test_choose_samples_by_weight():
  dictionary = Dictionary(
    ('en', 'de'),
    (Entry('a', 'x', 1.0), Entry('a', 'y', 3.0), Entry('b', 'z', 1.0)),
  )
  table = TranslationTable('en', translations_by_word('en', [dictionary]))
  draws = np.array([0, 0.24, 0.25, 1 - 2.0**-53])
  for entry, expected in ((0, 'xxyy'), (1, 'zzzz')):
    chosen = table.choose(np.full(4, entry), draws)
    assert ''.join(table.texts[i] for i in chosen) == expected


def test_choose_does_not_round_into_the_next_entry():
  table = _table('en', *((f'w{i}', f't{i}') for i in range(3000)))
  entries = np.arange(3000)
  np.testing.assert_array_equal(
    table.choose(entries, np.full(3000, 1 - 2.0**-53)), entries
  )


def test_chinese_entries_of_several_segments_are_matched():
  table = _table(
    'zh',
    ('北京大学生', 'student in Peking'),
    ('猫', 'cat'),
    languages=('zh', 'en'),
  )
  matches = table.find(table.split(['他是北京大学生，有猫。']))
  assert table.spaced.all()
  assert [
    table.texts[i]
    for i in table.choose(matches.entries, np.zeros(matches.entries.size))
  ] == ['student in Peking', 'cat']
