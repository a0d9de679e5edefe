"""How processes of this machine start: anew, or from spares.

A spare is a process of the next generation. It has imported and read all that
does not depend on the other processes, and waits for a line on its standard
input: the rest of what it is told.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_STANDBY = 'XLFLAX_STANDBY'  # in a spare's environment
_AFTER = 20.0  # seconds from the start of a generation to that of its spares
processor_before = 0.0  # seconds that this process took while it was a spare


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
  """One process.

  Attributes:
    arguments: the command line.
    variables: what its environment has beyond the launcher's.
    log: file of what it prints.
    name: of it among those of all nodes, such as 'Process 3 of 4'.
  """

  arguments: Sequence[str]
  variables: dict[str, str]
  log: pathlib.Path
  name: str

  def start(
    self, variables: Mapping[str, str], *, stdin: int = subprocess.DEVNULL
  ) -> subprocess.Popen:
    """Starts it, with these variables too; its log goes on."""
    self.log.parent.mkdir(parents=True, exist_ok=True)
    own = {'PYTHONUNBUFFERED': '1', **variables, **self.variables}
    with self.log.open('ab') as log:
      return subprocess.Popen(
        self.arguments,
        env=os.environ | own,
        stdout=log,
        stderr=log,
        stdin=stdin,
        start_new_session=True,
        preexec_fn=die_with_parent,
      )


class Spares:
  """The spares of a node's processes.

  Args:
    make: the processes, given a port; None: there are no spares.
    after_seconds: how long a generation runs before they start, so that they
      do not hinder its own start.
  """

  def __init__(
    self,
    make: Callable[[int], Sequence[Process]] | None = None,
    after_seconds: float = _AFTER,
  ):
    self._make, self._after = make, after_seconds
    self._waiting: list[subprocess.Popen] = []
    self._due = time.monotonic() + after_seconds

  def look(self) -> None:
    """Starts them when it is time."""
    if self._make is None or self._waiting or time.monotonic() < self._due:
      return
    self._waiting = [
      spec.start({_STANDBY: '1'}, stdin=subprocess.PIPE)
      for spec in self._make(0)
    ]

  def take(
    self, specs: Sequence[Process], variables: Mapping[str, str]
  ) -> list[subprocess.Popen]:
    """Has them go on as these processes; none where one of them is gone."""
    taken, self._waiting = self._waiting, []
    self._due = time.monotonic() + self._after
    try:
      if any(spare.poll() is not None for spare in taken):
        raise ProcessLookupError
      for spare, spec in zip(taken, specs, strict=bool(taken)):
        assert spare.stdin is not None
        told = {'arguments': list(spec.arguments), 'variables': dict(variables)}
        spare.stdin.write(json.dumps(told).encode() + b'\n')
        spare.stdin.close()
      return taken
    except OSError:  # it has ended
      _end(taken)
      return []

  def close(self) -> None:
    """Ends those that nobody needs any more."""
    _end(self._waiting)


def _end(processes: Sequence[subprocess.Popen]) -> None:
  for process in processes:
    process.kill()
    process.wait()


def wait_for_turn() -> list[str] | None:
  """In a spare: waits until it is needed; returns its arguments then.

  None in other processes, at once.
  """
  global processor_before
  if not os.environ.pop(_STANDBY, None):
    return None
  line = sys.stdin.readline()
  if not line:  # the launcher has ended
    sys.exit(0)
  processor_before = time.process_time()
  told = json.loads(line)
  os.environ.update(told['variables'])
  return told['arguments']


def die_with_parent() -> None:
  """Lets Linux send this process SIGTERM if its parent is killed."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
