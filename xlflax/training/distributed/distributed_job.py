"""Startup, failure handling and shutdown of multi-process jobs.

Three parts rely on `jax.distributed`: it connects the processes (`joining`),
detects lost and frozen processes, and waits for all of them at the end.
Failures are reported to the other processes by `failures`, and stop requests by
`preemption`, through the key-value store of JAX's coordination service.
docs/reliability.md lists the consequences of failures, and
docs/measured/reliability.md reports measured times.
"""

import contextlib
import faulthandler
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import jax

from xlflax.training.distributed import (
  cluster_detection,
  failures,
  joining,
  proxies,
)
from xlflax.utils import errors, process_exit, signals, user_modules

_monitor: failures.FailureMonitor | None = None
# Whether the variables of unsupported launchers have been searched for. They
# are accepted with `cluster=NONE`.
_has_searched_variables = False


def initialize_distributed(
  *,
  coordinator_address: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
  cluster: cluster_detection.Cluster = cluster_detection.Cluster.AUTO,
  configuration: str = '',
  initialization_timeout: int = 300,
  heartbeat_timeout_seconds: int = 30,
) -> None:
  """Connects this process with the other processes of its job, if any exist.

  This function must be called before the first use of a device. A process that
  cannot connect prints a message and exits, where JAX would abort it.

  Args:
    coordinator_address: 'HOST:PORT' at which process 0 is reached. If this
      argument or one of the next two is None, its value is detected (see
      `cluster`).
    num_processes: Number of processes in the job.
    process_id: Zero-based index of this process.
    cluster: Scheduler or cloud environment that provides the values that are
      not set by flags or environment variables.
    configuration: Text that must be equal in all processes, such as the gin
      configuration of the run.
    initialization_timeout: Time to wait for the other processes, in seconds.
    heartbeat_timeout_seconds: Time without a heartbeat, in seconds, after which
      a process is considered lost and the others end.

  Raises:
    ConfigError: If only some of `coordinator_address`, `num_processes` and
      `process_id` are known, or the processes were started with different
      settings.
  """
  global _monitor, _has_searched_variables
  job = cluster_detection.detect_job(
    os.environ,
    coordinator_address=coordinator_address,
    num_processes=num_processes,
    process_id=process_id,
    cluster=cluster,
    initialization_timeout=initialization_timeout,
  )
  if job is not None or cluster is cluster_detection.Cluster.NONE:
    _has_searched_variables = True
  warn_of_unread_variables()
  if job is None or job.num_processes == 1:
    return
  _prefix_log(job)
  proxies.exempt_coordinator(job.coordinator_address, os.environ)
  joining.connect_processes(
    job,
    initialization_timeout=initialization_timeout,
    heartbeat_timeout_seconds=heartbeat_timeout_seconds,
  )
  process_exit.wait_at_exit(_leave)
  hosts = joining.compare_processes(
    job, configuration, timeout_seconds=initialization_timeout
  )
  _monitor = failures.FailureMonitor(
    job.process_id, hosts, joining.coordination_client()
  )
  _monitor.start()
  _log_devices(job, hosts)


def warn_of_unread_variables() -> None:
  """Logs a warning if an unsupported launcher started this process.

  Such a launcher has started several processes, none of which is aware of the
  others. The warning is logged once.
  """
  global _has_searched_variables
  if _has_searched_variables:
    return
  _has_searched_variables = True
  warning = cluster_detection.describe_unread_variables(os.environ)
  if warning:
    logging.warning('%s', warning)


def _leave() -> None:
  """Waits until all processes have finished, and leaves the job."""
  if _monitor is not None:
    _monitor.doing = lambda: 'waiting for the other processes to end'
  with contextlib.suppress(Exception):
    jax.distributed.shutdown()
  if _monitor is not None:
    _monitor.close()


def failure_monitor() -> failures.FailureMonitor | None:
  """Returns the job's failure monitor, or None for a single process."""
  return _monitor


def checked_versions() -> dict[str, str]:
  """Returns the package versions that must be equal in all processes."""
  return joining.package_versions()


