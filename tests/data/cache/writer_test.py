"""Writing token caches: content, resuming, refusing."""

import errno
import fcntl
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from xlflax import errors
from xlflax.data.cache import format as cache_format
from xlflax.data.cache import jobs as cache_jobs
from xlflax.data.cache import reader as cache_reader
from xlflax.data.cache import shards as cache_shards
from xlflax.data.cache import writer as cache_writer
from xlflax.data.corpus import directory as corpus_lib
from xlflax.data.corpus import writer as corpus_writer
from xlflax.data.seqio_tasks import registration


def _write(directory, corpus, vocabulary, **settings):
  return cache_writer.write_cache(
    directory,
    **{
      'mixtures': ['corpus.mono'],
      'vocabulary': vocabulary,
      'shard_size': 32,
      'register': functools.partial(
        registration.register_tasks, str(corpus.directory), ()
      ),
    }
    | settings,
  )


def _files(directory):
  """Relative path -> content of every file but the lock."""
  return {
    str(path.relative_to(directory)): path.read_bytes()
    for path in sorted(pathlib.Path(directory).rglob('*'))
    if path.is_file() and path.name != '.lock'
  }


@pytest.fixture(scope='module')
def written(tmp_path_factory, toy_corpus, toy_vocabulary):
  """An uninterrupted cache and what its tasks say."""
  directory = tmp_path_factory.mktemp('written')
  metas = _write(
    directory,
    toy_corpus,
    toy_vocabulary,
    mixtures=['corpus.mono', 'corpus.parallel'],
  )
  return directory, metas


def test_content(written, toy_corpus, toy_vocabulary):
  directory, metas = written
  assert [meta.task for meta in metas] == [
    'corpus.mono.de',
    'corpus.mono.en',
    'corpus.mono.ru',
    'corpus.parallel.de_en',
  ]
  tasks = cache_reader.TokenCache(directory).open('corpus.mono', 'train')
  english = tasks['corpus.mono.en']
  lines = list(toy_corpus.monolingual('en'))
  eos = toy_vocabulary.spec.eos_id
  expected = [[*toy_vocabulary.encode(line.text), eos] for line in lines]
  [side] = english.sides
  assert side.tokens.dtype == np.uint16
  assert side.tokens.tolist() == sum(expected, [])
  assert side.lengths().tolist() == [len(ids) - 1 for ids in expected]
  assert english.starts_document.tolist() == [
    line.starts_document for line in lines
  ]
  assert not (directory / 'work').exists()


def test_meta_has_statistics_and_fingerprint(
  written, toy_corpus, toy_vocabulary
):
  directory, metas = written
  meta = json.loads(
    (
      directory / 'tasks' / 'corpus.parallel.de_en' / 'train' / 'meta.json'
    ).read_text()
  )
  tokens = [
    sum(len(toy_vocabulary.encode(side)) for side in sides)
    for sides in zip(*toy_corpus.parallel('de', 'en'), strict=True)
  ]
  assert [side['tokens'] for side in meta['statistics']] == tokens
  first = meta['statistics'][0]
  assert first['language'] == 'de' and first['sentences'] == 50
  assert first['tokens_per_sentence'] == tokens[0] / 50
  assert first['unknown_rate'] == first['unknown'] / tokens[0]
  assert meta['vocabulary'] == toy_vocabulary.hash
  [file] = meta['fingerprint']['files']
  assert file[0] == 'parallel/de-en.tsv'
  assert metas[3].languages == ('de', 'en') and metas[3].examples == 50


def test_mixture_rates_are_stored(written):
  rates = cache_reader.TokenCache(written[0]).rates('corpus.mono', 'train')
  assert rates['corpus.mono.en'] == pytest.approx(200**0.7)
  assert list(rates) == [f'corpus.mono.{code}' for code in ('de', 'en', 'ru')]


class _Killed(BaseException):
  pass


@pytest.mark.parametrize('where', ['write_shard', 'merge'])
@pytest.mark.parametrize('after', [0, 1, 2])
def test_resuming_gives_the_same_files(
  written, tmp_path, toy_corpus, toy_vocabulary, monkeypatch, where, after
):
  """Stopped in the middle of a shard or a merge, again and again."""
  stops, original = iter([after, 1, 3]), getattr(cache_shards, where)
  replace = os.replace

  def run():
    left = [next(stops)]

    def stop(*args):
      left[0] -= 1
      if left[0] < 0:
        raise _Killed
      replace(*args)

    def interrupted(*args, **kwargs):
      monkeypatch.setattr(os, 'replace', stop)
      try:
        return original(*args, **kwargs)
      finally:
        monkeypatch.setattr(os, 'replace', replace)

    monkeypatch.setattr(cache_shards, where, interrupted)
    try:
      _write(tmp_path, toy_corpus, toy_vocabulary)
    finally:
      monkeypatch.setattr(cache_shards, where, original)

  for _ in range(3):
    try:
      run()
    except _Killed:
      with pytest.raises(errors.CacheError, match='incomplete'):
        cache_reader.TokenCache(tmp_path).open('corpus.mono', 'train')
  _write(
    tmp_path,
    toy_corpus,
    toy_vocabulary,
    mixtures=['corpus.mono', 'corpus.parallel'],
  )
  assert _files(tmp_path) == _files(written[0])


