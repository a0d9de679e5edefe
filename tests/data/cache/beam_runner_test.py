"""Tests of writing caches with Apache Beam."""

import pytest

from tests.data.cache import writing
from tests.errors import raises_error
from xlflax.data.cache import cache_reader, cache_writer
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.utils import errors

beam_runner = pytest.importorskip(
  'xlflax.data.cache.beam_runner', exc_type=ImportError
)

_TWO_PROCESSES = (
  '--runner=DirectRunner',
  '--direct_num_workers=2',
  '--direct_running_mode=multi_processing',
)


def _write(directory, corpus, vocabulary, runner=None, mixtures=writing.BOTH):
  cache_writer.write_cache(
    writing.plan(directory, corpus, vocabulary, mixtures=mixtures),
    runner=runner,
  )
  cache = cache_reader.TokenCache(directory)
  return [cache.digest(name, 'train') for name in sorted(cache.mixtures)]


@pytest.mark.parametrize(
  'flags', [('--runner=DirectRunner',), _TWO_PROCESSES], ids=['one', 'two']
)
def test_beam_cache_equals_the_cache_of_one_process(
  toy_corpus, toy_vocabulary, tmp_path, flags
):
  runner = beam_runner.runner(flags)
  assert _write(tmp_path / 'b', toy_corpus, toy_vocabulary, runner) == _write(
    tmp_path / 'a', toy_corpus, toy_vocabulary
  )


def test_errors_in_beam_workers_are_reported(tmp_path, toy_vocabulary):
  """Beam reports only the text of an error in a worker."""
  corpus_writer.write_monolingual(tmp_path / 'corpus', 'en', [['the cat']])
  path = tmp_path / 'corpus/mono/en.txt'
  path.write_bytes(b'the cat\n' * 400 + b'a \xff\n')
  with raises_error(errors.CorpusError, mentions=('UTF-8', 'en.txt:401')):
    _write(
      tmp_path / 'b',
      Corpus(tmp_path / 'corpus'),
      toy_vocabulary,
      beam_runner.runner(['--runner=DirectRunner']),
      mixtures=['corpus.mono'],
    )


def test_unknown_beam_runner_is_rejected():
  with raises_error(errors.ConfigError, got='Nothing'):
    beam_runner.runner(['--runner=Nothing'])


def test_invalid_beam_option_is_rejected():
  with raises_error(errors.ConfigError, mentions='two'):
    beam_runner.runner(['--runner=DirectRunner', '--direct_num_workers=two'])
