"""Simulator that counts and times the kernels in a compiled program.

A device executes kernels in program order. Asynchronous collectives and copies
overlap with computation and run one after another on their links. A device
waits for them where the program reads their results. This waiting time is
called exposed.
"""

import collections
import dataclasses
import re
from typing import Any

from benchmarks.compiled.programs import collectives, hlo, kernels
from xlflax.training.devices import accelerators

_WINDOWED = re.compile(r'windowed_dot_general|collective[_-]matmul', re.I)
_COPIES = ('copy-start', 'slice-start')
_PASS_THROUGH_OPCODES = ('copy', 'convert', 'bitcast')


@dataclasses.dataclass
class Run:
  """Operation counts and times of a simulated program or program part.

  Attributes:
    kernels: Map from each kernel to its number of executions.
    exchanged: Map from each collective operation to its number of executions.
    asynchronous: Same counts as `exchanged`, but only for the collective
      operations that overlap with computation.
    exposed: Map from each collective to the seconds that the device waits for
      it without computing.
    waited: Seconds for which the device is idle while it waits for memory
      copies.
    busy: Seconds for which the device executes kernels.
    windowed: Map from each windowed loop to its number of iterations. A
      windowed loop computes the partial sums into which the XLA partitioner has
      split a matmul.
    unknown_loops: Number of loops with an unknown trip count. The bodies of
      these loops are counted once.
  """

  kernels: collections.Counter[Any] = dataclasses.field(
    default_factory=collections.Counter
  )
  exchanged: collectives.Counts = dataclasses.field(
    default_factory=collections.Counter
  )
  asynchronous: collectives.Counts = dataclasses.field(
    default_factory=collections.Counter
  )
  exposed: collections.Counter[Any] = dataclasses.field(
    default_factory=collections.Counter
  )
  waited: float = 0.0
  busy: float = 0.0
  windowed: collections.Counter[str] = dataclasses.field(
    default_factory=collections.Counter
  )
  unknown_loops: int = 0

  @property
  def seconds(self) -> float:
    """Minimum duration of the execution on the device, in seconds."""
    return self.busy + self.waited + sum(self.exposed.values())

  def add(self, other: 'Run', count: int = 1) -> None:
    """Adds the operation counts and times of a program part.

    Args:
      other: Operation counts and times of one execution of the program part.
      count: Number of executions.
    """
    for field in dataclasses.fields(self):
      total, increment = getattr(self, field.name), getattr(other, field.name)
      if isinstance(total, collections.Counter):
        for key, value in increment.items():
          total[key] += value * count  # type: ignore[assignment]
      else:
        setattr(self, field.name, total + increment * count)


@dataclasses.dataclass
class _Clock:
  """Times at which a device, its links and its copies are free.

  Exchanges between TPU slices use the hosts' links, which are separate from the
  devices' links.

  Attributes:
    now: Current time of the device, in seconds since the start.
    links: Time in seconds at which the links between devices become free.
    hosts: Time in seconds at which the links between hosts become free.
    copies: Time in seconds at which all copies have finished.
    ends: Map from the name of each asynchronous instruction to a pair: the time
      in seconds at which it ends, and its collective or None.
  """

  now: float = 0.0
  links: float = 0.0
  hosts: float = 0.0
  copies: float = 0.0
  ends: dict[str, tuple[float, collectives.Collective | None]] = (
    dataclasses.field(default_factory=dict)
  )


