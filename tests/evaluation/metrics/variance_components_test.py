import numpy as np
import pytest
import scipy.stats

from xlflax.evaluation.metrics import variance_components


def _spread(**parts):
  defaults = {'examples': 0.0, 'interaction': 0.0, 'runs': 0.0}
  return variance_components.Spread(
    **defaults | {'example_freedom': 150.0, 'run_freedom': 4} | parts
  )


@pytest.mark.parametrize('freedom', [1, 2, 4, 18])
def test_variance_of_runs_gives_students_t(freedom):
  interval = _spread(runs=4.0, run_freedom=freedom)
  student = scipy.stats.t(freedom)
  assert interval.error == 2
  assert variance_components.interval_half_width(interval) == pytest.approx(
    2 * student.ppf(0.975)
  )
  for difference in (-0.5, 3.0, 20.0):
    assert variance_components.p_value(difference, interval) == pytest.approx(
      2 * student.sf(abs(difference) / 2)
    )


@pytest.mark.parametrize('num_draws', [5.0, 40.0, 200.0, 1e4])
def test_variance_of_examples_gives_students_t(num_draws):
  interval = _spread(examples=1.0, example_freedom=num_draws)
  expected = scipy.stats.t(num_draws).ppf(0.975)
  assert variance_components.interval_half_width(interval) == pytest.approx(
    expected, rel=2e-3
  )


def test_variance_components_of_simulated_scores():
  """The scores are sums of components with known variances."""
  random = np.random.default_rng(0)
  size, runs = 40, 400
  scores = random.normal(0, 0.3, 2 * runs) + random.normal(0, 0.2, 2 * runs)
  examples = np.repeat(random.normal(0, 0.5, (5000, 2)), runs, 1)
  drawn_scores = scores + examples + random.normal(0, 0.2, (5000, 2 * runs))
  sides = np.split(np.arange(2 * runs), 2)
  variance = variance_components.estimate_variance(
    scores, drawn_scores, sides, size
  )
  assert variance.examples == pytest.approx(2 * 0.5**2, rel=0.1)
  assert variance.interaction * runs / 2 == pytest.approx(0.2**2, rel=0.1)
  assert variance.runs * runs / 2 == pytest.approx(0.3**2 + 0.2**2, rel=0.1)
  assert variance.run_freedom == 2 * runs - 2
  assert variance.example_freedom == pytest.approx(1 / (1 / 39 + 1 / 4999))
  alone = variance_components.estimate_variance(
    scores[:runs], drawn_scores[:, :runs], sides[:1], size
  )
  assert alone.examples == pytest.approx(0.5**2, rel=0.1)


@pytest.mark.parametrize('seeds', [0.0, 0.5, 3.0])
def test_p_values_of_normal_scores_reject_5_percent(seeds):
  """Simulates several seeds and 200 examples with interaction variance 1."""
  random = np.random.default_rng(1)
  trials, num_draws, freedom, share = 1500, 200, 4, 2 / 3
  beyond = 0
  for _ in range(trials):
    of_examples = share * random.chisquare(num_draws) / num_draws
    within = (
      share * random.chisquare(freedom * num_draws) / (freedom * num_draws)
    )
    between = share * (1 + seeds) * random.chisquare(freedom) / freedom
    intervals = _spread(
      examples=max(of_examples - within, 0.0),
      interaction=within,
      runs=between,
      example_freedom=num_draws,
    )
    difference = random.normal(0, np.sqrt(share * (1 + seeds)))
    beyond += variance_components.p_value(difference, intervals) < 0.05
  assert beyond / trials == pytest.approx(0.05, abs=0.015)
