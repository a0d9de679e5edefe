"""Paths of files and directories on disks and in buckets.

A name without a scheme is a `pathlib.Path`. `gs://bucket/...`,
`s3://bucket/...` and `az://container/...` are an `etils.epath.Path`, which has
the same methods. The functions of this module cover the operations that differ
in a bucket: appending, renaming, and operations on directories. Other stores
with the S3 interface (MinIO, R2, Ceph) are selected with AWS_ENDPOINT_URL.
Azure supports text, vocabularies, caches and folders, but no checkpoints (see
`tensorstore_specs`).
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

from xlflax.utils import errors

# Mapping from schemes to the package for access and the pip extra.
_PACKAGES = {
  'gs': ('gcsfs', 'buckets'),
  's3': ('s3fs', 's3'),
  'az': ('adlfs', 'azure'),
}
_PREFIXES = tuple(f'{scheme}://' for scheme in _PACKAGES)
_ATTEMPTS = 8  # Attempts per request, with randomized exponential backoff.
_TEMPORARY = re.compile(r'\..+\.([0-9a-f]{8})-(\d+)\.tmp', re.DOTALL)
_cleaned_directories: set[pathlib.Path] = set()
_cleanup_lock = threading.Lock()

if any(importlib.util.find_spec(name) for name, _ in _PACKAGES.values()):
  # Training does not import TensorFlow, which epath would use if installed.
  os.environ.setdefault('EPATH_USE_TF', 'false')


def to_path(name: str | os.PathLike) -> pathlib.Path:
  """Converts the name of a file or directory to a path object.

  Raises:
    RunDirectoryError: If the bucket's type is not supported.
  """
  if isinstance(name, pathlib.Path):
    return name
  text = os.fspath(name)
  scheme, separator, bucket_path = text.partition('://')
  if not separator:
    return pathlib.Path(text)
  if scheme not in _PACKAGES or not bucket_path.strip('/'):
    raise errors.RunDirectoryError(
      'The path must be local, or have the format gs://BUCKET/NAME, '
      's3://BUCKET/NAME or az://CONTAINER/NAME',
      got=text,
      fix='Mount the bucket as a file system, or pass a different path.',
    )
  return cast(pathlib.Path, _bucket_path(text))


def _bucket_path(text: str):
  scheme = text.partition('://')[0]
  package, extra = _PACKAGES[scheme]
  if importlib.util.find_spec(package) is None:
    raise errors.RunDirectoryError(
      f'The package {package} is required for buckets with the scheme '
      f'{scheme}://, but it is not installed',
      got=text,
      fix=f'Run `pip install ".[{extra}]"` in a checkout of xlflax.',
    )
  import fsspec.config
  from etils import epath

  settings = fsspec.config.conf.setdefault(
    'gcs' if scheme == 'gs' else scheme, {}
  )
  # Other processes write to the bucket, too, so listings must not be cached.
  settings.setdefault('use_listings_cache', False)
  if scheme == 's3':
    retries = {'mode': 'standard', 'max_attempts': _ATTEMPTS}
    settings.setdefault('config_kwargs', {'retries': retries})
  if scheme == 'az':  # Use Azure's default credential chain.
    settings.setdefault('anon', False)
  # These libraries log irrelevant messages for every request.
  for library in (package, 'fsspec', 'aiobotocore', 'azure'):
    logging.getLogger(library).setLevel(logging.CRITICAL)
  return epath.Path(text.rstrip('/'))


def is_bucket(path: str | os.PathLike) -> bool:
  """Returns whether a path is in a bucket."""
  return os.fspath(path).startswith(_PREFIXES)


def get_filesystem(path: str | os.PathLike) -> Any:
  """Returns the `fsspec` file system for a path in a bucket."""
  import fsspec

  return fsspec.filesystem(os.fspath(path).partition('://')[0])


def create_file(path: pathlib.Path, content: str) -> bool:
  """Creates a file if it does not exist, and returns whether it was created.

  The operation is atomic: if several processes call it at once, one receives
  True. In a bucket, the write is conditional on the absence of the object.
  """
  try:
    if is_bucket(path):
      get_filesystem(path).pipe_file(
        os.fspath(path), content.encode('utf-8'), mode='create'
      )
    else:
      path.parent.mkdir(parents=True, exist_ok=True)
      with path.open('x', encoding='utf-8') as file:
        file.write(content)
  except FileExistsError:
    return False
  return True


def to_local_path(name: str | os.PathLike, *, where: str) -> pathlib.Path:
  """Converts a name to a local path, and rejects paths in buckets.

  Args:
    name: Name of a file or directory.
    where: Flag or argument that contains the name, for the error message.

  Raises:
    RunDirectoryError: If the file or directory is in a bucket.
  """
  if '://' in os.fspath(name):
    raise errors.RunDirectoryError(
      'The path must refer to a local file or directory, not to a bucket',
      got=os.fspath(name),
      where=where,
      fix='Pass a local path, and copy the files between the local disk and '
      'the bucket.',
    )
  return pathlib.Path(name)


def to_absolute_path(name: str | os.PathLike) -> pathlib.Path:
  """Converts the name of a file or directory to an absolute path."""
  path = to_path(name)
  return path if is_bucket(path) else path.absolute()


def list_directory(directory: pathlib.Path) -> list[pathlib.Path]:
  """Lists the paths in a directory in sorted order.

  Returns an empty list if the directory does not exist.
  """
  try:
    return sorted(directory.iterdir())
  except (FileNotFoundError, NotADirectoryError):
    return []


def file_size(path: pathlib.Path) -> int:
  """Returns a file's size in bytes, or 0 if the file does not exist."""
  try:
    status: Any = path.stat()
  except FileNotFoundError:
    return 0
  return status.length if is_bucket(path) else status.st_size


