"""Local staging of inputs and outputs that are stored in buckets.

Text, vocabularies, caches and directories are read from and written to local
disks. An input in a bucket is therefore copied before it is read
(`stage_input`), and an output is written to a local mirror, which is uploaded
when it is complete (`stage_output`). Both functions resume where a killed
process stopped: a file is not transferred again if its size and time match
those of its object.

An uploaded folder contains the object `.uploaded.json`, which stores the
digests of the folder's files. The complete version of this object is written
last. During an upload, the object records that the folder is incomplete.
"""

import concurrent.futures
import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import pathlib
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xlflax.storage import (
  bucket_access,
  checksums,
  file_lock,
  paths,
  tensorstore_specs,
)
from xlflax.utils import errors, progress_reporting

MANIFEST = '.uploaded.json'
VARIABLE = 'XLFLAX_STAGE'
_THREADS = 8
_ATTEMPTS = 5  # In addition to the clients' retries, with exponential backoff.
_NEVER = ('.lock', '.tmp', MANIFEST)  # Suffixes of files not to be uploaded.
_State = tuple[int, int]  # Size in bytes and modification time in ns.


def staging_path(name: str | os.PathLike, kind: str = 'out') -> pathlib.Path:
  """Returns the local path of an output that is later uploaded to a bucket.

  The staging path is below the folder in XLFLAX_STAGE, or in the user's cache.
  """
  path = paths.to_path(name)
  if not paths.is_bucket(path):
    return path
  scheme, _, bucket_path = os.fspath(path).partition('://')
  if endpoint := tensorstore_specs.get_endpoint(scheme):
    scheme += '-' + hashlib.sha256(endpoint.encode()).hexdigest()[:8]
  cache = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  root = os.environ.get(VARIABLE) or f'{cache}/xlflax/staged'
  return (
    pathlib.Path(root).expanduser().absolute() / kind / scheme / bucket_path
  )


def stage_input(name: str | os.PathLike) -> pathlib.Path:
  """Copies an input from a bucket to the local disk and returns its local path.

  A path on disk is returned unchanged. A process copies each input once.
  Changes after that are only visible to later processes.

  Args:
    name: File or folder, on disk or in a bucket.

  Raises:
    RunDirectoryError: If the input does not exist, its upload is incomplete, it
      differs from what was uploaded, or the bucket is not readable.
    OSError: If the bucket does not respond, or the disk is full.
  """
  path = paths.to_path(name)
  if not paths.is_bucket(path):
    return path
  return _copied(os.fspath(path), staging_path(path, 'in'))


@functools.cache
def _copied(name: str, folder: pathlib.Path) -> pathlib.Path:
  bucket_access.check_readable(paths.to_path(name))
  mirror = _Mirror(name, folder)
  with mirror.lock(wait=True):
    mirror.read()
  return folder


def find_written_copy(directory: pathlib.Path, mark: str) -> pathlib.Path:
  """Returns the path of an output's local copy if that copy is up to date.

  If the local copy is missing or outdated, the output's own path is returned.

  Args:
    directory: Output directory, on disk or in a bucket.
    mark: Name of a file whose content depends on all other files. The local
      copy is up to date if this file equals the one in the bucket.
  """
  mirror = staging_path(directory)
  with contextlib.suppress(FileNotFoundError):
    if (mirror / mark).read_bytes() == (directory / mark).read_bytes():
      return mirror
  return directory


