"""All claims and conditions: in made-up languages, and in real ones."""

import dataclasses
import functools
import logging

from studies.replication.claims import Claim, compared_conditions
from studies.replication.conditions import Condition, Size
from studies.replication.papers import (
  real,
  synthetic_claims,
  synthetic_conditions,
)
from xlflax.utils import errors

PAPERS = ('ECS', 'MetaXLM', 'PPA', 'VECO')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """What is run and judged in one kind of world, and its page.

  Attributes:
    name: of the page and of the files beside it.
    results: name of the file of results.
    conditions: each after the one that it begins from.
    claims: rows of the page.
    size: of models and batches.
  """

  name: str
  results: str
  conditions: tuple[Condition, ...]
  claims: tuple[Claim, ...]
  size: Size = Size()

  @functools.cached_property
  def conditions_by_name(self) -> dict[str, Condition]:
    """The conditions."""
    return {one.name: one for one in self.conditions}

  def chosen(self, names: tuple[str, ...]) -> tuple[Claim, ...]:
    """The claims of these names or papers, with twins; () chooses all.

    Raises:
      ConfigError: there is no such claim.
    """
    unknown = [name for name in names if not self._named(name)]
    if unknown:
      raise errors.ConfigError(
        'There is no such claim',
        got=', '.join(unknown),
        expected='one of '
        + ', '.join([*PAPERS, *(claim.name for claim in self.claims)]),
        where='--claim',
      )
    if not names:
      return self.claims
    wanted = {one.name for name in names for one in self._named(name)}
    return tuple(one for one in self.claims if one.name in wanted)

  def needed(self, claims: tuple[Claim, ...]) -> tuple[Condition, ...]:
    """The conditions of claims, and those that they begin from."""
    wanted = set(compared_conditions(claims))
    for name in tuple(wanted):
      while (begun := self.conditions_by_name[name].begins_from) is not None:
        wanted.add(begun)
        name = begun
    return tuple(one for one in self.conditions if one.name in wanted)

  def without_dictionaries(
    self, claims: tuple[Claim, ...]
  ) -> tuple[Claim, ...]:
    """The claims whose runs read none; says which are left out.

    Raises:
      ConfigError: no claim is left.
    """
    kept = tuple(
      one
      for one in claims
      if not any(own.reads_dictionary for own in self.needed((one,)))
    )
    left = ', '.join(one.name for one in claims if one not in kept)
    if not kept:
      raise errors.ConfigError(
        'These claims need bilingual dictionaries',
        got=left,
        expected='a folder with files such as en-fr.tsv',
        where='--dictionaries',
      )
    if left:
      logging.warning('Without --dictionaries these are left out: %s.', left)
    return kept

  def _named(self, name: str) -> tuple[Claim, ...]:
    return tuple(
      claim
      for claim in self.claims
      if name in (claim.name, claim.control_for)
      or claim.paper.lower() == name.lower()
    )


SYNTHETIC = Study(
  name='index',
  results='results.json',
  conditions=synthetic_conditions.CONDITIONS,
  claims=synthetic_claims.CLAIMS,
)
REAL = Study(
  name='real',
  results='real.json',
  conditions=real.CONDITIONS,
  claims=real.CLAIMS,
  size=real.SIZE,
)
STUDIES = (SYNTHETIC, REAL)
