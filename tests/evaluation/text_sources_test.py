import gzip
import logging
import pathlib

import pytest

from tests.data.shifted_pairs import shifted_pairs, shuffled_pairs
from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.evaluation import text_sources
from xlflax.evaluation.tasks import perplexity, retrieval_task, tagging_task
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


def test_corpus_pairs(corpus, sentences):
  source = text_sources.ParallelCorpus(directory=corpus, max_pairs=3)
  assert source.pairs() == (('de', 'en'), ('en', 'ja'))
  text = source.load(('en', 'ja'))
  assert list(text.first) == sentences('en', 3)
  assert list(text.second) == sentences('ja', 3)


@pytest.mark.parametrize('languages', [('ja',), ('en', 'ja'), ('en-ja',)])
def test_corpus_pairs_by_language_or_pair(corpus, languages):
  source = text_sources.ParallelCorpus(directory=corpus, languages=languages)
  assert source.pairs() == (('en', 'ja'),)


def test_unknown_language_has_a_suggestion(corpus):
  source = text_sources.ParallelCorpus(directory=corpus, languages=('jp',))
  with raises_error(errors.CorpusError, got='jp', mentions='ja'):
    source.pairs()


def test_only_languages_without_text_are_reported(corpus):
  source = text_sources.ParallelCorpus(directory=corpus, languages=('en', 'ge'))
  with raises_error(errors.CorpusError, got='ge', fix='Did you mean de?'):
    source.pairs()
  source = text_sources.ParallelCorpus(directory=corpus, languages=('en',))
  with raises_error(errors.CorpusError, got='en'):
    source.pairs()


def test_corpus_text(corpus, sentences):
  source = text_sources.CorpusText(directory=corpus, languages=('ja', 'de'))
  assert source.languages_found() == ('ja', 'de')
  assert source.load('de') == sentences('de', 40)


def test_split_without_text_is_rejected(corpus):
  source = text_sources.CorpusText(directory=corpus, split='validation')
  with pytest.raises(errors.CorpusError):
    source.languages_found()


@pytest.mark.parametrize(
  'source', [text_sources.CorpusText, text_sources.ParallelCorpus]
)
def test_split_folder_instead_of_the_corpus_has_a_hint(tmp_path, source):
  for name in ('mono/de.txt', 'parallel/de-en.tsv'):
    path = tmp_path / 'c/test' / name
    path.parent.mkdir(parents=True)
    path.write_text('a\tb\n')
  source = source(directory=str(tmp_path / 'c/test'))
  languages = getattr(source, 'languages_found', getattr(source, 'pairs', None))
  with raises_error(errors.CorpusError, fix=f'Did you mean {tmp_path / "c"}?'):
    languages()


def test_language_without_text_is_rejected(corpus):
  source = text_sources.CorpusText(directory=corpus, languages=('de', 'tr'))
  with raises_error(errors.CorpusError, got='tr', mentions=('de', 'en', 'ja')):
    source.languages_found()


def test_directories_are_listed_again(tmp_path, monkeypatch):
  """The same relative path may refer to another directory later."""
  for name in ('first', 'second'):
    folder = tmp_path / name / 'corpus' / 'test' / 'mono'
    folder.mkdir(parents=True)
    (folder / 'de.txt').write_text(f'{name}\n')
  text = text_sources.CorpusText(directory='corpus')
  monkeypatch.chdir(tmp_path / 'first')
  assert text.load('de') == ['first']
  (tmp_path / 'first' / 'corpus' / 'test' / 'mono' / 'fr.txt').write_text('x\n')
  assert text.languages_found() == ('de', 'fr')
  monkeypatch.chdir(tmp_path / 'second')
  assert text.load('de') == ['second']
  assert text.languages_found() == ('de',)


def test_fingerprint_depends_on_text_not_path(tmp_path):
  prints = []
  for name, lines in (('a', 'x\ny\n'), ('b', 'x\ny\n'), ('c', 'x\nz\n')):
    folder = tmp_path / name / 'test' / 'mono'
    folder.mkdir(parents=True)
    (folder / 'de.txt.gz').write_bytes(gzip.compress(lines.encode()))
    prints.append(
      text_sources.CorpusText(
        directory=str(pathlib.Path(tmp_path / name))
      ).fingerprint()
    )
  assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
  'pair, name',
  [(('de', 'en'), 'de'), (('en', 'sw'), 'sw'), (('de', 'fr'), 'de-fr')],
)
def test_pair_name(pair, name):
  assert text_sources.pair_name(pair) == name


