"""Writes token caches: resumable after a kill, parallel over processes.

Tasks are cut into shards of `shard_size` examples. A shard appears in one
rename; a task whose shards are all there is merged, and appears in one rename
too. A writer that starts again keeps what is finished, whatever the number of
processes, and its result is byte for byte that of an uninterrupted one.
Needs TensorFlow; reading the cache does not.
"""

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import multiprocessing
import os
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from xlflax import digests, errors, paths
from xlflax.data.cache import format as cache_format
from xlflax.data.seqio_tasks import host_tensorflow

host_tensorflow.load()

from xlflax.data.cache import jobs as cache_jobs  # noqa: E402

SHARD_SIZE = 32768

# Called in every process before it reads a task.
Register = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Progress:
  """How far the writing is; `total` is an estimate for unsized sources."""

  done: int
  total: int
  message: str


def write_cache(
  directory,
  *,
  mixtures: Sequence[str],
  splits: Sequence[str] = ('train',),
  vocabulary,
  register: Register,
  num_processes: int = 1,
  shard_size: int = SHARD_SIZE,
  overwrite: bool = False,
  report: Callable[[Progress], None] = lambda progress: None,
) -> list[cache_format.TaskMeta]:
  """Writes the tasks of mixtures, or what is missing of them.

  Args:
    directory: of the cache; other mixtures that are in it stay.
    mixtures: names of SeqIO mixtures or tasks.
    splits: tasks that lack one are left out of it.
    vocabulary: a `vocabulary.Vocabulary`.
    register: see `register_tasks`; it is pickled for other processes.
    num_processes: that tokenise.
    shard_size: examples in a shard.
    overwrite: replace tasks whose text has changed, and a cache of another
      vocabulary, instead of refusing.
    report: called now and then.

  Returns:
    What each task of the mixtures says of itself, by task and split.

  Raises:
    CacheError: the directory holds other content, another process writes to
      it, or the disk is full.
    CorpusError: unknown mixture or malformed text (file:line).
  """
  register()
  directory = paths.local(directory, where='directory of the cache')
  directory.mkdir(parents=True, exist_ok=True)
  with _lock(directory), _disk_errors(directory):
    expanded = cache_jobs.expand(mixtures, splits)
    header = _open_header(directory, vocabulary, overwrite)
    jobs = cache_jobs.list_jobs(
      directory,
      expanded,
      vocabulary,
      shard_size=shard_size,
      overwrite=overwrite,
    )
    for mixture, by_split in expanded.items():
      header['mixtures'].setdefault(mixture, {}).update(by_split)
    cache_format.write_json(directory / cache_format.CACHE_FILE, header)
    missing = [job for job in jobs if not job.complete]
    _write_jobs(missing, vocabulary, register, num_processes, report)
    _record_digests(header['digests'], jobs, missing)
    cache_format.write_json(directory / cache_format.CACHE_FILE, header)
    with contextlib.suppress(OSError):
      (directory / 'work').rmdir()
    return [job.meta() for job in jobs]


def _open_header(directory, vocabulary, overwrite) -> dict:
  """The content of cache.json, or of a new one.

  A cache of another vocabulary is refused, or deleted to be overwritten.
  """
  path = directory / cache_format.CACHE_FILE
  own = {
    'hash': vocabulary.hash,
    'size': vocabulary.spec.size,
    'languages': list(vocabulary.spec.languages),
  }
  if path.exists():
    stored = cache_format.read_json(path)
    if stored['vocabulary']['hash'] == vocabulary.hash:
      return stored
    if not overwrite:
      raise errors.CacheError(
        'The cache directory was written with another vocabulary',
        got=f'hash {vocabulary.hash[:12]}',
        expected=f'hash {stored["vocabulary"]["hash"][:12]}',
        where=directory,
        fix='Choose another --output, or replace the cache by --overwrite',
      )
    path.unlink()
    shutil.rmtree(directory / 'tasks', ignore_errors=True)
  return {
    'format': cache_format.FORMAT,
    'vocabulary': own,
    'mixtures': {},
    'digests': {},
  }


