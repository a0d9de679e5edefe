"""Mixtures of objectives, which select the objectives to train in each step.

All computations run on the host and depend only on the settings and the step. A
resumed run therefore selects the same objectives as an uninterrupted run.
"""

import dataclasses
import enum
import functools
import math

import numpy as np

from xlflax.objectives import objective_base
from xlflax.utils import class_registry, errors, name_suggestions, validation

# Maximum number of steps over which sampled entries have exact shares.
_MAX_BLOCK = 1000


class Combine(enum.Enum):
  """Rule that assigns training steps to the entries of a mixture.

  Attributes:
    SUM: All entries are trained in every step, and their losses are added.
    ALTERNATE: The entries are trained in a fixed order that is repeated.
    SAMPLE: One entry per step is drawn with a probability proportional to its
      weight.
  """

  SUM = 'sum'
  ALTERNATE = 'alternate'
  SAMPLE = 'sample'


@class_registry.register('weighted_objective')
@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightedObjective:
  """Mixture entry: an objective, its dataset and its weight.

  Attributes:
    dataset: Name of the dataset that the objective reads.
    objective: Objective to train on the dataset.
    weight: Factor by which the loss is multiplied (SUM, ALTERNATE), or relative
      frequency of training steps (SAMPLE).
  """

  dataset: str
  objective: objective_base.Objective
  weight: validation.PositiveFloat = 1.0


def _mix(keys: np.ndarray) -> np.ndarray:
  """Applies the bijective finalizer of splitmix64 to uint64 keys."""
  keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return keys ^ (keys >> np.uint64(31))


def _round_shares(weights: tuple[float, ...], block: int) -> tuple[int, ...]:
  """Distributes `block` steps by largest remainder, at least one per entry.

  Before: weights (2, 1), block 10. After: (7, 3).
  """
  quotas = [weight / math.fsum(weights) * block for weight in weights]
  counts = [max(1, math.floor(quota)) for quota in quotas]
  while sum(counts) != block:
    gaps = [quota - count for quota, count in zip(quotas, counts, strict=True)]
    if sum(counts) < block:
      counts[int(np.argmax(gaps))] += 1
    else:
      # Only entries with several steps can lose a step.
      gaps = [
        gap if count > 1 else math.inf
        for gap, count in zip(gaps, counts, strict=True)
      ]
      counts[int(np.argmin(gaps))] -= 1
  return tuple(counts)


@functools.lru_cache(maxsize=256)
def _block_counts(weights: tuple[float, ...]) -> tuple[int, ...]:
  """Returns the number of steps of each entry in one block.

  The block is the shortest block in which every entry has an integer number of
  steps. If no block of up to 1,000 steps has this property, the block has 1,000
  steps and the numbers are rounded. Weights (0.7, 0.3) give (7, 3).
  """
  total = math.fsum(weights)
  shares = np.asarray([weight / total for weight in weights])
  for block in range(len(weights), _MAX_BLOCK):
    counts = np.round(shares * block)
    if counts.all() and np.abs(shares * block - counts).max() < 1e-6:
      return tuple(int(count) for count in counts)
  return _round_shares(weights, max(_MAX_BLOCK, len(weights)))


