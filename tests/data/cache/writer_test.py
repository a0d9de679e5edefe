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
import safetensors.numpy

from tests.data.cache import reading
from xlflax import digests, errors
from xlflax.data import examples as examples_lib
from xlflax.data.cache import jobs as cache_jobs
from xlflax.data.cache import parts as cache_parts
from xlflax.data.cache import reader as cache_reader
from xlflax.data.cache import shards as cache_shards
from xlflax.data.cache import writer as cache_writer
from xlflax.data.corpus import directory as corpus_lib
from xlflax.data.corpus import writer as corpus_writer
from xlflax.data.text_tasks.corpus_tasks import CorpusTasks


def _plan(directory, corpus, vocabulary, **settings):
  return cache_writer.Plan(
    directory=directory,
    **{
      'mixtures': ['corpus.mono'],
      'vocabulary': vocabulary,
      'shard_size': 2048,
      'open_tasks': functools.partial(CorpusTasks, str(corpus.directory)),
    }
    | settings,
  )


def _write(directory, corpus, vocabulary, num_processes=1, **settings):
  return cache_writer.write_cache(
    _plan(directory, corpus, vocabulary, **settings),
    num_processes=num_processes,
  )


_BOTH = ['corpus.mono', 'corpus.parallel']


def _files(directory):
  """Relative path -> content of every file but the lock."""
  return {
    str(path.relative_to(directory)): path.read_bytes()
    for path in sorted(pathlib.Path(directory).rglob('*'))
    if path.is_file() and not path.name.startswith('.lock')
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
  assert len(english.meta.shards) == 4  # plain text: of 2048 bytes
  assert [
    len(tasks[f'corpus.mono.{code}'].meta.shards) for code in ('de', 'ru')
  ] == [8, 13]  # compressed: of 8 examples
  [side] = english.sides
  assert reading.tokens(side).dtype == np.uint16
  assert reading.tokens(side).tolist() == sum(expected, [])
  assert reading.lengths(side).tolist() == [len(ids) - 1 for ids in expected]
  assert english.shards.starts_document().tolist() == [
    line.starts_document for line in lines
  ]
  assert not list(directory.rglob('*.end'))


@pytest.mark.parametrize('dtype', [np.uint16, np.int32])
@pytest.mark.parametrize('sides', [('targets',), ('inputs', 'targets')])
def test_shards_are_what_the_library_makes(
  tmp_path, toy_vocabulary, dtype, sides
):
  path = tmp_path / 'a.safetensors'
  batches = [
    examples_lib.Examples(
      tuple(
        examples_lib.Ragged(
          np.arange(sum(lengths), dtype=np.int32) % 7,
          np.array(lengths, np.int64),
        )
        for _ in sides
      ),
      np.ones(len(lengths), bool),
    )
    for lengths in ([2, 3], [], [0, 1])
  ]
  entry = cache_shards.write(
    path, batches, dtype=dtype, spec=toy_vocabulary.spec, sides=sides
  )
  content = path.read_bytes()
  arrays = safetensors.numpy.load(content)
  assert safetensors.numpy.save(arrays) == content
  assert arrays['targets'].tolist() == [0, 1, 2, 2, 3, 4, 2, 0, 2]
  assert arrays['targets.offsets'].tolist() == [0, 3, 7, 9]
  assert arrays['targets'].dtype == dtype and len(arrays) == 1 + 2 * len(sides)
  assert entry.digest == digests.of_file(path)
  assert entry.tokens == (6,) * len(sides)
  assert entry.unknown == (1,) * len(sides)  # id 3
  assert (entry.examples, entry.empty) == (3, 1)


def test_meta_has_statistics_and_fingerprint(
  written, toy_corpus, toy_vocabulary
):
  directory, metas = written
  meta = json.loads(
    (
      directory
      / 'tasks'
      / 'corpus.parallel.de_en'
      / 'train'
      / 'generation-1.json'
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


@pytest.mark.parametrize('after', [0, 3, 11])
def test_resuming_gives_the_same_files(
  written, tmp_path, toy_corpus, toy_vocabulary, monkeypatch, after
):
  """Stopped between any two files that are written, again and again."""
  replace = os.replace

  def run(stop_after):
    left = [stop_after]

    def stop(*args):
      left[0] -= 1
      if left[0] < 0:
        raise _Killed
      replace(*args)

    with monkeypatch.context() as patch:
      patch.setattr(os, 'replace', stop)
      _write(tmp_path, toy_corpus, toy_vocabulary, mixtures=_BOTH)

  for stop_after in (after, 2, 7, 30):
    with pytest.raises(_Killed):
      run(stop_after)
    with pytest.raises(errors.CacheError):
      cache_reader.TokenCache(tmp_path).open('corpus.mono', 'train')
  _write(tmp_path, toy_corpus, toy_vocabulary, mixtures=_BOTH)
  assert _files(tmp_path) == _files(written[0])


def test_finished_shards_are_not_written_again(
  tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  numbers = []
  original = cache_shards.write

  def record(path, *args, **kwargs):
    numbers.append(int(path.stem.rpartition('-')[2]))
    if len(numbers) == 3:
      raise _Killed
    return original(path, *args, **kwargs)

  monkeypatch.setattr(cache_shards, 'write', record)
  for _ in range(2):
    try:
      _write(tmp_path, toy_corpus, toy_vocabulary, mixtures=['corpus.mono.en'])
    except _Killed:
      numbers.append('killed')
  assert numbers == [0, 1, 2, 'killed', 2, 3]


def test_shares_of_an_array(written, tmp_path, toy_corpus, toy_vocabulary):
  """In any order, some of them twice: the same files."""
  plan = _plan(tmp_path, toy_corpus, toy_vocabulary, mixtures=_BOTH)
  cache_writer.write_share(plan, (2, 3))
  with pytest.raises(errors.CacheError, match='no task of it is sealed'):
    cache_reader.TokenCache(tmp_path)
  with pytest.raises(
    errors.CacheError,
    match='Shards of corpus.mono.* are missing or cut off. Got: .* whole, '
    'and without .*--shard=i/N of the array',
  ):
    cache_writer.finish(plan)
  for index in (0, 2, 1):
    cache_writer.write_share(plan, (index, 3))
  (tmp_path / '.begun-host-1').mkdir()  # of a killed process
  (tmp_path / '.begun-host-1' / 'cache.json').touch()
  metas = cache_writer.finish(plan)
  assert [m.examples for m in metas] == [60, 200, 100, 50]
  assert _files(tmp_path) == _files(written[0])
  assert not list(tmp_path.glob('.lock-*'))


def test_shares_are_disjoint_and_complete(tmp_path, toy_corpus, toy_vocabulary):
  plan = _plan(tmp_path, toy_corpus, toy_vocabulary, mixtures=_BOTH)
  jobs = plan.jobs(plan.open_tasks())
  units = [cache_writer.share_of(jobs, (i, 5)) for i in range(5)]
  names = [name for share in units for unit in share for name in unit.names()]
  assert len(names) == len(set(names))
  assert set(names) == {
    part.name(number)
    for job in jobs
    for part in job.parts
    for number in range(part.shards or 1)
  }


def test_shares_by_two_versions_of_a_library(
  tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  plan = _plan(tmp_path, toy_corpus, toy_vocabulary)
  cache_writer.write_share(plan, (0, 2))
  kind = type(toy_vocabulary)
  with monkeypatch.context() as other:
    other.setattr(kind, 'library', 'sentencepiece 0.1')
    cache_writer.write_share(plan, (1, 2))
  with pytest.raises(
    errors.CacheError, match=r'several versions.*by sentencepiece 0\.1'
  ):
    cache_writer.finish(plan)


def test_two_writers_of_a_share(tmp_path, toy_corpus, toy_vocabulary):
  plan = _plan(tmp_path, toy_corpus, toy_vocabulary)
  with open(tmp_path / '.lock-1-of-4', 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with pytest.raises(
      errors.CacheError,
      match='Another process is writing this share 1/4 of a token cache',
    ):
      cache_writer.write_share(plan, (1, 4))


def test_a_share_with_another_vocabulary(tmp_path, toy_corpus, toy_vocabulary):
  cache_writer.write_share(_plan(tmp_path, toy_corpus, toy_vocabulary), (0, 9))
  with pytest.raises(
    errors.CacheError, match='another vocabulary. Got: hash ffffffffffff'
  ):
    cache_writer.write_share(
      _plan(tmp_path, toy_corpus, _Other(toy_vocabulary)), (1, 9)
    )


def test_text_that_changes_between_shares(tmp_path, toy_vocabulary):
  corpus = _corpus(tmp_path / 'corpus', ['the cat', 'the dog'])
  plan = _plan(
    tmp_path / 'cache', corpus, toy_vocabulary, mixtures=['corpus.mono']
  )
  cache_writer.write_share(plan, (0, 1))
  _corpus(tmp_path / 'corpus', ['a bird'])
  with pytest.raises(
    errors.CacheError,
    match=r'The text of corpus.mono.en changed while its shards were written. '
    r'Got: shards of \["mono/en.txt", 16, .*Expected: one state',
  ):
    cache_writer.finish(plan)
  cache_writer.write_share(plan, (0, 1))
  [meta] = cache_writer.finish(plan)
  assert meta.examples == 1
  assert len(list((tmp_path / 'cache').rglob('*.safetensors'))) == 1


def test_added_files_are_another_generation(tmp_path, toy_vocabulary):
  """The generations before it are read as they were."""
  corpus = _corpus(tmp_path / 'corpus', ['the cat', 'the dog'])
  cache = tmp_path / 'cache'
  _write(cache, corpus, toy_vocabulary)
  first = cache_reader.TokenCache(cache).digest('corpus.mono', 'train')
  [shard] = cache.rglob('*.safetensors')
  time = shard.stat().st_mtime_ns
  (tmp_path / 'corpus/mono/en.more.txt').write_text('a bird\n')
  add = {'changed': cache_writer.Changed.ADD}
  _write(cache, corpus, toy_vocabulary, **add)
  examples = [
    cache_reader.TokenCache(cache, generation=number)
    .open('corpus.mono', 'train')['corpus.mono.en']
    .meta.examples
    for number in (1, 2)
  ]
  assert examples == [2, 3] and shard.stat().st_mtime_ns == time
  assert cache_reader.TokenCache(cache).generation == 2
  old = cache_reader.TokenCache(cache, generation=1)
  assert old.digest('corpus.mono', 'train') == first
  old.verify('corpus.mono', 'train')
  assert old.rates('corpus.mono', 'train') != cache_reader.TokenCache(
    cache
  ).rates('corpus.mono', 'train')
  with pytest.raises(errors.CacheError, match='no such generation. Got: 3'):
    cache_reader.TokenCache(cache, generation=3)
  before = _files(cache)
  _write(cache, corpus, toy_vocabulary, **add)  # nothing was added
  assert _files(cache) == before
  (tmp_path / 'corpus/mono/en.txt').write_text('the fish\n')
  with pytest.raises(errors.CacheError, match='must stay as they are'):
    _write(cache, corpus, toy_vocabulary, **add)


def test_spans_of_any_size_hold_the_same_text(tmp_path, toy_vocabulary):
  """Lines longer than shards, blank ones at borders, no line feed at the end."""
  text = 'the cat\n\nthe dog sees a bird and a cat\n  \n\na child\nthe end'
  path = tmp_path / 'corpus/mono/en.txt'
  path.parent.mkdir(parents=True)
  path.write_bytes(b'\xef\xbb\xbf' + text.encode())
  corpus = corpus_lib.Corpus(tmp_path / 'corpus')
  expected = [
    (toy_vocabulary.encode(line.text), line.starts_document)
    for line in corpus.monolingual('en')
  ]
  for size in (1, 2, 3, 5, 8, 13, 64, 1000):
    cache = tmp_path / f'cache{size}'
    _write(cache, corpus, toy_vocabulary, shard_size=size)
    [task] = (
      cache_reader.TokenCache(cache).open('corpus.mono', 'train').values()
    )
    [side] = task.sides
    starts, stops = side.bounds(np.arange(side.num_texts))
    texts = [ids.tolist() for ids in side.slices(starts, stops)]
    borders = task.shards.starts_document().tolist()
    assert list(zip(texts, borders, strict=True)) == expected
    across = side.slices(np.array([1]), np.array([side.num_tokens - 1]))
    assert across[0].tolist() == reading.tokens(side)[1:-1].tolist()


_PROGRAM = """
import functools, os, signal, sys
from xlflax.data.cache import writer as cache_writer
from xlflax.data.text_tasks.corpus_tasks import CorpusTasks
from xlflax.data.vocabularies import vocabulary
corpus, vocabulary_dir, output = sys.argv[1:]

def report(progress):
  if progress.done >= 5:
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == '__main__':
  cache_writer.write_cache(
      cache_writer.Plan(
          directory=output, mixtures=['corpus.mono', 'corpus.parallel'],
          vocabulary=vocabulary.Vocabulary.load(vocabulary_dir),
          open_tasks=functools.partial(CorpusTasks, corpus),
          shard_size=2048),
      report=report)
"""


@pytest.mark.parametrize(
  'num_processes', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_killed_process_and_others_that_finish(
  written, tmp_path, toy_corpus, toy_vocabulary, num_processes
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
  finished = sorted((tmp_path / 'cache').rglob('*.safetensors'))
  assert finished
  assert not (tmp_path / 'cache/tasks/corpus.mono.ru').exists()
  _write(
    tmp_path / 'cache',
    toy_corpus,
    toy_vocabulary,
    num_processes=num_processes,
    mixtures=_BOTH,
  )
  assert _files(tmp_path / 'cache') == _files(written[0])


def _save(vocabulary, directory):
  from xlflax.data.vocabularies import vocabulary as vocabulary_lib

  directory.mkdir()
  (directory / vocabulary_lib.MODEL_FILE).write_bytes(vocabulary.model)
  (directory / vocabulary_lib.DESCRIPTION_FILE).write_text(
    json.dumps(vocabulary.describe())
  )


class _TenShards:
  """A task whose source tells its size: ten shards of ten examples."""

  def source_size(self, task, split):
    return 95


def test_units_share_out_missing_shards(tmp_path):
  part = cache_parts.Part('p', '[]', None, None, None)
  job = cache_jobs.Job(
    cache=tmp_path,
    task='t',
    split='train',
    languages=('en',),
    vocabulary='v',
    fingerprint='{}',
    shard_size=10 * 256,
    dtype='uint16',
    parts=(part,),
  )

  def units(num_processes):
    found = job._part_units(part, _TenShards(), num_processes, written)
    return [(unit.first, unit.last) for unit in found]

  written = set()
  assert units(1) == [(0, 4), (4, 8), (8, None)]
  written = set(map(part.name, (0, 1, 5)))
  assert units(2) == [(2, 4), (4, 5), (6, 8), (8, None)]
  written = set(map(part.name, range(10)))
  assert units(2) == [(10, None)]
  job.end_part(part, 10)
  assert units(2) == []


def _corpus(directory, lines, split='train'):
  corpus_writer.write_monolingual(directory, 'en', [lines], split=split)
  return corpus_lib.Corpus(directory)


def test_empty_tokenisations_are_left_out(tmp_path, toy_vocabulary):
  """U+200B is no white space to the corpus, but nothing to SentencePiece."""
  corpus = _corpus(tmp_path / 'corpus', ['the cat', '\u200b', 'the dog'])
  [meta] = _write(tmp_path / 'cache', corpus, toy_vocabulary, shard_size=9)
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
  [meta] = _write(
    cache, corpus, toy_vocabulary, changed=cache_writer.Changed.REPLACE
  )
  assert meta.examples == 3


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
    with pytest.raises(
      errors.CacheError, match='Another process is writing'
    ) as error:
      _write(tmp_path, toy_corpus, toy_vocabulary)
  assert error.value.status is errors.ExitStatus.FAILURE  # it may end


def test_a_full_disk_is_told_and_resumed(
  written, tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  full = OSError(errno.ENOSPC, 'No space left on device')
  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', _raise(full))
    with pytest.raises(
      errors.CacheError,
      match='cannot be written '
      r'\(No space left on device\).*goes on where',
    ) as error:
      _write(tmp_path, toy_corpus, toy_vocabulary)
  assert error.value.status is errors.ExitStatus.FAILURE
  _write(tmp_path, toy_corpus, toy_vocabulary, mixtures=_BOTH)
  assert _files(tmp_path) == _files(written[0])


class _OpensOnce:
  """Opens tasks in this process, and in no other."""

  def __init__(self, corpus):
    self._corpus, self._process = corpus, os.getpid()

  def __call__(self):
    if os.getpid() == self._process:
      return CorpusTasks(self._corpus)
    raise errors.CorpusError('The corpus directory does not exist')


def test_workers_tell_why_they_cannot_start(
  tmp_path, toy_corpus, toy_vocabulary
):
  with pytest.raises(errors.CorpusError, match='does not exist'):
    _write(
      tmp_path,
      toy_corpus,
      toy_vocabulary,
      num_processes=2,
      open_tasks=_OpensOnce(str(toy_corpus.directory)),
    )


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
