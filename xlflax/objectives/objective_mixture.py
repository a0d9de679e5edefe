"""Mixtures of objectives: which of them each step trains.

Everything here runs on the host and is a pure function of the settings and
the step, so a resumed run goes on exactly.
"""

import dataclasses
import enum
import functools
import math

import numpy as np

from xlflax.objectives import objective_base
from xlflax.utils import class_registry, errors, name_suggestions, validation

_MAX_BLOCK = 1000  # steps over which sampled entries have exact shares


class Combine(enum.Enum):
  """How the entries of a mixture share the steps."""

  SUM = 'sum'  # all in every step, losses added
  ALTERNATE = 'alternate'  # by a repeated pattern
  SAMPLE = 'sample'  # one a step, drawn in proportion to the weights


@class_registry.register('entry')
@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
  """An objective and the stream that feeds it.

  Attributes:
    stream: name of the stream.
    objective: what is trained on it.
    weight: factor of the loss (SUM, ALTERNATE), or share of steps (SAMPLE).
  """

  stream: str
  objective: objective_base.Objective
  weight: validation.PositiveFloat = 1.0


def _mix(keys: np.ndarray) -> np.ndarray:
  """splitmix64's finaliser: uint64 -> uint64, one to one."""
  keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return keys ^ (keys >> np.uint64(31))


def _shares(weights: tuple[float, ...], block: int) -> tuple[int, ...]:
  """Distributes `block` steps by largest remainder, at least one to each.

  Before: weights (2, 1), block 10; after: (7, 3).
  """
  quotas = [weight / math.fsum(weights) * block for weight in weights]
  counts = [max(1, math.floor(quota)) for quota in quotas]
  while sum(counts) != block:
    gaps = [quota - count for quota, count in zip(quotas, counts, strict=True)]
    if sum(counts) < block:
      counts[int(np.argmax(gaps))] += 1
    else:  # from the one that has most over its quota, of those with several
      gaps = [
        gap if count > 1 else math.inf
        for gap, count in zip(gaps, counts, strict=True)
      ]
      counts[int(np.argmin(gaps))] -= 1
  return tuple(counts)


@functools.lru_cache(maxsize=256)
def _block_counts(weights: tuple[float, ...]) -> tuple[int, ...]:
  """Steps of each entry in one block.

  The block is the shortest in which every share is a whole number, and
  1,000 steps long where there is none: weights (0.7, 0.3) give (7, 3).
  """
  total = math.fsum(weights)
  shares = np.asarray([weight / total for weight in weights])
  for block in range(len(weights), _MAX_BLOCK):
    counts = np.round(shares * block)
    if counts.all() and np.abs(shares * block - counts).max() < 1e-6:
      return tuple(int(count) for count in counts)
  return _shares(weights, max(_MAX_BLOCK, len(weights)))


