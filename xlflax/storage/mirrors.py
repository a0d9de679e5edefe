"""Mirrors on this disk of what lies in buckets: inputs and outputs of commands.

Text is read, and vocabularies, caches and folders are written, on disks. So an
input in a bucket is copied before it is read (`here`), and an output is written
to a mirror, which is uploaded when it is whole (`output`). Both go on where a
killed process stopped: a file of the bytes and the time of its object is not
moved again.

A folder that was uploaded has an object `.uploaded.json` with the digests of
its files. It comes last; while an upload lasts it says that there is nothing.
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

from xlflax.foundation import errors, progress
from xlflax.storage import bucket_checks, digests, kvstores, locking, paths

MANIFEST = '.uploaded.json'
VARIABLE = 'XLFLAX_STAGE'
_THREADS = 8
_ATTEMPTS = 5  # beside those of the clients, with pauses that grow
_NEVER = ('.lock', '.tmp', MANIFEST)  # ends of names that are not uploaded
_State = tuple[int, int]  # bytes and time of a file (ns)


def place(name: str | os.PathLike, kind: str = 'out') -> pathlib.Path:
  """Where an output in a bucket is written first; a path on disk is itself.

  It is below the folder that XLFLAX_STAGE names, or the user's cache.
  """
  path = paths.of(name)
  if not paths.is_bucket(path):
    return path
  scheme, _, rest = os.fspath(path).partition('://')
  if store := kvstores.endpoint_of(scheme):
    scheme += '-' + hashlib.sha256(store.encode()).hexdigest()[:8]
  cache = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  root = os.environ.get(VARIABLE) or f'{cache}/xlflax/staged'
  return pathlib.Path(root).expanduser().absolute() / kind / scheme / rest


def here(name: str | os.PathLike) -> pathlib.Path:
  """The path of an input on this disk: its own, or that of a copy.

  A process copies a name once; of what changes later the next one knows.

  Args:
    name: file or folder, on disk or in a bucket.

  Raises:
    RunDirectoryError: nothing is there in the bucket, its upload has not ended,
      it is not as it was uploaded, or the bucket cannot be read.
    OSError: the bucket does not answer, or the disk is full.
  """
  path = paths.of(name)
  if not paths.is_bucket(path):
    return path
  return _copied(os.fspath(path), place(path, 'in'))


@functools.cache
def _copied(name: str, folder: pathlib.Path) -> pathlib.Path:
  bucket_checks.check_readable(paths.of(name))
  mirror = _Mirror(name, folder)
  with mirror.alone(wait=True):
    mirror.read()
  return folder


def written(directory: pathlib.Path, mark: str) -> pathlib.Path:
  """The mirror of an output that this machine wrote, or the path itself.

  Args:
    directory: of the output.
    mark: name of a file that follows from all others; it is compared.
  """
  mirror = place(directory)
  with contextlib.suppress(FileNotFoundError):
    if (mirror / mark).read_bytes() == (directory / mark).read_bytes():
      return mirror
  return directory


@contextlib.contextmanager
def output(
  name: str | os.PathLike,
  *,
  new: bool = False,
  share: tuple[int, int] | None = None,
) -> Iterator[pathlib.Path]:
  """Context with a folder on disk, of which `name` has the content at its end.

  A path on disk is that folder. That of a bucket begins with what is there, or
  with what a process wrote here that was killed before all was uploaded.

  Args:
    name: of the output.
    new: refuses an output that is there, and begins with nothing.
    share: (i, n): it is the i-th of n parts of an output, which other machines
      write beside this one. It begins with JSON alone, and nothing is deleted.

  Raises:
    RunDirectoryError: as of `here`, or another process writes the same.
  """
  path = paths.of(name)
  if not paths.is_bucket(path):
    yield path
    return
  bucket_checks.check_usable(path, checkpoints=False)
  kind = 'out' if share is None else f'share-{share[0]}-of-{share[1]}'
  mirror = _Mirror(os.fspath(path), place(path, kind))
  with mirror.alone():
    if share is None:
      mirror.begin(new=new)
    else:
      mirror.begin_part()
    yield mirror.folder
    mirror.upload(is_part=share is not None)


class _Mirror:
  """A folder or file in a bucket, and its copy.

  Attributes:
    folder: the copy.
  """

  def __init__(self, name: str, folder: pathlib.Path):
    self.folder, self._name = folder, name
    self._files = paths.filesystem(name)
    self._there: dict[str, _State] = {}
    self._text = b''  # of the manifest
    self._digests: dict[str, str] | None = {}  # None: an upload has not ended

  def alone(self, *, wait: bool = False) -> contextlib.AbstractContextManager:
    """Keeps other processes of this machine out."""
    return locking.alone(
      self.folder.parent,
      name=f'.{self.folder.name}.lock',
      what=f'copy of {self._name}',
      error=errors.RunDirectoryError,
      wait=wait,
    )

  def read(self) -> None:
    """Makes the copy be what is in the bucket."""
    self._look()
    if not self._there:
      raise self._wrong('there is nothing')
    if self._digests is None:
      raise self._wrong(f'its {MANIFEST} says that an upload began')
    if missing := sorted(self._digests.keys() - self._there.keys()):
      raise self._wrong(f'there is no {", ".join(missing[:5])}')
    local = self._local()
    for name in local.keys() - self._there.keys():
      (self.folder / name).unlink()
    own = self.folder / MANIFEST
    if self._text and own.exists():  # or the list may be of a moment ago
      known = self._files_of(own.read_bytes()) or {}
      for name, digest in self._digests.items():
        if known.get(name) != digest:
          local.pop(name, None)
    self._move('Copying', self._get, dict(self._there.items() - local.items()))
    if self._text:
      paths.write_atomically(self.folder / MANIFEST, self._text)

  def begin(self, *, new: bool) -> None:
    """Makes the copy what an output goes on with."""
    self._look()
    is_whole = self._digests is not None
    if new and is_whole and self._there:
      raise self._wrong('the output is there already')
    own = self.folder / MANIFEST
    known = own.read_bytes() if own.exists() else b''
    if new or (is_whole and known != self._text):
      # Somebody else wrote or deleted it since it was uploaded from here.
      shutil.rmtree(self.folder, ignore_errors=True)
    self.folder.mkdir(parents=True, exist_ok=True)
    local = self._local()
    if is_whole or not (new or local):  # begun by another machine
      newer = {
        name: state
        for name, state in self._there.items()
        # Below a second the time of an object is made up.
        if state[1] // 10**9 > local.get(name, (0, -1))[1] // 10**9
      }
      self._move('Copying', self._get, newer)
      if self._text:
        paths.write_atomically(own, self._text)

  def begin_part(self) -> None:
    """Copies what all parts of an output have to know."""
    self._look()
    self.folder.mkdir(parents=True, exist_ok=True)
    others = dict(self._there.items() - self._local().items())
    known = {n: s for n, s in others.items() if n.endswith('.json')}
    self._move('Copying', self._get, known)

  def upload(self, *, is_part: bool = False) -> None:
    """Makes the bucket have what is in the copy; the manifest comes last.

    Args:
      is_part: the bucket may have more, and is not whole.
    """
    local = self._local()
    changed = dict(local.items() - self._there.items())
    gone = set() if is_part else self._there.keys() - local.keys()
    gone = {name for name in gone if not name.endswith(_NEVER)}
    if (self._digests or is_part) and not changed and not gone:
      return  # it is there
    if not is_part:
      self._declare(None)
    marks = sorted(n for n in changed if '/' not in n and n.endswith('.json'))
    rest = {n: state for n, state in changed.items() if n not in marks}
    self._move('Uploading', self._put, rest)
    for name in marks:  # they say that the rest is there
      self._put(name)
    for name in gone:
      with contextlib.suppress(FileNotFoundError):
        self._again(self._files.rm_file, self._url(name))
    if is_part:
      return
    found = digests.of_files([self.folder / name for name in local])
    self._declare({name: found[self.folder / name] for name in local})

  def _declare(self, files: Mapping[str, str] | None) -> None:
    """Writes the manifest, there and here."""
    self._text = json.dumps(digests.with_own({'files': files})).encode('utf-8')
    self._again(self._files.pipe_file, self._url(MANIFEST), self._text)
    paths.write_atomically(self.folder / MANIFEST, self._text)

  def _look(self) -> None:
    """Reads the list of objects and the manifest."""
    own = self._name.partition('://')[2]
    listed = self._again(self._files.find, self._name, detail=True)
    if not isinstance(listed, dict):  # adlfs, where the name is an object's
      listed = {name: self._again(self._files.info, name) for name in listed}
    self._there = {
      name.removeprefix(own).lstrip('/'): _state(info)
      for name, info in listed.items()
      if not name.endswith('/')
    }
    for name in filter(None, self._there):
      if {'..', '.', ''} & set(name.split('/')):
        raise self._wrong(f'an object has the name {name}')
    self._there.pop(MANIFEST, None)
    with contextlib.suppress(FileNotFoundError):
      self._text = self._again(self._files.cat_file, self._url(MANIFEST))
      self._digests = self._files_of(self._text)
    for name in (self._digests or {}).keys() - self._there:
      with contextlib.suppress(FileNotFoundError):
        self._there[name] = self._state(name)

  def _files_of(self, text: bytes) -> dict[str, str] | None:
    """The digests that a manifest holds."""
    try:
      return digests.checked(json.loads(text))['files']
    except (ValueError, LookupError) as error:
      raise self._wrong(f'{MANIFEST}: {error}') from error

  def _state(self, name: str) -> _State:
    """Of an object as it is; a list may be of a moment ago."""
    return _state(self._again(self._files.info, self._url(name)))

  def _move(
    self, what: str, move: Callable[[str], None], states: Mapping[str, _State]
  ) -> None:
    """Moves files in several threads, and says so."""
    if not states:
      return
    total = sum(size for size, _ in states.values()) / 1e6
    if move == self._get:
      self._check_space(total)
    logging.info(
      f'{what} {len(states)} files, {total:.1f} MB: {self._name} has its copy '
      f'in {self.folder} ({VARIABLE} names another place)'
    )
    with (
      concurrent.futures.ThreadPoolExecutor(_THREADS) as pool,
      progress.Progress(what, unit='MB', total=total) as told,
    ):
      moved = pool.map(move, states)
      for (size, _), _ in zip(states.values(), moved, strict=True):
        told(size / 1e6)

  def _check_space(self, needed: float) -> None:
    """Refuses a copy that the disk has no room for."""
    above = next(one for one in self.folder.parents if one.exists())
    free = shutil.disk_usage(above).free / 1e6
    if needed > free:
      raise errors.RunDirectoryError(
        'There is no room for a copy of what lies in a bucket',
        got=f'{free:,.0f} MB free in {above}',
        expected=f'{needed:,.0f} MB for {self._name}',
        fix=f'name a folder on a larger disk by {VARIABLE}',
      )

  def _get(self, name: str) -> None:
    """Copies an object, if it is as the bucket and the manifest tell."""
    target = self.folder / name
    digest = (self._digests or {}).get(name)

    def fill(file) -> None:
      # The client opens the same file by its name.
      self._files.get_file(self._url(name), file.name)
      if (found := os.path.getsize(file.name)) != self._there[name][0]:
        size, _ = self._there[name] = self._state(name)
        if found != size:
          raise ConnectionError(f'{found} bytes came of {size}: {name}')
      if digest and digests.of_file(pathlib.Path(file.name)) != digest:
        raise self._wrong(f'{name} has another content')

    try:
      self._again(paths.write_atomically, target, fill)
    except FileNotFoundError:
      if digest:
        raise
      return  # it was deleted since it was listed
    modified = self._there[name][1]
    os.utime(target, ns=(modified, modified))

  def _put(self, name: str) -> None:
    source, url = self.folder / name, self._url(name)
    self._again(self._files.put_file, os.fspath(source), url)
    size, modified = self._state(name)
    if size != source.stat().st_size:
      raise self._wrong(f'{name} has {size} bytes after its upload')
    os.utime(source, ns=(modified, modified))

  def _local(self) -> dict[str, _State]:
    """Files of the copy."""
    found = [self.folder] if self.folder.is_file() else self.folder.rglob('*')
    start = len(os.fspath(self.folder)) + 1
    return {
      os.fspath(path)[start:]: (path.stat().st_size, path.stat().st_mtime_ns)
      for path in found
      if path.is_file() and not path.name.endswith(_NEVER)
    }

  def _url(self, name: str) -> str:
    return f'{self._name}/{name}' if name else self._name

  def _again(self, ask: Callable, *arguments, **named) -> Any:
    """Asks the bucket, several times where it does not answer well."""
    for attempt in range(_ATTEMPTS):
      try:
        return ask(*arguments, **named)
      except errors.XlflaxError:
        raise
      except Exception as error:
        if isinstance(error, OSError) and not errors.is_away(error):
          raise  # no such object, a full disk
        text = f'{type(error).__name__}: {error}'
        time.sleep(0.2 * 2**attempt * (1 + random.random()))
    raise OSError(errno.ETIMEDOUT, text, self._name)

  def _wrong(self, got: str) -> errors.RunDirectoryError:
    return errors.RunDirectoryError(
      'This place in a bucket cannot be used',
      got=got,
      expected='files as they were uploaded; a new place for a model folder',
      where=self._name,
      fix='correct the name, or run the command that writes it to its end',
    )


def _state(info: Mapping[str, Any]) -> _State:
  """Of an object, as a client tells.

  Stores tell whole seconds; the part of one is made of the object's version.
  """
  version = info.get('generation') or info.get('ETag') or info.get('etag')
  digest = hashlib.sha256(str(version).encode()).hexdigest()
  part = int(digest[:12], 16) % 10**6
  names = ('LastModified', 'last_modified', 'mtime')
  moment = next(info[name] for name in names if name in info)
  return info['size'], (int(moment.timestamp()) * 10**6 + part) * 1000
