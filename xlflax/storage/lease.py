"""Leases: one writer of a directory at a time, on disk and in buckets.

The writer keeps a small file there that says who it is, and writes it anew
every few seconds. A second writer is refused while the first lives. What a
killed process left behind is taken over: at once where it ran on this host,
else when its file has not changed for a while.
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

from xlflax.foundation import errors
from xlflax.storage import paths

FILE = '.lease.json'
REFRESH_SECONDS = 10.0
STALE_SECONDS = 60.0  # without a change: a writer on another host is gone
_LONG_GONE = 600.0  # clocks of hosts do not differ by so much
_RACE_SECONDS = 0.3  # two that take over see each other after this


class Lease:
  """Context in which this process is the only writer of a directory.

  Args:
    directory: on disk or in a bucket; it is created.
    stale_seconds: see `STALE_SECONDS`.
    refresh_seconds: between signs of life.

  Raises:
    RunDirectoryError: another process writes there (who and since when), or
      it cannot be written.
  """

  def __init__(
    self,
    directory: pathlib.Path,
    *,
    stale_seconds: float = STALE_SECONDS,
    refresh_seconds: float = REFRESH_SECONDS,
  ):
    self._path = directory / FILE
    self._stale, self._every = stale_seconds, refresh_seconds
    self._own = _owner()
    self._made = False
    self._ended = threading.Event()
    self._lost: dict[str, Any] | None = None
    self._thread = threading.Thread(
      target=self._run, name='xlflax lease', daemon=True
    )

  def __enter__(self) -> 'Lease':
    try:
      self._take()
    except OSError as error:
      raise errors.RunDirectoryError(
        'The directory cannot be written',
        got=f'{type(error).__name__}: {error.strerror or error}',
        where=str(self._path.parent),
        fix='give another directory, or mend its permissions or its disk',
        status=errors.of_os_error(error).status,
      ) from error
    self._thread.start()
    return self

  def __exit__(self, *unused) -> None:
    self._ended.set()
    self._thread.join()
    with contextlib.suppress(OSError):  # the next process takes it over
      if self._is_own(_read(self._path)):
        self._path.unlink(missing_ok=True)
        self._remove_empty()

  def _remove_empty(self) -> None:
    """A directory that nothing was written to need not stay."""
    if self._made and not paths.is_bucket(self._path):
      with contextlib.suppress(OSError):
        self._path.parent.rmdir()

  def check(self) -> None:
    """Raises RunDirectoryError once another process has taken over."""
    if self._lost is not None:
      raise _refusal(self._path, self._lost, 'has taken over')

  def _take(self) -> None:
    if not self._create():
      found = _read(self._path)
      if found is not None and not self._is_gone(found):
        raise _refusal(self._path, found, 'writes to')
      if found is not None:
        logging.info('%s is taken over from %s.', self._path, _who(found))
      self._write()
      time.sleep(_RACE_SECONDS)
      found = _read(self._path)
      if found is not None and not self._is_own(found):
        raise _refusal(self._path, found, 'writes to')

  def _create(self) -> bool:
    """Whether there was no lease, and now is this one."""
    self._made = not self._path.parent.exists()
    return paths.create(self._path, self._content())

  def _write(self) -> None:
    paths.write_atomically(self._path, self._content())

  def _content(self) -> str:
    return json.dumps({**self._own, 'refreshed': time.time()}) + '\n'

  def _is_own(self, found: dict[str, Any] | None) -> bool:
    return found is not None and found.get('owner') == self._own['owner']

  def _is_gone(self, found: dict[str, Any]) -> bool:
    """Whether the process that wrote a lease does not live any more."""
    if found.get('place') == self._own['place']:
      pid = found.get('pid')
      return pid == os.getpid() or _started(pid) != found.get('started')
    age = time.time() - float(found.get('refreshed', 0))
    return age > _LONG_GONE or self._stays_as_it_is(found)

  def _stays_as_it_is(self, found: dict[str, Any]) -> bool:
    """Watches a lease for a while; clocks need not agree."""
    end = time.monotonic() + self._stale
    logging.info(
      '%s may still write to %s: waiting up to %.0f s for a sign of life.',
      _who(found),
      self._path.parent,
      self._stale,
    )
    while time.monotonic() < end:
      time.sleep(min(1.0, self._stale / 5))
      now = _read(self._path)
      if now != found:
        return now is None
    return True

  def _run(self) -> None:
    while not self._ended.wait(self._every):
      try:
        found = _read(self._path)
        if found is not None and not self._is_own(found):
          self._lost = found
          return
        self._write()
      except Exception as error:  # a full disk is told by what needs it
        logging.warning('%s could not be refreshed (%s).', self._path, error)


def _owner() -> dict[str, Any]:
  """What tells this process from all others."""
  return {
    'owner': uuid.uuid4().hex,
    'host': socket.gethostname(),
    'pid': os.getpid(),
    'started': _started(os.getpid()),
    'place': _place(),
    'time': time.strftime('%Y-%m-%d %H:%M:%S %Z'),
  }


def _place() -> str:
  """This host since its start, and the numbering of its processes."""
  try:
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    return f'{socket.gethostname()} {boot} {os.readlink("/proc/self/ns/pid")}'
  except OSError:
    return socket.gethostname()


def _started(pid: Any) -> str | None:
  """When a process of this host was started; None where there is none."""
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
    pass  # it is another user's
  return 'unknown'


def _read(path: pathlib.Path) -> dict[str, Any] | None:
  """The lease that is there; {} for one that is damaged.

  Raises:
    OSError: it cannot be read, which says nothing of who has it.
  """
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError:
    return None
  except (ValueError, RecursionError):
    return {}
  return found if isinstance(found, dict) else {}


def _who(found: dict[str, Any]) -> str:
  return (
    f'process {found.get("pid", "?")} on {found.get("host", "?")} '
    f'(since {found.get("time", "?")})'
  )


def _refusal(
  path: pathlib.Path, found: dict[str, Any], does: str
) -> errors.RunDirectoryError:
  return errors.RunDirectoryError(
    f'Another process {does} this directory',
    got=_who(found),
    expected='one writer at a time',
    where=str(path.parent),
    fix='wait for it or stop it, or give another directory; what a lost host '
    f'left behind is taken over {STALE_SECONDS:.0f} s after its last sign of '
    'life',
    # It may have ended when this one is started again.
    status=errors.ExitStatus.FAILURE,
  )
