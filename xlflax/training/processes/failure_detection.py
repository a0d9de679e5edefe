"""Failure detection: the first process of a job that fails ends all.

A process that fails writes why into the key-value store of JAX's coordination
service; a thread in each process looks there every two seconds. All processes
end with the status of the one that failed, as schedulers may look at any; also
those that its end reaches first, as a closed connection.
"""

import faulthandler
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection

import jax

from xlflax.foundation import errors
from xlflax.training.processes import store

_KEY = 'xlflax/failure'
_SEEN = 'xlflax/failed/'
_EVERY = 2.0  # seconds between looks
_OWN_MESSAGE = 4.0  # seconds a process has to find the same mistake itself
_READ = 8.0  # seconds the others have to read what is in the store
_STACKS = 20.0  # seconds they have to write their stacks before
_LEAVE = 1.0  # seconds that the store stays when all have read it
# What Gloo, NCCL and JAX's coordination service say where a process is gone.
_LOST_PEER = re.compile(
  r'(closed|reset) by peer|gloo .*(timed? ?out|connect|read error)|'
  r'nccl.*(remote process|network error|system error|abort)|'
  r'(?<!optimization[_-])(?<!opt-)barrier|coordination service|heartbeat|'
  r'task .*(unhealthy|disconnect|died)',
  re.IGNORECASE | re.DOTALL,
)


def is_lost_peer(error: BaseException) -> bool:
  """Whether an error says that another process of the job is gone."""
  return bool(_LOST_PEER.search(errors.reason(error)))


class FailureDetector:
  """A thread that ends this process after another one failed.

  Args:
    process_id: this process's number.
    client: of JAX's coordination service; None takes the process's own.
    end: how the process ends, given a message and a status.

  Attributes:
    client: of JAX's coordination service.
    last_words: what else to say when another's failure ends this process,
      such as where it can be continued.
  """

  last_words: Callable[[], str] | None = None

  def __init__(self, process_id: int, client=None, end=None):
    self._store = store.Store(client)
    self.client = self._store.client
    self._id = process_id
    self._end = end or _end
    self._stopped = threading.Event()
    self._following = threading.Lock()
    self._thread = threading.Thread(
      target=self._run, name='xlflax failure detection', daemon=True
    )
    self._thread.start()

  def stop(self) -> None:
    """Ends the thread."""
    self._stopped.set()
    if threading.current_thread() is not self._thread:
      self._thread.join(timeout=10)

  def fail(
    self,
    message: str,
    status: int,
    *,
    stacks: bool = False,
    without: Collection[int] = (),
  ) -> None:
    """Tells the others that this process ends, and why.

    Process 0, which holds the store, gives the others a few seconds to read
    it or to find the same mistake themselves. So does a process that hangs:
    its end would cut the connections at which the others wait.

    Args:
      message: why.
      status: the exit status, which the others take too.
      stacks: whether the others shall print the stacks of their threads.
      without: processes that will not answer.
    """
    self.stop()
    self._store.set(f'{_SEEN}{self._id}', '1')
    told = {
      'process': self._id,
      'message': f'process {self._id} failed: {message}',
      'status': int(status),
      'stacks': stacks,
    }
    self._store.set(_KEY, json.dumps(told))
    if stacks:
      self._wait_for_others(_STACKS, without)
    elif self._id == 0:
      self._wait_for_others(_READ)

  def follow(self, seconds: float) -> None:
    """Ends this process as another one does that failed, if one did.

    Args:
      seconds: how long to look whether one did.
    """
    end = time.monotonic() + seconds
    while True:
      text = self._store.get(_KEY)
      if text is not None and not self._is_own(text):
        self._follow(text)
      if text is not None or time.monotonic() > end:
        return
      time.sleep(_EVERY / 10)

  def _wait_for_others(
    self, seconds: float, without: Collection[int] = ()
  ) -> None:
    end = time.monotonic() + seconds
    left = set(range(jax.process_count())) - {self._id, *without}
    while left and time.monotonic() < end:
      left = {i for i in left if self._store.get(f'{_SEEN}{i}') is None}
      time.sleep(0.1)

  def _is_own(self, text: str) -> bool:
    return json.loads(text)['process'] == self._id

  def _run(self) -> None:
    while not self._stopped.wait(_EVERY):
      text = self._store.get(_KEY)
      if text is not None and not self._stopped.wait(_OWN_MESSAGE):
        self._follow(text)
        return

  def _follow(self, text: str) -> None:
    """Ends this process as the one that failed says."""
    with self._following:  # a second thread waits for the end
      told = json.loads(text)
      if told['stacks']:
        faulthandler.dump_traceback(2, all_threads=True)
      self._store.set(f'{_SEEN}{self._id}', '1')
      if self._id == 0:
        self._wait_for_others(_STACKS if told['stacks'] else _READ)
        time.sleep(_LEAVE)
      self._end(
        f'xlflax: {told["message"]}\nxlflax: process {self._id} ends with '
        f'it.{self._more()}',
        _status(told['status']),
      )

  def _more(self) -> str:
    try:
      return f' {self.last_words()}' if self.last_words else ''
    except Exception:
      return ''  # a lost disk, say, which may be why the other failed


def _status(number: int) -> int:
  """One of `ExitStatus`, or what `--stopped_status` says."""
  known = errors.ExitStatus
  return known(number) if number in set(known) else number


def _end(message: str, status: int) -> None:
  print(message, file=sys.stderr, flush=True)
  os._exit(status)
