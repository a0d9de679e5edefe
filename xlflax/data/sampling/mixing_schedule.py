"""Which task each row of each step comes from: p_i proportional to N_i^alpha.

Steps are scheduled in blocks of `BLOCK_STEPS`. A block's draws are shared out
among tasks in exact proportion; what cannot be given in whole draws is carried
over to the next block, so that in the long run a rare task gets its share to
within one draw. The order within a block is a random permutation.

Everything is a function of the seed and the step: nothing is kept between
runs. Reaching block b costs b small vector operations and no data.
"""

import threading
from collections.abc import Callable

import numpy as np

from xlflax.data import dataset_config
from xlflax.data.sampling import hashing
from xlflax.utils import errors

BLOCK_STEPS = 128

# Blocks kept, so that a consumer slightly behind another recomputes nothing.
_KEPT = 3


def sampling_rates(sizes: np.ndarray, alpha: float) -> np.ndarray:
  """p_i proportional to sizes_i ** alpha, float64 [tasks], summing to 1.

  Source: XLM (Lample and Conneau, 2019), section 3.1.

  Args:
    sizes: number of examples of each task, each positive, [tasks].
    alpha: 1 draws as the corpus is, 0 draws every task equally often.
  """
  weights = np.exp(alpha * np.log(sizes / np.max(sizes)))
  return weights / weights.sum()


def limit_rates(rates: np.ndarray, most: float | None) -> np.ndarray:
  """Rates of which none is above `most`, float64 [tasks], summing to 1.

  What is over goes to the others in proportion: `limit_rates([0.8, 0.15, 0.05],
  0.5)` is `[0.5, 0.375, 0.125]`. Where that cannot be, all are equal.

  Args:
    rates: that sum to 1, [tasks].
    most: of one task; None: no limit.
  """
  if most is None or most * rates.size <= 1:
    return rates if most is None else np.full(rates.size, 1 / rates.size)
  full = np.zeros(rates.size, bool)
  while True:
    remaining_rate = 1 - most * np.count_nonzero(full)
    out = np.where(full, most, rates * remaining_rate / rates[~full].sum())
    over = ~full & (out > most * (1 + 1e-12))
    if not over.any():
      return out
    full |= over


def stream_rates(
  stream: dataset_config.Stream, sizes, mixture_rates
) -> Callable[[int], np.ndarray]:
  """The function from a step to the rates of `stream`'s tasks.

  Args:
    stream: its `alpha` and `max_share` decide.
    sizes: number of examples of each task, [tasks].
    mixture_rates: SeqIO's own rates, not normalised, [tasks].

  Raises:
    ConfigError: the mixture's rates are asked for, and have no finite sum.
  """
  sizes = np.asarray(sizes, np.float64)
  given_rates = np.asarray(mixture_rates, np.float64)
  alpha = stream.alpha
  max_share = stream.max_share
  if callable(alpha):
    return lambda step: limit_rates(
      sampling_rates(sizes, float(alpha(step))), max_share
    )
  fixed = (
    _shares(given_rates) if alpha is None else sampling_rates(sizes, alpha)
  )
  fixed = limit_rates(fixed, max_share)
  return lambda step: fixed


def _shares(rates: np.ndarray) -> np.ndarray:
  with np.errstate(over='ignore'):
    total = rates.sum()
  if not (0 < total < np.inf and (rates >= 0).all()):
    raise errors.ConfigError(
      'The rates of a mixture are not usable',
      got=', '.join(map(str, rates[:20].tolist())),
      expected='numbers of 0 or more with a finite sum above 0',
    )
  return rates / total


