"""Tests of leases, which give a directory a single writer."""

import errno
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from tests.errors import raises_error
from xlflax.storage import directory_lease
from xlflax.utils import errors

_HOLD = """
import pathlib, sys, time
from xlflax.storage import directory_lease
with directory_lease.Lease(pathlib.Path(sys.argv[1])):
  print('held', flush=True)
  time.sleep(60)
"""


def _write_remote_lease(path, **fields):
  """Writes a lease of a process on another host."""
  content = {'owner': 'x', 'host': 'other', 'pid': 7, 'place': 'other'}
  path.write_text(
    json.dumps(content | {'refreshed': time.time(), 'time': 'noon'} | fields)
  )


def test_lease_file_exists_while_the_lease_is_held(tmp_path):
  directory = tmp_path / 'run'
  with directory_lease.Lease(directory) as held:
    lease = json.loads((directory / directory_lease.FILE).read_text())
    assert lease['pid'] == os.getpid() and lease['host']
    held.check()
  assert not (directory / directory_lease.FILE).exists()


def test_second_process_is_rejected_until_the_first_is_killed(tmp_path):
  process = subprocess.Popen(
    [sys.executable, '-c', _HOLD, str(tmp_path)],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout is not None
  assert process.stdout.readline() == 'held\n'
  with raises_error(
    errors.RunDirectoryError,
    status=errors.ExitStatus.FAILURE,
    mentions=process.pid,
  ):
    directory_lease.Lease(tmp_path).__enter__()
  process.kill()
  process.wait()
  start = time.monotonic()
  with directory_lease.Lease(tmp_path):
    assert time.monotonic() - start < 10  # no waiting on one host


def test_lease_of_a_reused_process_id_is_taken_over(tmp_path):
  """For example, the first process in a container always has the id 1."""
  with directory_lease.Lease(tmp_path):
    content = json.loads((tmp_path / directory_lease.FILE).read_text())
  content |= {'owner': 'before', 'started': '1'}
  (tmp_path / directory_lease.FILE).write_text(json.dumps(content))
  with directory_lease.Lease(tmp_path):
    pass
  content |= {'pid': os.getppid()}
  (tmp_path / directory_lease.FILE).write_text(json.dumps(content))
  with directory_lease.Lease(tmp_path):
    pass


def test_lease_of_another_host_is_taken_over_without_heartbeats(tmp_path):
  path = tmp_path / directory_lease.FILE
  _write_remote_lease(path)
  with directory_lease.Lease(tmp_path, stale_seconds=0.3):
    pass  # no heartbeat: taken over
  _write_remote_lease(path)
  sign = threading.Timer(0.3, _write_remote_lease, [path])
  sign.start()
  with raises_error(errors.RunDirectoryError, mentions=7):
    directory_lease.Lease(tmp_path, stale_seconds=5).__enter__()
  sign.join()
  _write_remote_lease(path, refreshed=time.time() - 3600)
  start = time.monotonic()
  with directory_lease.Lease(tmp_path):
    assert time.monotonic() - start < 5


@pytest.mark.parametrize('content', ['', '{', '[]', '[' * 10**5])
def test_damaged_lease_is_taken_over(tmp_path, content):
  (tmp_path / directory_lease.FILE).write_text(content)
  with directory_lease.Lease(tmp_path, stale_seconds=0.1):
    pass


def test_check_of_a_lost_lease_raises(tmp_path):
  path = tmp_path / directory_lease.FILE
  with directory_lease.Lease(tmp_path, refresh_seconds=0.05) as held:
    _write_remote_lease(path)
    for _ in range(100):
      time.sleep(0.05)
      try:
        held.check()
      except errors.RunDirectoryError:
        break
    else:
      raise AssertionError('not noticed')
  assert path.exists()  # the other process's lease


@pytest.mark.parametrize(
  'number, status',
  [
    (errno.ENOSPC, 'FAILURE'),
    (errno.ESTALE, 'FAILURE'),
    (errno.EACCES, 'MISTAKE'),
  ],
)
def test_unwritable_directory_is_reported(
  tmp_path, monkeypatch, number, status
):
  def fail(*unused, **named):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(directory_lease.pathlib.Path, 'open', fail)
  with pytest.raises(errors.RunDirectoryError) as error:
    directory_lease.Lease(tmp_path).__enter__()
  assert error.value.status.name == status
