"""Partial compilation of TPU programs, to read their HLO and memory use.

XLA:TPU writes its optimized and scheduled program and all buffers before it
generates machine code, which takes several times as long and is not needed for
a plan. In a command, whose process ends afterwards, the compiler runs in a
thread that is abandoned at that point.
"""

import pathlib
import re
import threading
from typing import Any

import jax

from xlflax.utils import errors, process_exit

# The files in the order in which they are written. The last one is started when
# the others are complete.
_PROGRAM = '*after_optimizations.txt'
_BUFFERS = '*after_optimizations-buffer-assignment.txt'
_MEMORY = '*after_optimizations-memory-usage-report.txt'
_NEXT = '*after_optimizations_after_buffer_assignment.txt'
_POLL_SECONDS = 0.1
_ALLOCATION = re.compile(r'^allocation \d+: size (\d+), (.*)$', re.M)
_TOTAL = re.compile(r'Memory Space: default.*\nTotal bytes: (\d+)')


def compile_program(
  lowered: Any, options: dict[str, Any], folder: pathlib.Path
) -> None:
  """Compiles a program until XLA has written its HLO and buffer assignment.

  If the process does not run a command, the compilation is completed.

  Args:
    lowered: Result of `jax.jit(...).lower(...)` for TPUs.
    options: XLA compiler options.
    folder: Empty folder for the compiler's output files.

  Raises:
    JaxRuntimeError: If the compiler rejects the program.
  """
  compile_errors: list[BaseException] = []

  def run_compiler():
    try:
      lowered.compile(compiler_options=options | dump_to(folder))
    except jax.errors.JaxRuntimeError as error:
      compile_errors.append(error)

  thread = threading.Thread(target=run_compiler, name='XLA:TPU', daemon=True)
  thread.start()
  can_stop_early = process_exit.is_command()
  while thread.is_alive() and not (can_stop_early and _largest(folder, _NEXT)):
    thread.join(_POLL_SECONDS)
  if thread.is_alive():
    process_exit.abandon_thread(thread)
  if compile_errors:
    raise compile_errors[0]


def dump_to(folder: pathlib.Path) -> dict[str, Any]:
  """Returns the XLA options for writing compiled programs to a folder."""
  return {'xla_dump_to': str(folder), 'xla_dump_hlo_as_text': True}


def _largest(folder: pathlib.Path, pattern: str) -> pathlib.Path | None:
  """Returns the largest file that matches a pattern, or None."""
  return max(
    folder.glob(pattern), key=lambda path: path.stat().st_size, default=None
  )


def read_program(folder: pathlib.Path) -> str:
  """Reads the program's HLO from the compiler's output.

  Args:
    folder: Folder with the compiler's output files.

  Raises:
    TrainingError: If the compiler did not write the program's HLO.
  """
  return _read(folder, _PROGRAM)


def _read(folder: pathlib.Path, pattern: str) -> str:
  """Reads the largest file that matches a pattern."""
  path = _largest(folder, pattern)
  if path is None:
    raise errors.TrainingError(
      'XLA:TPU did not write the compiled program in the dry run. A file that '
      f'matches {pattern} is required',
      fix='Unset XLA_FLAGS and LIBTPU_INIT_ARGS, and run the command again.',
    )
  return path.read_text(encoding='utf-8')


def read_memory(folder: pathlib.Path) -> dict[str, int]:
  """Reads the program's memory use from the compiler's output.

  Args:
    folder: Folder with the compiler's output files.

  Returns:
    'arguments', 'outputs' (without those that reuse an argument), 'temporary'
    and 'peak' (main memory of the device, including arguments), in bytes.
  """
  return parse_memory(_read(folder, _BUFFERS), _read(folder, _MEMORY))


def parse_memory(buffers: str, report: str) -> dict[str, int]:
  """Parses a program's memory use from two output files of the compiler.

  Args:
    buffers: Text of the buffer assignment file.
    report: Text of the memory usage report.

  Returns:
    The dictionary of `read_memory`.
  """
  sizes = {'arguments': 0, 'outputs': 0, 'temporary': 0}
  for size, facts in _ALLOCATION.findall(buffers):
    if 'color ' in facts:  # The allocation is not in the main memory.
      continue
    if 'parameter ' in facts:
      sizes['arguments'] += int(size)
    elif 'maybe-live-out' in facts:
      sizes['outputs'] += int(size)
    elif 'preallocated-temp' in facts:
      sizes['temporary'] += int(size)
  total = _TOTAL.search(report)
  return sizes | {'peak': int(total.group(1)) if total else sum(sizes.values())}
