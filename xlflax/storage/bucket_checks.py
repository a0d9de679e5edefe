"""Whether a bucket can be used, asked before anything is computed."""

import functools
import os
import pathlib
import queue
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Any

from xlflax.foundation import errors
from xlflax.storage import kvstores, paths

SECONDS = 60  # until a bucket that does not answer counts as unreachable
_READABLE: set[str] = set()  # what has been listed


def check_usable(
  path: pathlib.Path, *, checkpoints: bool = True, seconds: float = SECONDS
) -> None:
  """Writes to a bucket and reads from it, as what follows will.

  On disk a small file is written and removed again.

  Args:
    path: the directory that is to be written.
    checkpoints: TensorStore, which writes their parameters, is tried too.
    seconds: how long an answer may take.

  Raises:
    RunDirectoryError: the bucket is not there, cannot be reached, may not be
      written, or is of a kind that holds no checkpoints.
  """
  if paths.is_bucket(path):
    _wait_for(
      functools.partial(_probe, path, checkpoints),
      path,
      seconds,
      expected='to write, read and delete objects',
    )
  else:
    _probe_disk(path)


def check_readable(path: pathlib.Path, *, seconds: float = SECONDS) -> None:
  """Lists a directory in a bucket, once in a process; on disk does nothing.

  Args:
    path: the directory, which need not be there.
    seconds: how long an answer may take.

  Raises:
    RunDirectoryError: the bucket is not there, cannot be reached, or may
      not be read.
  """
  if paths.is_bucket(path) and os.fspath(path) not in _READABLE:
    _wait_for(
      functools.partial(paths.children, path),
      path,
      seconds,
      expected='to list and read objects',
    )
    _READABLE.add(os.fspath(path))


def _wait_for(
  ask: Callable[[], Any], path: pathlib.Path, seconds: float, *, expected: str
) -> None:
  """Asks a bucket something; raises RunDirectoryError unless it answers."""
  answers: queue.Queue[Exception | None] = queue.Queue()

  def run():
    try:
      ask()
      answers.put(None)
    except Exception as error:
      answers.put(error)

  # A thread, as neither library has a limit for all that it may wait for.
  threading.Thread(target=run, name='xlflax bucket', daemon=True).start()
  try:
    error = answers.get(timeout=seconds)
  except queue.Empty:
    error = TimeoutError(f'no answer within {seconds:g} s')
  if isinstance(error, errors.XlflaxError):
    raise error
  if error is not None:
    raise errors.RunDirectoryError(
      'The bucket cannot be used',
      got=_one_line(error),
      expected=expected,
      where=os.fspath(path),
      fix="check the bucket's name, this machine's credentials "
      '(gs: `gcloud auth application-default login`, or '
      'GOOGLE_APPLICATION_CREDENTIALS; s3: `aws configure`, and '
      "AWS_ENDPOINT_URL for a store that is not Amazon's; az: `az login`, and "
      'AZURE_STORAGE_ACCOUNT_NAME) and its network',
      status=_status(error),
    ) from error


def _status(error: Exception) -> errors.ExitStatus:
  """FAILURE where the bucket may answer later, not where it refuses."""
  if errors.is_away(error):
    return errors.ExitStatus.FAILURE
  return errors.ExitStatus.MISTAKE


def _probe_disk(path: pathlib.Path) -> None:
  """Writes a file to a directory, or to the next one above that is there."""
  place = path.absolute()
  try:
    while not place.exists():
      place = place.parent
    if not place.is_dir():
      return  # who makes the directory says so
    probe = place / f'.probe-{os.getpid()}-{uuid.uuid4().hex[:8]}'
    try:
      probe.write_bytes(b'xlflax' * 1000)
    finally:
      probe.unlink(missing_ok=True)
  except OSError as error:
    raise errors.RunDirectoryError(
      'The output cannot be written',
      got=error.strerror or type(error).__name__,
      expected='a directory with free space that this user may write',
      where=str(path),
      fix='give another directory, or mend its permissions or its disk',
      status=errors.of_os_error(error).status,
    ) from error


def _probe(path: pathlib.Path, checkpoints: bool) -> None:
  """Writes, reads and deletes an object."""
  name = f'.probe-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}'
  probe = path / name
  if checkpoints:
    _write_by_tensorstore(path, name)
  else:
    probe.write_bytes(b'xlflax')
  found = probe.read_bytes()
  probe.unlink()
  if found != b'xlflax':
    raise OSError(f'{probe} has another content than was written')


def _write_by_tensorstore(path: pathlib.Path, name: str) -> None:
  import tensorstore

  spec = kvstores.spec(os.fspath(path) + '/')
  store = tensorstore.KvStore.open(
    spec,
    # By default it tries 32 times, for a quarter of an hour.
    context=tensorstore.Context(
      {
        f'{spec["driver"].removesuffix("_grpc")}_request_retries': {
          'max_retries': 3,
          'initial_delay': '500ms',
          'max_delay': '2s',
        }
      }
    ),
  ).result()
  store.write(name, b'xlflax').result()


def _one_line(error: BaseException) -> str:
  text = ' '.join(str(error).split())
  return f'{type(error).__name__}: {text}'[:300]
