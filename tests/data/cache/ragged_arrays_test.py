"""Tests of tasks with more shards than open files are allowed."""

import errno
import os
import subprocess
import sys

import pytest

from tests.data.cache import writing
from xlflax.data.cache import cache_reader
from xlflax.data.cache import shards as cache_shards
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.utils import errors

_READ = """
import os, resource, sys
from tests.data.cache import reading
from xlflax.data.cache import cache_reader
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
tasks = cache_reader.TokenCache(sys.argv[1]).open('corpus.mono', 'train')
most = 0
for _ in range(2):
  found = [
    (name, len(task.meta.shards), int(reading.tokens(task.sides[0]).sum()))
    for name, task in tasks.items()
  ]
  most = max(most, len(os.listdir('/proc/self/fd')))
print(found, most)
"""


@pytest.fixture(scope='module')
def cache_of_many_shards(tmp_path_factory, toy_vocabulary):
  """Cache of two languages with dozens of shards each."""
  directory = tmp_path_factory.mktemp('cache_of_many_shards')
  for language in ('en', 'de'):
    corpus_writer.write_monolingual(
      directory / 'corpus', language, [['a b c d e f g'] * 240]
    )
  corpus = corpus_directory.Corpus(directory / 'corpus')
  writing.write(directory / 'cache', corpus, toy_vocabulary, shard_size=64)
  return directory / 'cache'


def test_open_shards_stay_below_the_file_limit(cache_of_many_shards):
  """The number of shards exceeds the limit on open files."""
  process = subprocess.run(
    [sys.executable, '-c', _READ, str(cache_of_many_shards)],
    capture_output=True,
    text=True,
    check=False,
    cwd=os.getcwd(),
  )
  assert process.returncode == 0, process.stderr
  values, max_open = eval(process.stdout.replace('] ', '], '))
  assert [name for name, _, _ in values] == ['corpus.mono.de', 'corpus.mono.en']
  assert all(shards >= 30 for _, shards, _ in values), values
  assert len({total for _, _, total in values}) == 1 and max_open <= 48


@pytest.mark.parametrize(
  ('number', 'status'),
  [
    (errno.EMFILE, 74),
    (errno.ESTALE, 74),
    (errno.EIO, 74),
    (errno.ETIMEDOUT, 74),
    (errno.EACCES, 2),
  ],
)
def test_system_errors_are_not_reported_as_damage(
  cache_of_many_shards, monkeypatch, number, status
):
  tasks = cache_reader.TokenCache(cache_of_many_shards).open(
    'corpus.mono', 'train'
  )
  shards = tasks['corpus.mono.en'].shards

  def raise_system_error(*_):
    raise OSError(number, os.strerror(number))

  def error_message(call):
    with pytest.raises((errors.XlflaxError, OSError)) as raised:
      call()
    error = raised.value
    if isinstance(error, OSError):
      error = errors.convert_os_error(error)
    assert error.status == status and 'damaged' not in str(error)
    assert os.strerror(number) in str(error)
    return str(error)

  open_shard = shards.open(0)
  with monkeypatch.context() as patch:
    patch.setattr(cache_shards.os, 'open', raise_system_error)
    error_message(lambda: shards.open(1))
  with monkeypatch.context() as patch:
    patch.setattr(cache_shards.os, 'pread', raise_system_error)
    assert str(cache_of_many_shards) in error_message(
      lambda: open_shard.array('targets')[0:2]
    )
