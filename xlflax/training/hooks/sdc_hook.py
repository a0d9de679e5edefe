"""Check for silent data corruption: computes some steps twice.

A defective processor can return wrong results without an error. Every
`Trainer.replay_every` steps, a step is computed twice by the same program from
copies of one state. All results must be equal bit by bit, and so must the
replicas of an array on different devices. Each device computes digests of its
own memory (`training.devices.bit_digests`), which are compared. A difference
ends the run without saving its state.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlflax.training import train_state, training_setup
from xlflax.training.devices import array_checksums
from xlflax.training.distributed import failures, stragglers
from xlflax.training.hooks import hook_base
from xlflax.utils import errors

_NAMED = 3  # arrays that a message names
_OUT_OF_MEMORY = 'RESOURCE_EXHAUSTED'

_REPLICAS = 'Devices hold different bits of what should be copies of one array'
_COPY = 'A state and its copy, made a moment ago, differ'
_STEP = 'A step that was computed twice gave different bits'
_EXPECTED = {
  _REPLICAS: 'the same bits on all; where only two devices hold a copy, '
  'either may be the wrong one',
  _COPY: 'the same bits',
  _STEP: 'the same bits both times; where every device differs, one of them '
  'was wrong before the devices exchanged what they had computed',
}


class SilentDataCorruptionHook(hook_base.Hook):
  """Computes every n-th step twice, and compares all results.

  Args:
    setup: Setup of the run, whose trainer has the interval.
    last_good: Function that returns the step of the last checkpoint.
  """

  def __init__(
    self, setup: training_setup.Setup, last_good: Callable[[], int | None]
  ):
    self._setup, self._last_good = setup, last_good
    self._every = setup.settings.replay_every or 0
    self._agreed: int | None = None  # the last step that was compared
    self._hosts: list[str] | None = None
    self._digesters: dict[Any, array_checksums.Digester] = {}
    self._checked: dict[tuple[int, ...], Any] = {}
    self._copy = jax.jit(
      lambda state: jax.tree.map(jnp.copy, state),
      out_shardings=setup.factory.shardings if self._every else None,
    )

  def wrap_train_step(self, run, train_step, active):
    """See base class. Wraps the steps that are computed twice."""
    step = run.step + 1
    if not self.is_due(step):
      return train_step
    return functools.partial(self.compute_twice, train_step, active, step)

  def before_checkpoint(self, run):
    """See base class. Raises an error if the replicas of an array differ."""
    self.check_replicas(run.state)
    return True

  def is_due(self, step: int) -> bool:
    """Returns whether the step with this number is computed twice."""
    return bool(self._every) and step % self._every == 0

  def compute_twice(
    self, train_step: Callable, active: tuple[int, ...], step: int, state, *rest
  ):
    """Returns `train_step(state, *rest)`, compared with a second computation.

    Args:
      train_step: Compiled step function, which donates its state.
      active: Entries of the mixture that it trains.
      step: Number of the step.
      state: Train state before the step.
      *rest: Batches, and further arguments of the step.

    Raises:
      TrainingError: If the devices disagree, with the status FAILURE.
    """
    if self._hosts is None:
      self._hosts = stragglers.gather_host_names()
    if self._setup.settings.xla_checker:
      self._check_by_xla(active, step, state, rest)
    before = self._digest(state)
    self._end_if(_REPLICAS, before.odd_replicas(), step)
    copy = self._copy(state)
    self._end_if(_COPY, before.differing(self._digest(copy)), step)
    # The first result is gone before the second needs the memory.
    first = self._digest(*train_step(copy, *rest))
    result = train_step(state, *rest)
    second = self._digest(*result)
    self._end_if(_STEP, first.differing(second), step)
    self._end_if(_REPLICAS, second.odd_replicas(), step)
    self._agreed = step
    return result

  def check_replicas(self, state: train_state.TrainState) -> None:
    """Compares the replicas of a state that is about to be saved.

    Raises:
      TrainingError: If the devices disagree, with the status FAILURE.
    """
    if not self._every or int(state.step) == self._agreed:
      return
    if self._hosts is None:
      self._hosts = stragglers.gather_host_names()
    self._end_if(_REPLICAS, self._digest(state).odd_replicas(), int(state.step))

  def _digest(self, *trees) -> '_Table':
    """Digests a state, and perhaps a step's output; waits for them."""
    tables = []
    for tree in trees:
      kind = jax.tree.structure(tree)
      if kind not in self._digesters:
        self._digesters[kind] = array_checksums.Digester(tree)
      digester = self._digesters[kind]
      tables.append((digester, np.asarray(digester(tree))))
    return _Table(tuple(tables))

  def _end_if(self, what: str, found: '_Marks', step: int) -> None:
    if not found.marks.any():
      return
    assert self._hosts is not None
    last = self._last_good()
    agreed = 'none' if self._agreed is None else f'up to step {self._agreed}'
    raise errors.TrainingError(
      f'A device computes or keeps wrong values: {what}',
      got=found.describe(self._hosts),
      expected=_EXPECTED[what],
      where=f'step {step} (replays that agreed: {agreed})',
      fix='take that machine out of the job and test it. This state is not '
      'saved: started again, the run goes on from its last good checkpoint, '
      f'{"of which there is none" if last is None else f"step {last}"}',
      status=errors.ExitStatus.FAILURE,
    )

  def _check_by_xla(self, active, step: int, state, rest) -> None:
    """Takes the step on a copy, by a program that checks itself."""
    if active not in self._checked:
      self._checked[active] = self._setup.jitted_step(active, checked=True)
    try:
      jax.block_until_ready(self._checked[active](self._copy(state), *rest))
    except jax.errors.JaxRuntimeError as error:
      if failures.is_lost_peer(error) or _OUT_OF_MEMORY in str(error):
        raise
      assert self._hosts is not None
      process = jax.process_index()
      raise errors.TrainingError(
        "XLA's own checker has ended a step",
        got=str(error).splitlines()[0],
        where=f'step {step}, process {process} on {self._hosts[process]}',
        fix='take that machine out of the job and test it; started again, '
        'the run goes on from its last checkpoint',
        status=errors.ExitStatus.FAILURE,
      ) from error


