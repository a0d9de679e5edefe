"""Schedule that assigns a task to each sequence of each training step.

Steps are scheduled in blocks of `BLOCK_STEPS`. The draws in a block are
distributed among the tasks in exact proportion to their rates, by default p_i
proportional to N_i^α. Fractions of draws are carried over to the next block. In
the long run, each task's number of draws is therefore within one draw of its
expectation, even for rare tasks. The order within a block is a random
permutation.

The schedule is a pure function of the seed and the step. No state is saved
between runs. Computing block b requires b small vector operations, but no data
is read.
"""

import threading
from collections.abc import Callable

import numpy as np

from xlflax.config import setting_names
from xlflax.data import dataset_config
from xlflax.data.sampling import hashing
from xlflax.utils import errors, validation

BLOCK_STEPS = 128

# Number of blocks in memory. A consumer that is slightly behind another one
# does not recompute blocks.
_MAX_BLOCKS = 3


def sampling_rates(sizes: np.ndarray, alpha: float) -> np.ndarray:
  """Returns sampling rates p_i proportional to sizes_i ** alpha.

  Source: XLM (Lample and Conneau, 2019), section 3.1.

  Args:
    sizes: Positive number of examples in each task, [tasks].
    alpha: Exponent. If it is 1, the rates are proportional to the sizes. If it
      is 0, all tasks have equal rates.

  Returns:
    The rates, which sum to 1, float64 [tasks].
  """
  weights = np.exp(alpha * np.log(sizes / np.max(sizes)))
  return weights / weights.sum()


def limit_rates(rates: np.ndarray, max_rate: float | None) -> np.ndarray:
  """Limits each task's sampling rate, and redistributes the excess.

  The excess is distributed among the other tasks in proportion to their rates.
  For example, `limit_rates([0.8, 0.15, 0.05], 0.5)` is `[0.5, 0.375, 0.125]`.
  If the limit cannot be satisfied, all rates are equal.

  Args:
    rates: Rates that sum to 1, [tasks].
    max_rate: Maximum sampling rate of a task. If None, the rates are not
      limited.

  Returns:
    The rates, which sum to 1, float64 [tasks].
  """
  if max_rate is None:
    return rates
  if max_rate * rates.size <= 1:
    return np.full(rates.size, 1 / rates.size)
  is_limited = np.zeros(rates.size, bool)
  while True:
    remaining_rate = 1 - max_rate * np.count_nonzero(is_limited)
    scaled_rates = rates * remaining_rate / rates[~is_limited].sum()
    limited_rates = np.where(is_limited, max_rate, scaled_rates)
    exceeds = ~is_limited & (limited_rates > max_rate * (1 + 1e-12))
    if not exceeds.any():
      return limited_rates
    is_limited |= exceeds


def replay_rates(
  rates: np.ndarray, is_new: np.ndarray, fraction: float
) -> np.ndarray:
  """Scales sampling rates so that the rates of old tasks sum to `fraction`.

  Old tasks are tasks without text in a new language.

  The proportions within the new tasks and within the old tasks do not change.
  For example, `replay_rates([0.2, 0.5, 0.3], [True, False, False], 0.4)` is
  `[0.6, 0.25, 0.15]`.

  Args:
    rates: Rates that sum to 1, [tasks].
    is_new: True for each task with text in a new language, bool [tasks].
    fraction: Total rate of the old tasks after scaling.

  Returns:
    The rates, which sum to 1, float64 [tasks].

  Raises:
    ConfigError: If all new tasks or all old tasks have the rate 0, although
      their total rate should be positive.
  """
  rates = np.asarray(rates, np.float64)
  totals = np.where(is_new, rates[is_new].sum(), rates[~is_new].sum())
  targets = np.where(is_new, 1 - fraction, fraction)
  has_no_rate = (totals == 0) & (targets > 0)
  if has_no_rate.any():
    group = (
      'text in a new language'
      if is_new[has_no_rate].any()
      else 'text only in the old languages'
    )
    raise errors.ConfigError(
      f'ReplayOptions.fraction={fraction} requires a positive mixing rate for '
      f'at least one task with {group}',
      got=', '.join(f'{rate:g}' for rate in rates),
      where=errors.field_location(dataset_config.ReplayOptions, 'fraction'),
    )
  return targets * rates / np.where(totals > 0, totals, 1.0)


def dataset_rates(
  dataset: dataset_config.DatasetConfig, sizes, mixture_rates
) -> Callable[[int], np.ndarray]:
  """Returns a function that maps a step to the sampling rates of the tasks.

  Args:
    dataset: Dataset that defines the sampling exponent and the maximum rate.
    sizes: Number of examples in each task, [tasks].
    mixture_rates: SeqIO mixing rates, not normalized, [tasks]. They are used if
      `dataset.alpha` is None.

  Raises:
    ConfigError: If the mixing rates are used and their sum is not finite.
  """
  sizes = np.asarray(sizes, np.float64)
  alpha = dataset.alpha
  max_share = dataset.max_rate
  if callable(alpha):

    def scheduled_rates(step: int) -> np.ndarray:
      exponent = validation.validate(
        float(alpha(step)),
        validation.SamplingExponent,
        name='DatasetConfig.alpha',
        where=f'step {step} of the dataset {dataset.name!r}',
      )
      return limit_rates(sampling_rates(sizes, exponent), max_share)

    return scheduled_rates
  if alpha is None:
    rates = _normalize_rates(np.asarray(mixture_rates, np.float64))
  else:
    rates = sampling_rates(sizes, alpha)
  rates = limit_rates(rates, max_share)
  return lambda step: rates


