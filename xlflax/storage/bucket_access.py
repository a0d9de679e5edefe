"""Checks that buckets and directories are accessible before a job starts."""

import functools
import os
import pathlib
import queue
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable
from typing import Any

from xlflax.storage import paths, tensorstore_specs
from xlflax.utils import errors

SECONDS = 60  # Default time limit for the response of a bucket.
_READABLE: set[str] = set()  # Paths that have been listed successfully.
# Hint on setting the credentials, by URL scheme of the bucket.
_CREDENTIAL_HINTS = {
  'gs': ' To set the credentials, run `gcloud auth application-default login`, '
  'or set GOOGLE_APPLICATION_CREDENTIALS.',
  's3': ' To set the credentials, run `aws configure`. For a store other than '
  'Amazon S3, also set AWS_ENDPOINT_URL.',
  'az': ' To set the credentials, run `az login`, and set '
  'AZURE_STORAGE_ACCOUNT_NAME.',
}


def check_usable(
  path: pathlib.Path, *, checkpoints: bool = True, seconds: float = SECONDS
) -> None:
  """Writes a small test object to a bucket, reads it and deletes it.

  In a directory on disk, a small file is written and removed.

  Args:
    path: Output directory, on disk or in a bucket.
    checkpoints: Whether to also test TensorStore, which writes the checkpoints'
      parameters.
    seconds: Time limit in seconds for the bucket's response.

  Raises:
    RunDirectoryError: If the bucket does not exist, cannot be reached, is not
      writable, or does not support checkpoints.
  """
  if paths.is_bucket(path):
    _request(
      functools.partial(_probe, path, checkpoints),
      path,
      seconds,
      permission='permission to write, read and delete objects',
    )
  else:
    _probe_disk(path)


def check_readable(path: pathlib.Path, *, seconds: float = SECONDS) -> None:
  """Checks that a directory can be listed if it is in a bucket.

  Each directory is checked once per process.

  Args:
    path: Directory, which does not need to exist.
    seconds: Time limit in seconds for the bucket's response.

  Raises:
    RunDirectoryError: If the bucket does not exist, cannot be reached, or is
      not readable.
  """
  if paths.is_bucket(path) and os.fspath(path) not in _READABLE:
    _request(
      functools.partial(paths.list_directory, path),
      path,
      seconds,
      permission='permission to list and read objects',
    )
    _READABLE.add(os.fspath(path))


def _request(
  send: Callable[[], Any],
  path: pathlib.Path,
  seconds: float,
  *,
  permission: str,
) -> None:
  """Sends a request to a bucket within a time limit.

  Args:
    send: Function that sends the request.
    path: Path in the bucket, for the error message.
    seconds: Time limit in seconds for the response.
    permission: Required permissions, such as 'permission to read objects', for
      the error message.

  Raises:
    RunDirectoryError: If the request fails or exceeds the time limit.
  """
  responses: queue.Queue[Exception | None] = queue.Queue()

  def run():
    try:
      send()
      responses.put(None)
    except Exception as error:
      responses.put(error)

  # A thread enforces the time limit, since the libraries have no limit that
  # covers all of their requests.
  threading.Thread(target=run, name='xlflax bucket', daemon=True).start()
  try:
    error = responses.get(timeout=seconds)
  except queue.Empty:
    error = TimeoutError(f'The bucket sent no response within {seconds:g} s')
  if isinstance(error, errors.XlflaxError):
    raise error
  if error is not None:
    scheme = os.fspath(path).partition('://')[0]
    raise errors.RunDirectoryError(
      f'The bucket cannot be used. The command requires {permission}',
      got=_one_line(error),
      where=os.fspath(path),
      fix="Check the bucket's name, and this machine's network connection and "
      f'credentials.{_CREDENTIAL_HINTS.get(scheme, "")}',
      status=_status(error),
    ) from error


def _status(error: Exception) -> errors.ExitStatus:
  """Returns FAILURE if the bucket may respond later, MISTAKE otherwise."""
  if errors.is_unavailable(error):
    return errors.ExitStatus.FAILURE
  return errors.ExitStatus.MISTAKE


def _probe_disk(path: pathlib.Path) -> None:
  """Writes a file to a directory, or to its nearest existing parent."""
  directory = path.absolute()
  try:
    while not directory.exists():
      directory = directory.parent
    if not directory.is_dir():
      return  # The code that creates the directory raises the error.
    # The file has no name, so that a killed process leaves nothing behind.
    with tempfile.TemporaryFile(dir=directory) as probe:
      probe.write(b'xlflax' * 1000)
      probe.flush()
  except OSError as error:
    raise errors.RunDirectoryError(
      'The output directory is not writable or has no free space',
      got=error.strerror or type(error).__name__,
      where=str(path),
      fix='Pass a different directory, or check its permissions and its disk.',
      status=errors.convert_os_error(error).status,
    ) from error


def _probe(path: pathlib.Path, checkpoints: bool) -> None:
  """Writes, reads and deletes a test object."""
  name = f'.probe-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}'
  probe = path / name
  if checkpoints:
    _write_by_tensorstore(path, name)
  else:
    probe.write_bytes(b'xlflax')
  content = probe.read_bytes()
  probe.unlink()
  if content != b'xlflax':
    raise OSError(
      f'The content read from {probe} differs from the content written to it'
    )


def _write_by_tensorstore(path: pathlib.Path, name: str) -> None:
  import tensorstore

  spec = tensorstore_specs.kvstore_spec(os.fspath(path) + '/')
  store = tensorstore.KvStore.open(
    spec,
    # By default, TensorStore retries 32 times, for a quarter of an hour.
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
