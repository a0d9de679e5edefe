"""Run directories on disks and in buckets: one kind of path for both.

A name without a scheme is a `pathlib.Path`. `gs://bucket/...` is an
`etils.epath.Path`, which has the same methods; what differs in a bucket
(appending, renaming, whole directories) is in the functions here. Orbax
writes checkpoints to these two and to no other kind of place.
"""

import importlib.util
import logging
import os
import pathlib
import queue
import shutil
import socket
import threading
import uuid
from typing import Any, cast

from xlflax import errors

SCHEME = 'gs'
SECONDS = 60  # until a bucket that does not answer counts as unreachable
PACKAGES = 'pip install "xlflax[buckets]"'

if importlib.util.find_spec('gcsfs'):
  # Training imports no TensorFlow, which epath would take where it is there.
  os.environ.setdefault('EPATH_USE_TF', 'false')


def of(name: str | os.PathLike) -> pathlib.Path:
  """The path of a name.

  Raises:
    RunDirectoryError: it is in a kind of bucket that is not supported.
  """
  if isinstance(name, pathlib.Path):
    return name
  text = os.fspath(name)
  scheme, separator, rest = text.partition('://')
  if not separator:
    return pathlib.Path(text)
  if scheme != SCHEME or not rest.strip('/'):
    raise errors.RunDirectoryError(
        'Files can not be there', got=text, expected='a directory, or '
        f'{SCHEME}://BUCKET/NAME (Orbax writes to no other kind of bucket)',
        fix='mount the bucket as a file system, or take another place')
  return cast(pathlib.Path, _bucket_path(text))


def _bucket_path(text: str):
  _check_packages(text)
  import fsspec.config  # pylint: disable=g-import-not-at-top
  from etils import epath  # pylint: disable=g-import-not-at-top
  # Other processes write there too: listings must not be remembered.
  fsspec.config.conf.setdefault('gcs', {}).setdefault(
      'use_listings_cache', False)
  # They tell with every request what can't be known, or is read ahead.
  for library in ('gcsfs', 'fsspec'):
    logging.getLogger(library).setLevel(logging.CRITICAL)
  return epath.Path(text.rstrip('/'))


def _check_packages(text: str) -> None:
  if importlib.util.find_spec('gcsfs') is None:
    raise errors.RunDirectoryError(
        'The package that reads and writes buckets is missing', got=text,
        expected='gcsfs', fix=PACKAGES)


def is_bucket(path: os.PathLike) -> bool:
  """Whether a path is in a bucket rather than in a file system."""
  return os.fspath(path).startswith(f'{SCHEME}://')


def local(name: str | os.PathLike, *, where: str) -> pathlib.Path:
  """The path of a name that has to be a directory or file on disk.

  Args:
    name: the name.
    where: flag or argument, for the message.

  Raises:
    RunDirectoryError: it is in a bucket.
  """
  if '://' in os.fspath(name):
    raise errors.RunDirectoryError(
        'This can not be written to a bucket', got=os.fspath(name),
        expected='a directory on disk', where=where,
        fix='write it to disk and copy it')
  return pathlib.Path(name)


def absolute(name: str | os.PathLike) -> pathlib.Path:
  """The path of a name, from the root."""
  path = of(name)
  return path if is_bucket(path) else path.absolute()


def children(directory: pathlib.Path) -> list[pathlib.Path]:
  """What is in a directory, sorted; nothing where there is none."""
  try:
    return sorted(directory.iterdir())
  except (FileNotFoundError, NotADirectoryError):
    return []


def size(path: pathlib.Path) -> int:
  """The bytes of a file; 0 where there is none."""
  try:
    found: Any = path.stat()
  except FileNotFoundError:
    return 0
  return found.length if is_bucket(path) else found.st_size


