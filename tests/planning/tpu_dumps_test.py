"""Tests of compiling for TPUs and parsing XLA:TPU dumps."""

import pathlib
import threading

import jax
import pytest

from xlflax.planning import tpu_dumps
from xlflax.utils import errors, process_exit

_BUFFERS = """BufferAssignment:
allocation 0: size 512, thread-local:
 value: <2 add.2 @0> (size=512,offset=0): bf16[]{:T(256)}
allocation 1: size 2097152, parameter 1, shape |bf16[1024,1024]| at ShapeIndex {}:
allocation 2: size 262144, parameter 0, shape |bf16[128,1024]| at ShapeIndex {}, output shape is |bf16[128,1024]|, maybe-live-out:
allocation 3: size 1024, output shape is |f32[]|, maybe-live-out:
allocation 4: size 9999, color 1, preallocated-temp:
allocation 18: size 49184, preallocated-temp:
"""  # noqa: E501
_REPORT = """Memory Space: default (color=0)
Total bytes: 2415648 (2.30MiB)
Memory Space: vmem (color=1)
Total bytes: 9999 (9.8KiB)
"""


def test_memory_report_is_parsed():
  assert tpu_dumps.parse_memory(_BUFFERS, _REPORT) == {
    'arguments': 2097152 + 262144,
    'outputs': 1024,
    'temporary': 49184,
    'peak': 2415648,
  }


class _Lowered:
  """Compiler that writes its files and continues to run."""

  def __init__(self, names, then):
    self._names, self._then = names, then

  def compile(self, compiler_options):
    folder = pathlib.Path(compiler_options['xla_dump_to'])
    assert compiler_options['fast'] is True
    for name, text in self._names.items():
      (folder / f'module_1.after_optimizations{name}.txt').write_text(text)
    self._then()


def test_command_does_not_wait_for_machine_code(tmp_path, monkeypatch):
  remaining = []
  monkeypatch.setattr(process_exit, 'is_command', lambda: True)
  monkeypatch.setattr(process_exit, 'abandon_thread', remaining.append)
  forever = threading.Event()
  files = {
    '': 'HloModule x',
    '-buffer-assignment': _BUFFERS,
    '-memory-usage-report': _REPORT,
    '_after_buffer_assignment': 'HloModule x',
  }
  lowered = _Lowered(files, forever.wait)
  tpu_dumps.compile_program(lowered, {'fast': True}, tmp_path)
  assert tpu_dumps.read_program(tmp_path) == 'HloModule x'
  assert tpu_dumps.read_memory(tmp_path)['peak'] == 2415648
  (thread,) = remaining
  assert thread.is_alive()
  forever.set()


def test_missing_dump_is_an_error(tmp_path):
  lowered = _Lowered({}, lambda: None)
  tpu_dumps.compile_program(lowered, {'fast': True}, tmp_path)
  with pytest.raises(errors.TrainingError, match='XLA_FLAGS'):
    tpu_dumps.read_program(tmp_path)


def test_compiler_errors_are_raised(tmp_path):
  def fail():
    raise jax.errors.JaxRuntimeError('INTERNAL: no')

  with pytest.raises(jax.errors.JaxRuntimeError, match='no'):
    tpu_dumps.compile_program(_Lowered({}, fail), {'fast': True}, tmp_path)
