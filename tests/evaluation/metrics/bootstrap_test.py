import numpy as np
import pytest
import sacrebleu

from xlflax import errors
from xlflax.evaluation.metrics import aggregates, bootstrap

_F1 = aggregates.Aggregate.F1


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


def test_a_clear_difference_is_significant():
  first = aggregates.Statistics(np.repeat([0.0, 1.0], 50))
  second = aggregates.Statistics(np.repeat([0.0, 1.0], [20, 80]))
  found = bootstrap.compare(first, second, samples=500)
  assert (found.first, found.second) == (0.5, 0.8)
  assert found.difference == pytest.approx(0.3)
  assert found.p_value == pytest.approx(1 / 501)
  assert 0.2 < found.low < 0.3 < found.high < 0.4
  back = bootstrap.compare(second, first, samples=500)
  assert back.difference == pytest.approx(-0.3)
  assert back.p_value == found.p_value


def test_equal_models_do_not_differ():
  one = aggregates.Statistics(np.array([0.1, 0.7, 0.3]))
  assert bootstrap.compare(one, one).p_value == 1
  swapped = aggregates.Statistics(np.array([0.7, 0.3, 0.1]))
  assert bootstrap.compare(one, swapped).p_value == 1


def test_one_example_of_many_is_chance():
  first = np.zeros(100)
  second = first.copy()
  second[3] = 1
  found = bootstrap.compare(
    aggregates.Statistics(first), aggregates.Statistics(second), samples=4000
  )
  # The example is not drawn with probability (1 - 1 / 100) ** 100.
  assert found.p_value == pytest.approx(0.99**100, abs=0.03)


def test_sums_and_the_general_form_agree():
  """The same metric, resampled by a loop over examples."""
  rows = [_f1_rows(seed) for seed in (1, 2)]

  def scores(places):
    pair = [row[places].sum(0) for row in rows]
    return tuple(2 * s[0] / (s[1] + s[2]) for s in pair)

  fast = bootstrap.compare(
    *(aggregates.Statistics(row, _F1) for row in rows), samples=3000
  )
  slow = bootstrap.compare_corpora(30, scores, samples=3000, seed=1)
  assert fast.difference == pytest.approx(slow.difference)
  assert fast.p_value == pytest.approx(slow.p_value, abs=0.04)
  assert fast.low == pytest.approx(slow.low, abs=0.02)


def test_seeded_and_the_same_in_chunks(monkeypatch):
  pair = [aggregates.Statistics(_f1_rows(seed), _F1) for seed in (1, 2)]
  once = bootstrap.compare(*pair, seed=3)
  assert once == bootstrap.compare(*pair, seed=3)
  assert once != bootstrap.compare(*pair, seed=4)
  monkeypatch.setattr(bootstrap, '_CHUNK', 90)
  assert once == bootstrap.compare(*pair, seed=3)


@pytest.mark.parametrize(
  'kind, method', [('bleu', 'none'), ('smoothed_bleu', 'exp')]
)
def test_bleu_of_sums_equals_sacrebleu(kind, method):
  random = np.random.default_rng(0)
  totals = np.sort(random.integers(0, 6, (200, 4)))[:, ::-1]
  matches = np.minimum(totals, random.integers(0, 4, (200, 4)))
  lengths = random.integers(1, 9, (200, 2))
  sums = np.concatenate([matches, totals, lengths], 1)
  found = aggregates.score(sums, 1, aggregates.Aggregate(kind))
  expected = [
    sacrebleu.BLEU.compute_bleu(
      list(row[:4]), list(row[4:8]), row[8], row[9], smooth_method=method
    ).score
    for row in sums.tolist()
  ]
  np.testing.assert_allclose(found, expected, atol=1e-9)
  assert 0 < np.count_nonzero(found) < 200


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
def test_aggregates(kind, rows, value):
  assert aggregates.Statistics(np.array(rows), kind).value == pytest.approx(
    value
  )


def test_errors():
  mean = aggregates.Statistics(np.zeros(2))
  with pytest.raises(errors.ConfigError, match=r'Got: \(2, 2\)'):
    aggregates.Statistics(np.zeros((2, 2)), _F1)
  with pytest.raises(errors.ConfigError, match="'mean' and 'f1'"):
    bootstrap.compare(mean, aggregates.Statistics(np.zeros((2, 3)), _F1))
  with pytest.raises(errors.CorpusError, match='3 predicted, 2 gold'):
    bootstrap.compare(mean, aggregates.Statistics(np.zeros(3)))
  with pytest.raises(errors.CorpusError, match='no examples'):
    bootstrap.compare(*2 * [aggregates.Statistics(np.zeros(0))])
  with pytest.raises(errors.ConfigError, match='samples must be positive'):
    bootstrap.compare(mean, mean, samples=0)
