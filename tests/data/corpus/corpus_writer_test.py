"""Tests that written corpora are read back unchanged."""

import pytest

from tests.errors import raises_error
from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.corpus import corpus_writer
from xlflax.utils import errors


@pytest.mark.parametrize('compression', ['', 'gz', 'zst'])
def test_monolingual_round_trip(tmp_path, compression):
  path = corpus_writer.write_monolingual(
    tmp_path,
    'zh_Hans',
    [['你 好', ' b\tc \n d'], ['', ' '], ['e']],
    name='news',
    compression=compression,
  )
  assert path.name == '.'.join(filter(None, ['zh_Hans.news.txt', compression]))
  assert list(corpus.Corpus(tmp_path).monolingual('zh_Hans')) == [
    ('你 好', True),
    ('b c d', False),
    ('e', True),
  ]


def test_documents_are_separated_by_blank_lines(tmp_path):
  path = corpus_writer.write_monolingual(tmp_path, 'en', [['a', 'b'], ['c']])
  assert path.read_text() == 'a\nb\n\nc\n'


@pytest.mark.parametrize(
  'split, folder',
  [
    ('train', 'parallel'),
    ('validation', 'valid/parallel'),
    ('test', 'test/parallel'),
  ],
)
def test_parallel_round_trip(tmp_path, split, folder):
  path = corpus_writer.write_parallel(
    tmp_path, ('de', 'en'), [('a\tb', 'c'), ('x', ' ')], split=split
  )
  assert path == tmp_path / folder / 'de-en.tsv'
  assert list(corpus.Corpus(tmp_path).parallel('de', 'en', split)) == [
    ('a b', 'c')
  ]


def test_equal_text_is_written_as_equal_bytes(tmp_path):
  contents = {
    corpus_writer.write_monolingual(
      tmp_path / name, 'en', [['a']], compression='gz'
    ).read_bytes()
    for name in 'xy'
  }
  assert len(contents) == 1


def test_failing_writer_leaves_no_file(tmp_path):
  def documents():
    yield ['a']
    raise RuntimeError('stop')

  with pytest.raises(RuntimeError, match='stop'):
    corpus_writer.write_monolingual(tmp_path, 'en', documents())
  assert list((tmp_path / 'mono').iterdir()) == []


@pytest.mark.parametrize('language', ['EN', 'zh-Hans', 'english', 'en.x'])
def test_invalid_language_codes_are_rejected(tmp_path, language):
  with raises_error(errors.CorpusError, mentions='zh_Hans'):
    corpus_writer.write_monolingual(tmp_path, language, [['a']])


def test_unknown_split_is_rejected(tmp_path):
  with raises_error(errors.CorpusError, got='dev'):
    corpus_writer.write_monolingual(tmp_path, 'en', [['a']], split='dev')
