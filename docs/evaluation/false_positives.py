"""How often equal models are called different, and intervals miss the truth.

Prints a table of simulated test sets: two models whose runs differ by their
seeds and by chance alone. `difference` is the difference that they truly have
in the second pair of columns.

  python docs/evaluation/false_positives.py [TRIALS]
"""

import sys
from typing import NamedTuple

import numpy as np

from xlflax.evaluation.metrics import aggregates, bootstrap


class Setting(NamedTuple):
  """What is simulated.

  Attributes:
    runs: seeds of each model.
    spread: standard deviation of the seeds' true accuracy.
    examples: in the test set.
  """

  runs: int
  spread: float
  examples: int = 200


SETTINGS = (
  Setting(1, 0.0),
  Setting(1, 0.0, 1000),
  Setting(3, 0.0),
  Setting(3, 0.02),
  Setting(3, 0.04),
  Setting(3, 0.08),
  Setting(5, 0.04),
)


class Rates(NamedTuple):
  """Shares of the trials.

  Attributes:
    significant: p < 0.05.
    covered: the 95 % interval holds the true difference.
  """

  significant: float
  covered: float


def rates(
  setting: Setting, *, difference: float, trials: int, samples: int = 200
) -> Rates:
  """Compares two models on `trials` simulated test sets.

  An example's chance of being right is its own, around 0.6, moved a little by
  each model and by each seed.
  """
  generator = np.random.default_rng(0)
  significant = covered = 0
  for trial in range(trials):
    ease = generator.normal(0.6, 0.1, setting.examples)
    models = [
      _runs(generator, ease + shift, setting) for shift in (0.0, difference)
    ]
    found = bootstrap.compare(*models, samples=samples, seed=trial)
    significant += found.p_value < 0.05
    covered += found.low <= difference <= found.high
  return Rates(significant / trials, covered / trials)


def _runs(generator, chance, setting) -> list[aggregates.Statistics]:
  """One model's runs; each example's score is 0 or 1."""
  chance = chance + generator.normal(0, 0.05, len(chance))
  return [
    aggregates.Statistics(
      (generator.random(len(chance)) < chance + seed).astype(float)
    )
    for seed in generator.normal(0, setting.spread, setting.runs)
  ]


def main(trials: int) -> None:
  """Prints a row for each setting."""
  print(
    '| seeds | spread | examples | p < 0.05, equal | covered, equal |', end=''
  )
  print(' p < 0.05, 5 points apart | covered, 5 points apart |')
  print('| ---: | ---: | ---: | ---: | ---: | ---: | ---: |')
  for one in SETTINGS:
    equal = rates(one, difference=0.0, trials=trials)
    apart = rates(one, difference=0.05, trials=trials)
    print(
      f'| {one.runs} | {100 * one.spread:.0f} | {one.examples} '
      f'| {equal.significant:.3f} | {equal.covered:.3f} '
      f'| {apart.significant:.3f} | {apart.covered:.3f} |',
      flush=True,
    )


if __name__ == '__main__':
  main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
