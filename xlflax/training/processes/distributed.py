"""Joining the processes of a job, and leaving it together."""

import contextlib
import faulthandler
import importlib.metadata
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable, Collection
from typing import NoReturn

import jax

from xlflax.foundation import errors, leaving, stopping
from xlflax.training.processes import cluster as cluster_lib
from xlflax.training.processes import (
  failure_detection,
  heartbeats,
  proxies,
  rendezvous,
  statements,
)

_TOLD = 6.0  # seconds to look why a process is gone
_FOR_EVER = 10**9  # milliseconds; who fails or freezes ends the others sooner
_detector: failure_detection.FailureDetector | None = None
_heartbeats: heartbeats.Heartbeats | None = None


def initialize(
  *,
  coordinator: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
  cluster: cluster_lib.Cluster = cluster_lib.Cluster.AUTO,
  configuration: str = '',
  timeout_seconds: int = 300,
  heartbeat_seconds: int = 100,
) -> None:
  """Joins the other processes of the job; does nothing for a single one.

  Must run before the first use of a device.

  Args:
    coordinator: 'host:port' of process 0; like the two numbers below, it is
      detected where it is not given (see `cluster`).
    num_processes: how many processes the job has.
    process_id: this one's number, from 0.
    cluster: where to look for what is not given.
    configuration: text that has to be the same on all processes.
    timeout_seconds: how long to wait for the others.
    heartbeat_seconds: after so long without a sign of life a process counts
      as lost, and the others end.

  Raises:
    ConfigError: only some of the three are known, the others did not come or
      were started differently, or the port is taken.
  """
  global _detector, _heartbeats
  job = cluster_lib.detect(
    os.environ,
    coordinator=coordinator,
    num_processes=num_processes,
    process_id=process_id,
    cluster=cluster,
    timeout_seconds=timeout_seconds,
  )
  if job is None or job.num_processes == 1:
    return
  _prefix_log(job)
  proxies.exempt_coordinator(job.coordinator, os.environ)
  rendezvous.meet(
    job, _statement(job, configuration), timeout_seconds=timeout_seconds
  )
  # JAX's own limit comes later: it ends a process without a word.
  _join(job, timeout_seconds, 2 * heartbeat_seconds + 30)
  _detector = failure_detection.FailureDetector(job.process_id)
  _heartbeats = heartbeats.Heartbeats(
    job.process_id, _detector.client, heartbeat_seconds, _end_without
  )
  leaving.part_by(_part)
  _introduce(job)


def _part() -> None:
  """Waits until all processes have come to their end, and leaves the job.

  JAX aborts a process that loses process 0's store, whatever it is at.
  """
  assert _detector and _heartbeats
  _heartbeats.doing = lambda: 'waiting for the others to end'
  with contextlib.suppress(Exception):  # one of them is gone
    _detector.client.wait_at_barrier('xlflax/end', _FOR_EVER)
  _heartbeats.stop()
  _detector.stop()
  with contextlib.suppress(Exception):
    jax.distributed.shutdown()


def versions() -> dict[str, str]:
  """Those of the packages that must be alike in all processes."""
  names = ('xlflax', 'jax', 'jaxlib')
  return {name: importlib.metadata.version(name) for name in names}


def _statement(
  job: cluster_lib.Job, configuration: str
) -> statements.Statement:
  return statements.Statement(
    job.process_id,
    job.num_processes,
    socket.gethostname(),
    versions(),
    configuration,
  )


def _join(job: cluster_lib.Job, timeout: int, heartbeat: int) -> None:
  # Its handler would take SIGTERM from `preemption`, and count by steps.
  jax.config.update('jax_enable_preemption_service', False)
  if jax.config.jax_platforms == 'cpu':  # type: ignore[attr-defined]
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  try:
    jax.distributed.initialize(
      job.coordinator,
      job.num_processes,
      job.process_id,
      local_device_ids=job.local_devices,
      cluster_detection_method='deactivate',
      initialization_timeout=timeout,
      heartbeat_timeout_seconds=heartbeat,
    )
  except RuntimeError as error:
    raise errors.ConfigError(
      'The processes of the job lost each other while joining',
      got=str(error).splitlines()[0],
      expected=f'{job.num_processes} processes within {timeout} s',
      where=f'process {job.process_id}, coordinator {job.coordinator}',
      fix='check that all processes run and reach the coordinator',
      status=errors.ExitStatus.FAILURE,
    ) from error


