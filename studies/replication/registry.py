"""Training configurations and claims of the two replication studies."""

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
  """A replication study in synthetic or in real languages.

  Attributes:
    name: Name of the result page and of its additional files.
    results: Name of the file that stores the results.
    conditions: Training configurations. A condition follows the condition whose
      run provides its initial parameters.
    claims: Claims and controls, which are the rows in the tables of the page.
    size: Sizes of the models and batches.
  """

  name: str
  results: str
  conditions: tuple[Condition, ...]
  claims: tuple[Claim, ...]
  size: Size = Size()

  @functools.cached_property
  def conditions_by_name(self) -> dict[str, Condition]:
    """Map from the name of a training configuration to the configuration."""
    return {condition.name: condition for condition in self.conditions}

  def select_claims(self, names: tuple[str, ...]) -> tuple[Claim, ...]:
    """Returns the claims with the given names, and their control experiments.

    A control is an additional comparison that tests whether the effect in a
    claim has the cause that the paper states (see `claims.apply_controls`).

    Args:
      names: Names of claims or papers. If empty, all claims are selected.

    Raises:
      ConfigError: If one of the names is not the name of a claim or paper.
    """
    unknown_names = [name for name in names if not self._matching_claims(name)]
    if unknown_names:
      raise errors.ConfigError(
        'Each value of --claim must be the name of a claim or of a paper',
        got=', '.join(unknown_names),
        expected='one of '
        + ', '.join([*PAPERS, *(claim.name for claim in self.claims)]),
      )
    if not names:
      return self.claims
    selected = {
      claim.name for name in names for claim in self._matching_claims(name)
    }
    return tuple(claim for claim in self.claims if claim.name in selected)

  def required_conditions(
    self, claims: tuple[Claim, ...]
  ) -> tuple[Condition, ...]:
    """Returns the training configurations to run for testing the claims.

    They include configurations whose runs initialize other runs.
    """
    required = set(compared_conditions(claims))
    for name in tuple(required):
      condition = self.conditions_by_name[name]
      while condition.begins_from is not None:
        required.add(condition.begins_from)
        condition = self.conditions_by_name[condition.begins_from]
    return tuple(
      condition for condition in self.conditions if condition.name in required
    )

  def without_dictionaries(
    self, claims: tuple[Claim, ...]
  ) -> tuple[Claim, ...]:
    """Returns the claims that can be tested without a dictionary.

    The other claims are logged.

    Raises:
      ConfigError: If none of the claims can be tested without a dictionary.
    """
    selected = tuple(
      claim
      for claim in claims
      if not any(
        condition.reads_dictionary
        for condition in self.required_conditions((claim,))
      )
    )
    omitted = ', '.join(claim.name for claim in claims if claim not in selected)
    if not selected:
      raise errors.ConfigError(
        'All selected claims require bilingual dictionaries, but '
        '--dictionaries is not set',
        got=omitted,
        expected='--dictionaries must be a folder with files such as en-fr.tsv',
      )
    if omitted:
      logging.warning(
        'Skipping claims that require --dictionaries: %s.', omitted
      )
    return selected

  def _matching_claims(self, name: str) -> tuple[Claim, ...]:
    """Returns the claims of a paper, or a claim and its controls."""
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