@functools.lru_cache(maxsize=64)
def _drawn(counts: tuple[int, ...], seed: int, block: int) -> np.ndarray:
  """Entry of each step of a block: a permutation keyed by (seed, block)."""
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
  """Entries, and the rule that gives steps to them.

  Attributes:
    entries: at least one.
    combine: SUM trains all entries in every step. ALTERNATE follows
      `pattern`. SAMPLE draws one entry a step: blocks of steps in which each
      entry has exactly its share, in an order drawn from (seed, block).
    pattern: for ALTERNATE, what each step of a cycle trains: an entry's index
      or a tuple of them. `(0, 0, 1)`: twice entry 0, then entry 1;
      `((0, 1), 2)`: entries 0 and 1 together, then 2. None: each in turn.
    seed: of SAMPLE.
  """

  entries: tuple[Entry, ...]
  combine: Combine = Combine.SUM
  pattern: (
    tuple[
      validation.NonNegativeInt | tuple[validation.NonNegativeInt, ...], ...
    ]
    | None
  ) = None
  seed: validation.Seed = 0

  def __post_init__(self):
    if not self.entries:
      raise errors.ConfigError(
        'The objective mixture has no entries', expected='at least one Entry'
      )
    self._check_entries()
    self._check_pattern()

  def _check_entries(self):
    by_name: dict[str, objective_base.Objective] = {}
    for i, entry in enumerate(self.entries):
      name = entry.objective.name
      if by_name.setdefault(name, entry.objective) != entry.objective:
        raise errors.ConfigError(
          'Two different objectives of a mixture have one name',
          got=repr(name),
          where=f'entry {i}, stream {entry.stream!r}',
          fix='give one of them another name',
        )

  def _check_pattern(self):
    if self.pattern is None:
      return
    if self.combine is not Combine.ALTERNATE:
      raise errors.ConfigError(
        'A pattern is for Combine.ALTERNATE only',
        got=self.combine,
        fix='set combine to Combine.ALTERNATE or drop the pattern',
      )
    used = {index for group in self._cycle for index in group}
    if used != set(range(len(self.entries))) or any(
      not group or len(set(group)) != len(group) for group in self._cycle
    ):
      raise errors.ConfigError(
        'The pattern does not fit the entries',
        got=self.pattern,
        expected='every index from 0 to '
        f'{len(self.entries) - 1}, none twice in one group',
      )

  @property
  def _cycle(self) -> tuple[tuple[int, ...], ...]:
    """The pattern as groups."""
    pattern = range(len(self.entries)) if self.pattern is None else self.pattern
    return tuple(
      (group,) if isinstance(group, int) else tuple(group) for group in pattern
    )

  @property
  def _counts(self) -> tuple[int, ...]:
    return _block_counts(tuple(float(e.weight) for e in self.entries))

  @property
  def streams(self) -> tuple[str, ...]:
    """Distinct stream names, in order of first use."""
    return tuple(dict.fromkeys(entry.stream for entry in self.entries))

  @property
  def objectives(self) -> tuple[objective_base.Objective, ...]:
    """Distinct objectives, in order of first use."""
    by_name = {entry.objective.name: entry.objective for entry in self.entries}
    return tuple(by_name.values())

  @property
  def groups(self) -> tuple[tuple[int, ...], ...]:
    """Every tuple that `active` can return, each once."""
    if self.combine is Combine.SUM:
      return (tuple(range(len(self.entries))),)
    if self.combine is Combine.ALTERNATE:
      return tuple(dict.fromkeys(self._cycle))
    return tuple((i,) for i in range(len(self.entries)))

  @property
  def period(self) -> int:
    """Steps in which each group has exactly its share."""
    cycles = {Combine.SUM: 1, Combine.ALTERNATE: len(self._cycle)}
    return cycles.get(self.combine) or sum(self._counts)

  def loss_weight(self, index: int) -> float:
    """Factor of an entry's loss: 1 where weights are shares of steps."""
    return (
      1.0
      if self.combine is Combine.SAMPLE
      else float(self.entries[index].weight)
    )

  def active(self, step: int) -> tuple[int, ...]:
    """Indices of the entries that global step `step` (from 0) trains."""
    if self.combine is Combine.SUM:
      return self.groups[0]
    if self.combine is Combine.ALTERNATE:
      return self._cycle[step % len(self._cycle)]
    block, offset = divmod(step, sum(self._counts))
    return (int(_drawn(self._counts, self.seed, block)[offset]),)

  def stream_step(self, stream: str, step: int) -> int:
    """How many of the steps 0 .. step - 1 read a batch of `stream`.

    Entries of one step that share a stream read one batch.

    Raises:
      ConfigError: no entry uses the stream.
    """
    if stream not in self.streams:
      raise errors.ConfigError(
        'No entry of the mixture uses the stream',
        got=repr(stream),
        expected=f'one of {self.streams}',
        fix=name_suggestions.did_you_mean(str(stream), self.streams),
      )
    if self.combine is Combine.SUM:
      return step
    if self.combine is Combine.ALTERNATE:
      uses = [
        any(self.entries[i].stream == stream for i in group)
        for group in self._cycle
      ]
      cycles, offset = divmod(step, len(uses))
      return cycles * sum(uses) + sum(uses[:offset])
    block, offset = divmod(step, sum(self._counts))
    mine = np.asarray([entry.stream == stream for entry in self.entries])
    started_entries = _drawn(self._counts, self.seed, block)[:offset]
    return block * int(np.dot(self._counts, mine)) + int(
      np.count_nonzero(mine[started_entries])
    )
