"""Directory leases, which ensure that only one process writes at a time.

The writer keeps a small file in the directory, which identifies the writer, and
rewrites this file every few seconds. The directory may be on disk or in a
bucket. A second writer is rejected while the first one is alive. The lease of a
killed process is taken over immediately if the process ran on this host.
Otherwise, it is taken over when its file has not changed for a while.
"""

import contextlib
import json
import logging
import os
import pathlib
import socket
import threading
import time
import uuid
from typing import Any

from xlflax.storage import paths
from xlflax.utils import errors

FILE = '.lease.json'
REFRESH_SECONDS = 10.0
STALE_SECONDS = 60.0  # Without a refresh, a writer on another host is gone.
_LONG_GONE = 600.0  # Seconds, more than the clocks of two hosts differ by.
_RACE_SECONDS = 0.3  # Delay that reveals a second process that takes over.


class Lease:
  """Context in which only this process writes to a directory.

  Args:
    directory: Directory on disk or in a bucket. It is created if necessary.
    stale_seconds: Time in seconds without a refresh after which the lease of
      another host is considered abandoned.
    refresh_seconds: Interval in seconds between refreshes of the lease.

  Raises:
    RunDirectoryError: If another process writes to the directory, or the
      directory is not writable.
  """

  def __init__(
    self,
    directory: pathlib.Path,
    *,
    stale_seconds: float = STALE_SECONDS,
    refresh_seconds: float = REFRESH_SECONDS,
  ):
    self._path = directory / FILE
    self._stale, self._refresh_seconds = stale_seconds, refresh_seconds
    self._owner = _owner()
    self._created_directory = False
    self._released = threading.Event()
    self._lost: dict[str, Any] | None = None
    self._thread = threading.Thread(
      target=self._run, name='xlflax lease', daemon=True
    )

  def __enter__(self) -> 'Lease':
    try:
      self._take()
    except OSError as error:
      reason = f'{type(error).__name__}: {error.strerror or error}'
      raise errors.RunDirectoryError(
        'The directory is not writable',
        got=reason,
        where=str(self._path.parent),
        fix='Pass a different directory, or check its permissions and its '
        'disk.',
        status=errors.convert_os_error(error).status,
      ) from error
    self._thread.start()
    return self

  def __exit__(self, *unused) -> None:
    self._released.set()
    self._thread.join()
    with contextlib.suppress(OSError):  # The next process takes it over.
      if self._is_own(_read(self._path)):
        self._path.unlink(missing_ok=True)
        self._remove_empty()

  def _remove_empty(self) -> None:
    """Removes the directory if this lease created it and it is empty."""
    if self._created_directory and not paths.is_bucket(self._path):
      with contextlib.suppress(OSError):
        self._path.parent.rmdir()

  def check(self) -> None:
    """Raises RunDirectoryError if a different process took over the lease."""
    if self._lost is not None:
      raise _lease_error(
        self._path,
        self._lost,
        'Another process has taken over this directory and is writing to it',
      )

  def _take(self) -> None:
    if not self._create():
      content = _read(self._path)
      if content is not None and not self._is_gone(content):
        raise _lease_error(
          self._path, content, 'Another process is writing to this directory'
        )
      if content is not None:
        logging.info(
          'Taking over %s from %s.', self._path, _describe_owner(content)
        )
      self._write()
      time.sleep(_RACE_SECONDS)
      content = _read(self._path)
      if content is not None and not self._is_own(content):
        raise _lease_error(
          self._path, content, 'Another process is writing to this directory'
        )

  def _create(self) -> bool:
    """Tries to create the lease, and returns whether it was created."""
    self._created_directory = not self._path.parent.exists()
    return paths.create_file(self._path, self._content())

  def _write(self) -> None:
    paths.write_atomically(self._path, self._content())

  def _content(self) -> str:
    return json.dumps({**self._owner, 'refreshed': time.time()}) + '\n'

  def _is_own(self, content: dict[str, Any] | None) -> bool:
    return content is not None and content.get('owner') == self._owner['owner']

  def _is_gone(self, content: dict[str, Any]) -> bool:
    """Returns whether the process that wrote a lease has terminated."""
    if content.get('place') == self._owner['place']:
      pid = content.get('pid')
      return pid == os.getpid() or _started(pid) != content.get('started')
    age = time.time() - float(content.get('refreshed', 0))
    return age > _LONG_GONE or self._stays_unchanged(content)

  def _stays_unchanged(self, content: dict[str, Any]) -> bool:
    """Returns whether a lease stays unchanged for a while.

    The clocks of the hosts do not need to agree.
    """
    end = time.monotonic() + self._stale
    logging.info(
      '%s may still write to %s. Waiting up to %.0f s for it to refresh its '
      'lease.',
      _describe_owner(content),
      self._path.parent,
      self._stale,
    )
    while time.monotonic() < end:
      time.sleep(min(1.0, self._stale / 5))
      current = _read(self._path)
      if current != content:
        return current is None
    return True

  def _run(self) -> None:
    while not self._released.wait(self._refresh_seconds):
      try:
        content = _read(self._path)
        if content is not None and not self._is_own(content):
          self._lost = content
          return
        self._write()
      except Exception as error:  # Other writers report a full disk.
        logging.warning('Failed to refresh %s (%s).', self._path, error)


def _owner() -> dict[str, Any]:
  """Returns the properties that identify this process."""
  return {
    'owner': uuid.uuid4().hex,
    'host': socket.gethostname(),
    'pid': os.getpid(),
    'started': _started(os.getpid()),
    'place': _place(),
    'time': time.strftime('%Y-%m-%d %H:%M:%S %Z'),
  }


def _place() -> str:
  """Returns an identifier of this host, its boot and its process namespace."""
  try:
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    return f'{socket.gethostname()} {boot} {os.readlink("/proc/self/ns/pid")}'
  except OSError:
    return socket.gethostname()


def _started(pid: Any) -> str | None:
  """Returns the start time of a process on this host, or None if it ended."""
  try:
    text = pathlib.Path(f'/proc/{int(pid)}/stat').read_text(encoding='utf-8')
    state, *fields = text.rpartition(')')[2].split()
    return None if state in 'ZX' else fields[18]
  except (OSError, ValueError, TypeError, IndexError):
    return _started_without_proc(pid)


def _started_without_proc(pid: Any) -> str | None:
  if pathlib.Path('/proc/self/stat').exists():
    return None
  try:
    os.kill(int(pid), 0)
  except (ProcessLookupError, ValueError, TypeError):
    return None
  except OSError:
    pass  # The process belongs to another user.
  return 'unknown'


def _read(path: pathlib.Path) -> dict[str, Any] | None:
  """Reads the current lease. Returns {} if it is corrupt.

  Raises:
    OSError: If the lease cannot be read and its owner is therefore unknown.
  """
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError:
    return None
  except (ValueError, RecursionError):
    return {}
  return content if isinstance(content, dict) else {}


def _describe_owner(content: dict[str, Any]) -> str:
  return (
    f'process {content.get("pid", "?")} on {content.get("host", "?")} '
    f'(since {content.get("time", "?")})'
  )


def _lease_error(
  path: pathlib.Path, content: dict[str, Any], problem: str
) -> errors.RunDirectoryError:
  return errors.RunDirectoryError(
    f'{problem}. Only one process can write to a directory at a time',
    got=_describe_owner(content),
    where=str(path.parent),
    fix='Wait until that process finishes, stop it, or pass a different '
    'directory. The lease of a lost host can be taken over '
    f'{STALE_SECONDS:.0f} s after its last refresh.',
    status=errors.ExitStatus.FAILURE,
  )
