"""How large a model is trained, and for how long, in the minutes given."""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

FEWEST, MOST = 250, 4000  # steps worth a size, and of any run
_GROWTH = 2  # a size costs at least so many times what the one before costs


@dataclasses.dataclass(frozen=True)
class Size:
  """A size of the encoder; the smallest is that of models/tiny.gin."""

  num_layers: int
  hidden_dim: int

  @property
  def bindings(self) -> tuple[str, ...]:
    """Its gin bindings; wider models learn at a lower rate."""
    config = 'model_config.EncoderConfig'
    return (
      f'{config}.num_layers={self.num_layers}',
      f'{config}.hidden_dim={self.hidden_dim}',
      f'{config}.mlp_dim={4 * self.hidden_dim}',
      f'{config}.num_heads={self.hidden_dim // 64}',
      f'LEARNING_RATE={4e-3 * 128 / self.hidden_dim}',
    )


SIZES = (Size(2, 128), Size(4, 256), Size(6, 384), Size(8, 512))


@dataclasses.dataclass(frozen=True)
class Scale:
  """What is trained.

  Attributes:
    num_layers: of the encoder.
    hidden_dim: of the encoder.
    steps: of its training.
    seconds_per_step: as measured before the training.
    smallest_seconds_per_step: the same of the smallest size.
  """

  num_layers: int
  hidden_dim: int
  steps: int
  seconds_per_step: float
  smallest_seconds_per_step: float

  @property
  def bindings(self) -> tuple[str, ...]:
    """The gin bindings of the training."""
    size = Size(self.num_layers, self.hidden_dim)
    return (*size.bindings, *steps_bindings(self.steps))

  def to_json(self) -> dict[str, Any]:
    return dataclasses.asdict(self)


def steps_bindings(steps: int) -> tuple[str, ...]:
  """Gin bindings of a number of steps, a tenth of them warm-up."""
  return (f'TRAIN_STEPS={steps}', f'WARMUP_STEPS={steps // 10}')


def steps_within(seconds: float, seconds_per_step: float) -> int:
  """As many steps as fit, from 10 to `MOST`."""
  return min(MOST, max(10, int(seconds / seconds_per_step)))


def choose(
  measure: Callable[[Size], float],
  *,
  seconds: float,
  clock: Callable[[], float] = time.monotonic,
) -> Scale:
  """The largest size of which `FEWEST` steps fit, and as many steps as do.

  Larger sizes are measured only while they may fit; the smallest is taken
  where none fits.

  Args:
    measure: times some steps; seconds of one.
    seconds: for measuring and training together.
    clock: seconds.

  Returns:
    What to train.
  """
  end = clock() + seconds
  timed: list[tuple[Size, float]] = []
  for size in SIZES:
    if timed and _GROWTH * timed[-1][1] * FEWEST > end - clock():
      break
    timed.append((size, measure(size)))
    logging.info(
      '%d layers of %d: %.3f s a step', *dataclasses.astuple(size), timed[-1][1]
    )
  left = end - clock()
  fitting = [one for one in timed if one[1] * FEWEST <= left]
  size, per_step = (fitting or timed[:1])[-1]
  return Scale(
    num_layers=size.num_layers,
    hidden_dim=size.hidden_dim,
    steps=steps_within(left, per_step),
    seconds_per_step=per_step,
    smallest_seconds_per_step=timed[0][1],
  )
