"""All claims and conditions, by paper."""

import importlib.resources
import tomllib

from xlflax.foundation import errors
from xlflax.replication.claims import Claim, Order, conditions_of
from xlflax.replication.conditions import Condition
from xlflax.replication.papers import ecs, metaxlm, ppa, veco

_PAPERS = {'ECS': ecs, 'MetaXLM': metaxlm, 'PPA': ppa, 'VECO': veco}
PAPERS = tuple(_PAPERS)
CONDITIONS: tuple[Condition, ...] = tuple(
  one for module in _PAPERS.values() for one in module.CONDITIONS
)


def _read_claims() -> tuple[Claim, ...]:
  """The claims of `papers/claims.toml`, in its order."""
  file = importlib.resources.files('xlflax.replication.papers') / 'claims.toml'
  tables = tomllib.loads(file.read_text(encoding='utf-8'))
  return tuple(
    Claim(
      paper=paper, **fields | {'order': Order(fields.get('order', 'below'))}
    )
    for paper, rows in tables.items()
    for fields in rows
  )


CLAIMS: tuple[Claim, ...] = _read_claims()


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
