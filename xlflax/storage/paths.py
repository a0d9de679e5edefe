"""Run directories on disks and in buckets: one kind of path for both.

A name without a scheme is a `pathlib.Path`. `gs://bucket/...`,
`s3://bucket/...` and `az://container/...` are an `etils.epath.Path`, which has
the same methods; what differs in a bucket (appending, renaming, whole
directories) is in the functions here. Stores that speak S3 elsewhere (MinIO,
R2, Ceph) are at the address in AWS_ENDPOINT_URL. Azure's hold text,
vocabularies, caches and folders, but no checkpoints (see `kvstores`).
"""

import contextlib
import functools
import hashlib
import importlib.util
import io
import itertools
import logging
import os
import pathlib
import platform
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from xlflax.foundation import errors

# Scheme -> package that reads and writes there, and the extra that brings it.
_PACKAGES = {
  'gs': ('gcsfs', 'buckets'),
  's3': ('s3fs', 's3'),
  'az': ('adlfs', 'azure'),
}
_PREFIXES = tuple(f'{scheme}://' for scheme in _PACKAGES)
_ATTEMPTS = 8  # of a request, with pauses that grow and differ by chance
_TEMPORARY = re.compile(r'\..+\.([0-9a-f]{8})-(\d+)\.tmp', re.DOTALL)
_looked_into: set[pathlib.Path] = set()
_looking = threading.Lock()

if any(importlib.util.find_spec(name) for name, _ in _PACKAGES.values()):
  # Training imports no TensorFlow, which epath would use if it were installed.
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
  if scheme not in _PACKAGES or not rest.strip('/'):
    raise errors.RunDirectoryError(
      'Files cannot be there',
      got=text,
      expected='a directory, gs://BUCKET/NAME, s3://BUCKET/NAME or '
      'az://CONTAINER/NAME',
      fix='mount the bucket as a file system, or take another place',
    )
  return cast(pathlib.Path, _bucket_path(text))


def _bucket_path(text: str):
  scheme = text.partition('://')[0]
  package, extra = _PACKAGES[scheme]
  if importlib.util.find_spec(package) is None:
    raise errors.RunDirectoryError(
      'The package that reads and writes buckets is missing',
      got=text,
      expected=package,
      fix=f'pip install ".[{extra}]" in a checkout of xlflax',
    )
  import fsspec.config
  from etils import epath

  settings = fsspec.config.conf.setdefault(
    'gcs' if scheme == 'gs' else scheme, {}
  )
  # Other processes write there too: listings must not be remembered.
  settings.setdefault('use_listings_cache', False)
  if scheme == 's3':
    retries = {'mode': 'standard', 'max_attempts': _ATTEMPTS}
    settings.setdefault('config_kwargs', {'retries': retries})
  if scheme == 'az':  # Azure's own chain of credentials, where none is named
    settings.setdefault('anon', False)
  # They tell with every request what cannot be known, or is read ahead.
  for library in (package, 'fsspec', 'aiobotocore', 'azure'):
    logging.getLogger(library).setLevel(logging.CRITICAL)
  return epath.Path(text.rstrip('/'))


def is_bucket(path: str | os.PathLike) -> bool:
  """Whether a path is in a bucket rather than in a file system."""
  return os.fspath(path).startswith(_PREFIXES)


def filesystem(path: str | os.PathLike) -> Any:
  """The `fsspec` file system of a path in a bucket."""
  import fsspec

  return fsspec.filesystem(os.fspath(path).partition('://')[0])


def create(path: pathlib.Path, content: str) -> bool:
  """Writes a file unless it is there; returns whether it was not.

  Of several that ask at once one is told True, in buckets too: they are asked
  to write on the condition that there is no such object.
  """
  try:
    if is_bucket(path):
      filesystem(path).pipe_file(
        os.fspath(path), content.encode('utf-8'), mode='create'
      )
    else:
      path.parent.mkdir(parents=True, exist_ok=True)
      with path.open('x', encoding='utf-8') as file:
        file.write(content)
  except FileExistsError:
    return False
  return True


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
      'This cannot be in a bucket',
      got=os.fspath(name),
      expected='a file or directory on disk',
      where=where,
      fix='give one on disk, and copy it from or to the bucket',
    )
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


def kept_checksum(path: pathlib.Path) -> tuple[str, int]:
  """(CRC-32C in base 64, or '', bytes) that a bucket keeps of an object."""
  info = filesystem(path).info(os.fspath(path))
  return info.get('crc32c') or '', info['size']


def write_atomically(
  path: pathlib.Path, content: str | bytes | Callable[[BinaryIO], None]
) -> None:
  """Writes a file that readers see either complete or not at all.

  Args:
    path: the file; its directory is created.
    content: text (written as UTF-8), bytes, or a function that writes to the
      open file it is given, such as `lambda file: np.savez(file, **arrays)`.
  """
  if is_bucket(path):  # an object appears when it is complete
    path.write_bytes(_bytes(content))
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _temporary(path)
  try:
    with errors.naming(path), temporary.open('wb') as file:
      content(file) if callable(content) else file.write(_bytes(content))
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_directory(path.parent)
  finally:
    temporary.unlink(missing_ok=True)


