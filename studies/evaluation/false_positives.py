"""How often equal models are called different, and intervals miss the truth.

Prints tables of simulated test sets: two models whose runs differ by their
seeds and by chance alone, and of boards of such models. `difference` is the
difference that they truly have in the second pair of columns.

  python -m studies.evaluation.false_positives [TRIALS [BOARDS]]
"""

import sys
from typing import NamedTuple

import numpy as np

from xlflax.evaluation.metrics import bootstrap, example_statistics
from xlflax.evaluation.reports import leaderboard, score_table


class Setting(NamedTuple):
  """What is simulated.

  Attributes:
    runs: seeds of each model.
    spread: standard deviation of the seeds' true accuracy.
    examples: in the test set.
    together: examples of a cluster, such as the questions of a text.
    languages: whose mean is compared; their test sets are translations.
  """

  runs: int
  spread: float
  examples: int = 200
  together: int = 1
  languages: int = 1


SETTINGS = (
  Setting(1, 0.0),
  Setting(1, 0.0, 1000),
  Setting(3, 0.0),
  Setting(3, 0.02),
  Setting(3, 0.04),
  Setting(3, 0.08),
  Setting(5, 0.04),
)
CLUSTERED = (
  Setting(1, 0.0, 100, 10),
  Setting(1, 0.0, 200, 5),
  Setting(3, 0.02, 1200, 25),
)
_OWN = 0.05  # standard deviation of a model's chance on an example
_CLUSTER = 0.15  # and on a cluster of them


class Rates(NamedTuple):
  """Shares of the trials.

  Attributes:
    significant: p < 0.05.
    covered: the 95 % interval holds the true difference.
    alone: p < 0.05 where the clusters are not known.
  """

  significant: float
  covered: float
  alone: float


def rates(
  setting: Setting, *, difference: float, trials: int, samples: int = 200
) -> Rates:
  """Compares two models on `trials` simulated test sets.

  An example's chance of being right is its own, around 0.6, moved a little by
  each model, by each seed and by what a model makes of its cluster.
  """
  generator = np.random.default_rng(0)
  significant = covered = alone = 0
  for trial in range(trials):
    ease = generator.normal(0.6, 0.1, setting.examples)
    models = [
      languages(generator, ease + shift, setting) for shift in (0.0, difference)
    ]
    found = _compared(models, samples, trial)
    significant += found.p_value < 0.05
    covered += found.low <= difference <= found.high
    if setting.together > 1 and not difference:
      models = [
        [
          [example_statistics.Statistics(run.rows) for run in runs]
          for runs in model
        ]
        for model in models
      ]
      found = _compared(models, samples, trial)
    alone += found.p_value < 0.05
  return Rates(significant / trials, covered / trials, alone / trials)


def _compared(models, samples, seed) -> bootstrap.Significance:
  return bootstrap.score_difference(
    *(
      bootstrap.combine_draws(
        [
          bootstrap.bootstrap_scores(one, samples=samples, seed=seed)
          for one in model
        ],
        [1 / len(model)] * len(model),
      )
      for model in models
    )
  )


def languages(
  generator, chance, setting
) -> list[list[example_statistics.Statistics]]:
  """One model's runs in each language; each example's score is 0 or 1."""
  together, size = setting.together, len(chance)
  clusters = np.arange(size) // together
  if together > 1:
    moved = generator.normal(0, _CLUSTER, clusters[-1] + 1)[clusters]
    chance = chance + moved
  seeds = generator.normal(0, setting.spread, setting.runs)
  return [
    [
      example_statistics.Statistics(
        (generator.random(size) < own + seed).astype(float),
        clusters=clusters if together > 1 else None,
      )
      for seed in seeds
    ]
    for own in (
      chance + generator.normal(0, _OWN, size) for _ in range(setting.languages)
    )
  ]


def stars(setting: Setting, *, boards: int, models: int, tasks: int) -> float:
  """The share of boards of equal models that have a star."""
  generator = np.random.default_rng(1)
  names = [f'l{i}' for i in range(setting.languages)]
  wrong = 0
  for board in range(boards):
    eases = generator.normal(0.6, 0.1, (tasks, setting.examples))
    tables = [
      score_table.ScoreTable(
        f'm{model}',
        tuple(
          score_table.Score(f't{task}', 'accuracy', name, runs[0].value, runs)
          for task, ease in enumerate(eases)
          for name, runs in zip(
            names, map(tuple, languages(generator, ease, setting)), strict=True
          )
        ),
      )
      for model in range(models)
    ]
    found = leaderboard.compare_models(tables, samples=200, seed=board)
    wrong += any((one.adjusted_p or 1) < 0.05 for one in found)
  return wrong / boards


def main(trials: int, boards: int) -> None:
  """Prints a row for each setting."""
  print(
    '| seeds | spread | examples | p < 0.05, equal | covered, equal ', end=''
  )
  print('| p < 0.05, 5 points apart | covered, 5 points apart |')
  print('|' + ' ---: |' * 7)
  for one in SETTINGS:
    equal = rates(one, difference=0.0, trials=trials)
    apart = rates(one, difference=0.05, trials=trials)
    print(
      f'| {one.runs} | {100 * one.spread:.0f} | {one.examples} '
      f'| {equal.significant:.3f} | {equal.covered:.3f} '
      f'| {apart.significant:.3f} | {apart.covered:.3f} |',
      flush=True,
    )
  print('\n| seeds | spread | examples | in clusters of | languages ', end='')
  print('| p < 0.05 | p < 0.05, clusters not known | covered |')
  print('|' + ' ---: |' * 8)
  for one in CLUSTERED:
    equal = rates(one, difference=0.0, trials=trials)
    print(
      f'| {one.runs} | {100 * one.spread:.0f} | {one.examples} '
      f'| {one.together} | {one.languages} | {equal.significant:.3f} '
      f'| {equal.alone:.3f} | {equal.covered:.3f} |',
      flush=True,
    )
  board = Setting(1, 0.0, 200, 5, 3)
  share = stars(board, boards=boards, models=5, tasks=9)
  print(f'\nBoards of equal models with a star: {share:.3f}')


if __name__ == '__main__':
  main(*(int(one) for one in sys.argv[1:3] or (1000, 100)))
