"""Import and configuration of TensorFlow for text processing on the host."""

import contextlib
import functools
import importlib
import os
import sys
import tempfile

from xlflax.utils import errors

_MODULES = ('tensorflow', 'tensorflow_text', 'seqio')


def load_tensorflow() -> None:
  """Imports TensorFlow and SeqIO, and hides GPUs and TPUs from TensorFlow.

  TensorFlow's C++ code writes to standard error before its log level can be
  set. This output is shown only if the import fails.

  Raises:
    ImportError: If TensorFlow or SeqIO is not installed.
    ConfigError: If Python removes docstrings, which TensorFlow Text requires.
  """
  if sys.flags.optimize >= 2:
    raise errors.ConfigError(
      'SeqIO tasks require TensorFlow Text, which cannot be imported if Python '
      'removes docstrings (optimization level 2)',
      got=f'Python with the optimization level {sys.flags.optimize}',
      expected='the optimization level 0 or 1',
      where='PYTHONOPTIMIZE',
      fix='Unset PYTHONOPTIMIZE or set it to 1. To train without TensorFlow, '
      'pass --cache=DIR.',
    )
  if not set(_MODULES) <= sys.modules.keys():
    with _silent_stderr():
      for name in _MODULES:
        importlib.import_module(name)
  hide_accelerators()


@functools.cache
def hide_accelerators() -> None:
  """Hides GPUs and TPUs so that TensorFlow does not reserve their memory."""
  tf = importlib.import_module('tensorflow')
  with _silent_stderr():
    for kind in ('GPU', 'TPU'):
      # The devices cannot be hidden if they are already in use.
      with contextlib.suppress(RuntimeError, ValueError):
        tf.config.set_visible_devices([], kind)


@contextlib.contextmanager
def _silent_stderr():
  """Context manager that shows standard error only after an exception."""
  with tempfile.TemporaryFile() as captured, contextlib.ExitStack() as stack:
    sys.stderr.flush()
    original = os.dup(2)
    stack.callback(os.close, original)
    os.dup2(captured.fileno(), 2)
    try:
      yield
    except BaseException:
      os.dup2(original, 2)
      captured.seek(0)
      sys.stderr.write(captured.read().decode(errors='replace'))
      raise
    finally:
      os.dup2(original, 2)
