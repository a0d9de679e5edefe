"""Tests of listing, reading, counting and validating corpus directories."""

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.corpus import corpus_writer
from xlflax.utils import errors


def _write(directory, files: dict[str, str]):
  for name, content in files.items():
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding='utf-8')
  return directory


def _error(directory) -> str:
  with pytest.raises(errors.CorpusError) as caught:
    corpus.Corpus(directory)
  return str(caught.value)


def test_corpus_lists_languages_pairs_and_splits(toy_corpus):
  assert toy_corpus.languages == ('de', 'en', 'ru')
  assert toy_corpus.pairs == (('de', 'en'),)
  assert toy_corpus.monolingual_languages() == ('de', 'en', 'ru')
  assert toy_corpus.parallel_pairs('test') == (('de', 'en'),)
  assert toy_corpus.parallel_pairs('validation') == ()
  assert toy_corpus.splits('ru') == ('train', 'validation')
  assert toy_corpus.splits('de', 'en') == ('train', 'test')
  assert [d.languages for d in toy_corpus.dictionaries] == [('en', 'de')]


def test_blank_lines_and_files_are_document_boundaries(tmp_path):
  _write(
    tmp_path, {'mono/en.txt': '\n\na\nb\n \n\nc\n', 'mono/en.more.txt': 'd\n'}
  )
  lines = list(corpus.Corpus(tmp_path).monolingual('en'))
  assert lines == [('d', True), ('a', True), ('b', False), ('c', True)]


def test_pairs_are_read_in_either_order(tmp_path):
  _write(tmp_path, {'parallel/de-en.tsv': 'ja\tyes\nnein\tno\n'})
  pair_corpus = corpus.Corpus(tmp_path)
  assert list(pair_corpus.parallel('de', 'en')) == [
    ('ja', 'yes'),
    ('nein', 'no'),
  ]
  assert list(pair_corpus.parallel('en', 'de')) == [
    ('yes', 'ja'),
    ('no', 'nein'),
  ]
  assert pair_corpus.count('en', 'de') == pair_corpus.count('de', 'en') == 2


def test_counts_and_validate_agree(toy_corpus):
  assert toy_corpus.validate() == {
    'dictionaries/en-de': 2,
    'mono/de': 60,
    'mono/en': 200,
    'mono/ru': 100,
    'parallel/de-en': 50,
    'test/parallel/de-en': 20,
    'valid/mono/de': 20,
    'valid/mono/en': 20,
    'valid/mono/ru': 20,
  }
  assert toy_corpus.count('ru') == len(list(toy_corpus.monolingual('ru')))
  assert toy_corpus.count('ru', split='validation') == 20
  assert toy_corpus.count('de', 'en', split='test') == 20


def test_changed_file_is_counted_again(tmp_path):
  _write(tmp_path, {'mono/en.txt': 'a\n'})
  changed_corpus = corpus.Corpus(tmp_path)
  before = changed_corpus.fingerprint()
  assert changed_corpus.count('en') == 1
  _write(tmp_path, {'mono/en.txt': 'a\nbc\n'})
  assert changed_corpus.count('en') == 2
  assert changed_corpus.fingerprint() != before


def test_fingerprints_by_split_and_language(toy_corpus):
  paths = [f.path for f in toy_corpus.fingerprint('test')]
  assert paths == ['test/parallel/de-en.tsv']
  paths = [f.path for f in toy_corpus.group_fingerprint('de')]
  assert paths == ['mono/de.txt.gz']


def test_reading_an_unknown_language_is_an_error(toy_corpus):
  with raises_error(errors.CorpusError, mentions=('fi', 'de', 'en', 'ru')):
    next(toy_corpus.monolingual('fi'))


def test_missing_directory_is_an_error(tmp_path):
  message = _error(tmp_path / 'nowhere')
  assert_mentions(message, f'{tmp_path}/nowhere')


@pytest.mark.parametrize(
  'path', ['mono', 'parallel', 'mono/en.txt', 'parallel/de-en.tsv']
)
def test_path_inside_a_corpus_suggests_the_corpus(tmp_path, path):
  _write(tmp_path / 'c', {'mono/en.txt': 'a\n', 'parallel/de-en.tsv': 'a\tb\n'})
  with pytest.raises(errors.CorpusError) as caught:
    corpus.Corpus(tmp_path / 'c' / path)
  assert f'{tmp_path}/c?' in caught.value.fix


def test_current_directory_inside_a_corpus_suggests_the_corpus(
  tmp_path, monkeypatch
):
  _write(tmp_path, {'c/mono/en.txt': 'a\n'})
  monkeypatch.chdir(tmp_path / 'c' / 'mono')
  with pytest.raises(errors.CorpusError) as caught:
    corpus.Corpus('.')
  assert f'{tmp_path}/c?' in caught.value.fix


