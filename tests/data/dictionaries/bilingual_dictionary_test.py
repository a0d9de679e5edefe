"""Tests of reading dictionaries and of translations by word."""

import gzip

import pytest

from tests.errors import raises_error
from xlflax.data.dictionaries import bilingual_dictionary as dictionaries
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary, Entry
from xlflax.utils import errors


def test_tsv_dictionary_is_read(tmp_path):
  path = tmp_path / 'en-de.tsv'
  path.write_text('cat\tKatze\t3\ncat\tKater\t0.5\nNew York\tNeu-York\n')
  assert Dictionary.read(path) == Dictionary(
    ('en', 'de'),
    (
      Entry('cat', 'Katze', 3.0),
      Entry('cat', 'Kater', 0.5),
      Entry('New York', 'Neu-York', 1.0),
    ),
  )


def test_muse_dictionary_is_read(tmp_path):
  path = tmp_path / 'en-fr.0-5000.txt.gz'
  path.write_bytes(gzip.compress(b'the le\nthe\tla\n'))
  dictionary = Dictionary.read(path, format='muse')
  assert dictionary.languages == ('en', 'fr')
  assert dictionary.entries == (
    Entry('the', 'le', 1.0),
    Entry('the', 'la', 1.0),
  )


@pytest.mark.parametrize(
  'kind, text, line, got',
  [
    ('tsv', 'a\tb\nc d\n', 2, "'c d'"),
    ('tsv', 'a\tb\t-1\n', 1, "'a\\tb\\t-1'"),
    ('muse', 'a b\nc\n', 2, "'c'"),
    ('muse', 'a b c\n', 1, "'a b c'"),
  ],
)
def test_malformed_lines_are_reported(tmp_path, kind, text, line, got):
  path = tmp_path / 'en-de.tsv'
  path.write_text(text)
  with raises_error(errors.CorpusError, mentions=(f'{path}:{line}', got)):
    Dictionary.read(path, format=kind)


@pytest.mark.parametrize('kind', ['tsv', 'muse'])
def test_empty_files_and_invalid_names_are_rejected(tmp_path, kind):
  path = tmp_path / 'en-de.tsv'
  path.write_text('')
  with raises_error(errors.CorpusError, where='en-de.tsv'):
    Dictionary.read(path, format=kind)
  (tmp_path / 'words.tsv').write_text('a\tb\n')
  with raises_error(
    errors.CorpusError,
    got='words.tsv',
    where='words.tsv',
    mentions=('<l1>-<l2>', 'l1>-<l2'),
  ):
    Dictionary.read(tmp_path / 'words.tsv')
  dictionary = Dictionary.read(tmp_path / 'words.tsv', languages=('en', 'sw'))
  assert dictionary.languages == ('en', 'sw')
  with raises_error(errors.CorpusError, where='words.tsv', mentions='en'):
    Dictionary.read(tmp_path / 'words.tsv', languages=('en', 'en'))
  with raises_error(
    errors.ConfigError,
    got='csv',
    where='Dictionary.read.format',
    mentions=('tsv', 'muse'),
  ):
    Dictionary.read(path, format='csv')


def _options(translations, word):
  return {(t.text, t.language): t.probability for t in translations[word]}


def test_translations_of_both_directions_and_several_languages():
  en_de = Dictionary(
    ('en', 'de'),
    (
      Entry('cat', 'Katze', 3.0),
      Entry('cat', 'Kater', 1.0),
      Entry('tomcat', 'Kater', 1.0),
    ),
  )
  en_fr = Dictionary(('en', 'fr'), (Entry('cat', 'chat', 1.0),))
  en_dictionaries = [en_de, en_fr]
  translations = dictionaries.translations_by_word('en', en_dictionaries)
  assert _options(translations, 'cat') == {
    ('Katze', 'de'): 3 / 8,
    ('Kater', 'de'): 1 / 8,
    ('chat', 'fr'): 1 / 2,
  }
  assert _options(
    dictionaries.translations_by_word('de', en_dictionaries), 'Kater'
  ) == {('cat', 'en'): 0.5, ('tomcat', 'en'): 0.5}
  assert dictionaries.translations_by_word('sw', en_dictionaries) == {}
  assert list(
    dictionaries.translations_by_word('en', en_dictionaries, into=['fr'])
  ) == ['cat']
  assert _options(
    dictionaries.translations_by_word('en', en_dictionaries, into=['fr']), 'cat'
  ) == {('chat', 'fr'): 1.0}


def test_duplicate_translations_have_the_largest_weight():
  dictionary = Dictionary(
    ('en', 'de'),
    (Entry('a', 'x', 1.0), Entry('a', 'y', 1.0), Entry('a', 'x', 3.0)),
  )
  other = Dictionary(('de', 'en'), (Entry('y', 'a', 1.0),))
  assert _options(
    dictionaries.translations_by_word('en', [dictionary, other]), 'a'
  ) == {('x', 'de'): 0.75, ('y', 'de'): 0.25}
