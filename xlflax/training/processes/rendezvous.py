"""Rendezvous: the processes of a job compare settings before JAX joins them.

JAX waits long, and says little, where processes were started differently.
So process 0 first listens on the coordinator's port itself, hears from each
other process what it was started with, and tells all of them the verdict:
one message, the same on every process. Then the port is JAX's.

Over the wire: process 0 greets with a line; the other sends its `Statement`
as a line of JSON and reads the verdict as another.
"""

import contextlib
import dataclasses
import errno
import json
import resource
import selectors
import socket
import time
from typing import Any

from xlflax.foundation import errors
from xlflax.training.processes import cluster, statements

_GREETING = b'xlflax rendezvous 1\n'
_OTHER_FILES = 512  # that a process opens beside
_TOO_MANY = 'The job has more processes than files that process 0 may open'
_LINGER = 5.0  # seconds in which process 0 tells late ones of a mistake


def meet(
  job: cluster.Job,
  statement: statements.Statement,
  *,
  timeout_seconds: float,
  patience_seconds: float = 20.0,
) -> None:
  """Waits until all processes are there and agree.

  Args:
    job: the job; its coordinator is where to meet.
    statement: what this process was started with.
    timeout_seconds: how long to wait for the others.
    patience_seconds: how long a port may be held, or answered, by something
      that is no part of the job (its last incarnation may still be ending).

  Raises:
    ConfigError: a process is missing, the processes were started
      differently, or the port is taken; on every process.
  """
  deadline = time.monotonic() + timeout_seconds
  if job.process_id == 0:
    with _listen(job, min(patience_seconds, timeout_seconds)) as listener:
      _Lead(job, statement, timeout_seconds).call(listener, deadline)
  else:
    verdict = _report(
      job, statement, deadline, timeout_seconds, patience_seconds
    )
    if verdict is not None:
      raise errors.ConfigError(**verdict)


