"""Agreement on a stop: all processes of a job leave at the same step.

Any process may be asked. It says so in the key-value store of JAX's
coordination service; each process then holds its loop, says how often it has
looked whether to stop, and all stop at the first look that none has taken yet.
Looks are counted, and not steps: a run that was continued, or that went back
to an earlier step, counts like any other, from the first look on.
"""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from xlflax.training.processes import store

_EVERY = 1.0  # seconds between looks into the store
_SOON = 0.05  # while the others answer
_numbers = itertools.count()  # of agreements; the same in all processes


class Agreement:
  """When the processes of a job stop.

  Args:
    on_asked: called in a thread when any process was asked, with what it
      said.
    client: of JAX's coordination service; None takes the process's own.
    process: this process's number.
    processes: how many there are.
    number: of this agreement; every process makes them in the same order.
  """

  def __init__(
    self,
    on_asked: Callable[[str], None],
    *,
    client: Any = None,
    process: int | None = None,
    processes: int | None = None,
    number: int | None = None,
  ):
    self._store = store.Store(client)
    self._process = jax.process_index() if process is None else process
    self._processes = jax.process_count() if processes is None else processes
    number = next(_numbers) if number is None else number
    self._key = f'xlflax/stop/{number}/'
    self._on_asked = on_asked
    self._looks = 0
    self._stop_at: int | None = None
    self._said: str | None = None
    self._is_told = False
    self._lock = threading.Lock()
    self._wake, self._closed = threading.Event(), threading.Event()
    self._thread = threading.Thread(
      target=self._run, name='xlflax agreement', daemon=True
    )
    self._thread.start()

  def ask(self, why: str) -> None:
    """Asks all processes to stop; returns at once."""
    if self._said is None:
      self._said = why
      self._wake.set()

  def reached(self) -> bool:
    """Whether to stop now; all processes look equally often.

    Waits while the others say where they are.
    """
    with self._lock:
      self._looks += 1
      return self._stop_at is not None and self._looks >= self._stop_at

  def close(self) -> None:
    """Ends the thread; says to the others how far this process came."""
    self._closed.set()
    self._wake.set()
    self._thread.join(timeout=10)
    with self._lock:
      self._tell()

  def _run(self) -> None:
    while not self._closed.is_set():
      self._wake.wait(_EVERY)
      if self._said is not None:
        self._store.set(f'{self._key}asked', self._said)
      said = self._store.get(f'{self._key}asked')
      if said is not None:
        self._on_asked(said)
        self._agree()
        return

  def _agree(self) -> None:
    """Finds the look at which all stop; the loop is held meanwhile."""
    with self._lock:
      self._tell()
      while not self._closed.is_set():
        looks = self._all_looks()
        if len(looks) == self._processes:
          self._stop_at = max(looks) + 1
          return
        time.sleep(_SOON)

  def _tell(self) -> None:
    if not self._is_told:
      self._is_told = True
      self._store.set(f'{self._key}looks/{self._process}', str(self._looks))

  def _all_looks(self) -> list[int]:
    try:
      found = self._store.client.key_value_dir_get(f'{self._key}looks/')
    except Exception:
      return []  # the store is gone, which ends the job
    return [int(value) for _, value in found]
