"""All claims and conditions, by paper."""

from xlflax.foundation import errors
from xlflax.replication.claims import Claim, conditions_of
from xlflax.replication.conditions import Condition
from xlflax.replication.papers import ecs, metaxlm, ppa, veco

_PAPERS = {'ECS': ecs, 'MetaXLM': metaxlm, 'PPA': ppa, 'VECO': veco}
PAPERS = tuple(_PAPERS)
CLAIMS: tuple[Claim, ...] = tuple(
  claim for paper in _PAPERS.values() for claim in paper.CLAIMS
)
CONDITIONS: tuple[Condition, ...] = tuple(
  one for module in _PAPERS.values() for one in module.CONDITIONS
)


def chosen(names: tuple[str, ...]) -> tuple[Claim, ...]:
  """The claims of these names or papers; () chooses all.

  Raises:
    ConfigError: there is no such claim.
  """
  unknown = [name for name in names if not _named(name)]
  if unknown:
    raise errors.ConfigError(
      'There is no such claim',
      got=', '.join(unknown),
      expected='one of '
      + ', '.join([*PAPERS, *(claim.name for claim in CLAIMS)]),
      where='--claim',
    )
  if not names:
    return CLAIMS
  return tuple(
    claim for claim in CLAIMS if any(claim in _named(name) for name in names)
  )


def needed(claims: tuple[Claim, ...]) -> tuple[Condition, ...]:
  """The conditions of claims, and those that they begin from."""
  by_name = {one.name: one for one in CONDITIONS}
  wanted = set(conditions_of(claims))
  for name in tuple(wanted):
    while (begun := by_name[name].begins_from) is not None:
      wanted.add(begun)
      name = begun
  return tuple(one for one in CONDITIONS if one.name in wanted)


def _named(name: str) -> tuple[Claim, ...]:
  return tuple(
    claim
    for claim in CLAIMS
    if claim.name == name or claim.paper.lower() == name.lower()
  )