def is_lead() -> bool:
  """Returns whether this process writes logs and reports."""
  return jax.process_index() == 0


def _prefix_log(job: cluster_detection.Job) -> None:
  """Prefixes log lines with the process number, except in process 0."""
  for handler in logging.getLogger().handlers:
    formatter = handler.formatter
    if formatter is not None and job.process_id:
      handler.setFormatter(
        logging.Formatter(
          f'[process {job.process_id}] {formatter._fmt}',
          datefmt=formatter.datefmt,
        )
      )


def _log_devices(job: cluster_detection.Job, hosts: list[str]) -> None:
  """Logs the devices of this process, and in process 0 all hosts.

  Afterwards, processes other than process 0 log only errors.
  """
  devices = jax.local_devices()
  logging.info(
    'Process %d of %d (%s) on %s: %d of %d devices, %s.',
    job.process_id,
    job.num_processes,
    job.source,
    hosts[job.process_id],
    len(devices),
    jax.device_count(),
    devices[0].device_kind,
  )
  if job.process_id == 0:
    logging.info('Processes: %s.', failures.describe_hosts(hosts))
    return
  for handler in logging.getLogger().handlers:
    handler.setLevel(logging.ERROR)


def set_exit_messages(
  last_words: Callable[[], str], doing: Callable[[], str]
) -> None:
  """Sets texts to print if this process ends because another process failed.

  Args:
    last_words: Function that returns a sentence to print when this process
      ends, for example with the checkpoint from which the run can be resumed.
    doing: Function that returns the current activity of this process, such as
      'training (step 5)'. It must not block.
  """
  if _monitor is not None:
    _monitor.last_words, _monitor.doing = last_words, doing


def end_job(error: errors.TrainingError) -> NoReturn:
  """Ends all processes of a hanging job after they write their stack traces.

  Args:
    error: Error that describes why the job ends. All processes exit with the
      exit code of this error.
  """
  with contextlib.suppress(Exception):
    faulthandler.dump_traceback(2, all_threads=True)
  logging.error('%s', error)
  if _monitor is not None:
    _monitor.fail(str(error), error.status, stacks=True)
  os._exit(error.status)


@contextlib.contextmanager
def leaving_together(command: str, *, stopped_status: int = 0):
  """Context in which the failure of one process ends the job's other processes.

  A single process raises its exception. In a job, the process that fails prints
  its message (or, for a bug, its traceback) and reports it to the others, which
  print it and exit. Otherwise they would wait for the process in a collective
  forever.

  Args:
    command: Name of the command, for the error message.
    stopped_status: Exit code after a signal that arrived before training. If 0,
      the usual exit code of an interrupted command is used.
  """
  try:
    with signals.reraise_stop():
      yield
  except (Exception, KeyboardInterrupt) as error:
    if _monitor is None:
      raise
    if failures.is_raised_by_jax(error) and failures.is_lost_process(error):
      _monitor.end_after_lost_connection(error)
    text, status = _describe_failure(error, command)
    if isinstance(error, KeyboardInterrupt) and stopped_status:
      status = stopped_status
    print(text, file=sys.stderr, flush=True)
    _monitor.fail(text.rstrip().splitlines()[-1], status)
    sys.stdout.flush()
    os._exit(status)  # A normal exit would wait for the other processes.


def _describe_failure(error: BaseException, command: str) -> tuple[str, int]:
  """Returns the message to print and the exit code for a failure."""
  name = f'process {jax.process_index()} of {jax.process_count()}'
  if isinstance(error, Exception):
    error = (
      errors.convert_out_of_memory_error(error)
      or user_modules.convert_class_error(error)
      or error
    )
  if isinstance(error, errors.XlflaxError):
    return f'xlflax {command}: {name}: {error}', error.status
  if isinstance(error, KeyboardInterrupt):
    return (
      f'xlflax {command}: {name}: {signals.describe_stop(error)}.',
      errors.ExitStatus.INTERRUPTED,
    )
  trace = ''.join(traceback.format_exception(error))
  return f'xlflax {command}: {name} failed:\n{trace}', errors.ExitStatus.BUG