def write_atomically(path: pathlib.Path, text: str) -> None:
  """Writes a text file so that it is there whole or not at all."""
  if is_bucket(path):  # an object appears when it is complete
    path.write_text(text, encoding='utf-8')
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  temporary.write_text(text, encoding='utf-8')
  os.replace(temporary, path)


def copy_files(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies the files of a directory into a new one, which is then whole.

  In a bucket, where directories do not exist by themselves, the files that
  an interrupted call left out are added.
  """
  if not is_bucket(target):
    if target.exists():
      return
    temporary = target.with_name(f'.{target.name}.{os.getpid()}.tmp')
    temporary.mkdir(parents=True)
    for path in children(source):
      (temporary / path.name).write_bytes(path.read_bytes())
    os.replace(temporary, target)
    return
  there = {path.name for path in children(target)}
  for path in children(source):
    if path.name not in there:
      (target / path.name).write_bytes(path.read_bytes())


def move(source: pathlib.Path, target: pathlib.Path) -> None:
  """Moves a directory; in a bucket its objects are copied there."""
  if is_bucket(source):
    import fsspec  # pylint: disable=g-import-not-at-top
    fsspec.filesystem('gcs').mv(
        os.fspath(source), os.fspath(target), recursive=True)
    return
  target.parent.mkdir(parents=True, exist_ok=True)
  shutil.move(source, target)


def remove(directory: pathlib.Path) -> None:
  """Removes a directory with all that is in it."""
  if is_bucket(directory):
    cast(Any, directory).rmtree()
  else:
    shutil.rmtree(directory)


def check_usable(path: pathlib.Path, *, seconds: float = SECONDS) -> None:
  """Writes to a bucket and reads from it, as checkpoints will.

  Both ways are tried that a run takes there: TensorStore's, for parameters,
  and gcsfs's. On disk nothing is done.

  Args:
    path: the directory that is to be written.
    seconds: how long an answer may take.

  Raises:
    RunDirectoryError: the bucket is not there, can not be reached, or may
      not be written.
  """
  if not is_bucket(path):
    return
  answers: queue.Queue[Exception | None] = queue.Queue()
  def run():
    try:
      _probe(path)
      answers.put(None)
    except Exception as error:  # pylint: disable=broad-except
      answers.put(error)
  # A thread, as neither library has a limit for all that it may wait for.
  threading.Thread(target=run, name='xlflax bucket', daemon=True).start()
  try:
    error = answers.get(timeout=seconds)
  except queue.Empty:
    error = TimeoutError(f'no answer within {seconds:g} s')
  if error is not None:
    raise errors.RunDirectoryError(
        'The bucket can not be used', got=_one_line(error),
        expected='to write, read and delete objects', where=os.fspath(path),
        fix="check the bucket's name, this machine's credentials "
        '(`gcloud auth application-default login`, or '
        'GOOGLE_APPLICATION_CREDENTIALS) and its network') from error


def _probe(path: pathlib.Path) -> None:
  """Writes, reads and deletes an object."""
  import tensorstore  # pylint: disable=g-import-not-at-top
  name = f'.probe-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}'
  bucket, _, folder = os.fspath(path).removeprefix(f'{SCHEME}://').partition(
      '/')
  store = tensorstore.KvStore.open(
      {'driver': os.environ.get('TENSORSTORE_GCS_BACKEND', 'gcs'),
       'bucket': bucket, 'path': f'{folder}/'.lstrip('/')},
      # By default it tries 32 times, for a quarter of an hour.
      context=tensorstore.Context({'gcs_request_retries': {
          'max_retries': 3, 'initial_delay': '500ms',
          'max_delay': '2s'}})).result()
  store.write(name, b'xlflax').result()
  probe = path / name
  found = probe.read_bytes()
  probe.unlink()
  if found != b'xlflax':
    raise OSError(f'{probe} has another content than was written')


def _one_line(error: BaseException) -> str:
  text = ' '.join(str(error).split())
  return f'{type(error).__name__}: {text}'[:300]
