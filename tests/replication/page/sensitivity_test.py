"""Verdicts that hang on later seeds or on the measure are told."""

from tests.replication import claims_test
from xlflax.replication import claims
from xlflax.replication.claims import Finding, Verdict
from xlflax.replication.page import sensitivity

GAINS = {  # of the second condition, ten seeds
  'early': [0.2, 0.21, 0.19, 0.2, 0.22, -0.9, 0.9, -0.8, 0.8, 0.1],
  'always': [0.2, 0.21, 0.19, 0.2, 0.22, 0.2, 0.18, 0.21, 0.2, 0.19],
  'never': [-0.2, -0.21, -0.19, -0.2, -0.22, -0.2, -0.18, -0.21, -0.2, -0.19],
}


def found(
  transfer: str, retrieval: str = 'always', count: int = 10, **fields
) -> tuple[Finding, claims.Scores]:
  claim = claims_test.claim(**{'measure': 'transfer', **fields})
  gains = list(zip(GAINS[transfer], GAINS[retrieval], strict=True))[:count]
  scores = {
    'x': dict.fromkeys(range(count), {'transfer': 0.5, 'retrieval': 0.5}),
    'y': {
      seed: {'transfer': 0.5 + one, 'retrieval': 0.5 + other}
      for seed, (one, other) in enumerate(gains)
    },
  }
  return claims.find(claim, scores), scores


def test_a_verdict_that_later_seeds_changed():
  one, scores = found('early', 'early')
  assert one.verdict is Verdict.NOT_RESOLVED
  fewer = sensitivity.by_first_seeds(one, scores)
  assert fewer.seeds == (0, 1, 2, 3, 4)
  assert fewer.verdict is Verdict.REPRODUCED


def test_no_more_than_the_first_seeds():
  one, scores = found('early', count=5)
  assert sensitivity.by_first_seeds(one, scores) is None


def test_a_verdict_by_the_other_measure():
  one, scores = found('always', 'never')
  other = sensitivity.by_other_measure(one, scores)
  assert one.verdict is Verdict.REPRODUCED
  assert other.claim.measure == 'retrieval'
  assert other.verdict is Verdict.CONTRADICTED


def test_no_other_measure():
  one, scores = found('always', measure='bleu')
  assert sensitivity.by_other_measure(one, scores) is None