@functools.lru_cache(maxsize=64)
def _sample_block(counts: tuple[int, ...], seed: int, block: int) -> np.ndarray:
  """Returns the entry of each step of a block.

  The order is a pseudorandom permutation that depends on (seed, block).
  """
  size = sum(counts)
  with np.errstate(over='ignore'):
    key = _mix(
      np.asarray([seed % 2**64], np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    )
    key = _mix(key ^ np.uint64(block))
    keys = _mix(
      key + np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    )
  entries = np.repeat(np.arange(len(counts)), counts)
  return entries[np.argsort(keys, kind='stable')]


@class_registry.register('objective_mixture')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveMixture:
  """Mixture of objectives, with the rule that selects the objectives of a step.

  Attributes:
    entries: Objectives with their datasets and weights. At least one is
      required.
    combine: Rule that selects the entries of a step. SUM trains all entries in
      every step. ALTERNATE follows `schedule`. SAMPLE draws one entry per step.
      In each block of steps, every entry is drawn exactly in proportion to its
      weight. The order within a block depends only on the seed and the block's
      index.
    schedule: Cycle of steps that ALTERNATE repeats. Each element is the index
      of an entry, or a tuple of indices. For example, `(0, 0, 1)` trains entry
      0 twice and then entry 1, and `((0, 1), 2)` trains entries 0 and 1
      together and then entry 2. If None, each step trains one entry, in the
      order of `entries`.
    seed: Random seed for the order of the entries with SAMPLE.
  """

  entries: tuple[WeightedObjective, ...]
  combine: Combine = Combine.SUM
  schedule: (
    tuple[
      validation.NonNegativeInt | tuple[validation.NonNegativeInt, ...], ...
    ]
    | None
  ) = None
  seed: validation.Seed = 0

  def __post_init__(self):
    if not self.entries:
      raise errors.ConfigError(
        'The objective mixture must contain at least one `WeightedObjective`'
      )
    self._check_entries()
    self._check_pattern()

  def _check_entries(self):
    """Checks that different objectives have different names."""
    by_name: dict[str, objective_base.Objective] = {}
    for i, entry in enumerate(self.entries):
      name = entry.objective.name
      if by_name.setdefault(name, entry.objective) != entry.objective:
        raise errors.ConfigError(
          'Different objectives of a mixture must have different names, but '
          f'entry {i}, which uses dataset {entry.dataset!r}, has the name of '
          'an earlier objective',
          got=repr(name),
          fix='Set a different `name` for one of them.',
        )

  def _check_pattern(self):
    """Checks that the schedule uses every entry, at most once per group."""
    if self.schedule is None:
      return
    if self.combine is not Combine.ALTERNATE:
      raise errors.ConfigError(
        '`schedule` requires that `combine` is Combine.ALTERNATE',
        got=self.combine,
        fix='Set `combine` to Combine.ALTERNATE, or remove `schedule`.',
      )
    used = {index for group in self._cycle for index in group}
    if used != set(range(len(self.entries))) or any(
      not group or len(set(group)) != len(group) for group in self._cycle
    ):
      raise errors.ConfigError(
        '`schedule` must contain the index of every entry, from 0 to '
        f'{len(self.entries) - 1}, and must not repeat an index within a group',
        got=self.schedule,
      )

  @property
  def _cycle(self) -> tuple[tuple[int, ...], ...]:
    """Schedule as tuples of entry indices."""
    pattern = (
      range(len(self.entries)) if self.schedule is None else self.schedule
    )
    return tuple(
      (group,) if isinstance(group, int) else tuple(group) for group in pattern
    )

  @property
  def _counts(self) -> tuple[int, ...]:
    """Number of steps of each entry in a sampled block."""
    return _block_counts(tuple(float(e.weight) for e in self.entries))

  @property
  def datasets(self) -> tuple[str, ...]:
    """Distinct dataset names, in the order of their first use."""
    return tuple(dict.fromkeys(entry.dataset for entry in self.entries))

  @property
  def objectives(self) -> tuple[objective_base.Objective, ...]:
    """Distinct objectives, in the order of their first use."""
    by_name = {entry.objective.name: entry.objective for entry in self.entries}
    return tuple(by_name.values())

  @property
  def metric_prefixes(self) -> tuple[str, ...]:
    """Prefix of the metric names of each entry, such as 'mlm'.

    The prefix is the name of the entry's objective. If several entries have
    objectives of this name, the name is preceded by that of the dataset, as in
    'mono_mlm'. Logs and records name the entries by their prefixes.
    """
    names = [entry.objective.name for entry in self.entries]
    return tuple(
      name if names.count(name) == 1 else f'{entry.dataset}_{name}'
      for name, entry in zip(names, self.entries, strict=True)
    )

  @property
  def groups(self) -> tuple[tuple[int, ...], ...]:
    """Distinct groups of mixture entries that are trained in the same step.

    A group is a tuple of the entries' indices.
    """
    if self.combine is Combine.SUM:
      return (tuple(range(len(self.entries))),)
    if self.combine is Combine.ALTERNATE:
      return tuple(dict.fromkeys(self._cycle))
    return tuple((i,) for i in range(len(self.entries)))

  @property
  def period(self) -> int:
    """Number of steps in one cycle of the mixture.

    Each cycle trains all groups in exact proportion.
    """
    if self.combine is Combine.SUM:
      return 1
    if self.combine is Combine.ALTERNATE:
      return len(self._cycle)
    return sum(self._counts)

  def loss_weight(self, index: int) -> float:
    """Returns the factor that multiplies a mixture entry's loss.

    With `Combine.SAMPLE`, it is 1, because weights determine how often entries
    are drawn.
    """
    if self.combine is Combine.SAMPLE:
      return 1.0
    return float(self.entries[index].weight)

  def active(self, step: int) -> tuple[int, ...]:
    """Returns the indices of the mixture entries that are trained in a step.

    Args:
      step: Global step of the run, starting at 0.
    """
    if self.combine is Combine.SUM:
      return self.groups[0]
    if self.combine is Combine.ALTERNATE:
      return self._cycle[step % len(self._cycle)]
    block, offset = divmod(step, sum(self._counts))
    return (int(_sample_block(self._counts, self.seed, block)[offset]),)

  def dataset_step(self, dataset: str, step: int) -> int:
    """Returns the number of batches that a dataset has provided before a step.

    Entries that read the same dataset in the same step receive the same batch.

    Args:
      dataset: Name of the dataset whose batches are counted.
      step: Global step of the run, starting at 0.

    Raises:
      ConfigError: If no entry of the mixture uses the dataset.
    """
    if dataset not in self.datasets:
      raise errors.ConfigError(
        'The dataset is not used by any entry of the objective mixture',
        got=repr(dataset),
        expected=name_suggestions.format_choices(self.datasets),
        fix=name_suggestions.did_you_mean(str(dataset), self.datasets),
      )
    if self.combine is Combine.SUM:
      return step
    if self.combine is Combine.ALTERNATE:
      is_read = [
        any(self.entries[i].dataset == dataset for i in group)
        for group in self._cycle
      ]
      cycles, offset = divmod(step, len(is_read))
      return cycles * sum(is_read) + sum(is_read[:offset])
    block, offset = divmod(step, sum(self._counts))
    reads_dataset = np.asarray(
      [entry.dataset == dataset for entry in self.entries]
    )
    block_start = block * int(np.dot(self._counts, reads_dataset))
    block_entries = _sample_block(self._counts, self.seed, block)[:offset]
    return block_start + int(np.count_nonzero(reads_dataset[block_entries]))
