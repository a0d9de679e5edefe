"""Directories that a test may read but not write, even as root."""

import contextlib
import ctypes
import os
import pathlib
from collections.abc import Iterator

# Linux capabilities with which root may write despite file modes.
_OVERRIDE = (1 << 1) | (1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_VERSION = 0x20080522


@contextlib.contextmanager
def only_read(*folders: pathlib.Path) -> Iterator[None]:
  """Removes write permission from folders and asserts that they are unchanged.

  File modes also apply to root, in this thread and in threads that it starts.
  """
  before = {
    path: (path.stat().st_mode, path.stat().st_mtime_ns)
    for folder in folders
    for path in (folder, *folder.rglob('*'))
  }
  for path in before:
    path.chmod(0o555 if path.is_dir() else 0o444)
  try:
    with _without_override():
      _check(folders[0])
      yield
  finally:
    for path, (mode, _) in before.items():
      path.chmod(mode)
  for folder in folders:
    after = {folder, *folder.rglob('*')}
    assert after <= set(before), after - set(before)
  for path, (_, time) in before.items():
    assert path.stat().st_mtime_ns == time, path


def _check(folder: pathlib.Path) -> None:
  try:
    (folder / 'probe').write_text('')
  except OSError:
    return
  raise AssertionError(f'{folder} can be written')


@contextlib.contextmanager
def _without_override() -> Iterator[None]:
  if os.geteuid() != 0:
    yield
    return
  libc = ctypes.CDLL(None, use_errno=True)
  header = (ctypes.c_uint32 * 2)(_VERSION, 0)
  # Twice (effective, permitted, inheritable), 32 bits of each.
  sets = (ctypes.c_uint32 * 6)()
  assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
  effective = sets[0]
  try:
    sets[0] = effective & ~_OVERRIDE
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
    yield
  finally:
    sets[0] = effective
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())