def _normalize_rates(rates: np.ndarray) -> np.ndarray:
  """Normalizes mixing rates to a sum of 1.

  Raises:
    ConfigError: If a rate is negative, or if the sum is not positive and
      finite.
  """
  with np.errstate(over='ignore'):
    total = rates.sum()
  if not (0 < total < np.inf and (rates >= 0).all()):
    raise errors.ConfigError(
      'The mixing rates must be non-negative numbers with a positive, finite '
      'sum',
      got=', '.join(map(str, rates[:20].tolist())),
    )
  return rates / total


def apportion_draws(credit: np.ndarray, total: int) -> np.ndarray:
  """Rounds the tasks' numbers of draws to integers that sum to `total`.

  The rounding follows the largest-remainder method with non-negative counts.
  For example, `apportion_draws([1.5, 0.9, -0.4], 2)` is `[1, 1, 0]`.

  Args:
    credit: Fractional number of draws to assign to each task, float64 [tasks].
      The numbers sum to `total`.
    total: Number of draws to distribute.

  Returns:
    The number of draws for each task, int64 [tasks].
  """
  counts = np.maximum(np.floor(credit), 0).astype(np.int64)
  missing = total - int(counts.sum())
  while missing > 0:
    best = np.argsort(counts - credit, kind='stable')[:missing]
    counts[best] += 1
    missing -= best.size
  while missing < 0:
    order = np.argsort(credit - counts, kind='stable')
    order = order[counts[order] > 0][:-missing]
    counts[order] -= 1
    missing += order.size
  return counts


