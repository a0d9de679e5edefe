"""Functions that connect a job's processes through `jax.distributed`.

`jax.distributed.initialize` connects the processes and fails after
`initialization_timeout`. This module adds an error message with the processes
that did not join, and compares the values that must be the same in all
processes: the number of processes, the versions of packages, and a digest of
the configuration. JAX itself connects processes that expect different numbers
of processes without an error.
"""

import contextlib
import difflib
import hashlib
import importlib.metadata
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax._src import distributed as jax_distributed

from xlflax.training.distributed import cluster_detection, failures
from xlflax.utils import errors

# A process that fails or freezes ends the job before this timeout.
_SHUTDOWN_SECONDS = 10**6
_REPLY_SECONDS = 5  # Time for the reply of process 0 after its own timeout.
_PORT_SECONDS = 10.0  # Time for earlier processes of the job to end.
_MAX_DIFFERENCES = 20
_PREFIX = 'xlflax/joining'


def package_versions() -> dict[str, str]:
  """Returns the package versions that must be equal in all processes."""
  names = ('xlflax', 'jax', 'jaxlib')
  return {name: importlib.metadata.version(name) for name in names}


def coordination_client() -> Any:
  """Returns this process's client of JAX's coordination service."""
  return jax_distributed.global_state.client


def connect_processes(
  job: cluster_detection.Job,
  *,
  initialization_timeout: int,
  heartbeat_timeout_seconds: int,
) -> None:
  """Connects this process with the other processes in the job.

  If the connection fails, JAX would abort the process. It prints a message and
  exits instead.

  Args:
    job: Job that this process belongs to.
    initialization_timeout: Time to wait for the other processes, in seconds.
    heartbeat_timeout_seconds: Time without a heartbeat, in seconds, after which
      a process is considered lost and JAX ends the others.

  Raises:
    ConfigError: If JAX reports an error while connecting.
  """
  # The handler of the service would replace that of `preemption` for SIGTERM.
  jax.config.update('jax_enable_preemption_service', False)
  if jax.config.jax_platforms == 'cpu':  # type: ignore[attr-defined]
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  if job.process_id == 0:
    _check_port(job)
  with _captured_stderr() as release, contextlib.ExitStack() as context:
    context.enter_context(
      failures.abort_handler(
        lambda: _exit_with_error(
          _make_joining_error(job, release(), initialization_timeout)
        )
      )
    )
    context.enter_context(_registration_timeout(initialization_timeout))
    try:
      jax.distributed.initialize(
        job.coordinator_address,
        job.num_processes,
        job.process_id,
        local_device_ids=job.local_devices,
        cluster_detection_method='deactivate',
        initialization_timeout=initialization_timeout
        + (_REPLY_SECONDS if job.process_id else 0),
        heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
      )
    except RuntimeError as error:
      raise _make_joining_error(
        job, f'{release()}\n{error}', initialization_timeout
      ) from error


def compare_processes(
  job: cluster_detection.Job, configuration: str, *, timeout_seconds: int
) -> list[str]:
  """Checks that all processes were started with the same settings.

  Each process compares its settings with those of process 0, which collects the
  results.

  Args:
    job: Job that this process belongs to.
    configuration: Text that must be equal in all processes, such as the gin
      configuration of the run.
    timeout_seconds: Time to wait for the other processes, in seconds.

  Returns:
    The host name of each process.

  Raises:
    ConfigError: If the settings differ. All processes raise the same error.
  """
  try:
    result = _exchange(job, configuration, 1000 * timeout_seconds)
  except RuntimeError as error:
    raise errors.ConfigError(
      f'Process {job.process_id} lost the connection to the other processes '
      f'while it joined the job. All {job.num_processes} processes must '
      f'connect to the coordinator within {timeout_seconds} s',
      got=str(error).splitlines()[0],
      where=job.coordinator_address,
      fix='Check the logs of the other processes.',
      status=errors.ExitStatus.FAILURE,
    ) from error
  if result['difference']:
    raise errors.ConfigError(**result['difference'])
  return result['hosts']


