"""The first steps of a run on accelerators, beside the plan of their program.

A device that is slower than its data sheet, a link, a kernel or an input that
holds up a run shows in its first minutes: after a hundred steps a few are
profiled, and what they take is told beside the plan, by parts of the model.
"""

import collections
import logging
import pathlib
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from xlflax.foundation import leaving
from xlflax.planning import against
from xlflax.planning.programs import execution
from xlflax.planning.targets import compilers
from xlflax.training import protocols
from xlflax.training import settings as settings_lib
from xlflax.training.devices import accelerators, gpu_state, machines

AFTER, PROFILED = 100, 5  # steps
SLOW = 1.3  # times the plan: then it is said why
COMMUNICATION = 'communication'
# XLA:GPU launches kernels as graphs, of which a profile knows no parts.
WHOLE = 'all parts'
_EXCHANGES = re.compile(
  r'all-|reduce-scatter|collective-|ragged|nccl|send|recv', re.I
)


def of_run(settings: settings_lib.Settings) -> protocols.Compares | None:
  """Returns what a run is compared by; None where there is no plan of it."""
  here = jax.devices()
  if here[0].platform == 'cpu' or not accelerators.of_kind(here[0].device_kind):
    return None
  machine = against.machine_here(here)
  return lambda program, loaded: Comparison(settings, machine, program, loaded)


class Comparison:
  """Profiles some steps, and compares them in a thread of its own.

  Args:
    settings: of the run.
    machine: its devices.
    program: step -> (its kind, the jitted step, abstract arguments).
    loaded: seconds that this process has waited for batches.
  """

  def __init__(
    self,
    settings: settings_lib.Settings,
    machine: machines.Machine,
    program: Callable[[int], tuple[Any, Any, tuple[Any, ...]]],
    loaded: Callable[[], float],
  ):
    self._settings, self._machine = settings, machine
    self._program, self._loaded = program, loaded
    self._first: int | None = None
    self._folder: tempfile.TemporaryDirectory[str] | None = None
    self._found: dict[str, float] = {}

  def at(self, step: int, output: Any) -> None:
    """Begins and ends the profile where so many steps were begun."""
    self._first = step + AFTER if self._first is None else self._first
    if step == self._first:
      self._begin(output)
    elif step == self._first + PROFILED and (folder := self._folder):
      self._end(step, output, folder)

  def _begin(self, output: Any) -> None:
    jax.block_until_ready(output)
    folder = tempfile.TemporaryDirectory(prefix='xlflax-profile-')
    try:
      jax.profiler.start_trace(folder.name)
    except RuntimeError as error:  # the user's own profile runs
      logging.info('No comparison with the plan: %s', error)
      return
    self._folder, self._begun = folder, (time.perf_counter(), self._loaded())

  def _end(self, step: int, output: Any, folder: Any) -> None:
    jax.block_until_ready(output)
    ended = time.perf_counter(), self._loaded()
    self._folder = None
    jax.profiler.stop_trace()
    spent = [
      (b - a) / PROFILED for a, b in zip(self._begun, ended, strict=True)
    ]
    programs = [self._program(i) for i in range(step - PROFILED, step)]

    def compare():
      try:
        with folder, self._settings.partitioner.scope():
          events = against.read_traces(pathlib.Path(folder.name))
          found = self._compared(programs, against.seconds_of(events))
        self._found = found | dict(zip(('step', 'loading'), spent, strict=True))
        logging.info('%s', sentence(self._found))
      except Exception as error:  # of whatever kind: the run goes on
        logging.warning('The run is not compared with its plan: %r', error)

    thread = threading.Thread(target=compare, name='against plan', daemon=True)
    leaving.leave_to_itself(thread)
    thread.start()

  def take(self) -> dict[str, float]:
    """Returns what was found since the last call."""
    found, self._found = self._found, {}
    return found

  def _compared(self, programs, profile) -> dict[str, float]:
    against.check_profile(profile, PROFILED, self._machine)
    each = collections.Counter(kind for kind, *_ in programs)
    planned = execution.Run()
    for kind, step, arguments in {p[0]: p for p in programs}.values():
      made = compilers.compile_step(self._machine, step, *arguments)
      planned.add(against.planned_run(self._machine, made), each[kind])
    assert self._machine.accelerator is not None
    return figures(planned, profile, self._machine.accelerator) | {
      'clock': min(gpu_state.clocks(), default=1.0)
    }


def figures(
  planned: execution.Run,
  profile: Mapping[str, float],
  accelerator: accelerators.Accelerator,
) -> dict[str, float]:
  """Returns seconds of a step: 'planned', 'planned/PART', 'measured/PART'.

  Parts are those of the model (of graphs of kernels `WHOLE`), and
  `COMMUNICATION`, of which the plan hides some beside computation.

  Args:
    planned: of all profiled steps.
    profile: instruction -> seconds, likewise.
    accelerator: of the plan's rates.
  """
  found: dict[str, float] = collections.defaultdict(float)
  whole = WHOLE if any('command_buffer' in name for name in profile) else ''
  part_of = {k.name: whole or k.part for k in planned.kernels}
  for kernel, n in planned.kernels.items():
    found[f'planned/{part_of[kernel.name]}'] += n * kernel.seconds(accelerator)
  for exchange, n in planned.exchanged.items():
    found[f'planned/{COMMUNICATION}'] += n * exchange.seconds(accelerator)
  for name, seconds in profile.items():
    other = COMMUNICATION if _EXCHANGES.search(name) else whole or 'not planned'
    found[f'measured/{part_of.get(name, other)}'] += seconds
  found['planned'] = planned.seconds
  return {name: value / PROFILED for name, value in found.items()}


def causes(found: Mapping[str, float]) -> dict[str, float]:
  """Returns what a step waits for or takes too long at -> seconds, most first.

  Args:
    found: of `figures`, with 'step' and 'loading', and 'clock' as a share of
      the highest, 1 where it is not known.
  """
  measured, excess = 0.0, {}
  for name, seconds in found.items():
    kind, _, part = name.partition('/')
    if kind == 'measured':
      measured += seconds
      excess[part] = max(0.0, seconds - found.get(f'planned/{part}', 0.0))
  made = {
    'waiting for batches': found['loading'],
    COMMUNICATION: excess.pop(COMMUNICATION, 0.0),
    'between kernels': max(0.0, found['step'] - measured - found['loading']),
  }
  total = sum(excess.values())
  slowed = min(total, measured * (1 - found['clock']))
  made['low clocks'] = slowed
  for part, seconds in excess.items():
    made[f'kernels of {part}'] = seconds * (1 - slowed / (total or 1))
  return dict(sorted(made.items(), key=lambda item: -item[1]))


def sentence(found: Mapping[str, float]) -> str:
  """Says what a step takes beside its plan, and why it is slow if it is."""
  times = found['step'] / found['planned']
  said = (
    f'A step takes {found["step"] * 1e3:.1f} ms, {times:.2f} times its plan '
    f'({found["planned"] * 1e3:.1f} ms)'
  )
  if times > SLOW:
    most = [
      f'{n} {s * 1e3:.1f} ms' for n, s in causes(found).items() if s > 1e-4
    ]
    said += f'; most of what it takes longer: {", ".join(most[:3])}'
  return f'{said}.'