def test_finished_shards_are_not_written_again(
  tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  numbers = []
  original = cache_shards.write_shard

  def record(path, *args, **kwargs):
    numbers.append(path.name)
    if len(numbers) == 4:
      raise _Killed
    return original(path, *args, **kwargs)

  monkeypatch.setattr(cache_shards, 'write_shard', record)
  for _ in range(2):
    try:
      _write(tmp_path, toy_corpus, toy_vocabulary, mixtures=['corpus.mono.en'])
    except _Killed:
      numbers.append('killed')
  # 200 examples in shards of 32: the seventh is the last.
  assert numbers == [f'{i:06d}.npz' for i in range(4)] + ['killed'] + [
    f'{i:06d}.npz' for i in range(3, 7)
  ]


_PROGRAM = """
import functools, os, signal, sys
from xlflax.data.cache import writer as cache_writer
from xlflax.data.seqio_tasks import registration
from xlflax.data.vocabularies import vocabulary
corpus, vocabulary_dir, output = sys.argv[1:]

def report(progress):
  if progress.done >= 5:
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == '__main__':
  cache_writer.write_cache(
      output, mixtures=['corpus.mono', 'corpus.parallel'],
      vocabulary=vocabulary.Vocabulary.load(vocabulary_dir), shard_size=32,
      register=functools.partial(registration.register_tasks, corpus, ()),
      report=report)
"""


def test_killed_process_and_two_processes(
  written, tmp_path, toy_corpus, toy_vocabulary
):
  program = tmp_path / 'program.py'
  program.write_text(_PROGRAM)
  vocabulary = tmp_path / 'vocabulary'
  _save(toy_vocabulary, vocabulary)
  killed = subprocess.run(
    [
      sys.executable,
      program,
      toy_corpus.directory,
      vocabulary,
      tmp_path / 'cache',
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  assert killed.returncode == -signal.SIGKILL, killed.stderr
  finished = sorted((tmp_path / 'cache').rglob('*.npz'))
  assert finished
  assert not (tmp_path / 'cache/tasks/corpus.mono.ru').exists()
  _write(
    tmp_path / 'cache',
    toy_corpus,
    toy_vocabulary,
    num_processes=2,
    mixtures=['corpus.mono', 'corpus.parallel'],
  )
  assert _files(tmp_path / 'cache') == _files(written[0])


def _save(vocabulary, directory):
  from xlflax.data.vocabularies import vocabulary as vocabulary_lib

  directory.mkdir()
  (directory / vocabulary_lib.MODEL_FILE).write_bytes(vocabulary.model)
  (directory / vocabulary_lib.DESCRIPTION_FILE).write_text(
    json.dumps(vocabulary.describe())
  )


def test_units_share_out_missing_shards(tmp_path):
  job = cache_jobs.Job(
    cache=tmp_path,
    task='t',
    split='train',
    languages=('en',),
    source_examples=100,
    vocabulary='v',
    fingerprint='{}',
    shard_size=10,
    dtype='uint16',
  )
  runs = [(unit.first, unit.last) for unit in job.units(1)]
  assert runs == [(0, 4), (4, 8), (8, None)]
  job.work.mkdir(parents=True)
  for number in (0, 1, 5):
    cache_shards.shard_path(job.work, number).touch()
  runs = [(unit.first, unit.last) for unit in job.units(2)]
  assert runs == [(2, 4), (4, 5), (6, 8), (8, None)]
  for number in range(10):
    cache_shards.shard_path(job.work, number).touch()
  assert [(u.first, u.last) for u in job.units(2)] == [(10, None)]
  cache_format.write_json(
    job.work / 'end.json', {'format': cache_format.FORMAT, 'shards': 10}
  )
  assert job.units(2) == []


def _corpus(directory, lines, split='train'):
  corpus_writer.write_monolingual(directory, 'en', [lines], split=split)
  return corpus_lib.Corpus(directory)


def test_empty_tokenisations_are_left_out(tmp_path, toy_vocabulary):
  """U+200B is no white space to the corpus, but nothing to SentencePiece."""
  corpus = _corpus(tmp_path / 'corpus', ['the cat', '\u200b', 'the dog'])
  [meta] = _write(tmp_path / 'cache', corpus, toy_vocabulary, shard_size=2)
  assert (meta.examples, meta.empty, meta.source_examples) == (2, 1, 3)


def test_a_task_without_any_token(tmp_path, toy_vocabulary):
  corpus = _corpus(tmp_path / 'corpus', ['\u200b'])
  with pytest.raises(
    errors.CorpusError,
    match='A task has no text. Got: 1 '
    'examples, all empty. Where: task corpus.mono.en, split '
    'train',
  ):
    _write(tmp_path / 'cache', corpus, toy_vocabulary)


def test_splits(tmp_path, toy_corpus, toy_vocabulary):
  metas = _write(
    tmp_path,
    toy_corpus,
    toy_vocabulary,
    mixtures=['corpus.mono'],
    splits=['validation', 'train'],
  )
  assert {(meta.task[-2:], meta.split, meta.examples) for meta in metas} == {
    ('de', 'train', 60),
    ('en', 'train', 200),
    ('ru', 'train', 100),
    ('de', 'validation', 20),
    ('en', 'validation', 20),
    ('ru', 'validation', 20),
  }
  with pytest.raises(
    errors.CacheError,
    match='of corpus.mono has no such '
    "split. Got: 'test'. Expected: one of train, "
    'validation',
  ):
    cache_reader.TokenCache(tmp_path).rates('corpus.mono', 'test')


def test_unknown_mixture(tmp_path, toy_corpus, toy_vocabulary):
  with pytest.raises(errors.CorpusError, match='corpus.momo'):
    _write(tmp_path, toy_corpus, toy_vocabulary, mixtures=['corpus.momo'])


def test_changed_text_is_refused_then_replaced(tmp_path, toy_vocabulary):
  corpus = _corpus(tmp_path / 'corpus', ['the cat', 'the dog'])
  cache = tmp_path / 'cache'
  _write(cache, corpus, toy_vocabulary)
  before = _files(cache)
  _write(cache, corpus, toy_vocabulary)
  assert _files(cache) == before
  corpus = _corpus(tmp_path / 'corpus', ['the cat', 'the dog', 'a child'])
  with pytest.raises(
    errors.CacheError,
    match='The source of corpus.mono.en '
    'has changed since it was cached.* Replace it by '
    '--overwrite',
  ):
    _write(cache, corpus, toy_vocabulary)
  assert _files(cache) == before
  [meta] = _write(cache, corpus, toy_vocabulary, overwrite=True)
  assert meta.examples == 3


def test_shards_of_changed_text_are_not_used(
  tmp_path, toy_vocabulary, monkeypatch
):
  corpus = _corpus(tmp_path / 'corpus', ['the cat', 'the dog'])
  with monkeypatch.context() as patch:
    patch.setattr(cache_shards, 'merge', _raise(_Killed()))
    with pytest.raises(_Killed):
      _write(tmp_path / 'cache', corpus, toy_vocabulary)
  corpus = _corpus(tmp_path / 'corpus', ['a bird', 'a bird', 'a bird'])
  [meta] = _write(tmp_path / 'cache', corpus, toy_vocabulary)
  assert meta.examples == 3
  [task] = (
    cache_reader.TokenCache(tmp_path / 'cache')
    .open('corpus.mono', 'train')
    .values()
  )
  bird = toy_vocabulary.encode('a bird')
  assert (
    task.sides[0].tokens.tolist() == [*bird, toy_vocabulary.spec.eos_id] * 3
  )


def _raise(error):
  def function(*args, **kwargs):
    raise error

  return function


class _Other:
  """A vocabulary of another hash."""

  def __init__(self, vocabulary):
    self.spec, self.hash = vocabulary.spec, 'f' * 64
    self.language_id = vocabulary.language_id


def test_another_vocabulary_is_refused(written, toy_corpus, toy_vocabulary):
  before = _files(written[0])
  with pytest.raises(
    errors.CacheError,
    match='written with another '
    'vocabulary. Got: hash ffffffffffff. Expected: hash '
    + toy_vocabulary.hash[:12],
  ):
    _write(written[0], toy_corpus, _Other(toy_vocabulary))
  assert _files(written[0]) == before


def test_a_second_writer_is_refused(tmp_path, toy_corpus, toy_vocabulary):
  with open(tmp_path / '.lock', 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with pytest.raises(errors.CacheError, match='Another process is writing'):
      _write(tmp_path, toy_corpus, toy_vocabulary)


def test_a_full_disk_is_told_and_resumed(
  written, tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  full = OSError(errno.ENOSPC, 'No space left on device')
  with monkeypatch.context() as patch:
    patch.setattr(np, 'savez', _raise(full))
    with pytest.raises(
      errors.CacheError,
      match='cannot be written '
      r'\(No space left on device\).*goes on where',
    ):
      _write(tmp_path, toy_corpus, toy_vocabulary)
  _write(
    tmp_path,
    toy_corpus,
    toy_vocabulary,
    mixtures=['corpus.mono', 'corpus.parallel'],
  )
  assert _files(tmp_path) == _files(written[0])


def test_malformed_text_names_its_line(tmp_path, toy_vocabulary):
  _corpus(tmp_path / 'corpus', ['the cat'])
  path = tmp_path / 'corpus/parallel/de-en.tsv'
  path.parent.mkdir()
  path.write_text('eins\tone\nzwei\n')
  with pytest.raises(errors.CorpusError, match=r'de-en\.tsv:2'):
    _write(
      tmp_path / 'cache',
      corpus_lib.Corpus(tmp_path / 'corpus'),
      toy_vocabulary,
      mixtures=['corpus.parallel'],
    )