def read_stored_checksum(path: pathlib.Path) -> tuple[str, int]:
  """Returns the checksum and the size that a bucket stores for an object.

  Returns:
    CRC-32C in base 64, or '' if there is none, and the size in bytes.
  """
  info = get_filesystem(path).info(os.fspath(path))
  return info.get('crc32c') or '', info['size']


def write_atomically(
  path: pathlib.Path, content: str | bytes | Callable[[BinaryIO], None]
) -> None:
  """Writes a file atomically: readers find the complete file or no file.

  Args:
    path: File to write. Its directory is created.
    content: Text (written as UTF-8), bytes, or a function that writes to an
      open file, such as `lambda file: np.savez(file, **arrays)`.
  """
  if is_bucket(path):  # An object appears when it is complete.
    path.write_bytes(_bytes(content))
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _temporary(path)
  try:
    with errors.add_path_to_errors(path), temporary.open('wb') as file:
      content(file) if callable(content) else file.write(_bytes(content))
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_directory(path.parent)
  finally:
    temporary.unlink(missing_ok=True)


def _temporary(path: pathlib.Path) -> pathlib.Path:
  """Returns the path of a temporary file in the same directory as `path`.

  On the first call for a directory, temporary files of killed processes are
  removed.
  """
  directory = path.parent.absolute()
  with _cleanup_lock:
    if directory not in _cleaned_directories:
      _cleaned_directories.add(directory)
      _remove_abandoned_files(directory)
  return path.with_name(f'.{path.name}.{_machine()}-{os.getpid()}.tmp')


def _remove_abandoned_files(directory: pathlib.Path) -> None:
  """Removes temporary files of terminated processes of this machine."""
  with contextlib.suppress(OSError):
    for path in list(directory.iterdir()):
      match = _TEMPORARY.fullmatch(path.name)
      if not match or match[1] != _machine() or _is_running(int(match[2])):
        continue
      shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_running(process: int) -> bool:
  """Returns whether a process is running and is not this one."""
  if process == os.getpid():
    return False  # A terminated process had this number before.
  try:
    os.kill(process, 0)
  except (ProcessLookupError, OverflowError):
    return False
  except OSError:
    pass  # The process belongs to another user.
  return True


@functools.cache
def _machine() -> str:
  """Returns eight digits that identify this host and its process namespace."""
  name = platform.node()
  with contextlib.suppress(OSError):
    name += os.readlink('/proc/self/ns/pid')
  return hashlib.sha256(name.encode()).hexdigest()[:8]


