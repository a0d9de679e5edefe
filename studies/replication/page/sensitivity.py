"""Repeated tests of claims with fewer seeds or with a different metric."""

import dataclasses

from studies.replication import seeds
from studies.replication.claims import Finding, Scores, evaluate_claim

_OTHER_MEASURE = {'transfer': 'retrieval', 'retrieval': 'transfer'}


def find_by_first_seeds(finding: Finding, scores: Scores) -> Finding | None:
  """Tests a claim again with only the seeds that were run first.

  Additional seeds were run after the results of the first seeds were known, so
  a page also reports the finding from the first seeds.

  Returns:
    The finding, or None if there are no additional seeds.
  """
  if len(finding.seeds) <= seeds.DEFAULT_COUNT:
    return None
  first_seeds = finding.seeds[: seeds.DEFAULT_COUNT]
  names = (finding.claim.first, finding.claim.second)
  first_scores = {
    name: {seed: scores[name][seed] for seed in first_seeds} for name in names
  }
  return evaluate_claim(finding.claim, first_scores)


def find_by_other_measure(finding: Finding, scores: Scores) -> Finding | None:
  """Tests a claim with retrieval scores instead of transfer scores.

  A claim about retrieval scores is tested with transfer scores.

  Returns:
    The finding, or None if the claim uses a different measure.
  """
  if finding.claim.measure not in _OTHER_MEASURE:
    return None
  claim = dataclasses.replace(
    finding.claim, measure=_OTHER_MEASURE[finding.claim.measure]
  )
  return evaluate_claim(claim, scores)