def _exchange(
  job: cluster_detection.Job, configuration: str, timeout_ms: int
) -> Mapping[str, Any]:
  """Exchanges settings with process 0.

  Returns:
    The host names of all processes, and the arguments of an error about the
    first difference between their settings, or None if their settings are
    equal.
  """
  store = coordination_client()
  settings = {
    'host': socket.gethostname(),
    'num_processes': job.num_processes,
    'versions': package_versions(),
    'digest': hashlib.sha256(configuration.encode()).hexdigest(),
  }
  if job.process_id == 0:
    store.key_value_set(f'{_PREFIX}/configuration', configuration)
    store.key_value_set(f'{_PREFIX}/settings', json.dumps(settings))
  first = json.loads(
    store.blocking_key_value_get(f'{_PREFIX}/settings', timeout_ms)
  )

  def first_configuration() -> str:
    key = f'{_PREFIX}/configuration'
    return store.blocking_key_value_get(key, timeout_ms)

  difference = _describe_difference(
    job.process_id, first, settings, first_configuration, configuration
  )
  outcome = {'host': settings['host'], 'difference': difference}
  store.key_value_set(
    f'{_PREFIX}/outcomes/{job.process_id}', json.dumps(outcome)
  )
  store.wait_at_barrier(f'{_PREFIX}/compared', timeout_ms)
  if job.process_id == 0:
    outcomes = {
      int(key.rpartition('/')[2]): json.loads(text)
      for key, text in store.key_value_dir_get(f'{_PREFIX}/outcomes')
    }
    outcome_list = [outcome for _, outcome in sorted(outcomes.items())]
    differences = [
      outcome['difference'] for outcome in outcome_list if outcome['difference']
    ]
    result = {
      'hosts': [outcome['host'] for outcome in outcome_list],
      'difference': differences[0] if differences else None,
    }
    store.key_value_set(f'{_PREFIX}/result', json.dumps(result))
  return json.loads(
    store.blocking_key_value_get(f'{_PREFIX}/result', timeout_ms)
  )


def _describe_difference(
  process_id: int,
  first: Mapping[str, Any],
  settings: Mapping[str, Any],
  first_configuration: Callable[[], str],
  configuration: str,
) -> dict[str, str] | None:
  """Returns the arguments of the error if settings differ from process 0's."""
  names = (
    f'process 0 on {first["host"]}',
    f'process {process_id} on {settings["host"]}',
  )

  def values(key: str) -> str:
    pairs = zip(names, (first, settings), strict=True)
    return ', '.join(
      f'{_format_setting(process_settings[key])} in {name}'
      for name, process_settings in pairs
    )

  if settings['num_processes'] != first['num_processes']:
    return dict(
      what='The processes expect different numbers of processes. '
      '--num_processes must be the same in all processes',
      got=values('num_processes'),
    )
  if settings['versions'] != first['versions']:
    return dict(
      what='The processes have different versions of packages. The versions '
      'must be the same in all processes',
      got=values('versions'),
    )
  if settings['digest'] != first['digest']:
    lines = _changed_lines(first_configuration(), configuration, names)
    return dict(
      what='The processes have different configurations. The flags and gin '
      'files must be the same in all processes',
      got='\n' + '\n'.join(lines) + '\n',
    )
  return None


def _format_setting(value: Any) -> str:
  if isinstance(value, dict):
    return ' '.join(f'{name} {item}' for name, item in sorted(value.items()))
  return str(value)


def _changed_lines(
  first: str, second: str, names: tuple[str, str]
) -> list[str]:
  """Returns the first lines in which two configurations differ."""
  difference = difflib.unified_diff(
    first.splitlines(), second.splitlines(), *names, lineterm='', n=0
  )
  lines = [line for line in difference if not line.startswith('@@')]
  more = len(lines) - _MAX_DIFFERENCES
  return lines[:_MAX_DIFFERENCES] + (
    [f'and {more} more lines'] if more > 0 else []
  )


