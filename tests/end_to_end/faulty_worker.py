"""Runs `xlflax` with a fault: `faulty_worker.py FAULT ARGUMENTS`.

The fault occurs after some batches: the loader blocks or is slow, the process
does not reach a collective, or the second checkpoint is never written.
"""

import itertools
import sys
import threading
import time

from xlflax import cli
from xlflax.data.cache import cached_loader
from xlflax.storage import checksums
from xlflax.training import progress_lines

_CALLS_BEFORE_FAULT = 20  # batches or steps before the fault


def _after(num_calls: int, fault):
  """Decorates a method to call `fault` first, after `num_calls` calls."""
  count = itertools.count()

  def decorate(method):
    def call(*args, **named):
      if next(count) >= num_calls:
        fault()
      return method(*args, **named)

    return call

  return decorate


def _block():
  threading.Event().wait()


def _wrap(owner, name, decorate):
  setattr(owner, name, decorate(getattr(owner, name)))


_FAULTS = {
  'loader': lambda: _wrap(
    cached_loader.CachedLoader, 'rows', _after(_CALLS_BEFORE_FAULT, _block)
  ),
  'slow_loader': lambda: _wrap(
    cached_loader.CachedLoader,
    'rows',
    _after(_CALLS_BEFORE_FAULT, lambda: time.sleep(1)),
  ),
  'collective': lambda: _wrap(
    progress_lines.Progress, 'advance', _after(_CALLS_BEFORE_FAULT, _block)
  ),
  'checkpoint': lambda: _wrap(checksums, 'seal_directory', _after(3, _block)),
}


if __name__ == '__main__':
  fault, arguments = sys.argv[1], sys.argv[2:]
  if fault != 'none':
    _FAULTS[fault]()
  sys.exit(cli.main(arguments))
