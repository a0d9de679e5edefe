"""Runs `xlflax` with one corruption: `corrupt_worker FAULT ARGUMENTS`.

One bit of one array changes on the last device of the process, either in the
second computation of step 24 or in its replica of a parameter after step 21.
"""

import sys

from tests.training import corruption
from xlflax import cli
from xlflax.training import param_tree, training_setup

_ARRAY = 'params/model/head_norm/scale'
_FAULTS = {'none': (0, 0), 'wrong_result': (24, 2), 'wrong_replica': (21, 1)}


class _CorruptedStep:
  """A step whose result is corrupted once.

  Args:
    step: Jitted step.
    number: Number of the corrupted step, counted from 1.
    call: Number of the call whose result is corrupted among the calls that
      compute this step, counted from 1.
  """

  def __init__(self, step, number: int, call: int):
    self._step, self._number, self._call = step, number, call
    self.lower = step.lower
    self._calls = 0

  def __call__(self, state, *rest):
    is_corrupted_step = int(state.step) + 1 == self._number
    self._calls += is_corrupted_step
    state, output = self._step(state, *rest)
    if is_corrupted_step and self._calls == self._call:
      state = param_tree.map_named(_corrupt_array, state)
    return state, output


def _corrupt_array(name: str, array):
  if name != _ARRAY:
    return array
  last = max(array.addressable_shards, key=lambda shard: shard.device.id)
  return corruption.on_device(array, last.device, bit=12)


def _corrupt_step(number: int, call: int) -> None:
  jitted_step = training_setup.Setup.jitted_step

  def wrong_step(*args, **named):
    return _CorruptedStep(jitted_step(*args, **named), number, call)

  training_setup.Setup.jitted_step = wrong_step


if __name__ == '__main__':
  _corrupt_step(*_FAULTS[sys.argv[1]])
  sys.exit(cli.main(sys.argv[2:]))