class _Table(NamedTuple):
  """Digests of several trees.

  Attributes:
    parts: of each tree, its digester and uint32 `[*mesh, arrays]`.
  """

  parts: tuple[tuple[array_checksums.Digester, np.ndarray], ...]

  def differing(self, other: '_Table') -> '_Marks':
    """What has other bits there."""
    pairs = zip(self.parts, other.parts, strict=True)
    return self._marks([ours != theirs for (_, ours), (_, theirs) in pairs])

  def odd_replicas(self) -> '_Marks':
    """What has other bits than other copies of the same array."""
    return self._marks([d.odd_replicas(table) for d, table in self.parts])

  def _marks(self, found: list[np.ndarray]) -> '_Marks':
    digesters = [digester for digester, _ in self.parts]
    return _Marks(
      np.concatenate(found, axis=-1),
      tuple(name for digester in digesters for name in digester.names),
      digesters[0].mesh.devices,
    )


class _Marks(NamedTuple):
  """What is wrong where.

  Attributes:
    marks: bool `[*mesh, arrays]`.
    names: of the arrays.
    devices: of the mesh, `[*mesh]`.
  """

  marks: np.ndarray
  names: tuple[str, ...]
  devices: np.ndarray

  def describe(self, hosts: Sequence[str]) -> str:
    """'params/w and 3 more on process 1 on host-b (device 5, TPU v4)'."""
    wrong = self.marks.any(tuple(range(self.devices.ndim)))
    names = [self.names[i] for i in np.flatnonzero(wrong)]
    more = len(names) - _NAMED
    text = ', '.join(names[:_NAMED]) + (f' and {more} more' if more > 0 else '')
    return f'{text} on {self._places(hosts)}'

  def _places(self, hosts: Sequence[str]) -> str:
    places: dict[int, list[str]] = {}
    devices = self.devices[self.marks.any(-1)]
    for device in sorted(devices, key=lambda d: (d.process_index, d.id)):
      places.setdefault(device.process_index, []).append(str(device.id))
    return '; '.join(
      f'process {process} on {hosts[process]} '
      f'(device {", ".join(ids)}: {devices[0].device_kind})'
      for process, ids in places.items()
    )