def _listen(job, patience: float) -> socket.socket:
  port = int(job.coordinator.rpartition(':')[2])
  end = time.monotonic() + patience
  while True:
    try:
      if socket.has_dualstack_ipv6():
        return socket.create_server(
          ('', port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096
        )
      return socket.create_server(('', port), backlog=4096)
    except OSError as error:
      if time.monotonic() > end:
        raise errors.ConfigError(
          'Process 0 cannot listen on the port of the job',
          got=f'port {port}: {error.strerror}',
          where=job.coordinator,
          expected='a port that nothing else uses',
          fix='end what uses it, or choose another port',
          status=errors.ExitStatus.FAILURE,
        ) from error
    time.sleep(0.2)


class _Lead:
  """Process 0's part: hears all, compares, answers."""

  def __init__(self, job, statement, timeout_seconds):
    self._job = job
    self._timeout = timeout_seconds
    self._lead = statement
    # Of all others by number; one that ended makes place for another.
    self._heard: dict[int, tuple[statements.Statement, socket.socket]] = {}
    self._selector = selectors.DefaultSelector()

  def call(self, listener, deadline: float) -> None:
    _allow_files(self._job.num_processes)
    # A process may take back its connection before it is accepted.
    listener.setblocking(False)
    self._selector.register(listener, selectors.EVENT_READ)
    problem = None
    while problem is None and not self._all_there():
      problem = self._hear(listener, deadline)
    if problem:
      self._linger(listener)
    for _, connection in self._heard.values():
      with contextlib.suppress(OSError), connection:
        connection.sendall(json.dumps({'verdict': problem}).encode() + b'\n')
    self._selector.close()
    if problem:
      raise errors.ConfigError(**problem)

  def _all_there(self) -> bool:
    missing = self._job.num_processes - 1 - len(self._heard)
    if not missing:
      self._forget_ended(self._selector.select(0))
    return len(self._heard) == self._job.num_processes - 1

  def _hear(self, listener, deadline: float) -> dict[str, Any] | None:
    """Hears one process, and what is wrong with it or with all."""
    while (left := deadline - time.monotonic()) > 0:
      events = self._selector.select(left)
      self._forget_ended(events)
      if not any(key.fileobj is listener for key, _ in events):
        continue
      try:
        connection, _ = listener.accept()
      except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
          return self._too_many()
        continue
      try:
        connection.settimeout(10)
        connection.sendall(_GREETING)
        statement = statements.Statement(**json.loads(_line(connection)))
      except (OSError, ValueError, TypeError):
        connection.close()  # no process of a job
        continue
      return self._add(statement, connection)
    return self._missing()

  def _add(self, statement, connection) -> dict[str, Any] | None:
    number = statement.process_id
    twin, old = self._heard.get(number, (None, None))
    if old is not None and _is_closed(old):
      self._forget(number)
      twin = None
    twin = twin if number else self._lead
    problem = statements.mistake(self._lead, statement, twin)
    if problem:
      number = -1 - connection.fileno()  # beside the one of its number
    self._heard[number] = statement, connection
    self._selector.register(connection, selectors.EVENT_READ, number)
    return problem

  def _forget_ended(self, events) -> None:
    """Leaves out processes that ended; others may come in their places."""
    for key, _ in events:
      if key.data is not None and _is_closed(key.fileobj):
        self._forget(key.data)

  def _forget(self, number: int) -> None:
    _, connection = self._heard.pop(number)
    self._selector.unregister(connection)
    connection.close()

  def _linger(self, listener) -> None:
    """Hears those who are still on their way, to tell them too."""
    end = time.monotonic() + min(_LINGER, self._timeout)
    known = [self._lead, *(s for s, _ in self._heard.values())]
    most = max(s.num_processes for s in known)
    while len(self._heard) < most - 1 and time.monotonic() < end:
      problem = self._hear(listener, end)
      if problem and problem['what'] == _TOO_MANY:
        return

  def _too_many(self) -> dict[str, Any]:
    return dict(
      what=_TOO_MANY,
      got=str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
      expected=f'at least {self._job.num_processes + _OTHER_FILES}',
      where=f'coordinator {self._job.coordinator}',
      fix='raise the limit of open files (`ulimit -n`) where process 0 runs',
      status=errors.ExitStatus.FAILURE,
    )

  def _missing(self) -> dict[str, Any]:
    there = {0} | {s.process_id for s, _ in self._heard.values()}
    missing = [i for i in range(self._job.num_processes) if i not in there]
    return dict(
      what='The processes of the job did not find each other',
      got=f'{len(there)} of {self._job.num_processes} processes within '
      f'{self._timeout:g} s; missing: {statements.short(missing)}',
      where=f'coordinator {self._job.coordinator}',
      fix='look into the logs of the missing ones, and check that they '
      'run and reach the coordinator',
      status=errors.ExitStatus.FAILURE,
    )


def _allow_files(processes: int) -> None:
  """Raises the soft limit of open files, as far as the hard one lets it."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  wanted = processes + _OTHER_FILES
  if hard != resource.RLIM_INFINITY:
    wanted = min(wanted, hard)
  if soft != resource.RLIM_INFINITY and soft < wanted:
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_closed(connection: socket.socket) -> bool:
  """Whether the other side is gone; it sends nothing while it waits."""
  limit = connection.gettimeout()
  connection.settimeout(0)
  try:
    return not connection.recv(1, socket.MSG_PEEK)
  except BlockingIOError:
    return False
  except OSError:
    return True
  finally:
    connection.settimeout(limit)


def _report(job, statement, deadline, timeout, patience):
  """A process's part: tells process 0, and returns its verdict."""
  reason = 'no answer'
  strange_since: float | None = None
  while time.monotonic() < deadline:
    try:
      return _ask(job, statement, deadline)
    except _StrangerError as error:
      reason = str(error)
      strange_since = strange_since or time.monotonic()
      if time.monotonic() - strange_since > patience:
        break
    except OSError as error:
      reason, strange_since = error.strerror or str(error), None
    time.sleep(0.2)
  if strange_since:
    raise errors.ConfigError(
      "Something that is not the job's process 0 answers at its address",
      got=reason,
      where=f'{statement.who}, coordinator {job.coordinator}',
      fix='see what process 0 reports; choose another port',
      status=errors.ExitStatus.FAILURE,
    )
  raise errors.ConfigError(
    'Process 0 of the job cannot be reached',
    got=reason,
    expected=f'process 0 within {timeout:g} s',
    where=f'{statement.who}, coordinator {job.coordinator}',
    fix='check that process 0 runs, and that its host and port can be '
    'reached from here',
    status=errors.ExitStatus.FAILURE,
  )


class _StrangerError(Exception):
  """The answer does not belong to a rendezvous."""


def _ask(job, statement, deadline):
  host, _, port = job.coordinator.rpartition(':')
  left = max(deadline - time.monotonic(), 0.1)
  with socket.create_connection(
    (host.strip('[]'), int(port)), timeout=min(left, 10)
  ) as connection:
    try:
      if _line(connection) != _GREETING:
        raise _StrangerError('another protocol')
    except TimeoutError as error:
      raise _StrangerError('no greeting') from error
    connection.sendall(
      json.dumps(dataclasses.asdict(statement)).encode() + b'\n'
    )
    # Process 0 answers at the latest when its own time is over.
    connection.settimeout(left + 2 * _LINGER)
    try:
      return json.loads(_line(connection))['verdict']
    except TimeoutError as error:
      raise OSError('process 0 does not answer any more') from error
    except (ValueError, KeyError, TypeError) as error:
      raise OSError('process 0 ended') from error


def _line(connection: socket.socket, limit: int = 1 << 24) -> bytes:
  """Reads up to and with a line feed, or what comes before the end."""
  received = bytearray()
  while not received.endswith(b'\n') and len(received) < limit:
    part = connection.recv(1 << 16)
    if not part:
      break
    received += part
  return bytes(received)
