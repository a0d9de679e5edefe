"""Verdicts by the first seeds alone, and by the other measure."""

import dataclasses

from studies.replication import claims as claims_lib
from studies.replication import seeds as seeds_lib
from studies.replication.claims import Finding, Scores

_OTHER = {'transfer': 'retrieval', 'retrieval': 'transfer'}


def by_first_seeds(one: Finding, scores: Scores) -> Finding | None:
  """The finding of the first seeds alone; None where there are no more.

  Seeds were added after the first ones had been looked at.
  """
  if len(one.seeds) <= seeds_lib.DEFAULT_COUNT:
    return None
  kept = one.seeds[: seeds_lib.DEFAULT_COUNT]
  names = (one.claim.first, one.claim.second)
  fewer = {name: {seed: scores[name][seed] for seed in kept} for name in names}
  return claims_lib.evaluate_claim(one.claim, fewer)


def by_other_measure(one: Finding, scores: Scores) -> Finding | None:
  """The finding by retrieval in place of transfer, or the other way.

  None for other measures.
  """
  if one.claim.measure not in _OTHER:
    return None
  other = dataclasses.replace(one.claim, measure=_OTHER[one.claim.measure])
  return claims_lib.evaluate_claim(other, scores)