def _record_digests(known: dict[str, str], jobs, written) -> None:
  """Adds the digests of tasks; of one that was there it stays as it is."""
  for job in jobs:
    key = cache_format.task_key(job.task, job.split)
    if job in written or key not in known:
      known[key] = digests.of_file(job.directory / digests.FILE)


def _write_jobs(jobs, vocabulary, register, num_processes, report):
  """Writes missing shards, and merges each task when it has all."""
  units = [unit for job in jobs for unit in job.units(num_processes)]
  waiting = {job: sum(unit.job == job for unit in units) for job in jobs}
  meter = _Meter(jobs, report)
  for job in [job for job in jobs if not waiting[job]]:
    job.finish(vocabulary)
  for unit in _run(units, vocabulary, register, num_processes, meter):
    waiting[unit.job] -= 1
    if not waiting[unit.job]:
      unit.job.finish(vocabulary)
      meter.finished(unit.job)


def _run(units, vocabulary, register, num_processes, meter):
  """Yields units as they are finished."""
  if num_processes == 1 or len(units) < 2:
    for unit in units:
      cache_jobs.write_unit(
        unit, vocabulary, num_threads=num_processes, after_shard=meter.update
      )
      yield unit
    return
  context = multiprocessing.get_context('spawn')
  stop = context.Event()
  with concurrent.futures.ProcessPoolExecutor(
    min(num_processes, len(units)),
    mp_context=context,
    initializer=_start_worker,
    initargs=(register, vocabulary, stop),
  ) as pool:
    futures = {pool.submit(_work, unit): unit for unit in units}
    pending = set(futures)
    try:
      while pending:
        done, pending = concurrent.futures.wait(
          pending, timeout=1, return_when=concurrent.futures.FIRST_COMPLETED
        )
        meter.update()
        for future in done:
          future.result()
          yield futures[future]
    except BaseException:
      stop.set()  # The others end after their present shard.
      pool.shutdown(wait=False, cancel_futures=True)
      raise


_worker: dict[str, Any] = {}  # What a worker process was started with.


def _start_worker(register, vocabulary, stop):
  register()
  _worker.update(vocabulary=vocabulary, stop=stop, parent=os.getppid())


def _work(unit):
  def stopped():
    return _worker['stop'].is_set() or os.getppid() != _worker['parent']

  cache_jobs.write_unit(unit, _worker['vocabulary'], stopped=stopped)


class _Meter:
  """Reports how many shards are done, by counting files."""

  def __init__(self, jobs, report):
    self._total = sum(job.expected_shards for job in jobs)
    self._open = list(jobs)
    self._merged, self._report = 0, report

  def update(self):
    done = self._merged + sum(len(job.shards()) for job in self._open)
    names = [job.task for job in self._open if job.shards()]
    self._report(
      Progress(done, max(self._total, done), ', '.join(names[:2]) or 'reading')
    )

  def finished(self, job):
    self._open.remove(job)
    self._merged += job.expected_shards
    self._report(
      Progress(
        self._merged, max(self._total, self._merged), f'{job.task} is complete'
      )
    )


@contextlib.contextmanager
def _lock(directory: pathlib.Path):
  """Keeps a second writer out; freed by the system when this one ends."""
  with open(directory / '.lock', 'w') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      raise errors.CacheError(
        'Another process is writing this token cache',
        where=directory,
        fix='Wait for it, or stop it first',
      ) from error
    yield


@contextlib.contextmanager
def _disk_errors(directory: pathlib.Path):
  try:
    yield
  except OSError as error:
    raise errors.CacheError(
      f'The token cache cannot be written ({error.strerror or error})',
      where=error.filename or directory,
      fix='Free some space or choose another --output; the same command '
      'goes on where it stopped',
    ) from error
