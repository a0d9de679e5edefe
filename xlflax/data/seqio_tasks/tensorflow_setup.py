"""TensorFlow as this project uses it: for text on the host, quietly."""

import contextlib
import functools
import importlib
import os
import sys
import tempfile

_quiet_modules = ('tensorflow', 'tensorflow_text', 'seqio')


def load_tensorflow() -> None:
  """Imports TensorFlow and SeqIO without their start-up lines; hides devices.

  TensorFlow's C++ code writes to standard error before it can be told not to;
  what it wrote is shown only if the import fails.

  Raises:
    ImportError: they are not installed.
  """
  if not set(_quiet_modules) <= sys.modules.keys():
    with _silent_stderr():
      for name in _quiet_modules:
        importlib.import_module(name)
  hide_accelerators()


@functools.cache
def hide_accelerators() -> None:
  """Leaves GPUs and TPUs to JAX: TensorFlow takes none of their memory."""
  tf = importlib.import_module('tensorflow')
  with _silent_stderr():
    for kind in ('GPU', 'TPU'):
      with contextlib.suppress(RuntimeError, ValueError):  # Already in use.
        tf.config.set_visible_devices([], kind)


@contextlib.contextmanager
def _silent_stderr():
  with tempfile.TemporaryFile() as held, contextlib.ExitStack() as stack:
    sys.stderr.flush()
    original = os.dup(2)
    stack.callback(os.close, original)
    os.dup2(held.fileno(), 2)
    try:
      yield
    except BaseException:
      os.dup2(original, 2)
      held.seek(0)
      sys.stderr.write(held.read().decode(errors='replace'))
      raise
    finally:
      os.dup2(original, 2)