@contextlib.contextmanager
def stage_output(
  name: str | os.PathLike,
  *,
  new: bool = False,
  share: tuple[int, int] | None = None,
) -> Iterator[pathlib.Path]:
  """Context manager that yields an output folder and uploads it on exit.

  The folder is local and is uploaded to `name`. If `name` is on disk, the
  folder is that path itself. For a bucket, the folder initially contains the
  existing output, or what a killed process wrote here before it was uploaded.

  Args:
    name: Path of the output, on disk or in a bucket.
    new: Whether to reject an existing output and start with an empty folder.
    share: Pair (i, n) if several machines write the output. The folder is then
      the i-th of n shards, where i starts at 0. It initially contains only JSON
      files, and nothing in the bucket is deleted.

  Raises:
    RunDirectoryError: If the existing output cannot be read, or another process
      writes the same output.
  """
  path = paths.to_path(name)
  if not paths.is_bucket(path):
    yield path
    return
  bucket_access.check_usable(path, checkpoints=False)
  kind = 'out' if share is None else f'share-{share[0]}-of-{share[1]}'
  mirror = _Mirror(os.fspath(path), staging_path(path, kind))
  with mirror.lock():
    if share is None:
      mirror.prepare(new=new)
    else:
      mirror.prepare_shard()
    yield mirror.folder
    mirror.upload(is_shard=share is not None)