def apportion_draws(credit: np.ndarray, total: int) -> np.ndarray:
  """Whole draws, int64 [tasks], that sum to `total` and follow `credit`.

  The method of largest remainders, where no count is below zero:
  `apportion_draws([1.5, 0.9, -0.4], 2)` is `[1, 1, 0]`.

  Args:
    credit: draws due to each task, float64 [tasks], which sum to `total`.
    total: draws to share out.
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
  credit: np.ndarray, most: np.ndarray, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """As `apportion_draws`, with at most `most` draws of each task.

  What is over goes to the others in proportion to their rates:
  `apportion_at_most([3, 2, 1], [1, 9, 9], [0.5, 0.33, 0.17])` gives `[1, 3, 2]`.

  Args:
    credit: draws due to each task, float64 [tasks], which sum to a whole
      number that is not above `most`'s sum.
    most: int64 [tasks].
    rates: float64 [tasks].

  Returns:
    Draws, int64 [tasks], and the credit with what was over, float64 [tasks].
  """
  total, credit, counts = round(credit.sum()), credit.copy(), most.copy()
  full = np.zeros(credit.size, bool)
  while not full.all():
    counts[~full] = apportion_draws(
      credit[~full], total - int(most[full].sum())
    )
    over = ~full & (counts > most)
    if not over.any():
      break
    full |= over
    excess = (credit - most)[over].sum()
    credit[over] = counts[over] = most[over]
    weights = np.where(full, 0, rates)
    if weights.any():
      credit += excess * weights / weights.sum()
  return counts, credit


def expected_draws(
  rates: np.ndarray, total: float, most: np.ndarray
) -> np.ndarray:
  """How often each task has been drawn after `total` draws, float64 [tasks].

  Args:
    rates: that sum to 1, [tasks].
    total: draws of all tasks.
    most: of each task; what is over goes to the others, as far as they go.
  """
  full = np.zeros(rates.size, bool)
  while True:
    remaining_rate = (rates * ~full).sum()
    remaining_draws = total - most[full].sum()
    draws = np.where(
      full,
      most,
      rates * remaining_draws / remaining_rate if remaining_rate else 0.0,
    )
    over = ~full & (draws > most)
    if not over.any():
      return draws
    full |= over


class TaskSchedule:
  """For each row of each step: its task, and the how-many-th use of it.

  Several threads may ask: what was computed last is kept under a lock.
  """

  def __init__(
    self,
    rates: Callable[[int], np.ndarray],
    *,
    batch_size: int,
    batching: dataset_config.LanguageBatching,
    key: int,
    block_steps: int = BLOCK_STEPS,
    most: np.ndarray | None = None,
    name: str = '',
  ):
    """Args:
    rates: step -> rates [tasks] that sum to 1, called at blocks' starts.
    batch_size: rows in a global batch.
    batching: whether a draw is of a row or of a whole batch.
    key: 64-bit key of the draws (see `hashing.make_key`).
    block_steps: steps in a block.
    most: rows that are taken of each task, int64 [tasks]; None: no limit.
    name: of the stream, for errors.
    """
    self._rates = rates
    self._batch_size = batch_size
    self._one_task = batching is dataset_config.LanguageBatching.ONE_LANGUAGE
    self._key = key
    self._block_steps = block_steps
    self._draws = block_steps * (1 if self._one_task else batch_size)
    self._most = most
    if most is not None and self._one_task:
      self._most = -(-most // batch_size)
    self._name = name
    self._lock = threading.Lock()
    self._restart()

  def slots(self, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Tasks and uses of the rows of a step.

    Args:
      step: the stream's own step, from 0.

    Returns:
      tasks: int64 [batch_size], index of each row's task.
      uses: int64 [batch_size], how many rows were taken from this task
        before this one, since step 0.
    """
    block, offset = divmod(step, self._block_steps)
    with self._lock:
      tasks, uses = self._block(block)
    self._check_left(step, offset, tasks.size)
    if not self._one_task:
      rows = slice(offset * self._batch_size, (offset + 1) * self._batch_size)
      return tasks[rows], uses[rows]
    first = uses[offset] * self._batch_size
    return (
      np.full(self._batch_size, tasks[offset]),
      first + np.arange(self._batch_size),
    )

  def _check_left(self, step: int, offset: int, draws: int) -> None:
    if draws < (offset + 1) * self._draws // self._block_steps:
      raise errors.ConfigError(
        'The rows of all tasks have been read Stream.max_epochs times',
        got=f'batch {step}',
        where=f'stream {self._name!r}',
        fix='Train fewer steps, add text, or raise max_epochs',
      )

  def _restart(self):
    self._next = 0  # number of the block that _carry and _used belong to
    rates = self._rates(0)
    self._carry = np.zeros(rates.size)
    self._used = np.zeros(rates.size, np.int64)
    self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

  def _block(self, block: int):
    """Task and use index of every draw of a block, int64 [draws] each."""
    if block in self._kept:
      return self._kept[block]
    if block < self._next:
      self._restart()
    while self._next <= block:
      used, counts = self._used, self._advance()
    self._kept[block] = self._order(block, counts, used)
    for old in sorted(self._kept)[:-_KEPT]:
      del self._kept[old]
    return self._kept[block]

  def _advance(self):
    """Shares out one block; returns the counts of draws, int64 [tasks]."""
    rates = self._rates(self._next * self._block_steps)
    credit = self._carry + self._draws * rates
    if self._most is None:
      counts = apportion_draws(credit, self._draws)
    elif (remaining_draws := self._most - self._used).sum() <= self._draws:
      counts = credit = (
        remaining_draws  # the end, perhaps in the midst of a block
      )
    else:
      counts, credit = apportion_at_most(credit, remaining_draws, rates)
    self._carry = credit - counts
    self._used = self._used + counts
    self._next += 1
    return counts

  def _order(self, block, counts, used):
    order = hashing.shuffled_indices(
      hashing.make_key(self._key, 'block', block), int(counts.sum())
    )
    tasks = np.repeat(np.arange(counts.size), counts)[order]
    # The k-th draw of a task in this block is its use number used + k.
    by_task = np.argsort(tasks, kind='stable')
    uses = np.empty_like(tasks)
    starts = np.cumsum(counts) - counts
    uses[by_task] = np.arange(tasks.size) + np.repeat(used - starts, counts)
    return tasks, uses
