"""Order in which the cached and live loaders read a dataset's sequences."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from xlflax.config import setting_names
from xlflax.data import dataset_config, loader_base
from xlflax.data.sampling import hashing, mixing_schedule
from xlflax.utils import errors, name_suggestions

_ALL_BITS = 2**64 - 1


class RowSchedule:
  """Schedule that defines each step's tasks and the order within each task.

  A key determines the order within each task. The keys depend on the names of
  the tasks and not on their indices, so that the order within a task does not
  change if a task is added to the mixture.

  Attributes:
    tasks: Names of the tasks, sorted.
    sizes: Number of source examples in each task, int64 [tasks].
    order_keys: Key that determines the order of each task's sequences, uint64
      [tasks].
  """

  def __init__(
    self,
    dataset: dataset_config.DatasetConfig,
    *,
    seed: int,
    sizes: dict[str, int],
    rates: dict[str, float],
    max_rows: dict[str, int] | None = None,
    languages: Mapping[str, Sequence[str]] | None = None,
  ):
    """Creates a schedule.

    Args:
      dataset: Dataset that defines the sampling options.
      seed: Random seed of the run. The dataset's `seed_offset` is added.
      sizes: Number of source examples in each task.
      rates: SeqIO mixing rate of each task.
      max_rows: Maximum number of sequences to draw from each task. If None, the
        number is not limited.
      languages: Languages of each task. Required by `DatasetConfig.replay`.

    Raises:
      ConfigError: If the tasks have no text in a new language of the dataset,
        or if there are no other tasks to replay.
    """
    seed = seed + dataset.seed_offset
    self._dataset = dataset
    self.tasks: Sequence[str] = sorted(sizes)
    self.sizes = np.array([sizes[task] for task in self.tasks], np.int64)
    self.mixture_rates = np.array(
      [rates[task] for task in self.tasks], np.float64
    )
    self._rates = mixing_schedule.dataset_rates(
      dataset, self.sizes, self.mixture_rates
    )
    if languages is not None and dataset.replay is not None:
      self._rates = _add_replay(
        self._rates, dataset, [languages[task] for task in self.tasks]
      )
    self._schedule = mixing_schedule.TaskSchedule(
      self._rates,
      batch_size=dataset.batch_size,
      batching=dataset.batching,
      key=hashing.make_key(seed, 'schedule'),
      max_rows=None
      if max_rows is None
      else np.array([max_rows[task] for task in self.tasks], np.int64),
      name=dataset.name,
    )
    self.order_keys = self._make_keys(seed, 'order')
    self._side_keys = self._make_keys(seed, 'sides')

  @property
  def num_batches(self) -> int | None:
    """Number of batches that can be drawn, or None if it is unlimited."""
    return self._schedule.num_steps

  def rates(self, step: int = 0) -> np.ndarray:
    """Returns the fraction of sequences that each task is expected to provide.

    The fractions are float64 of shape [tasks].
    """
    return self._rates(step)

  def slots(self, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the task of each sequence in a step; see `TaskSchedule.slots`."""
    return self._schedule.slots(step)

  def swaps(self, tasks: np.ndarray, uses: np.ndarray) -> list[int]:
    """For each sequence, returns a bit mask of the text pairs to swap.

    In a swapped pair, the source and the target are exchanged.

    Args:
      tasks: Index of each sequence's task, int64 [sequences].
      uses: For each sequence, the number of earlier sequences from the same
        task, int64 [sequences].
    """
    fixed_masks = {
      dataset_config.PairOrder.UNCHANGED: 0,
      dataset_config.PairOrder.REVERSED: _ALL_BITS,
    }
    if self._dataset.pairs.order in fixed_masks:
      return [fixed_masks[self._dataset.pairs.order]] * tasks.size
    return hashing.draw_words(self._side_keys[tasks], uses).tolist()

  def _make_keys(self, seed, purpose):
    """Returns a key for each task, uint64 [tasks]."""
    return np.array(
      [hashing.make_key(seed, purpose, task) for task in self.tasks], np.uint64
    )


def _add_replay(
  rates: Callable[[int], np.ndarray],
  dataset: dataset_config.DatasetConfig,
  languages: Sequence[Sequence[str]],
) -> Callable[[int], np.ndarray]:
  """Returns sampling rates that sum to `replay.fraction` over the old tasks.

  Args:
    rates: Function that maps a step to the sampling rates of the tasks, which
      sum to 1, [tasks].
    dataset: Dataset with replay options.
    languages: Languages of each task.
  """
  replay = dataset.replay
  assert replay is not None
  existing = set().union(*languages)
  missing = [code for code in replay.new_languages if code not in existing]
  exclude = (
    f'set {setting_names.name_setting(dataset.name, "replay")}=None to sample '
    'the dataset at its usual rates'
  )
  if missing:
    fix = (
      'Correct `ReplayOptions.new_languages`, or add text in the missing '
      'languages.'
    )
    if len(missing) == len(replay.new_languages):
      fix += f' For a dataset without text in the new languages, {exclude}.'
    raise errors.ConfigError(
      f'The mixture {dataset.mixture!r} of the dataset {dataset.name!r} has '
      'no text in some of the languages in `ReplayOptions.new_languages`',
      got=', '.join(missing),
      expected=name_suggestions.format_choices(existing),
      fix=fix,
    )
  is_new = np.array(
    [not set(codes).isdisjoint(replay.new_languages) for codes in languages]
  )
  if replay.fraction and is_new.all():
    raise errors.ConfigError(
      f'`ReplayOptions.fraction` must be 0 for the dataset {dataset.name!r}, '
      f'because each task of its mixture {dataset.mixture!r} has text in a new '
      'language',
      got=replay.fraction,
      fix='Add tasks with text only in the old languages to the mixture, or '
      f'{exclude}.',
    )
  if is_new.all():
    return rates
  return lambda step: mixing_schedule.replay_rates(
    rates(step), is_new, replay.fraction
  )


def count_rows_read(
  dataset: loader_base.AnyDatasetConfig,
  tasks: Sequence[loader_base.TaskStatistics],
  steps: int,
) -> np.ndarray:
  """Returns the expected number of sequences drawn from each task.

  Args:
    dataset: Dataset whose sequences are drawn.
    tasks: Statistics of each task.
    steps: Number of batches that are drawn.

  Returns:
    The number of sequences for each task, float64 [tasks].
  """
  rates = np.array([task.rate for task in tasks])
  total = float(steps * dataset.batch_size)
  epochs = getattr(dataset, 'max_epochs', None)
  if epochs is None:
    return rates * total
  max_rows = np.array([epochs * (task.rows or math.inf) for task in tasks])
  return mixing_schedule.expected_draws(rates, total, max_rows)
