"""How often each part of an HLO module runs."""

import re

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