class _Mirror:
  """A folder or file in a bucket, together with its local copy.

  Attributes:
    folder: Path of the local copy.
  """

  def __init__(self, name: str, folder: pathlib.Path):
    self.folder, self._name = folder, name
    self._files = paths.get_filesystem(name)
    self._remote: dict[str, _State] = {}
    self._text = b''  # Content of the manifest.
    self._digests: dict[str, str] | None = {}  # None during an upload.

  def lock(self, *, wait: bool = False) -> contextlib.AbstractContextManager:
    """Context in which no other local process uses the bucket's local copy."""
    return file_lock.lock_directory(
      self.folder.parent,
      name=f'.{self.folder.name}.lock',
      what=f'copy of {self._name}',
      error=errors.RunDirectoryError,
      wait=wait,
    )

  def read(self) -> None:
    """Downloads the folder or file from the bucket to its local copy."""
    self._load_state()
    if not self._remote:
      raise self._bucket_error(
        'The bucket does not contain this file or folder'
      )
    if self._digests is None:
      raise self._bucket_error(
        'The upload of the folder is incomplete, because the bucket does not '
        f'contain its manifest {MANIFEST}'
      )
    if missing := sorted(self._digests.keys() - self._remote.keys()):
      raise self._bucket_error(
        f'Files that the manifest {MANIFEST} lists are missing from the '
        f'bucket: {", ".join(missing[:5])}'
      )
    local = self._local()
    for name in local.keys() - self._remote.keys():
      (self.folder / name).unlink()
    manifest_file = self.folder / MANIFEST
    if (
      self._text and manifest_file.exists()
    ):  # The list of objects may be outdated.
      previous_digests = self._files_of(manifest_file.read_bytes()) or {}
      for name, digest in self._digests.items():
        if previous_digests.get(name) != digest:
          local.pop(name, None)
    self._move('Copying', self._get, dict(self._remote.items() - local.items()))
    if self._text:
      paths.write_atomically(self.folder / MANIFEST, self._text)

  def prepare(self, *, new: bool) -> None:
    """Updates the local copy of an output, so that writing can resume."""
    self._load_state()
    is_complete = self._digests is not None
    if new and is_complete and self._remote:
      raise self._bucket_error('The output already exists in the bucket')
    manifest_file = self.folder / MANIFEST
    previous_text = (
      manifest_file.read_bytes() if manifest_file.exists() else b''
    )
    if new or (is_complete and previous_text != self._text):
      # The output has been changed since it was uploaded from this machine.
      shutil.rmtree(self.folder, ignore_errors=True)
    self.folder.mkdir(parents=True, exist_ok=True)
    local = self._local()
    if is_complete or not (new or local):  # Another machine started the output.
      newer = {
        name: state
        for name, state in self._remote.items()
        # The fraction of a second is not part of an object's time.
        if state[1] // 10**9 > local.get(name, (0, -1))[1] // 10**9
      }
      self._move('Copying', self._get, newer)
      if self._text:
        paths.write_atomically(manifest_file, self._text)

  def prepare_shard(self) -> None:
    """Downloads the files that all shards of an output require."""
    self._load_state()
    self.folder.mkdir(parents=True, exist_ok=True)
    changed = dict(self._remote.items() - self._local().items())
    json_files = {
      name: state for name, state in changed.items() if name.endswith('.json')
    }
    self._move('Copying', self._get, json_files)

  def upload(self, *, is_shard: bool = False) -> None:
    """Uploads the local copy to the bucket. The manifest is uploaded last.

    Args:
      is_shard: Whether the copy is one shard of an output. The bucket may then
        contain files of other shards, and the output remains incomplete after
        the upload.
    """
    local = self._local()
    changed = dict(local.items() - self._remote.items())
    deleted = set() if is_shard else self._remote.keys() - local.keys()
    deleted = {name for name in deleted if not name.endswith(_NEVER)}
    if (self._digests or is_shard) and not changed and not deleted:
      return  # The bucket is up to date.
    if not is_shard:
      self._write_manifest(None)
    marks = sorted(
      name for name in changed if '/' not in name and name.endswith('.json')
    )
    data_files = {
      name: state for name, state in changed.items() if name not in marks
    }
    self._move('Uploading', self._put, data_files)
    for name in marks:  # These files mark the output as complete.
      self._put(name)
    for name in deleted:
      with contextlib.suppress(FileNotFoundError):
        self._retry(self._files.rm_file, self._url(name))
    if is_shard:
      return
    digest_by_path = checksums.digest_files(
      [self.folder / name for name in local]
    )
    self._write_manifest(
      {name: digest_by_path[self.folder / name] for name in local}
    )

  def _write_manifest(self, files: Mapping[str, str] | None) -> None:
    """Writes the manifest to the bucket and to the copy."""
    self._text = json.dumps(checksums.add_digest({'files': files})).encode(
      'utf-8'
    )
    self._retry(self._files.pipe_file, self._url(MANIFEST), self._text)
    paths.write_atomically(self.folder / MANIFEST, self._text)

  def _load_state(self) -> None:
    """Reads the list of objects and the manifest."""
    prefix = self._name.partition('://')[2]
    listed = self._retry(self._files.find, self._name, detail=True)
    if not isinstance(listed, dict):  # adlfs, if the name is an object.
      listed = {name: self._retry(self._files.info, name) for name in listed}
    self._remote = {
      name.removeprefix(prefix).lstrip('/'): _state(info)
      for name, info in listed.items()
      if not name.endswith('/')
    }
    for name in filter(None, self._remote):
      if {'..', '.', ''} & set(name.split('/')):
        raise self._bucket_error(
          f'The name {name} of an object in the bucket is not a valid file path'
        )
    self._remote.pop(MANIFEST, None)
    with contextlib.suppress(FileNotFoundError):
      self._text = self._retry(self._files.cat_file, self._url(MANIFEST))
      self._digests = self._files_of(self._text)
    for name in (self._digests or {}).keys() - self._remote:
      with contextlib.suppress(FileNotFoundError):
        self._remote[name] = self._state(name)

  def _files_of(self, text: bytes) -> dict[str, str] | None:
    """Returns the digests in a manifest."""
    try:
      return checksums.verify_digest(json.loads(text))['files']
    except (ValueError, LookupError) as error:
      raise self._bucket_error(f'{MANIFEST}: {error}') from error

  def _state(self, name: str) -> _State:
    """Requests an object's state, in case it changed after it was listed."""
    return _state(self._retry(self._files.info, self._url(name)))

  def _move(
    self, what: str, move: Callable[[str], None], states: Mapping[str, _State]
  ) -> None:
    """Transfers files in several threads and logs the progress."""
    if not states:
      return
    total = sum(size for size, _ in states.values()) / 1e6
    if move == self._get:
      self._check_space(total)
    logging.info(
      f'{what} {len(states)} files, {total:.1f} MB. The copy of {self._name} '
      f'is in {self.folder}. Set {VARIABLE} to use a different folder.'
    )
    with (
      concurrent.futures.ThreadPoolExecutor(_THREADS) as pool,
      progress_reporting.Progress(what, unit='MB', total=total) as bar,
    ):
      moved = pool.map(move, states)
      for (size, _), _ in zip(states.values(), moved, strict=True):
        bar(size / 1e6)

  def _check_space(self, needed: float) -> None:
    """Raises RunDirectoryError if the disk has too little space for a copy."""
    existing_parent = next(
      parent for parent in self.folder.parents if parent.exists()
    )
    free = shutil.disk_usage(existing_parent).free / 1e6
    if needed > free:
      raise errors.RunDirectoryError(
        f'A copy of the files of {self._name} requires {needed:,.0f} MB, but '
        f'only {free:,.0f} MB are free in {existing_parent}',
        fix=f'Set {VARIABLE} to a folder on a larger disk.',
      )

  def _get(self, name: str) -> None:
    """Copies an object and verifies its size and digest."""
    target = self.folder / name
    digest = (self._digests or {}).get(name)

    def fill(file) -> None:
      # The client opens the same file by its name.
      self._files.get_file(self._url(name), file.name)
      if (received := os.path.getsize(file.name)) != self._remote[name][0]:
        size, _ = self._remote[name] = self._state(name)
        if received != size:
          raise ConnectionError(
            f'The file {name} has {size} bytes, but {received} bytes were '
            'received'
          )
      if digest and checksums.digest_file(pathlib.Path(file.name)) != digest:
        raise self._bucket_error(
          f'The file {name} has changed since its upload'
        )

    try:
      self._retry(paths.write_atomically, target, fill)
    except FileNotFoundError:
      if digest:
        raise
      return  # The object was deleted after it was listed.
    modified = self._remote[name][1]
    os.utime(target, ns=(modified, modified))

  def _put(self, name: str) -> None:
    source, url = self.folder / name, self._url(name)
    self._retry(self._files.put_file, os.fspath(source), url)
    size, modified = self._state(name)
    if size != source.stat().st_size:
      raise self._bucket_error(
        f'The uploaded file {name} has {size} bytes in the bucket, but the '
        'local file has a different size'
      )
    os.utime(source, ns=(modified, modified))

  def _local(self) -> dict[str, _State]:
    """Returns the states of the files in the local copy."""
    files = [self.folder] if self.folder.is_file() else self.folder.rglob('*')
    start = len(os.fspath(self.folder)) + 1
    return {
      os.fspath(path)[start:]: (path.stat().st_size, path.stat().st_mtime_ns)
      for path in files
      if path.is_file() and not path.name.endswith(_NEVER)
    }

  def _url(self, name: str) -> str:
    return f'{self._name}/{name}' if name else self._name

  def _retry(self, send: Callable, *args, **kwargs) -> Any:
    """Sends a request to the bucket and retries it after transient failures."""
    for attempt in range(_ATTEMPTS):
      try:
        return send(*args, **kwargs)
      except errors.XlflaxError:
        raise
      except Exception as error:
        if isinstance(error, OSError) and not errors.is_unavailable(error):
          raise  # For example a missing object, or a full disk.
        text = f'{type(error).__name__}: {error}'
        time.sleep(0.2 * 2**attempt * (1 + random.random()))
    raise OSError(errno.ETIMEDOUT, text, self._name)

  def _bucket_error(self, got: str) -> errors.RunDirectoryError:
    return errors.RunDirectoryError(
      'The path in the bucket cannot be used. An input must be a complete '
      'upload, and an output must be a new path',
      got=got,
      where=self._name,
      fix='Correct the path, or wait until the command that writes it has '
      'finished.',
    )


def _state(info: Mapping[str, Any]) -> _State:
  """Determines an object's state from its metadata.

  Object stores report modification times in seconds. The fraction of the second
  is derived from the object's version.
  """
  version = info.get('generation') or info.get('ETag') or info.get('etag')
  digest = hashlib.sha256(str(version).encode()).hexdigest()
  part = int(digest[:12], 16) % 10**6
  names = ('LastModified', 'last_modified', 'mtime')
  moment = next(info[name] for name in names if name in info)
  return info['size'], (int(moment.timestamp()) * 10**6 + part) * 1000
