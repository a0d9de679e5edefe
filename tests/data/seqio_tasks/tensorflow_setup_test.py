"""Tests of importing TensorFlow without logs and accelerators."""

import subprocess
import sys

import pytest

from xlflax.data.seqio_tasks import tensorflow_setup


@pytest.mark.slow
def test_load_is_quiet_and_hides_accelerators():
  code = (
    'from xlflax.data.seqio_tasks import tensorflow_setup as h; h.load_tensorflow(); '
    'import tensorflow as tf, sys; '
    'print(sorted({d.device_type for d in '
    'tf.config.get_visible_devices()})); '
    'print("still there", file=sys.stderr)'
  )
  result = subprocess.run(
    [sys.executable, '-c', code], text=True, check=True, capture_output=True
  )
  assert result.stdout == "['CPU']\n"
  assert result.stderr == 'still there\n'


def test_suppressed_output_is_shown_if_the_import_fails(
  tmp_path, monkeypatch, capfd
):
  (tmp_path / 'noisy_broken_module.py').write_text(
    'import os; os.write(2, b"a hint"); raise ImportError("broken")'
  )
  monkeypatch.syspath_prepend(str(tmp_path))
  monkeypatch.setattr(tensorflow_setup, '_MODULES', ('noisy_broken_module',))
  with pytest.raises(ImportError, match='broken'):
    tensorflow_setup.load_tensorflow()
  assert capfd.readouterr().err


def test_python_without_docstrings_is_rejected():
  code = (
    'from xlflax.data.seqio_tasks import tensorflow_setup\n'
    'from xlflax.utils import errors\n'
    'try:\n'
    '  tensorflow_setup.load_tensorflow()\n'
    'except errors.ConfigError as error:\n'
    '  print(error.where)\n'
  )
  process = subprocess.run(
    [sys.executable, '-OO', '-c', code],
    capture_output=True,
    text=True,
    check=True,
  )
  assert process.stdout == 'PYTHONOPTIMIZE\n'
