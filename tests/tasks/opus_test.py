"""Tests of tasks on files in OPUS formats."""

import gzip

import pytest
import seqio

from tests.errors import raises_error
from xlflax.data.seqio_tasks import seqio_reader as task_reader
from xlflax.data.seqio_tasks import task_registry
from xlflax.tasks import opus
from xlflax.utils import errors


@pytest.fixture
def name():
  yield 'opus_test.en_sw'
  seqio.TaskRegistry.remove('opus_test.en_sw')


def _moses(tmp_path, first: str, second: str) -> dict:
  (tmp_path / 'a.en').write_text(first)
  (tmp_path / 'a.sw').write_text(second)
  return {'train': (tmp_path / 'a.en', tmp_path / 'a.sw')}


def test_moses_files_are_read(tmp_path, name):
  files = _moses(tmp_path, 'one\n\ntwo\n', 'moja\nx\nmbili\n')
  opus.add_moses_task(name, languages=('en', 'sw'), files=files)
  assert list(task_reader.read_texts(name)) == [
    {'inputs': 'one', 'targets': 'moja'},
    {'inputs': 'two', 'targets': 'mbili'},
  ]
  assert task_registry.num_examples(name) == 2
  assert task_registry.task_languages(name) == ('en', 'sw')
  paths = [f.path for f in task_registry.fingerprint_task_files(name)]
  assert paths == [str(tmp_path / 'a.en'), str(tmp_path / 'a.sw')]


def test_moses_files_of_unequal_length_are_rejected(tmp_path, name):
  files = _moses(tmp_path, 'one\ntwo\n', 'moja\n')
  opus.add_moses_task(name, languages=('en', 'sw'), files=files)
  with raises_error(
    errors.CorpusError,
    mentions=('2 lines', tmp_path / 'a.en', '1 line', tmp_path / 'a.sw'),
  ):
    list(task_reader.read_texts(name))


def test_tsv_files_are_read(tmp_path, name):
  path = tmp_path / 'x.tsv.gz'
  path.write_bytes(gzip.compress(b'one\tmoja\ntwo\tmbili\n'))
  opus.add_tsv_task(name, languages=('en', 'sw'), files={'test': path})
  assert [e['targets'] for e in task_reader.read_texts(name, split='test')] == [
    'moja',
    'mbili',
  ]


def test_missing_files_are_rejected(tmp_path, name):
  with raises_error(errors.CorpusError, mentions=repr(name)):
    opus.add_tsv_task(
      name, languages=('en', 'sw'), files={'train': tmp_path / 'none.tsv'}
    )