def _prefix_log(job: cluster_lib.Job) -> None:
  """Lines of all but process 0 say whose they are."""
  for handler in logging.getLogger().handlers:
    old = handler.formatter
    if old is not None and job.process_id:
      text = old._fmt
      handler.setFormatter(
        logging.Formatter(
          f'[process {job.process_id}] {text}', datefmt=old.datefmt
        )
      )


def _introduce(job: cluster_lib.Job) -> None:
  """Each process says once who it is; then only process 0 speaks."""
  own = jax.local_devices()
  logging.info(
    'Process %d of %d (%s) on %s: %d of %d devices, %s.',
    job.process_id,
    job.num_processes,
    job.source,
    socket.gethostname(),
    len(own),
    jax.device_count(),
    own[0].device_kind,
  )
  if job.process_id:
    for handler in logging.getLogger().handlers:
      handler.setLevel(logging.ERROR)


def is_lead() -> bool:
  """Whether this process writes logs and reports."""
  return jax.process_index() == 0


def at_failure_of_others(
  last_words: Callable[[], str], doing: Callable[[], str]
) -> None:
  """What this process says when the failure of another one ends it.

  Args:
    last_words: what it prints itself.
    doing: what it is at, which others print where it is frozen or gone.
  """
  if _detector is not None:
    _detector.last_words = last_words
  if _heartbeats is not None:
    _heartbeats.doing = doing


def end_job(
  error: errors.TrainingError, without: Collection[int] = ()
) -> NoReturn:
  """Ends all processes of a job that hangs; each writes its stacks.

  Args:
    error: why; its status is that of all processes.
    without: processes that will not answer.
  """
  with contextlib.suppress(Exception):
    faulthandler.dump_traceback(2, all_threads=True)
  logging.error('%s', error)
  if _detector is not None and 0 not in without:  # which holds the store
    _detector.fail(str(error), error.status, stacks=True, without=without)
  os._exit(error.status)


def _end_without(lost: list[int], what: str) -> NoReturn:
  error = errors.TrainingError(
    'A process of the job gives no sign of life',
    got=f'the last of process {what}',
    expected='one within --heartbeat_timeout',
    fix='the process is frozen, or its machine or network is gone; the stacks '
    'above say where this one waits. Started again, the run continues from its '
    'last checkpoint (docs/trouble.md#it-hangs)',
    status=errors.ExitStatus.FAILURE,
  )
  end_job(error, lost)


@contextlib.contextmanager
def leaving_together(command: str, *, stopped_status: int = 0):
  """Context in which the failure of one process ends all of them.

  A process by itself raises as ever. In a job, the process that fails prints
  its message (or, for a bug, its traceback) and tells the others, which print
  it too and end: waiting for it in a collective they would hang.

  Args:
    command: the command's name, for the message.
    stopped_status: the status where a signal came before training; 0 for
      that of an interruption.
  """
  try:
    yield
  except (Exception, KeyboardInterrupt) as error:
    if _detector is None:
      raise
    if failure_detection.is_lost_peer(error):
      _detector.follow(_TOLD)  # why it is gone, where it could say so
    text, status = _described(error, command)
    if isinstance(error, KeyboardInterrupt) and stopped_status:
      status = stopped_status
    print(text, file=sys.stderr, flush=True)
    _detector.fail(text.rstrip().splitlines()[-1], status)
    sys.stdout.flush()
    os._exit(status)  # JAX's own way out waits for the others


def _described(error: BaseException, command: str) -> tuple[str, int]:
  """What to print, and the exit status."""
  who = f'process {jax.process_index()} of {jax.process_count()}'
  error = errors.of_full_device(error) or error
  if isinstance(error, errors.XlflaxError):
    return f'xlflax {command}: {who}: {error}', error.status
  if isinstance(error, KeyboardInterrupt):
    return (
      f'xlflax {command}: {who}: {stopping.describe(error)}.',
      errors.ExitStatus.INTERRUPTED,
    )
  if isinstance(error, RuntimeError) and failure_detection.is_lost_peer(error):
    return f'xlflax {command}: {who}: {_lost(error)}', errors.ExitStatus.FAILURE
  trace = ''.join(traceback.format_exception(error))
  return f'xlflax {command}: {who} failed:\n{trace}', errors.ExitStatus.BUG


def _lost(error: BaseException) -> errors.TrainingError:
  return errors.TrainingError(
    'Another process of the job is gone',
    got=f'{type(error).__name__}: {str(error).splitlines()[0]}',
    expected='all processes until the end',
    fix='its log, or its machine, may say why; started again, the run '
    'continues from its last checkpoint (docs/trouble.md#killed-or-stopped)',
    status=errors.ExitStatus.FAILURE,
  )