@contextlib.contextmanager
def _registration_timeout(seconds: int) -> Iterator[None]:
  """Context in which process 0 waits `seconds` for other processes to register.

  The service of JAX waits for an hour, and only its own timeout names the
  missing processes. `jax.distributed.initialize` does not have an argument for
  it.
  """
  library = jax_distributed._jax
  create = library.get_distributed_runtime_service

  def create_with_timeout(*args, **kwargs):
    return create(*args, cluster_register_timeout=seconds, **kwargs)

  library.get_distributed_runtime_service = create_with_timeout
  try:
    yield
  finally:
    library.get_distributed_runtime_service = create


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Callable[[], str]]:
  """Context manager that holds back what JAX writes to standard error.

  The text is written when the context ends. The yielded function ends the
  capture earlier and returns the text, which is then not written. JAX reports
  the reason why processes could not join only there, between C++ stack traces.
  """
  try:
    original = os.dup(2)
  except OSError:  # Standard error is closed.
    yield lambda: ''
    return
  sys.stderr.flush()
  with tempfile.TemporaryFile() as file:
    os.dup2(file.fileno(), 2)

    def restore() -> bytes:
      with contextlib.suppress(Exception):
        sys.stderr.flush()
      os.dup2(original, 2)
      file.seek(0)
      return file.read()

    def release() -> str:
      text = restore().decode(errors='replace')
      file.truncate(0)
      return text

    try:
      yield release
    finally:
      text = restore()
      with contextlib.suppress(OSError):
        os.write(2, text)
      os.close(original)


def _check_port(job: cluster_detection.Job) -> None:
  """Checks that the coordinator's port is free.

  If the port is in use, JAX's coordination service may end the process by a
  segmentation fault.

  Raises:
    ConfigError: If the coordinator's port is already in use.
  """
  port = int(job.coordinator_address.rpartition(':')[2])
  deadline = time.monotonic() + _PORT_SECONDS
  while True:
    try:
      is_dual = socket.has_dualstack_ipv6()
      family = socket.AF_INET6 if is_dual else socket.AF_INET
      socket.create_server(
        ('', port), family=family, dualstack_ipv6=is_dual
      ).close()
      return
    except OSError as error:
      if time.monotonic() > deadline:
        raise errors.ConfigError(
          f'Process 0 on {socket.gethostname()} could not open the port {port} '
          'of the coordinator, probably because another program uses it',
          got=error.strerror,
          where=job.coordinator_address,
          fix='Stop the program that uses the port, or choose a different port.',
          status=errors.ExitStatus.FAILURE,
        ) from error
    time.sleep(0.2)


def _exit_with_error(error: errors.ConfigError) -> None:
  """Prints an error and exits without running cleanup handlers."""
  failures.write_to_stderr(f'xlflax: {error}\n')
  os._exit(error.status)


def _make_joining_error(
  job: cluster_detection.Job, text: str, timeout_seconds: int
) -> errors.ConfigError:
  """Returns an error with the reason why the processes could not join.

  Args:
    job: Job that this process belongs to.
    text: Messages that JAX wrote.
    timeout_seconds: Time that JAX has waited, in seconds.
  """
  process_name = f'process {job.process_id} on {socket.gethostname()}'
  where = f'{process_name}, coordinator {job.coordinator_address}'
  failure = errors.ExitStatus.FAILURE
  reason = re.search(r'absl::Status: (.*)', text)
  got = reason[1] if reason else (text.strip().splitlines() or [''])[-1]
  missing = failures.timed_out_processes(text)
  if missing:
    joined = job.num_processes - len(missing)
    return errors.ConfigError(
      f'Only {joined} of the {job.num_processes} processes joined the job '
      f'within {timeout_seconds} s. These processes are missing: '
      f'{failures.describe_processes(missing)}',
      where=where,
      fix='Check the logs of the missing processes. Check that they run and '
      'can connect to the coordinator.',
      status=failure,
    )
  if 'ALREADY_EXISTS' in text:
    return errors.ConfigError(
      'Another process of the job has the same process id. Each process id '
      'from 0 to num_processes - 1 must be used exactly once',
      got=got,
      where=where,
      fix='Correct --process_id. If it is correct, a different job uses the '
      'coordinator address. In that case, choose a different port.',
    )
  if job.process_id == 0:
    return errors.ConfigError(
      f'Process 0 failed to start the job. All {job.num_processes} processes '
      f'must join within {timeout_seconds} s',
      got=got,
      where=where,
      fix='Check the logs of the other processes.',
      status=failure,
    )
  return errors.ConfigError(
    'Process 0 of the job did not accept this process within '
    f'{timeout_seconds} s',
    got=got,
    where=where,
    fix='Check the log of process 0. Check that its host and port can be '
    'reached from this machine.',
    status=failure,
  )