def test_corpus_named_mono_does_not_suggest_its_parent(tmp_path):
  _write(tmp_path, {'mono/mono/en.txt': 'a\n', 'mono/parts/en.txt': 'a\n'})
  with pytest.raises(errors.CorpusError) as caught:
    corpus.Corpus(tmp_path / 'mono')
  assert caught.value.got == 'parts'
  assert f'{tmp_path}?' not in caught.value.fix


def test_corpus_without_text_is_an_error(tmp_path):
  _write(tmp_path, {'dictionaries/de-en.tsv': 'a\tb\n'})
  message = _error(tmp_path)
  assert_mentions(message, 'dictionaries')


@pytest.mark.parametrize('content', ['', '\n  \n\n'])
def test_language_without_text_is_an_error(tmp_path, content):
  _write(tmp_path, {'mono/en.txt': 'a\n', 'mono/sw.txt': content})
  message = _error(tmp_path)
  assert_mentions(message, 'sw')
  assert_mentions(message, f'{tmp_path}/mono/sw.txt')


def test_conflicting_directions_name_the_file_with_swapped_columns(tmp_path):
  german = [
    f'Die Katze schläft im Haus Nummer {n} und träumt' for n in range(9)
  ]
  english = [f'The cat sleeps in house number {n} and dreams' for n in range(9)]
  columns = ''.join(f'{x}\t{y}\n' for x, y in zip(english, german, strict=True))
  _write(
    tmp_path,
    {
      'mono/de.txt': '\n'.join(german),
      'mono/en.txt': '\n'.join(english),
      'parallel/de-en.tsv': columns,
      'valid/parallel/en-de.tsv': columns,
    },
  )
  with raises_error(errors.CorpusError, where=tmp_path) as error:
    corpus.Corpus(tmp_path)
  assert 'parallel/de-en.tsv' in error.value.fix
  assert 'valid/parallel' not in error.value.fix


def test_pair_in_both_directions_is_an_error(tmp_path):
  _write(
    tmp_path,
    {'parallel/de-en.tsv': 'a\tb\n', 'test/parallel/en-de.tsv': 'a\tb\n'},
  )
  with raises_error(
    errors.CorpusError,
    got='parallel/de-en.tsv for de-en; test/parallel/en-de.tsv for en-de',
    where=tmp_path,
  ):
    corpus.Corpus(tmp_path)


@pytest.mark.parametrize(
  'name',
  [
    'validation/mono/en.txt',
    'en.txt',
    'mono/en.doc',
    'valid/en.txt',
    'valid/dictionaries/de-en.tsv',
    'mono/deep/en.txt',
  ],
)
def test_unknown_file_names_are_rejected(tmp_path, name):
  _write(tmp_path, {'mono/en.txt': 'a\n', name: 'a\n'})
  message = _error(tmp_path)
  assert_mentions(message, tmp_path)


def test_readme_and_hidden_files_are_ignored(tmp_path):
  _write(
    tmp_path,
    {
      'mono/en.txt': 'a\n',
      'README.md': 'x',
      '.notes': 'x',
      'LICENSE': 'x',
      'mono/.en.txt.partial': '',
    },
  )
  assert corpus.Corpus(tmp_path).languages == ('en',)


def test_malformed_lines_are_rejected_by_reading_and_validate(tmp_path):
  _write(tmp_path, {'parallel/de-en.tsv': 'a\tb\na b\n'})
  malformed_corpus = corpus.Corpus(tmp_path)
  for read in (
    malformed_corpus.validate,
    lambda: list(malformed_corpus.parallel('de', 'en')),
  ):
    with pytest.raises(errors.CorpusError) as caught:
      read()
    message = str(caught.value)
    assert_mentions(message, f'{tmp_path}/parallel/de-en.tsv:2')
    assert_mentions(message, 1)


def test_invalid_utf8_is_reported_with_its_line(tmp_path):
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono' / 'en.txt').write_bytes(b'fine\n\xff\n')
  with raises_error(
    errors.CorpusError, where='en.txt:2', mentions='mono/en.txt:2'
  ):
    corpus.Corpus(tmp_path).validate()


def test_corpus_with_only_test_text_is_valid(tmp_path):
  corpus_writer.write_parallel(
    tmp_path, ('de', 'en'), [('a', 'b')], split='test'
  )
  test_corpus = corpus.Corpus(tmp_path)
  assert test_corpus.languages == ('de', 'en')
  assert test_corpus.parallel_pairs() == ()


def test_all_unknown_names_are_reported_at_once(tmp_path):
  for name in ('mono/en.txt', 'mono/english.txt', 'valid/mono/zh-Hans.txt'):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('a\n')
  with raises_error(
    errors.CorpusError, got='mono/english.txt, valid/mono/zh-Hans.txt'
  ):
    corpus.Corpus(tmp_path)
  (tmp_path / 'valid/mono/zh-Hans.txt').unlink()
  with raises_error(
    errors.CorpusError, got='english.txt', where='mono/english.txt'
  ):
    corpus.Corpus(tmp_path)
