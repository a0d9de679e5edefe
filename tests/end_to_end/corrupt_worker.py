"""`xlflax ...` on a device that is wrong once: `corrupt_worker FAULT ARGUMENTS`.

One bit of one array changes on the process's last device: where it computes
step 24 for the second time, or in its copy of a parameter after step 21.
"""

import sys

from tests.training import corruption
from xlflax import cli
from xlflax.training import param_tree, training_setup

_ARRAY = 'params/model/head_norm/scale'
_FAULTS = {'none': (0, 0), 'wrong_result': (24, 2), 'wrong_replica': (21, 1)}


class _Wrong:
  """A step whose result is wrong once.

  Args:
    step: the jitted step.
    number: finished steps after it.
    call: at which of the calls that compute that step.
  """

  def __init__(self, step, number: int, call: int):
    self._step, self._number, self._call = step, number, call
    self.lower = step.lower
    self._calls = 0

  def __call__(self, state, *rest):
    here = int(state.step) + 1 == self._number
    self._calls += here
    state, output = self._step(state, *rest)
    if here and self._calls == self._call:
      state = param_tree.map_named(_spoil, state)
    return state, output


def _spoil(name: str, array):
  if name != _ARRAY:
    return array
  last = max(array.addressable_shards, key=lambda shard: shard.device.id)
  return corruption.on_device(array, last.device, bit=12)


def _make_wrong(number: int, call: int) -> None:
  jitted_step = training_setup.Setup.jitted_step

  def wrong_step(*args, **named):
    return _Wrong(jitted_step(*args, **named), number, call)

  training_setup.Setup.jitted_step = wrong_step


if __name__ == '__main__':
  _make_wrong(*_FAULTS[sys.argv[1]])
  sys.exit(cli.main(sys.argv[2:]))
