import json
import runpy

import numpy as np
import pytest
import sacrebleu
import scipy.stats

from tests.errors import raises_error
from xlflax.evaluation.metrics import bootstrap, example_statistics
from xlflax.utils import errors

_F1 = example_statistics.Aggregate.F1


def _f1_rows(seed, size=30):
  random = np.random.default_rng(seed)
  predicted, gold = random.integers(1, 4, (2, size))
  return np.stack(
    [
      np.minimum(predicted, gold) - random.integers(0, 2, size),
      predicted,
      gold,
    ],
    1,
  )


def _mean(scores):
  return example_statistics.Statistics(np.array(scores, float))


def test_large_difference_is_significant():
  first = _mean(np.repeat([0.0, 1.0], 50))
  second = _mean(np.repeat([0.0, 1.0], [20, 80]))
  comparison = bootstrap.compare_models(first, second, samples=500)
  assert (comparison.first, comparison.second, comparison.runs) == (
    0.5,
    0.8,
    (1, 1),
  )
  assert comparison.difference == pytest.approx(0.3)
  # The p-value is smaller than the resolution of the draws.
  assert 1e-10 < comparison.p_value < 1e-6
  assert 0.2 < comparison.low < 0.3 < comparison.high < 0.4
  back = bootstrap.compare_models(second, first, samples=500)
  assert back.difference == pytest.approx(-0.3)
  assert back.p_value == comparison.p_value


def test_equal_models_have_p_value_1():
  mean_statistics = _mean([0.1, 0.7, 0.3])
  assert bootstrap.compare_models(mean_statistics, mean_statistics).p_value == 1
  assert (
    bootstrap.compare_models(mean_statistics, _mean([0.7, 0.3, 0.1])).p_value
    == 1
  )
  assert (
    bootstrap.compare_models(
      [mean_statistics] * 3, [mean_statistics] * 3
    ).p_value
    == 1
  )
  far = [_mean(np.zeros(9))] * 2, [_mean(np.ones(9))] * 2
  assert bootstrap.compare_models(*far, samples=99).p_value == 1 / 100


def test_p_value_of_one_different_example_equals_scipy():
  first = np.zeros(100)
  second = first.copy()
  second[3] = 1
  comparison = bootstrap.compare_models(
    _mean(first), _mean(second), samples=4000
  )
  expected = scipy.stats.ttest_rel(second, first).pvalue
  assert comparison.p_value == pytest.approx(expected, abs=0.02)


def test_resampled_sums_equal_a_loop_over_examples():
  rows = [_f1_rows(seed) for seed in (1, 2)]
  generator = np.random.default_rng(1)

  def difference(indices):
    sums = [row[indices].sum(0) for row in rows]
    first, second = (2 * s[0] / (s[1] + s[2]) for s in sums)
    return second - first

  fast = bootstrap.compare_models(
    *(example_statistics.Statistics(row, _F1) for row in rows), samples=3000
  )
  slow = [difference(generator.integers(0, 30, 30)) for _ in range(3000)]
  assert fast.difference == pytest.approx(difference(np.arange(30)))
  assert [fast.low, fast.high] == pytest.approx(
    np.percentile(slow, (2.5, 97.5)), abs=0.02
  )
  tails = np.mean(np.array(slow) <= 0), np.mean(np.array(slow) >= 0)
  assert fast.p_value == pytest.approx(2 * min(tails), abs=0.05)


def test_variance_of_seeds_is_included():
  """If examples are equal, the variance is that of the seeds."""
  first = [_mean(np.full(50, value)) for value in (0.50, 0.52, 0.54)]
  second = [_mean(np.full(50, value)) for value in (0.53, 0.55, 0.60)]
  comparison = bootstrap.compare_models(first, second, samples=200)
  expected = scipy.stats.ttest_ind(
    [0.53, 0.55, 0.60], [0.50, 0.52, 0.54], equal_var=True
  )
  assert comparison.p_value == pytest.approx(expected.pvalue)
  bounds = expected.confidence_interval()
  assert [comparison.low, comparison.high] == pytest.approx(
    [bounds.low, bounds.high]
  )
  assert (comparison.difference, comparison.runs) == (
    pytest.approx(0.04),
    (3, 3),
  )
  # A single run uses the variance of the other model's runs.
  assert (
    0.05 < bootstrap.compare_models(first[0], second, samples=200).p_value < 1
  )


def test_variance_of_examples_is_included():
  first_scores, other = np.random.default_rng(0).random((2, 400))
  single = bootstrap.compare_models(
    _mean(first_scores), _mean(other), samples=2000
  )
  seed_comparison = bootstrap.compare_models(
    [_mean(first_scores)] * 3, [_mean(other)] * 3
  )
  assert seed_comparison.p_value == pytest.approx(single.p_value, abs=0.05)
  assert seed_comparison.low == pytest.approx(single.low, abs=0.005)