def _temporary(path: pathlib.Path) -> pathlib.Path:
  """A name beside `path` for what is not whole yet.

  What processes that were killed left under such names is removed when this
  process first asks for one in a directory.
  """
  directory = path.parent.absolute()
  with _looking:
    if directory not in _looked_into:
      _looked_into.add(directory)
      _remove_left_behind(directory)
  return path.with_name(f'.{path.name}.{_machine()}-{os.getpid()}.tmp')


def _remove_left_behind(directory: pathlib.Path) -> None:
  """Removes what processes of this machine that are gone did not finish."""
  with contextlib.suppress(OSError):
    for path in list(directory.iterdir()):
      found = _TEMPORARY.fullmatch(path.name)
      if not found or found[1] != _machine() or _is_another(int(found[2])):
        continue
      shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_another(process: int) -> bool:
  """Whether a process runs, and is not this one."""
  if process == os.getpid():
    return False  # this number was a killed one's before
  try:
    os.kill(process, 0)
  except (ProcessLookupError, OverflowError):
    return False
  except OSError:
    pass  # it is another user's
  return True


@functools.cache
def _machine() -> str:
  """Eight digits for this host and the numbering of its processes."""
  name = platform.node()
  with contextlib.suppress(OSError):
    name += os.readlink('/proc/self/ns/pid')
  return hashlib.sha256(name.encode()).hexdigest()[:8]


def _sync_directory(directory: pathlib.Path) -> None:
  """Has the new name of a file outlast a loss of power, where that works."""
  with contextlib.suppress(OSError):
    opened = os.open(directory, os.O_RDONLY)
    try:
      os.fsync(opened)
    finally:
      os.close(opened)


def _bytes(content: str | bytes | Callable[[BinaryIO], None]) -> bytes:
  if callable(content):
    buffer = io.BytesIO()
    content(buffer)
    return buffer.getvalue()
  return content.encode('utf-8') if isinstance(content, str) else content


def copy_files(source: pathlib.Path, target: pathlib.Path) -> None:
  """Copies the files of a directory into a new one, which is then whole.

  In a bucket, where directories do not exist by themselves, the files that
  an interrupted call left out are added.
  """
  if not is_bucket(target):
    if target.exists():
      return
    temporary = _temporary(target)
    try:
      temporary.mkdir(parents=True)
      for path in children(source):
        with errors.naming(target / path.name):
          (temporary / path.name).write_bytes(path.read_bytes())
      os.replace(temporary, target)
    except BaseException:
      shutil.rmtree(temporary, ignore_errors=True)
      raise
    return
  there = {path.name for path in children(target)}
  for path in children(source):
    if path.name not in there:
      (target / path.name).write_bytes(path.read_bytes())


def settle(directory: pathlib.Path, *, seconds: float = 60.0) -> None:
  """Waits until lists of a bucket know all that has been written there.

  Most stores' always do. A checkpoint is put together by lists, and would be
  without what one does not show.

  Raises:
    TimeoutError: they still do not after so many seconds.
  """
  if not is_bucket(directory):
    return
  mark, end = directory / f'.last-{_machine()}-{os.getpid()}', seconds
  mark.write_bytes(b'')
  try:
    for pause in itertools.count(1):
      if any(path.name == mark.name for path in children(directory)):
        return
      if end <= 0:
        raise TimeoutError(f'lists of {directory} do not show what is written')
      time.sleep(0.1 * pause)
      end -= 0.1 * pause
  finally:
    mark.unlink(missing_ok=True)


def move(source: pathlib.Path, target: pathlib.Path) -> None:
  """Moves a directory; in a bucket its objects are copied there."""
  if is_bucket(source):
    files, old = filesystem(source), os.fspath(source).partition('://')[2]
    for name in files.find(os.fspath(source)):
      files.cp_file(name, os.fspath(target) + name.removeprefix(old))
    remove(source)
    return
  target.parent.mkdir(parents=True, exist_ok=True)
  shutil.move(source, target)


def remove(directory: pathlib.Path) -> None:
  """Removes a directory with all that is in it."""
  if is_bucket(directory):
    cast(Any, directory).rmtree()
  else:
    shutil.rmtree(directory)


@contextlib.contextmanager
def new_directory(
  target: pathlib.Path, *, where: str
) -> Iterator[pathlib.Path]:
  """Context with a directory to write, which is `target` at its end.

  On disk it has another name until then. In a bucket it is written in its
  place. Nothing is left of it where the context is left by an exception; what
  a killed process leaves is removed by the next one that writes there.

  Args:
    target: a directory that is empty, or not there.
    where: flag or argument, for messages.

  Raises:
    RunDirectoryError: there is something already.
  """
  target = absolute(target)
  if not is_bucket(target):
    target = target.resolve()  # a link stays
  if os.path.ismount(target):
    raise errors.RunDirectoryError(
      'The output is a mounted folder, which cannot be replaced',
      got=str(target),
      expected='a folder below it',
      fix=f'give another {where}',
    )
  if target.exists() and (not target.is_dir() or children(target)):
    raise errors.RunDirectoryError(
      'The output is there already',
      got=str(target),
      expected='a new or empty directory',
      fix=f'give another {where}',
    )
  partial = target if is_bucket(target) else _temporary(target)
  try:
    with errors.naming(target):
      partial.mkdir(parents=True, exist_ok=is_bucket(target))
      yield partial
    if partial != target:
      if target.exists():
        target.rmdir()  # it is empty
      os.replace(partial, target)
  except BaseException:
    with contextlib.suppress(Exception):  # the first error is what counts
      remove(partial)
    raise
