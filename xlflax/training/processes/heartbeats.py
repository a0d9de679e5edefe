"""Heartbeats: a process that is frozen or gone is named, with what it was at.

JAX's own heartbeats end all processes with a C++ stack and a number. So each
process says what it is at into JAX's key-value store, ten times within the
limit. Process 0 looks at all, and the others look at process 0. Looks are
counted, not seconds: a job that was suspended as a whole goes on.
"""

import contextlib
import socket
import threading
from collections.abc import Callable

_KEY = 'xlflax/beat/'
_ENDED = 'ended'
_BEATS = 10  # within the limit


class Heartbeats:
  """Two threads: one tells and asks, which may block; the other counts.

  Args:
    process_id: this process's number.
    client: of JAX's coordination service.
    limit_seconds: a process that says nothing new for so long is lost.
    lost: called with the lost processes and what to say of them.

  Attributes:
    doing: what this process is at, for the others.
  """

  def __init__(
    self,
    process_id: int,
    client,
    limit_seconds: float,
    lost: Callable[[list[int], str], None],
  ):
    self.doing: Callable[[], str] = lambda: 'starting'
    self._id, self._client, self._lost = process_id, client, lost
    self._limit = limit_seconds
    self._heard: dict[str, str] = {}
    self._stopped = threading.Event()
    for name, run in (('heart', self._beat), ('pulse', self._look)):
      threading.Thread(target=run, name=f'xlflax {name}', daemon=True).start()

  def stop(self) -> None:
    """Ends the threads; the others expect nothing more."""
    self._stopped.set()
    with contextlib.suppress(Exception):
      self._say(_ENDED)

  def _say(self, text: str) -> None:
    self._client.key_value_set(f'{_KEY}{self._id}', text, allow_overwrite=True)

  def _beat(self) -> None:
    count, host = 0, socket.gethostname()
    while not self._stopped.is_set():
      count += 1
      with contextlib.suppress(Exception):
        self._say(f'{count} on {host}: {self.doing()}')
        self._heard = self._hear()
      self._stopped.wait(self._limit / _BEATS)
    with contextlib.suppress(Exception):
      self._say(_ENDED)  # it may have said something after `stop` did

  def _hear(self) -> dict[str, str]:
    if self._id == 0:
      return dict(self._client.key_value_dir_get(_KEY))
    return {f'{_KEY}0': self._client.key_value_try_get(f'{_KEY}0')}

  def _look(self) -> None:
    silent: dict[str, int] = {}
    last: dict[str, str] = {}
    while not self._stopped.wait(self._limit / _BEATS):
      heard = self._heard
      silent = {
        key: silent.get(key, 0) + 1 if text == last.get(key) else 0
        for key, text in heard.items()
        if text != _ENDED
      }
      last = heard
      late = [key for key, looks in silent.items() if looks > _BEATS]
      if late:
        texts = [f'{_number(k)} {last[k].partition(" ")[2]}' for k in late]
        self._lost([_number(k) for k in late], '; '.join(texts))
        return


def _number(key: str) -> int:
  return int(key.removeprefix(_KEY))