@dataclasses.dataclass(frozen=True)
class Execution:
  """Simulator of a compiled program's execution on one device.

  Attributes:
    module: HLO module of the program.
    read: Function that returns the kernel that an HLO instruction launches.
    place: Placement of the devices on nodes.
    accelerator: Accelerator type of the devices. If None, the durations are
      unknown and counted as 0.
  """

  module: hlo.Module
  read: kernels.Reader
  place: collectives.Placement
  accelerator: accelerators.Accelerator | None

  def run(self) -> Run:
    """Simulates one execution of the program."""
    return self._run_computation(self.module.entry)

  def _run_computation(self, computation: hlo.Computation) -> Run:
    """Executes a computation's instructions in order."""
    run, clock = Run(), _Clock()
    for instruction in computation.instructions.values():
      if instruction.opcode == 'while':
        self._run_loop(run, clock, computation, instruction)
      elif instruction.opcode in ('conditional', 'call'):
        self._run_branch(run, clock, instruction)
      elif instruction.opcode.endswith('-done'):
        _wait_for(run, clock, instruction)
      else:
        self._run_instruction(run, clock, computation, instruction)
    return run

  def _run_loop(self, run, clock, computation, instruction) -> None:
    """Executes a loop's body and multiplies its counts by the trip count."""
    (body,) = self.module.called(instruction, 'body')
    num_trips = trip_count(self.module, computation, instruction)
    run.unknown_loops += num_trips is None
    rounds = 1 if num_trips is None else num_trips
    body_run = self._run_computation(body)
    run.add(body_run, rounds)
    clock.now += body_run.seconds * rounds
    if _WINDOWED.search(body.name + instruction.attributes):
      run.windowed[instruction.name] += rounds

  def _run_branch(self, run, clock, instruction) -> None:
    """Adds the counts and times of the branch that takes the longest."""
    branches = [
      self._run_computation(computation)
      for computation in self.module.called(instruction)
    ]
    longest = max(
      branches, key=lambda branch: (branch.seconds, len(branch.kernels))
    )
    run.add(longest)
    clock.now += longest.seconds

  def _run_instruction(self, run, clock, computation, instruction) -> None:
    """Executes an instruction that is neither a loop nor a branch."""
    exchanges = collectives.count_collectives(
      self.module, computation, instruction, self.place
    )
    if exchanges:
      self._start_exchange(run, clock, instruction, exchanges)
    elif instruction.opcode == 'async-start':
      for called in self.module.called(instruction, 'calls'):
        run.add(self._run_computation(called))
    elif kernel := self.read(self.module, computation, instruction):
      run.kernels[kernel] += 1
      seconds = kernel.seconds(self.accelerator) if self.accelerator else 0.0
      if instruction.opcode in _COPIES:
        clock.copies = max(clock.now, clock.copies) + seconds
        clock.ends[instruction.name] = clock.copies, None
      else:
        run.busy += seconds
        clock.now += seconds

  def _start_exchange(self, run, clock, instruction, exchanges) -> None:
    """Adds the collectives that an instruction executes.

    The device waits for synchronous collectives immediately.
    """
    run.exchanged.update(exchanges)
    opcode = instruction.opcode
    seconds = (
      sum(
        count * collective.seconds(self.accelerator)
        for collective, count in exchanges.items()
      )
      if self.accelerator
      else 0.0
    )
    link = 'hosts' if opcode == collectives.BETWEEN_SLICES else 'links'
    end = max(clock.now, getattr(clock, link)) + seconds
    setattr(clock, link, end)
    clock.ends[instruction.name] = end, next(iter(exchanges))
    if opcode.endswith(('-start', collectives.BETWEEN_SLICES)):
      run.asynchronous.update(exchanges)
    else:
      _wait_for(run, clock, instruction, instruction.name)


def _wait_for(run: Run, clock: _Clock, instruction, started: str = '') -> None:
  """Waits for the asynchronous operation that an instruction completes."""
  end, collective = clock.ends.pop(
    started or instruction.operands[0], (clock.now, None)
  )
  waited = max(0.0, end - clock.now)
  clock.now += waited
  if collective is not None:
    run.exposed[collective] += waited  # type: ignore[assignment]
  else:
    run.waited += waited


def trip_count(
  module: hlo.Module, computation: hlo.Computation, loop: hlo.Instruction
) -> int | None:
  """Returns the trip count of a `while` loop, or None if it is unknown.

  The trip count is read from XLA's annotation. Without an annotation, it is
  derived from the constant with which the condition compares the counter, if
  the counter starts from a constant and is incremented by one, as in `lax.scan`
  and in `fori_loop` with constant bounds.
  """
  annotation = re.search(r'known_trip_count"?:\{"n":"(\d+)"', loop.attributes)
  if annotation:
    return int(annotation.group(1))
  condition = module.computations[loop.called['condition'][0]]
  test = condition.root
  if test.opcode != 'compare' or 'direction=LT' not in test.attributes:
    return None
  counter, bound = (
    hlo.skip_instructions(condition, name, _PASS_THROUGH_OPCODES)
    for name in test.operands
  )
  if counter.opcode != 'get-tuple-element' or bound.opcode != 'constant':
    return None
  start = _initial_value(computation, loop, counter.index)
  return None if start is None else int(bound.operands[0]) - start


def _initial_value(computation, loop, index: int) -> int | None:
  """Returns the initial value of an element of a loop's state, if constant."""
  state = computation.instructions[loop.operands[0]]
  if state.opcode != 'tuple':
    return None
  source = hlo.skip_instructions(
    computation, state.operands[index], _PASS_THROUGH_OPCODES
  )
  return int(source.operands[0]) if source.opcode == 'constant' else None
