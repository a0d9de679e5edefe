"""The program that XLA:TPU schedules, without the machine code.

XLA:TPU writes its optimised program, scheduled and with all buffers, before it
makes machine code of it, which takes several times as long and which no plan
reads. In a command, which ends its process, it compiles in a thread that is
left to itself from there on.
"""

import pathlib
import re
import threading
from typing import Any

import jax

from xlflax.utils import errors, process_exit

# In the order in which they are written. The last begins after the others.
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
  """Compiles, in a command only until the program and its buffers are written.

  Args:
    lowered: of `jax.jit(...).lower(...)`, for TPUs.
    options: of XLA.
    folder: empty, for what the compiler writes.

  Raises:
    JaxRuntimeError: the compiler refuses the program.
  """
  refused: list[BaseException] = []

  def compile_whole():
    try:
      lowered.compile(compiler_options=options | dump_to(folder))
    except jax.errors.JaxRuntimeError as error:
      refused.append(error)

  thread = threading.Thread(target=compile_whole, name='XLA:TPU', daemon=True)
  thread.start()
  early = process_exit.is_command()
  while thread.is_alive() and not (early and _largest(folder, _NEXT)):
    thread.join(_POLL_SECONDS)
  if thread.is_alive():
    process_exit.leave_to_itself(thread)
  if refused:
    raise refused[0]


def dump_to(folder: pathlib.Path) -> dict[str, Any]:
  """Returns the options that have XLA write its programs."""
  return {'xla_dump_to': str(folder), 'xla_dump_hlo_as_text': True}


def _largest(folder: pathlib.Path, pattern: str) -> pathlib.Path | None:
  return max(
    folder.glob(pattern), key=lambda path: path.stat().st_size, default=None
  )


def read_program(folder: pathlib.Path) -> str:
  """Returns the text of the program.

  Raises:
    TrainingError: the compiler did not write it.
  """
  return _read(folder, _PROGRAM)


def _read(folder: pathlib.Path, pattern: str) -> str:
  path = _largest(folder, pattern)
  if path is None:
    raise errors.TrainingError(
      'XLA:TPU did not write the compiled program',
      got=f'no file {pattern}',
      where='the plan',
      fix='unset XLA_FLAGS and LIBTPU_INIT_ARGS, and try again',
    )
  return path.read_text(encoding='utf-8')


def read_memory(folder: pathlib.Path) -> dict[str, int]:
  """Returns bytes: 'arguments', 'outputs', 'temporary', 'peak'.

  Outputs are those that reuse no argument. The peak is that of the device's
  main memory, arguments included.
  """
  return memory_of(_read(folder, _BUFFERS), _read(folder, _MEMORY))


def memory_of(buffers: str, report: str) -> dict[str, int]:
  """Returns `read_memory` of the texts of the two files."""
  sizes = {'arguments': 0, 'outputs': 0, 'temporary': 0}
  for size, facts in _ALLOCATION.findall(buffers):
    if 'color ' in facts:  # other memories than the main one
      continue
    if 'parameter ' in facts:
      sizes['arguments'] += int(size)
    elif 'maybe-live-out' in facts:
      sizes['outputs'] += int(size)
    elif 'preallocated-temp' in facts:
      sizes['temporary'] += int(size)
  total = _TOTAL.search(report)
  return sizes | {'peak': int(total.group(1)) if total else sum(sizes.values())}
