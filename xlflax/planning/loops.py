"""How often each part of an HLO module runs."""

import collections
import re
from collections.abc import Callable
from typing import Any

from xlflax.planning import hlo

_PASSED_ON = ('copy', 'convert', 'bitcast')


def trip_count(
  module: hlo.Module, computation: hlo.Computation, loop: hlo.Instruction
) -> int | None:
  """Returns the trip count of a `while`; None if the text does not tell it.

  XLA's annotator writes it into the text. Before that, it is the constant that
  the condition compares the counter with, if the counter grows from a constant
  by one, as in `lax.scan` and a `fori_loop` of known bounds.
  """
  known = re.search(r'known_trip_count"?:\{"n":"(\d+)"', loop.attributes)
  if known:
    return int(known.group(1))
  condition = module.computations[loop.called['condition'][0]]
  test = condition.root
  if test.opcode != 'compare' or 'direction=LT' not in test.attributes:
    return None
  counter, bound = (
    hlo.through(condition, name, _PASSED_ON) for name in test.operands
  )
  if counter.opcode != 'get-tuple-element' or bound.opcode != 'constant':
    return None
  start = _first_value(computation, loop, counter.index)
  return None if start is None else int(bound.operands[0]) - start


def _first_value(computation, loop, index: int) -> int | None:
  """Returns the constant that an element of a loop's state starts from."""
  state = computation.instructions[loop.operands[0]]
  if state.opcode != 'tuple':
    return None
  first = hlo.through(computation, state.operands[index], _PASSED_ON)
  return int(first.operands[0]) if first.opcode == 'constant' else None


# Key -> sum; sums of bytes and of seconds are floats.
Counts = collections.Counter[Any]


class Walk:
  """Sums a measure over all instructions that a module runs, with trip counts.

  The branch of a conditional with the largest sum counts. The walk does not
  enter fusions and reductions.

  Attributes:
    unknown_loops: how many loops count once because their trip count is
      unknown.
  """

  def __init__(
    self,
    module: hlo.Module,
    measure: Callable[[hlo.Computation, hlo.Instruction], dict[Any, float]],
  ):
    self._module = module
    self._measure = measure
    self._known: dict[str, Counts] = {}
    self.unknown_loops = 0

  def total(self, computation: hlo.Computation | None = None) -> Counts:
    """Returns key -> sum, from the entry or another computation on."""
    computation = computation or self._module.entry
    if computation.name not in self._known:
      counts: Counts = collections.Counter()
      for instruction in computation.instructions.values():
        for key, value in self._measure(computation, instruction).items():
          counts[key] += value  # type: ignore[assignment]
        counts.update(self._inner(computation, instruction))
      self._known[computation.name] = counts
    return self._known[computation.name]

  def _inner(self, computation, instruction) -> Counts:
    called = {
      kind: [
        self._module.computations[n]
        for n in names
        if n in self._module.computations
      ]
      for kind, names in instruction.called.items()
    }
    if instruction.opcode == 'while':
      times = trip_count(self._module, computation, instruction)
      if times is None:
        self.unknown_loops += 1
      body = self.total(called['body'][0])
      return collections.Counter(
        {k: v * (1 if times is None else times) for k, v in body.items()}
      )
    if instruction.opcode == 'conditional':
      branches = [self.total(c) for cs in called.values() for c in cs]
      return max(branches, key=lambda c: sum(c.values()))
    if instruction.opcode in ('call', 'async-start'):
      return sum(
        (self.total(c) for cs in called.values() for c in cs),
        collections.Counter(),
      )
    return collections.Counter()
