"""Simulation of false positives in significance tests between models.

Two models are compared on simulated test sets, on which they differ only by
their seeds and by chance. The program prints two tables with the results of
these tests, and the fraction of leaderboards with equally good models on which
a model is marked as significantly better. The first table also contains models
with a true difference of 5 points. A 95 % interval should contain the true
difference in 95 % of the trials.

  python -m studies.evaluation.false_positives [TRIALS [LEADERBOARDS]]
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from studies import command_line
from xlflax.evaluation.metrics import bootstrap, example_statistics
from xlflax.evaluation.reports import leaderboard, score_table

_Runs = list[example_statistics.Statistics]


class Setting(NamedTuple):
  """Parameters of a simulated comparison between two models.

  Attributes:
    num_seeds: Number of seeds per model.
    seed_std: Standard deviation of a model's true accuracy over its seeds.
    num_examples: Number of examples in the test set.
    cluster_size: Number of examples in a cluster, such as the questions about
      the same text.
    num_languages: Number of languages, over which the scores are averaged
      before the comparison. The languages' test sets are translations of each
      other.
  """

  num_seeds: int
  seed_std: float
  num_examples: int = 200
  cluster_size: int = 1
  num_languages: int = 1


SETTINGS = (
  Setting(1, 0.0),
  Setting(1, 0.0, 1000),
  Setting(3, 0.0),
  Setting(3, 0.02),
  Setting(3, 0.04),
  Setting(3, 0.08),
  Setting(5, 0.04),
)
CLUSTERED_SETTINGS = (
  Setting(1, 0.0, 100, 10),
  Setting(1, 0.0, 200, 5),
  Setting(3, 0.02, 1200, 25),
)
# Standard deviation of a model's probability of success over examples, and over
# clusters of examples.
_EXAMPLE_STD = 0.05
_CLUSTER_STD = 0.15


class Rates(NamedTuple):
  """Rates of significant results and of correct intervals in simulations.

  Attributes:
    significant: Fraction of comparisons with p < 0.05.
    covered: Fraction of comparisons in which the 95 % interval contains the
      true difference.
    significant_unclustered: Fraction of comparisons with p < 0.05 if the
      significance test ignores the clusters.
  """

  significant: float
  covered: float
  significant_unclustered: float


def simulate_rates(
  setting: Setting, *, difference: float, trials: int, samples: int = 200
) -> Rates:
  """Compares two models repeatedly on simulated test sets.

  For each example, a probability of success is drawn around 0.6. Each model,
  each seed, and each combination of a model and a cluster adds a random
  deviation to it.

  Args:
    setting: Parameters of the simulation.
    difference: True difference between the models' accuracies.
    trials: Number of simulated test sets.
    samples: Number of bootstrap samples per significance test.
  """
  generator = np.random.default_rng(0)
  significant = covered = significant_unclustered = 0
  for trial in range(trials):
    probabilities = generator.normal(0.6, 0.1, setting.num_examples)
    models = [
      simulate_runs(generator, probabilities + shift, setting)
      for shift in (0.0, difference)
    ]
    comparison = _compare(models, samples, trial)
    significant += comparison.p_value < 0.05
    covered += comparison.low <= difference <= comparison.high
    if setting.cluster_size > 1 and not difference:
      models = [
        [
          [example_statistics.Statistics(run.rows) for run in runs]
          for runs in runs_by_language
        ]
        for runs_by_language in models
      ]
      comparison = _compare(models, samples, trial)
    significant_unclustered += comparison.p_value < 0.05
  return Rates(
    significant / trials, covered / trials, significant_unclustered / trials
  )


def _compare(
  models: list[list[_Runs]], samples: int, seed: int
) -> bootstrap.Significance:
  """Compares two models by their mean scores over languages."""
  return bootstrap.score_difference(
    *(
      bootstrap.combine_draws(
        [
          bootstrap.bootstrap_scores(runs, samples=samples, seed=seed)
          for runs in runs_by_language
        ],
        [1 / len(runs_by_language)] * len(runs_by_language),
      )
      for runs_by_language in models
    )
  )


def simulate_runs(
  generator: np.random.Generator, probabilities: np.ndarray, setting: Setting
) -> list[_Runs]:
  """Simulates the test results of a model in each language.

  Args:
    generator: Random number generator.
    probabilities: Probability of a correct prediction on each example, of shape
      [examples].
    setting: Parameters of the simulation.

  Returns:
    The runs in each language. The score of an example is 0 or 1.
  """
  num_examples = len(probabilities)
  is_clustered = setting.cluster_size > 1
  clusters = np.arange(num_examples) // setting.cluster_size
  if is_clustered:
    deviations = generator.normal(0, _CLUSTER_STD, clusters[-1] + 1)
    probabilities = probabilities + deviations[clusters]
  seed_deviations = generator.normal(0, setting.seed_std, setting.num_seeds)

  runs_by_language = []
  for _ in range(setting.num_languages):
    in_language = probabilities + generator.normal(
      0, _EXAMPLE_STD, num_examples
    )
    runs_by_language.append(
      [
        example_statistics.Statistics(
          (generator.random(num_examples) < in_language + deviation).astype(
            float
          ),
          clusters=clusters if is_clustered else None,
        )
        for deviation in seed_deviations
      ]
    )
  return runs_by_language


def false_positive_rate(
  setting: Setting, *, num_leaderboards: int, num_models: int, num_tasks: int
) -> float:
  """Returns the fraction of simulated leaderboards with a false positive.

  All models are equally good. A leaderboard has a false positive if it marks at
  least one difference between two models as significant.

  Args:
    setting: Parameters of the simulation.
    num_leaderboards: Number of simulated leaderboards.
    num_models: Number of models on each leaderboard.
    num_tasks: Number of tasks on each leaderboard.
  """
  generator = np.random.default_rng(1)
  languages = [f'l{i}' for i in range(setting.num_languages)]
  false_positives = 0
  for seed in range(num_leaderboards):
    task_probabilities = generator.normal(
      0.6, 0.1, (num_tasks, setting.num_examples)
    )
    tables = [
      score_table.ScoreTable(
        f'm{model}',
        tuple(
          score_table.Score(
            f't{task}', 'accuracy', language, runs[0].value, runs
          )
          for task, probabilities in enumerate(task_probabilities)
          for language, runs in zip(
            languages,
            map(tuple, simulate_runs(generator, probabilities, setting)),
            strict=True,
          )
        ),
      )
      for model in range(num_models)
    ]
    comparisons = leaderboard.compare_models(tables, samples=200, seed=seed)
    false_positives += any(
      (comparison.adjusted_p or 1) < 0.05 for comparison in comparisons
    )
  return false_positives / num_leaderboards


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser(
    'studies.evaluation.false_positives', __doc__
  )
  parser.add_argument(
    'trials',
    type=int,
    nargs='?',
    default=1000,
    metavar='TRIALS',
    help='Number of simulated test sets for each setting.',
  )
  parser.add_argument(
    'leaderboards',
    type=int,
    nargs='?',
    default=100,
    metavar='LEADERBOARDS',
    help='Number of simulated leaderboards.',
  )
  return command_line.run_command(
    parser, lambda args: print_rates(args.trials, args.leaderboards), arguments
  )


def print_rates(trials: int, num_leaderboards: int) -> None:
  """Simulates each setting and prints its error rates as a table line.

  Args:
    trials: Number of simulated test sets for each setting.
    num_leaderboards: Number of simulated leaderboards.
  """
  print(
    '| seeds | spread | examples | p < 0.05, equal | coverage, equal ', end=''
  )
  print('| p < 0.05, 5 points apart | coverage, 5 points apart |')
  print('|' + ' ---: |' * 7)
  for setting in SETTINGS:
    equal = simulate_rates(setting, difference=0.0, trials=trials)
    apart = simulate_rates(setting, difference=0.05, trials=trials)
    print(
      f'| {setting.num_seeds} | {100 * setting.seed_std:.0f} '
      f'| {setting.num_examples} '
      f'| {equal.significant:.3f} | {equal.covered:.3f} '
      f'| {apart.significant:.3f} | {apart.covered:.3f} |',
      flush=True,
    )

  print('\n| seeds | spread | examples | cluster size | languages ', end='')
  print('| p < 0.05 | p < 0.05, clusters ignored | coverage |')
  print('|' + ' ---: |' * 8)
  for setting in CLUSTERED_SETTINGS:
    equal = simulate_rates(setting, difference=0.0, trials=trials)
    print(
      f'| {setting.num_seeds} | {100 * setting.seed_std:.0f} '
      f'| {setting.num_examples} | {setting.cluster_size} '
      f'| {setting.num_languages} | {equal.significant:.3f} '
      f'| {equal.significant_unclustered:.3f} | {equal.covered:.3f} |',
      flush=True,
    )

  rate = false_positive_rate(
    Setting(1, 0.0, 200, 5, 3),
    num_leaderboards=num_leaderboards,
    num_models=5,
    num_tasks=9,
  )
  print(f'\nLeaderboards of equal models with a star: {rate:.3f}')


if __name__ == '__main__':
  sys.exit(main())
