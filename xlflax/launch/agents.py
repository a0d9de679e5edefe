"""Agents: one for each node of a job; together they start processes anew.

The agent of node 0 leads. Each generation of processes begins when it tells
the others its port; each agent tells it how its own processes ended; and it
tells all to end theirs once some have failed. Over the wire: lines of JSON.
An agent that is lost ends the job, which its scheduler may start again.
"""

import contextlib
import json
import math
import select
import socket
import time
from typing import Any

from xlflax.foundation import errors

_MISTAKE, _LOST = errors.ExitStatus.MISTAKE, errors.ExitStatus.FAILURE
_LATEST = 120.0  # seconds for all processes to end after a failure


def is_failure(status: int) -> bool:
  """Whether a process neither finished nor stopped in order."""
  return status not in (0, errors.ExitStatus.STOPPED)


def free_port() -> int:
  """Returns a port of this machine that nothing listens on."""
  with socket.socket() as listener:
    listener.bind(('', 0))
    return listener.getsockname()[1]


class _Line:
  """A connection that carries lines of JSON."""

  def __init__(self, connection: socket.socket):
    self._socket = connection
    self._received = b''
    self._poll = select.poll()
    self._poll.register(connection, select.POLLIN)

  def say(self, **message: Any) -> None:
    with contextlib.suppress(OSError):  # heard of when it is read
      self._socket.sendall(json.dumps(message).encode() + b'\n')

  def hear(self, seconds: float) -> dict[str, Any] | None:
    """The next message; None after the time. ConnectionError: it is lost."""
    end = time.monotonic() + seconds
    while b'\n' not in self._received:
      left = max(0.0, end - time.monotonic())
      if not self._poll.poll(1000 * left):
        return None
      part = self._socket.recv(1 << 16)
      if not part:
        raise ConnectionError('closed')
      self._received += part
    line, _, self._received = self._received.partition(b'\n')
    return json.loads(line)


class Lead:
  """The agent of node 0, or of a job of one node.

  Args:
    port: of process 0; None takes a free one for each generation.
    listen: at which port it listens for the other agents.
    nodes: of the job.
    timeout_seconds: how long to wait for the others.

  Attributes:
    is_whole: whether all agents are there, for another generation.
    status: of the job, once it has ended.
    failure: what failed first in the last generation, and where.
  """

  is_whole = True
  status = 0
  failure = ''

  def __init__(
    self,
    port: int | None = None,
    listen: int = 0,
    nodes: int = 1,
    timeout_seconds: float = 300.0,
  ):
    self._port = port
    self._others: list[_Line] = []
    self._ended: dict[int, int] = {}  # other -> status, of this generation
    self._failures: list[str] = []  # of the others, in their order
    if nodes == 1:
      return
    with socket.create_server(('', listen), backlog=nodes) as listener:
      listener.settimeout(timeout_seconds)
      try:
        while len(self._others) < nodes - 1:
          self._others.append(_Line(listener.accept()[0]))
      except TimeoutError as error:
        raise errors.ConfigError(
          'The agents of the job did not find each other',
          got=f'{len(self._others) + 1} of {nodes}',
          expected=f'all within {timeout_seconds:g} s',
          status=_LOST,
        ) from error

  def begin(self) -> int | None:
    """The port of a new generation; None where the job has ended."""
    self._ended, self._failures = {}, []
    port = self._port or free_port()
    self._tell(port=port)
    return port

  def failed(self) -> int | None:
    """A status by which another node's processes failed, if they did."""
    self._listen()
    return next(filter(is_failure, self._ended.values()), None)

  def agree(self, status: int, failure: str = '') -> int:
    """The status of all nodes' processes, given that of this one's.

    Args:
      status: of this node's processes.
      failure: what failed here, if something did.
    """
    end = math.inf  # those that train on are waited for
    while True:
      all_here = len(self._ended) == len(self._others)
      bad = list(filter(is_failure, (status, *self._ended.values())))
      if bad and end == math.inf:
        self._tell(stop=bad[0])
        end = time.monotonic() + _LATEST
      if all_here or time.monotonic() > end:
        break
      time.sleep(0.05)
      self._listen()
    self.is_whole &= all_here
    self.failure = next(filter(None, [failure, *self._failures]), '')
    if _MISTAKE in bad or not self.is_whole:
      return _MISTAKE if _MISTAKE in bad else _LOST
    return bad[0] if bad else max(status, *self._ended.values(), 0)

  def end(self, status: int) -> int:
    """Ends the job on all nodes; returns its status."""
    self.status = int(status)
    self._tell(end=self.status)
    return self.status

  def _tell(self, **message: Any) -> None:
    for other in self._others:
      other.say(**message)

  def _listen(self) -> None:
    for i, other in enumerate(self._others):
      if i in self._ended:
        continue
      try:
        message = other.hear(0)
      except OSError:
        self.is_whole, message = False, {'ended': int(_LOST)}
      if message is not None:
        self._ended[i] = message['ended']
        self._failures.append(message.get('failure', ''))


class Follower:
  """The agent of another node; its methods do what those of `Lead` do.

  Args:
    address: 'host:port' of the one that leads.
    timeout_seconds: how long to wait for it.

  Attributes:
    status: of the job, once it has ended.
  """

  failure = ''  # the one that leads tells it

  def __init__(self, address: str, timeout_seconds: float = 300.0):
    host, _, port = address.rpartition(':')
    self.status = int(_LOST)
    end = time.monotonic() + timeout_seconds
    while True:
      try:
        self._lead = _Line(socket.create_connection((host, int(port)), 10))
        return
      except OSError as error:
        if time.monotonic() > end:
          raise errors.ConfigError(
            'The agent of node 0 cannot be reached',
            got=str(error),
            where=address,
            status=_LOST,
          ) from error
        time.sleep(0.2)

  def begin(self) -> int | None:
    """The port of a new generation; None where the job has ended."""
    while True:
      message = self._heard(3600)
      if 'end' in message:
        self.status = message['end']
        return None
      if 'port' in message:
        return message['port']

  def failed(self) -> int | None:
    """A status by which another node's processes failed, if they did."""
    return self._heard(0).get('stop')

  def agree(self, status: int, failure: str = '') -> int:
    """Tells how this node's processes ended."""
    self._lead.say(ended=int(status), failure=failure)
    return status

  def _heard(self, seconds: float) -> dict[str, Any]:
    try:
      return self._lead.hear(seconds) or {}
    except OSError:
      return {'stop': int(_LOST), 'end': int(_LOST)}