@pytest.mark.parametrize(
  'runs, spread, examples, together, languages',
  [
    (1, 0.0, 200, 1, 1),
    pytest.param(3, 0.0, 200, 1, 1, marks=pytest.mark.slow),
    pytest.param(3, 0.04, 200, 1, 1, marks=pytest.mark.slow),
    (1, 0.0, 200, 10, 1),  # 0.11 without clusters
    pytest.param(3, 0.02, 200, 5, 1, marks=pytest.mark.slow),
    # The translations of an example are resampled together.
    pytest.param(1, 0.0, 200, 5, 3, marks=pytest.mark.slow),
  ],
)
def test_false_positive_rate_is_5_percent(
  runs, spread, examples, together, languages
):
  """docs/measured/evaluation.md reports the same simulation with more trials."""
  program = runpy.run_module('studies.evaluation.false_positives')
  error_rates = program['simulate_rates'](
    program['Setting'](runs, spread, examples, together, languages),
    difference=0.0,
    trials=800,
    samples=200,
  )
  assert error_rates.significant == pytest.approx(0.05, abs=0.02)
  assert error_rates.covered == pytest.approx(0.95, abs=0.02)


def test_holm_correction_docstring_example():
  assert bootstrap.holm_correction([0.01, 0.04, 0.03]) == pytest.approx(
    [0.03, 0.06, 0.06]
  )
  assert (
    bootstrap.holm_correction([0.9, 0.6]) == [1, 1]
    and bootstrap.holm_correction([]) == []
  )


def test_comparison_depends_on_the_seed_but_not_on_chunks(monkeypatch):
  pair = [example_statistics.Statistics(_f1_rows(seed), _F1) for seed in (1, 2)]
  once = bootstrap.compare_models(*pair, seed=3)
  assert once == bootstrap.compare_models(*pair, seed=3)
  assert once != bootstrap.compare_models(*pair, seed=4)
  monkeypatch.setattr(bootstrap, '_CHUNK', 90)
  assert once == bootstrap.compare_models(*pair, seed=3)


@pytest.mark.parametrize(
  'kind, method', [('bleu', 'none'), ('smoothed_bleu', 'exp')]
)
def test_bleu_of_sums_equals_sacrebleu(kind, method):
  random = np.random.default_rng(0)
  totals = np.sort(random.integers(0, 6, (200, 4)))[:, ::-1]
  matches = np.minimum(totals, random.integers(0, 4, (200, 4)))
  lengths = random.integers(1, 9, (200, 2))
  sums = np.concatenate([matches, totals, lengths], 1)
  score = example_statistics.aggregate_scores(
    sums, 1, example_statistics.Aggregate(kind)
  )
  expected = [
    sacrebleu.BLEU.compute_bleu(
      list(row[:4]), list(row[4:8]), row[8], row[9], smooth_method=method
    ).score
    for row in sums.tolist()
  ]
  np.testing.assert_allclose(score, expected, atol=1e-9)
  assert 0 < np.count_nonzero(score) < 200


@pytest.mark.parametrize(
  'kind, rows, value',
  [
    ('mean', [[0.5], [1.0]], 0.75),
    ('ratio', [[1, 2], [1, 6]], 0.25),
    ('f1', [[1, 2, 2]], 0.5),
    ('f1', [[0, 0, 0]], 0.0),
    ('aer', [[1, 2, 3, 2]], 0.4),
  ],
)
def test_values_of_all_aggregates(kind, rows, value):
  assert example_statistics.Statistics(
    np.array(rows), kind
  ).value == pytest.approx(value)


def test_invalid_statistics_are_rejected():
  mean = example_statistics.Statistics(np.zeros(2))
  with raises_error(errors.ConfigError, got='(2, 2)', where='Statistics.rows'):
    example_statistics.Statistics(np.zeros((2, 2)), _F1)
  with raises_error(errors.ConfigError, mentions=('mean', 'f1')):
    bootstrap.compare_models(
      mean, example_statistics.Statistics(np.zeros((2, 3)), _F1)
    )
  with raises_error(errors.CorpusError, mentions=(3, 2)):
    bootstrap.compare_models(mean, example_statistics.Statistics(np.zeros(3)))
  with raises_error(errors.CorpusError, got=0):
    bootstrap.compare_models(*2 * [example_statistics.Statistics(np.zeros(0))])
  with raises_error(errors.ConfigError, got=0, mentions='samples'):
    bootstrap.compare_models(mean, mean, samples=0)


def test_interval_of_a_mean_equals_scipy():
  mean_statistics = _mean(np.random.default_rng(0).random(60))
  interval = bootstrap.confidence_interval(
    bootstrap.bootstrap_scores(mean_statistics, samples=4000)
  )
  expected = scipy.stats.bootstrap(
    (mean_statistics.rows[:, 0],),
    np.mean,
    n_resamples=4000,
    method='percentile',
    rng=1,
  ).confidence_interval
  assert interval == pytest.approx((expected.low, expected.high), abs=0.01)


