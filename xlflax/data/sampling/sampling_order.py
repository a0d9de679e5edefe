"""What both loaders share: the order of tasks, and the keys of all draws."""

import math
from collections.abc import Sequence

import numpy as np

from xlflax.data import dataset_config, loader_base
from xlflax.data.sampling import hashing, mixing_schedule

_EVERY_BIT = 2**64 - 1


class RowSchedule:
  """A stream's schedule and keys, from its seed and its tasks' sizes.

  Keys depend on names of tasks, not on their number, so that a task's own
  order stays when another is added to the mixture.

  Attributes:
    tasks: names, sorted.
    sizes: source examples of each task, int64 [tasks].
    order_keys: uint64 [tasks], for the order of rows.
  """

  def __init__(
    self,
    stream: dataset_config.Stream,
    *,
    seed: int,
    sizes: dict[str, int],
    rates: dict[str, float],
    most: dict[str, int] | None = None,
  ):
    """Args:
    stream: sampling options.
    seed: the run's seed; the stream's `seed_offset` is added.
    sizes: source examples of each task.
    rates: SeqIO's mixing rate of each task.
    most: rows that are taken of each task; None: no limit.
    """
    seed = seed + stream.seed_offset
    self._stream = stream
    self.tasks: Sequence[str] = sorted(sizes)
    self.sizes = np.array([sizes[task] for task in self.tasks], np.int64)
    self._rates = mixing_schedule.stream_rates(
      stream, self.sizes, [rates[task] for task in self.tasks]
    )
    self._schedule = mixing_schedule.TaskSchedule(
      self._rates,
      batch_size=stream.batch_size,
      batching=stream.batching,
      key=hashing.make_key(seed, 'schedule'),
      most=None
      if most is None
      else np.array([most[task] for task in self.tasks], np.int64),
      name=stream.name,
    )
    self.order_keys = self._keys(seed, 'order')
    self._side_keys = self._keys(seed, 'sides')

  def rates(self, step: int = 0) -> np.ndarray:
    """Expected share of each task at a step, float64 [tasks]."""
    return self._rates(step)

  def slots(self, step: int) -> tuple[np.ndarray, np.ndarray]:
    """See `TaskSchedule.slots`."""
    return self._schedule.slots(step)

  def swaps(self, tasks: np.ndarray, uses: np.ndarray) -> list[int]:
    """Which sides are exchanged in each row; see `collate.Row.swaps`.

    Args:
      tasks: int64 [rows], index of each row's task.
      uses: int64 [rows], use of the task that the row is.
    """
    fixed = {
      dataset_config.SideOrder.AS_IS: 0,
      dataset_config.SideOrder.REVERSED: _EVERY_BIT,
    }
    if self._stream.pairs.order in fixed:
      return [fixed[self._stream.pairs.order]] * tasks.size
    return hashing.draw_words(self._side_keys[tasks], uses).tolist()

  def _keys(self, seed, purpose):
    return np.array(
      [hashing.make_key(seed, purpose, task) for task in self.tasks], np.uint64
    )


def rows_read(
  stream: loader_base.AnyStream,
  tasks: Sequence[loader_base.TaskStatistics],
  steps: int,
) -> np.ndarray:
  """Rows of each task that a number of batches read, float64 [tasks]."""
  rates = np.array([task.rate for task in tasks])
  total = float(steps * stream.batch_size)
  epochs = getattr(stream, 'max_epochs', None)
  if epochs is None:
    return rates * total
  max_rows = np.array([epochs * (task.rows or math.inf) for task in tasks])
  return mixing_schedule.expected_draws(rates, total, max_rows)