def apportion_at_most(
  credit: np.ndarray, max_draws: np.ndarray, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Rounds each task's number of draws and limits it to the task's maximum.

  The rounding follows `apportion_draws`. The excess is distributed among the
  other tasks in proportion to their rates. For example, the draws for
  `apportion_at_most([3, 2, 1], [1, 9, 9], [0.5, 0.33, 0.17])` are `[1, 3, 2]`.

  Args:
    credit: Fractional number of draws to assign to each task, float64 [tasks].
      The sum is an integer and at most the sum of `max_draws`.
    max_draws: Maximum number of draws for each task, int64 [tasks].
    rates: Sampling rate of each task, float64 [tasks].

  Returns:
    Number of draws from each task, int64 [tasks], and the credit including the
    redistributed excess, float64 [tasks].
  """
  total = round(credit.sum())
  credit = credit.copy()
  counts = max_draws.copy()
  is_limited = np.zeros(credit.size, bool)
  while not is_limited.all():
    counts[~is_limited] = apportion_draws(
      credit[~is_limited], total - int(max_draws[is_limited].sum())
    )
    exceeds = ~is_limited & (counts > max_draws)
    if not exceeds.any():
      break
    is_limited |= exceeds
    excess = (credit - max_draws)[exceeds].sum()
    credit[exceeds] = counts[exceeds] = max_draws[exceeds]
    weights = np.where(is_limited, 0, rates)
    if weights.any():
      credit += excess * weights / weights.sum()
  return counts, credit


def expected_draws(
  rates: np.ndarray, total: float, max_draws: np.ndarray
) -> np.ndarray:
  """Returns the expected number of draws from each task among `total` draws.

  Draws above `max_draws` are distributed among the other tasks, up to their own
  maximum.

  Args:
    rates: Rates that sum to 1, [tasks].
    total: Total number of draws.
    max_draws: Maximum number of draws for each task, [tasks].

  Returns:
    Number of draws of each task, float64 [tasks].
  """
  is_limited = np.zeros(rates.size, bool)
  while True:
    remaining_rate = (rates * ~is_limited).sum()
    remaining_draws = total - max_draws[is_limited].sum()
    draws = np.where(
      is_limited,
      max_draws,
      rates * remaining_draws / remaining_rate if remaining_rate else 0.0,
    )
    exceeds = ~is_limited & (draws > max_draws)
    if not exceeds.any():
      return draws
    is_limited |= exceeds


class TaskSchedule:
  """Schedule that determines from which task each sequence is drawn.

  The schedule is thread-safe, because a lock protects the most recently
  computed blocks.
  """

  def __init__(
    self,
    rates: Callable[[int], np.ndarray],
    *,
    batch_size: int,
    batching: dataset_config.LanguageBatching,
    key: int,
    block_steps: int = BLOCK_STEPS,
    max_rows: np.ndarray | None = None,
    name: str = '',
  ):
    """Creates a schedule.

    Args:
      rates: Function that maps a step to the sampling rates of the tasks, which
        sum to 1, [tasks]. It is called for the first step of each block.
      batch_size: Number of sequences in a global batch.
      batching: Whether to draw a task for each sequence or for each batch.
      key: 64-bit random key that determines the order of the tasks; see
        `hashing.make_key`.
      block_steps: Number of steps in a block, within which each task is drawn
        in proportion to its rate.
      max_rows: Maximum number of sequences to draw from each task, int64
        [tasks]. If None, the number is not limited.
      name: Name of the dataset, for error messages.
    """
    self._rates = rates
    self._batch_size = batch_size
    self._one_task = batching is dataset_config.LanguageBatching.ONE_LANGUAGE
    self._key = key
    self._block_steps = block_steps
    self._draws = block_steps * (1 if self._one_task else batch_size)
    self._max_draws = max_rows
    if max_rows is not None and self._one_task:
      self._max_draws = -(-max_rows // batch_size)
    self._name = name
    self._lock = threading.Lock()
    self._restart()

  @property
  def num_steps(self) -> int | None:
    """Number of batches that can be drawn, or None if it is unlimited."""
    if self._max_draws is None:
      return None
    return int(self._max_draws.sum()) * self._block_steps // self._draws

  def slots(self, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns each sequence's task and the sequence's index within that task.

    Args:
      step: Number of batches of this dataset before the step.

    Returns:
      tasks: Index of each sequence's task, int64 [batch_size].
      uses: For each sequence, the number of earlier sequences from the same
        task since step 0, int64 [batch_size].
    """
    block, offset = divmod(step, self._block_steps)
    with self._lock:
      tasks, uses = self._get_block(block)
    self._check_remaining(step, offset, tasks.size)
    if not self._one_task:
      rows = slice(offset * self._batch_size, (offset + 1) * self._batch_size)
      return tasks[rows], uses[rows]
    first = uses[offset] * self._batch_size
    return (
      np.full(self._batch_size, tasks[offset]),
      first + np.arange(self._batch_size),
    )

  def _check_remaining(self, step: int, offset: int, num_draws: int) -> None:
    """Raises a ConfigError if too few sequences remain for a step.

    Args:
      step: Index of the step, counted from 0.
      offset: Index of the step within its block of steps.
      num_draws: Number of draws in the block of steps, which is smaller than
        usual after tasks have reached their maximum.
    """
    if num_draws < (offset + 1) * self._draws // self._block_steps:
      raise errors.ConfigError(
        f'The dataset {self._name!r} has no sequences for batch {step}, '
        'because all of its tasks have been read `DatasetConfig.max_epochs` '
        'times',
        fix='Train fewer steps, add text, or increase '
        f'{setting_names.name_setting(self._name, "max_epochs")}.',
      )

  def _restart(self):
    """Resets the state to the start of the schedule."""
    self._next_block = 0
    num_tasks = self._rates(0).size
    # Fractions of draws and numbers of uses before `_next_block`.
    self._carry = np.zeros(num_tasks)
    self._used = np.zeros(num_tasks, np.int64)
    self._blocks: dict[int, tuple[np.ndarray, np.ndarray]] = {}

  def _get_block(self, block: int):
    """Returns each draw's task and the number of earlier draws of this task.

    Both arrays are int64 of shape [draws].
    """
    if block in self._blocks:
      return self._blocks[block]
    if block < self._next_block:
      self._restart()
    while self._next_block <= block:
      used, counts = self._used, self._advance()
    self._blocks[block] = self._order(block, counts, used)
    for old_block in sorted(self._blocks)[:-_MAX_BLOCKS]:
      del self._blocks[old_block]
    return self._blocks[block]

  def _advance(self):
    """Returns each task's number of draws in the next block, int64 [tasks]."""
    rates = self._rates(self._next_block * self._block_steps)
    credit = self._carry + self._draws * rates
    if self._max_draws is None:
      counts = apportion_draws(credit, self._draws)
    else:
      remaining_draws = self._max_draws - self._used
      if remaining_draws.sum() <= self._draws:
        # The schedule ends in this block, possibly before its last step.
        counts = credit = remaining_draws
      else:
        counts, credit = apportion_at_most(credit, remaining_draws, rates)
    self._carry = credit - counts
    self._used = self._used + counts
    self._next_block += 1
    return counts

  def _order(self, block, counts, used):
    """Shuffles the order in which tasks are drawn in a block of steps.

    Args:
      block: Index of the block of steps.
      counts: Number of draws for each task, int64 [tasks].
      used: Number of draws for each task in earlier blocks, int64 [tasks].

    Returns:
      The task of each draw and the number of earlier draws for this task, int64
      [draws] each.
    """
    order = hashing.shuffled_indices(
      hashing.make_key(self._key, 'block', block), int(counts.sum())
    )
    tasks = np.repeat(np.arange(counts.size), counts)[order]
    # The k-th draw of a task in this block is use number `used + k`.
    by_task = np.argsort(tasks, kind='stable')
    uses = np.empty_like(tasks)
    starts = np.cumsum(counts) - counts
    uses[by_task] = np.arange(tasks.size) + np.repeat(used - starts, counts)
    return tasks, uses
