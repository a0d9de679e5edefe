"""Hook that detects silent data corruption by computing some steps twice.

A defective processor can return wrong results without an error. Every
`Trainer.sdc_check_every` steps, a step is computed twice by the same program
from copies of one state. All results must be equal bit for bit, and so must the
replicas of an array on different devices. Each device computes checksums of its
own memory (`training.devices.array_checksums`), which are compared. A
difference ends the run without saving its state.
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

_MAX_LISTED_ARRAYS = 3  # Maximum number of arrays that a message lists.
_OUT_OF_MEMORY = 'RESOURCE_EXHAUSTED'

_REPLICAS = 'the replicas of an array on different devices differ'
_COPY = 'a state and its copy differ'
_STEP = 'two computations of one step differ'
_REQUIREMENTS = {
  _REPLICAS: 'The bits must be equal on all devices. If there are only two '
  'replicas, either of them may be wrong',
  _COPY: 'The bits of the copy must be equal to those of the state',
  _STEP: 'The bits of both results must be equal. If all devices differ, one '
  'of them was wrong before the devices exchanged their results',
}


class SilentDataCorruptionHook(hook_base.Hook):
  """Hook that computes every n-th step twice and compares the results bitwise.

  Args:
    setup: Setup of the run, which specifies the interval between checks.
    last_good: Function that returns the step of the last checkpoint.
  """

  def __init__(
    self, setup: training_setup.Setup, last_good: Callable[[], int | None]
  ):
    self._setup, self._last_good = setup, last_good
    self._every = setup.settings.sdc_check_every or 0
    # The last step for which all comparisons agreed.
    self._last_agreed: int | None = None
    self._hosts: list[str] | None = None
    self._digesters: dict[Any, array_checksums.Digester] = {}
    self._checked_steps: dict[tuple[int, ...], Any] = {}
    self._copy = jax.jit(
      lambda state: jax.tree.map(jnp.copy, state),
      out_shardings=setup.factory.shardings if self._every else None,
    )

  def wrap_train_step(self, run, train_step, active):
    """See base class. Checked steps are computed twice and compared."""
    step = run.step + 1
    if not self.is_due(step):
      return train_step
    return functools.partial(self.compute_twice, train_step, active, step)

  def before_checkpoint(self, run):
    """See base class. Raises an error if the replicas of an array differ."""
    self.check_replicas(run.state)
    return True

  def is_due(self, step: int) -> bool:
    """Returns whether a step is computed twice to detect data corruption."""
    return bool(self._every) and step % self._every == 0

  def compute_twice(
    self, train_step: Callable, active: tuple[int, ...], step: int, state, *args
  ):
    """Computes a step twice, compares the results and returns one of them.

    Args:
      train_step: Compiled step function, which donates its state.
      active: Objectives that the step trains, as indices into the objective
        mixture.
      step: Number of the step.
      state: Train state before the step.
      *args: Batches, and further arguments of the step.

    Returns:
      `train_step(state, *args)`.

    Raises:
      TrainingError: If the two results differ, or if replicas of an array
        differ. The exit status is `ExitStatus.FAILURE`.
    """
    if self._hosts is None:
      self._hosts = stragglers.gather_host_names()
    if self._setup.settings.xla_sdc_check:
      self._run_xla_checker(active, step, state, args)
    before = self._compute_digests(state)
    self._check_equal(_REPLICAS, before.compare_replicas(), step)
    copy = self._copy(state)
    self._check_equal(_COPY, before.compare(self._compute_digests(copy)), step)
    # The first result is freed before the second one is computed.
    first = self._compute_digests(*train_step(copy, *args))
    result = train_step(state, *args)
    second = self._compute_digests(*result)
    self._check_equal(_STEP, first.compare(second), step)
    self._check_equal(_REPLICAS, second.compare_replicas(), step)
    self._last_agreed = step
    return result

  def check_replicas(self, state: train_state.TrainState) -> None:
    """Compares all replicas of each array in a state that is about to be saved.

    Args:
      state: Train state that is about to be saved.

    Raises:
      TrainingError: If the replicas differ. The exit status is
        `ExitStatus.FAILURE`.
    """
    if not self._every or int(state.step) == self._last_agreed:
      return
    if self._hosts is None:
      self._hosts = stragglers.gather_host_names()
    mismatches = self._compute_digests(state).compare_replicas()
    self._check_equal(_REPLICAS, mismatches, int(state.step))

  def _compute_digests(self, *trees) -> '_Digests':
    """Computes the digests of trees on the devices and waits for them."""
    parts = []
    for tree in trees:
      structure = jax.tree.structure(tree)
      if structure not in self._digesters:
        self._digesters[structure] = array_checksums.Digester(tree)
      digester = self._digesters[structure]
      parts.append((digester, np.asarray(digester(tree))))
    return _Digests(tuple(parts))

  def _check_equal(
    self, comparison: str, mismatches: '_Mismatches', step: int
  ) -> None:
    """Raises an error if there are mismatches."""
    if not mismatches.marks.any():
      return
    assert self._hosts is not None
    last = self._last_good()
    checkpoint = (
      'No good checkpoint exists.'
      if last is None
      else f'To resume from the checkpoint of step {last}, start the run again.'
    )
    last_agreed = (
      'No earlier step was compared'
      if self._last_agreed is None
      else 'The last comparison without a difference was made at step '
      f'{self._last_agreed}'
    )
    raise errors.TrainingError(
      f'A device computed or stored wrong values at step {step}: {comparison}. '
      f'{_REQUIREMENTS[comparison]}. {last_agreed}',
      got=mismatches.describe(self._hosts),
      fix='Remove the machine from the job and test it. The state was not '
      f'saved. {checkpoint}',
      status=errors.ExitStatus.FAILURE,
    )

  def _run_xla_checker(self, active, step: int, state, args) -> None:
    """Computes the step on a copy of the state with XLA's checker.

    Raises:
      TrainingError: If XLA's checker detects an error in the step. The exit
        status is `ExitStatus.FAILURE`.
    """
    if active not in self._checked_steps:
      self._checked_steps[active] = self._setup.jitted_step(
        active, checked=True
      )
    checked_step = self._checked_steps[active]
    try:
      jax.block_until_ready(checked_step(self._copy(state), *args))
    except jax.errors.JaxRuntimeError as error:
      if failures.is_lost_process(error) or _OUT_OF_MEMORY in str(error):
        raise
      assert self._hosts is not None
      process = jax.process_index()
      raise errors.TrainingError(
        'The XLA checker for silent data corruption detected an error in step '
        f'{step} on process {process} ({self._hosts[process]})',
        got=str(error).splitlines()[0],
        fix='Remove the machine from the job and test it. To resume from the '
        'last checkpoint, start the run again.',
        status=errors.ExitStatus.FAILURE,
      ) from error


class _Digests(NamedTuple):
  """Digests of several trees.

  Attributes:
    parts: Pairs of a `Digester` and the checksums that it computed, one for
      each tree. The checksums are uint32 arrays of shape [*mesh, arrays].
  """

  parts: tuple[tuple[array_checksums.Digester, np.ndarray], ...]

  def compare(self, other: '_Digests') -> '_Mismatches':
    """Finds the arrays and devices whose checksums differ from `other`."""
    pairs = zip(self.parts, other.parts, strict=True)
    return self._mismatches(
      [digests != other_digests for (_, digests), (_, other_digests) in pairs]
    )

  def compare_replicas(self) -> '_Mismatches':
    """Finds arrays whose replicas differ from the majority, and the devices."""
    return self._mismatches(
      [
        digester.find_corrupt_replicas(digests)
        for digester, digests in self.parts
      ]
    )

  def _mismatches(self, marks: list[np.ndarray]) -> '_Mismatches':
    """Joins the mismatch marks of all trees into one `_Mismatches`."""
    digesters = [digester for digester, _ in self.parts]
    return _Mismatches(
      np.concatenate(marks, axis=-1),
      tuple(name for digester in digesters for name in digester.names),
      digesters[0].mesh.devices,
    )


class _Mismatches(NamedTuple):
  """Arrays with wrong values, and the devices on which the values are wrong.

  Attributes:
    marks: Boolean array of shape [*mesh, arrays], True where an array has wrong
      values on a device.
    names: Names of the arrays, in the order of the last axis of `marks`.
    devices: Array with the devices of the mesh, of shape [*mesh].
  """

  marks: np.ndarray
  names: tuple[str, ...]
  devices: np.ndarray

  def describe(self, hosts: Sequence[str]) -> str:
    """Describes the mismatched arrays and their devices for an error message.

    An example is 'params/w and 3 more on process 1 on host-b (device 5: TPU
    v4)'.

    Args:
      hosts: Host name of each process.
    """
    has_mismatch = self.marks.any(tuple(range(self.devices.ndim)))
    names = [self.names[i] for i in np.flatnonzero(has_mismatch)]
    text = ', '.join(names[:_MAX_LISTED_ARRAYS])
    num_more = len(names) - _MAX_LISTED_ARRAYS
    if num_more > 0:
      text += f' and {num_more} more'
    return f'{text} on {self._describe_devices(hosts)}'

  def _describe_devices(self, hosts: Sequence[str]) -> str:
    ids_by_process: dict[int, list[str]] = {}
    devices = self.devices[self.marks.any(-1)]
    for device in sorted(devices, key=lambda d: (d.process_index, d.id)):
      ids_by_process.setdefault(device.process_index, []).append(str(device.id))
    return '; '.join(
      f'process {process} on {hosts[process]} '
      f'(device {", ".join(ids)}: {devices[0].device_kind})'
      for process, ids in ids_by_process.items()
    )
