"""`xlflax ...` in a process with a fault: `faulty_worker.py FAULT ARGUMENTS`.

A fault shows after some batches: the loader blocks, or is slow; the process
does not come to a collective; the second checkpoint is never written.
"""

import itertools
import sys
import threading
import time

from xlflax import cli
from xlflax.data.cache import cached_loader
from xlflax.storage import checksums
from xlflax.training import progress_lines

_GOOD = 20  # batches, or steps, before the fault


def _after(good: int, fault):
  """Decorates a method: `fault` is called first, after so many good calls."""
  count = itertools.count()

  def decorate(method):
    def call(*args, **named):
      if next(count) >= good:
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
    cached_loader.CachedLoader, 'rows', _after(_GOOD, _block)
  ),
  'slow_loader': lambda: _wrap(
    cached_loader.CachedLoader, 'rows', _after(_GOOD, lambda: time.sleep(1))
  ),
  'collective': lambda: _wrap(
    progress_lines.Progress, 'advance', _after(_GOOD, _block)
  ),
  'checkpoint': lambda: _wrap(checksums, 'seal_directory', _after(3, _block)),
}


if __name__ == '__main__':
  fault, arguments = sys.argv[1], sys.argv[2:]
  if fault != 'none':
    _FAULTS[fault]()
  sys.exit(cli.main(arguments))