def _sync_directory(directory: pathlib.Path) -> None:
  """Flushes a directory to disk, so that a renamed file survives a power loss."""
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
  """Copies the files of a directory to a new directory atomically.

  In a bucket, which has no directories, the files that an interrupted call has
  not copied are added.
  """
  if not is_bucket(target):
    if target.exists():
      return
    temporary = _temporary(target)
    try:
      temporary.mkdir(parents=True)
      for path in list_directory(source):
        with errors.add_path_to_errors(target / path.name):
          (temporary / path.name).write_bytes(path.read_bytes())
      os.replace(temporary, target)
    except BaseException:
      shutil.rmtree(temporary, ignore_errors=True)
      raise
    return
  existing = {path.name for path in list_directory(target)}
  for path in list_directory(source):
    if path.name not in existing:
      (target / path.name).write_bytes(path.read_bytes())


def wait_until_listed(
  directory: pathlib.Path, *, seconds: float = 60.0
) -> None:
  """Waits until a bucket's listings contain all objects written so far.

  The listings of most stores are always up to date. A checkpoint is assembled
  from listings, so it would lack an object that is not listed.

  Raises:
    TimeoutError: If a new object is not listed within the time limit.
  """
  if not is_bucket(directory):
    return
  marker, remaining = directory / f'.last-{_machine()}-{os.getpid()}', seconds
  marker.write_bytes(b'')
  try:
    for pause in itertools.count(1):
      if any(path.name == marker.name for path in list_directory(directory)):
        return
      if remaining <= 0:
        raise TimeoutError(
          f'A new object in the bucket folder {directory} was not listed '
          f'within {seconds:g} s'
        )
      time.sleep(0.1 * pause)
      remaining -= 0.1 * pause
  finally:
    marker.unlink(missing_ok=True)


def move_directory(source: pathlib.Path, target: pathlib.Path) -> None:
  """Moves a directory. In a bucket, objects are copied and then deleted."""
  if is_bucket(source):
    files, old = get_filesystem(source), os.fspath(source).partition('://')[2]
    for name in files.find(os.fspath(source)):
      files.cp_file(name, os.fspath(target) + name.removeprefix(old))
    remove_directory(source)
    return
  target.parent.mkdir(parents=True, exist_ok=True)
  shutil.move(source, target)


def remove_directory(directory: pathlib.Path) -> None:
  """Removes a directory and everything in it."""
  if is_bucket(directory):
    cast(Any, directory).rmtree()
  else:
    shutil.rmtree(directory)


@contextlib.contextmanager
def new_directory(
  target: pathlib.Path, *, where: str
) -> Iterator[pathlib.Path]:
  """Context manager that yields a directory that becomes `target` on exit.

  On disk, the directory has a temporary name until then. In a bucket, it is
  written in place. If an exception is raised, the directory is removed. The
  directory of a killed process is removed by the next process that writes
  there.

  Args:
    target: Final path of the directory, which must be empty or not exist.
    where: Flag or argument that contains the path, for error messages.

  Raises:
    RunDirectoryError: If the directory is not empty.
  """
  target = to_absolute_path(target)
  if not is_bucket(target):
    target = target.resolve()  # A symbolic link is preserved.
  if os.path.ismount(target):
    raise errors.RunDirectoryError(
      'The output directory is a mount point, which cannot be replaced. It '
      'must be a folder below the mount point',
      got=str(target),
      fix=f'Pass a different {where}.',
    )
  if target.exists() and (not target.is_dir() or list_directory(target)):
    raise errors.RunDirectoryError(
      'The output already exists. It must be a new or empty directory',
      got=str(target),
      fix=f'Pass a different {where}.',
    )
  partial = target if is_bucket(target) else _temporary(target)
  try:
    with errors.add_path_to_errors(target):
      partial.mkdir(parents=True, exist_ok=is_bucket(target))
      yield partial
    if partial != target:
      if target.exists():
        target.rmdir()  # The directory is empty.
      os.replace(partial, target)
  except BaseException:
    with contextlib.suppress(Exception):  # Only the first error is raised.
      remove_directory(partial)
    raise