def test_interval_of_several_seeds_contains_their_variance():
  """If all examples are equal, this is Student's t over the runs."""
  runs = [_mean(np.full(50, value)) for value in (0.2, 0.4, 0.6)]
  low, high = bootstrap.confidence_interval(bootstrap.bootstrap_scores(runs))
  reach = scipy.stats.t.ppf(0.975, 2) * 0.2 / np.sqrt(3)
  assert (low, high) == pytest.approx((0.4 - reach, 0.4 + reach))
  assert bootstrap.confidence_interval(
    bootstrap.bootstrap_scores([_mean(np.ones(5))] * 2)
  ) == (1, 1)
  with raises_error(errors.CorpusError, got=0):
    bootstrap.bootstrap_scores(_mean([]))


def test_clusters_are_resampled_together():
  """Two clusters of equal examples count as two examples."""
  rows = np.repeat([0.0, 1.0], [3, 9])
  names = np.repeat(['b', 'a'], [3, 9])
  draws = bootstrap.bootstrap_scores(
    example_statistics.Statistics(rows, clusters=names)
  )
  assert draws.size == 2 and set(draws.values.ravel()) == {0.0, 0.75, 1.0}
  alone = example_statistics.Statistics(rows, clusters=np.arange(12))
  assert bootstrap.bootstrap_scores(alone).values.tolist() == (
    bootstrap.bootstrap_scores(_mean(rows)).values.tolist()
  )
  copy = example_statistics.Statistics.from_json(
    json.loads(
      json.dumps(example_statistics.Statistics(rows, clusters=names).to_json())
    )
  )
  assert copy.by_cluster().rows.tolist() == [[0.0, 3.0], [9.0, 9.0]]
  single_cluster = example_statistics.Statistics(rows, clusters=np.zeros(12))
  better = example_statistics.Statistics(rows + 0.1, clusters=np.zeros(12))
  # No examples were resampled.
  assert bootstrap.compare_models(single_cluster, better).p_value == 1
  with pytest.raises(errors.CorpusError):
    bootstrap.compare_models(_mean(rows), copy)


def test_means_of_translations_keep_their_correlation():
  """The mean of a language and its copy has the same interval."""
  mean_statistics = _mean(np.random.default_rng(0).random(50))
  draws = bootstrap.bootstrap_scores(mean_statistics)
  combined_draws = bootstrap.combine_draws([draws, draws], [0.5, 0.5])
  assert bootstrap.confidence_interval(combined_draws) == pytest.approx(
    bootstrap.confidence_interval(bootstrap.bootstrap_scores(mean_statistics))
  )
  gap = bootstrap.combine_draws([draws, draws], [1.0, -1.0])
  assert bootstrap.confidence_interval(gap) == (0, 0)
  three = bootstrap.bootstrap_scores([mean_statistics] * 3)
  assert len(bootstrap.combine_draws([draws, three], [1, 1]).scores) == 3
  assert (
    bootstrap.combine_draws(
      [bootstrap.bootstrap_scores([mean_statistics] * 2), three], [1, 1]
    )
    is None
  )


@pytest.mark.parametrize('kind', ['spearman', 'pearson'])
def test_interval_of_a_correlation_equals_scipy(kind):
  gold, noise = np.random.default_rng(0).normal(size=(2, 80))
  predicted = gold + noise
  metric = {'spearman': scipy.stats.spearmanr, 'pearson': scipy.stats.pearsonr}
  correlation_statistics = example_statistics.Statistics(
    np.stack([gold, predicted], 1), kind
  )
  assert correlation_statistics.value == pytest.approx(
    metric[kind](gold, predicted).statistic
  )
  expected = scipy.stats.bootstrap(
    (gold, predicted),
    lambda a, b: metric[kind](a, b).statistic,
    paired=True,
    vectorized=False,
    n_resamples=1000,
    method='percentile',
    rng=1,
  ).confidence_interval
  assert bootstrap.confidence_interval(
    bootstrap.bootstrap_scores(correlation_statistics)
  ) == pytest.approx((expected.low, expected.high), abs=0.03)


@pytest.mark.parametrize('kind', ['v_measure', 'average_precision'])
def test_interval_contains_the_score_of_all_examples(kind):
  first = np.random.default_rng(1).integers(0, 2, 40)
  rows = np.stack([first, np.where(np.arange(40) % 5, first, 1 - first)], 1)
  low, high = bootstrap.confidence_interval(
    bootstrap.bootstrap_scores(
      example_statistics.Statistics(rows, kind), samples=99
    )
  )
  value = example_statistics.Statistics(rows, kind).value
  assert low < value < high and high - low < 0.8