def test_parallel_files_read_columns_and_aligned_files(tmp_path):
  (tmp_path / 'a.tsv').write_text('1\tcat\t猫\n2\tdog\t犬\n')
  (tmp_path / 'x.de').write_text('Katze\n')
  (tmp_path / 'x.ru').write_text('кошка\n')
  source = text_sources.ParallelFiles(
    columns=(1, 2),
    files={
      'en-ja': str(tmp_path / 'a.tsv'),
      'de-ru': (str(tmp_path / 'x.de'), str(tmp_path / 'x.ru')),
    },
  )
  assert source.pairs() == (('en', 'ja'), ('de', 'ru'))
  assert source.load(('en', 'ja')) == (['cat', 'dog'], ['猫', '犬'])
  assert source.load(('de', 'ru')) == (['Katze'], ['кошка'])
  before = source.fingerprint()
  (tmp_path / 'x.ru').write_text('кот\n')
  assert source.fingerprint() != before


@pytest.mark.parametrize('lines', [0, 1])
def test_shifted_lines_cause_a_warning(tmp_path, caplog, lines):
  sides = zip(*shifted_pairs(lines=lines), strict=True)
  paths = tmp_path / 'test.en', tmp_path / 'test.de'
  for path, side in zip(paths, sides, strict=True):
    path.write_text('\n'.join(side))
  source = text_sources.ParallelFiles(files={'en-de': tuple(map(str, paths))})
  with caplog.at_level(logging.WARNING):
    source.load(('en', 'de'))
  assert len(caplog.records) == lines


def test_shuffled_lines_cause_a_warning(tmp_path, caplog):
  corpus_writer.write_parallel(
    tmp_path, ('en', 'de'), shuffled_pairs(), split='test'
  )
  source = text_sources.ParallelCorpus(directory=str(tmp_path))
  with caplog.at_level(logging.WARNING):
    source.load(source.pairs()[0])
  [record] = caplog.records
  assert_mentions(record.getMessage(), tmp_path, 'en-de', 'xlflax preprocess')


@pytest.mark.parametrize('lines', [0, 1])
def test_shifted_lines_of_a_corpus_cause_a_warning(tmp_path, caplog, lines):
  pairs = shifted_pairs(lines=lines)
  corpus_writer.write_parallel(tmp_path, ('en', 'de'), pairs, split='test')
  source = text_sources.ParallelCorpus(directory=str(tmp_path))
  with caplog.at_level(logging.WARNING):
    source.load(source.pairs()[0])
  assert len(caplog.records) == lines
  for record in caplog.records:
    assert_mentions(record.getMessage(), tmp_path, 'test', '1 line')


def test_swapped_languages_of_a_corpus_are_rejected(tmp_path):
  pairs = [('кошка спит', 'the cat sleeps')] * 20
  corpus_writer.write_parallel(tmp_path, ('en', 'ru'), pairs, split='test')
  source = text_sources.ParallelCorpus(directory=str(tmp_path))
  with raises_error(errors.CorpusError, mentions=(tmp_path, 'ru-en')):
    source.load(('en', 'ru'))


def test_max_pairs_limits_pairs(tmp_path):
  (tmp_path / 'a.tsv').write_text('cat\tchat\ndog\tchien\n')
  source = text_sources.ParallelFiles(
    files={'en-fr': str(tmp_path / 'a.tsv')}, max_pairs=1
  )
  assert source.load(('en', 'fr')) == (['cat'], ['chat'])


def test_invalid_pair_names_are_rejected():
  with raises_error(
    errors.ConfigError, got='en', where='ParallelFiles.files', mentions='en-ja'
  ):
    text_sources.ParallelFiles(files={'en': 'a.tsv'})


def test_both_directions_of_a_pair_are_rejected():
  files = {'en-fr': 'a.tsv', 'fr-en': 'b.tsv', 'de-fr': 'c.tsv'}
  with raises_error(
    errors.ConfigError, got='en-fr, fr-en, de-fr', where='ParallelFiles.files'
  ):
    text_sources.ParallelFiles(files=files).pairs()
  del files['fr-en']
  assert len(text_sources.ParallelFiles(files=files).pairs()) == 2


def test_pairs_in_directory_finds_a_nested_corpus(tmp_path):
  pairs = [('ein Haus', 'a house')]
  corpus_writer.write_parallel(
    tmp_path / 'iwslt14', ('de', 'en'), pairs, split='test'
  )
  (tmp_path / 'xnli').mkdir()
  source = text_sources.pairs_in_directory(
    str(tmp_path), 'iwslt14', languages=('de-en',)
  )
  assert source.pairs() == (('de', 'en'),)
  assert source.load(('de', 'en')) == (['ein Haus'], ['a house'])


@pytest.mark.parametrize(
  'task, source',
  [
    (
      retrieval_task.Retrieval,
      "xlflax.evaluation.ParallelCorpus(directory='x')",
    ),
    (perplexity.Perplexity, "xlflax.evaluation.CorpusText(directory='x')"),
    (tagging_task.Tagging, 'xlflax.data.FileDataset'),
  ],
)
def test_path_instead_of_a_source_has_a_hint(task, source):
  with raises_error(errors.ConfigError, got='x') as error:
    task(source='x')
  assert source in error.value.fix
