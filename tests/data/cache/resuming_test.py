"""Tests of cache writers that are stopped, killed or out of disk space."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.data.cache import writing
from tests.errors import raises_error
from xlflax.data.cache import cache_reader
from xlflax.data.cache import shards as cache_shards
from xlflax.storage import checksums
from xlflax.utils import errors


class _Killed(BaseException):
  pass


@pytest.mark.parametrize('after', [0, 3, 11])
def test_interrupted_writers_resume_to_the_same_files(
  complete_cache, tmp_path, toy_corpus, toy_vocabulary, monkeypatch, after
):
  """Stops the writer repeatedly between any two files."""
  replace = os.replace

  def run(stop_after):
    remaining = [stop_after]

    def stop(*args):
      remaining[0] -= 1
      if remaining[0] < 0:
        raise _Killed
      replace(*args)

    with monkeypatch.context() as patch:
      patch.setattr(os, 'replace', stop)
      writing.write(tmp_path, toy_corpus, toy_vocabulary, mixtures=writing.BOTH)

  for stop_after in (after, 2, 7, 30):
    with pytest.raises(_Killed):
      run(stop_after)
    with pytest.raises(errors.CacheError):
      cache_reader.TokenCache(tmp_path).open('corpus.mono', 'train')
  writing.write(tmp_path, toy_corpus, toy_vocabulary, mixtures=writing.BOTH)
  assert writing.files(tmp_path) == writing.files(complete_cache[0])


def test_finished_shards_are_not_rewritten(
  tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  numbers = []
  original = cache_shards.write_shard_file

  def record(path, *args, **kwargs):
    numbers.append(int(path.stem.rpartition('-')[2]))
    if len(numbers) == 3:
      raise _Killed
    return original(path, *args, **kwargs)

  monkeypatch.setattr(cache_shards, 'write_shard_file', record)
  for _ in range(2):
    try:
      writing.write(
        tmp_path, toy_corpus, toy_vocabulary, mixtures=['corpus.mono.en']
      )
    except _Killed:
      numbers.append('killed')
  assert numbers == [0, 1, 2, 'killed', 2, 3]


_PROGRAM = """
import functools, os, signal, sys
from xlflax.data.cache import cache_writer as cache_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.tokenizers import base_vocabulary
corpus, vocabulary_dir, output = sys.argv[1:]

def report(progress):
  if progress.done >= 5:
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == '__main__':
  cache_writer.write_cache(
      cache_writer.Plan(
          directory=output, mixtures=['corpus.mono', 'corpus.parallel'],
          vocabulary=base_vocabulary.Vocabulary.load(vocabulary_dir),
          open_tasks=functools.partial(CorpusTasks, corpus),
          shard_size=2048),
      report=report)
"""


@pytest.mark.parametrize(
  'num_processes', [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_cache_of_a_killed_process_is_completed(
  complete_cache, tmp_path, toy_corpus, toy_vocabulary, num_processes
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
  writing.write(
    tmp_path / 'cache',
    toy_corpus,
    toy_vocabulary,
    num_processes=num_processes,
    mixtures=writing.BOTH,
  )
  assert writing.files(tmp_path / 'cache') == writing.files(complete_cache[0])


def _save(vocabulary, directory):
  from xlflax.data.tokenizers import base_vocabulary

  directory.mkdir()
  (directory / base_vocabulary.MODEL_FILE).write_bytes(vocabulary.model)
  (directory / base_vocabulary.DESCRIPTION_FILE).write_text(
    json.dumps(checksums.add_digest(vocabulary.describe()))
  )


def _raise(error):
  def function(*args, **kwargs):
    raise error

  return function


def test_full_disk_is_reported_and_writing_resumes(
  complete_cache, tmp_path, toy_corpus, toy_vocabulary, monkeypatch
):
  full = OSError(errno.ENOSPC, 'No space left on device')
  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', _raise(full))
    with raises_error(errors.CacheError, where='cache.json') as error:
      writing.write(tmp_path, toy_corpus, toy_vocabulary)
  assert error.value.status is errors.ExitStatus.FAILURE
  writing.write(tmp_path, toy_corpus, toy_vocabulary, mixtures=writing.BOTH)
  assert writing.files(tmp_path) == writing.files(complete_cache[0])
