"""Loss spikes: a sudden rise of the loss, noticed and undone.

Large models are trained past such rises by hand: PaLM (section 5.1) was
started again some 100 steps before each, without the batches that were around
it. Here a step is a spike if its loss is above

  median + `deviations` * max(1.4826 * MAD, median / 100)

of the last losses of steps of the same objectives; MAD is the median absolute
deviation, 1.4826 of which is the standard deviation of a normal distribution.
The limit is set anew at each report, so that no step waits for the one before.
"""

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Annotated, Any

import jax
import numpy as np

from xlflax.foundation import errors, ranges, registry
from xlflax.training import train_step


class Response(enum.Enum):
  """What is done about a spike."""

  SKIP = 'skip'  # its update is not applied
  REWIND = 'rewind'  # back to the last checkpoint, past the batches since then


@registry.register('loss_spikes')
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossSpikes:
  """When a loss is a spike, and what follows.

  Attributes:
    response: skip the update, or rewind.
    deviations: so many standard deviations above the median.
    window: the limit is of so many last losses.
    after: and is set once so many are known.
    most_rewinds: so many to one and the same checkpoint; a further one ends
      the run.
  """

  response: Response = Response.SKIP
  deviations: ranges.Positive = 10.0
  window: Annotated[int, ranges.whole(at_least=2)] = 200
  after: Annotated[int, ranges.whole(at_least=2)] = 100
  most_rewinds: ranges.Count = 5

  def __post_init__(self):
    if self.after > self.window:
      raise errors.ConfigError(
        'Loss spikes are looked for after more losses than are kept',
        got=f'after={self.after}, window={self.window}',
        expected='after of at most window',
        where='LossSpikes.after',
      )

  def limit(self, losses: list[float]) -> float:
    """The largest loss that is no spike; infinite where few are known."""
    if len(losses) < self.after:
      return math.inf
    middle = float(np.median(losses))
    spread = 1.4826 * float(np.median(np.abs(np.array(losses) - middle)))
    return middle + self.deviations * max(spread, abs(middle) / 100)


class Watch:
  """The losses of a run, the limits that follow, and what was passed over.

  Equal on all processes, and part of every checkpoint, so that a run that is
  started again decides as the uninterrupted one does.

  Attributes:
    passed: stream -> batches that rewinding has passed over.
  """

  def __init__(
    self, options: LossSpikes | None, saved: Mapping[str, Any] | None = None
  ):
    """Args:
    options: None looks at nothing.
    saved: `to_json` of a checkpoint; None at the start of a run.
    """
    saved = saved or {'losses': {}, 'limits': {}, 'passed': {}}
    self._options = options
    self._losses = {k: list(v) for k, v in saved['losses'].items()}
    self._limits = dict(saved['limits'])
    self.passed: dict[str, int] = dict(saved['passed'])
    self._pending: list[tuple[int, str, train_step.StepOutput]] = []
    self._spike: int | None = None
    self._rewinds = (-1, 0)  # checkpoint, how often

  def to_json(self) -> dict[str, Any]:
    """Everything that decisions depend on, as plain JSON."""
    self._fetch()
    return {
      'losses': self._losses,
      'limits': self._limits,
      'passed': self.passed,
    }

  def arguments(self, active: tuple[int, ...]) -> tuple[np.float32, ...]:
    """What the step of these entries is given beside state and batches."""
    if self._options is None or self._options.response is not Response.SKIP:
      return ()
    return (np.float32(self._limits.get(_key(active), math.inf)),)

  def add(
    self, step: int, active: tuple[int, ...], output: train_step.StepOutput
  ) -> None:
    """Takes what a step reports, still on the device."""
    if self._options is not None:
      small = output._replace(metrics={})
      self._pending.append((step, _key(active), small))

  def update(self) -> None:
    """Sets the limits anew."""
    if self._options is None:
      return
    self._fetch()
    found = {k: self._options.limit(v) for k, v in self._losses.items()}
    self._limits = {k: v for k, v in found.items() if math.isfinite(v)}

  def to_undo(self) -> int | None:
    """The first step that is to be rewound, if there is one."""
    self._fetch()
    return self._spike

  def rewound(
    self, to: int, saved: Mapping[str, Any] | None, passed: Mapping[str, int]
  ) -> None:
    """Goes on from a checkpoint.

    Args:
      to: its step; 0 for the start.
      saved: `to_json` of it; None for the start.
      passed: stream -> batches since then.

    Raises:
      TrainingError: it has been gone on from too often.
    """
    assert self._options is not None
    spike = self._spike
    before = {
      name: self.passed.get(name, 0) + count for name, count in passed.items()
    }
    times = self._rewinds[1] + 1 if self._rewinds[0] == to else 1
    if times > self._options.most_rewinds:
      raise errors.TrainingError(
        'The loss rises again and again',
        got=f'{times} spikes after step {to}, the last one at step {spike}',
        where=f'up to step {spike}',
        fix='lower the learning rate or clip the gradient; '
        'LossSpikes.most_rewinds says how many are too many',
      )
    self.__init__(self._options, saved)  # type: ignore[misc]
    self.passed, self._rewinds = before, (to, times)

  def _fetch(self) -> None:
    """Adds the losses of the pending steps that were good."""
    pending, self._pending = self._pending, []
    outputs = jax.device_get([output for _, _, output in pending])
    for (step, key, _), output in zip(pending, outputs, strict=True):
      loss = float(output.loss)
      if not output.finite:
        continue
      if loss > self._limits.get(key, math.inf):
        self._spike = step if self._spike is None else self._spike
        continue
      assert self._options is not None
      losses = [*self._losses.get(key, []), loss]
      self._losses[key] = losses[-self._options.window :]


def _key(active: tuple[int, ...]) -> str:
  """A step's entries of the mixture, as a key in JSON."""
  return ','.join(map(str, active))
