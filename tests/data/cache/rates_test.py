"""Tests of the sampling rates of tasks."""

import collections
import math

import numpy as np
import pytest

from tests.data.cache import loading
from tests.errors import raises_error
from xlflax.data.sampling import sampling_order
from xlflax.utils import errors


def test_statistics_of_cached_and_live_loaders(open_both):
  cached, live = open_both(layout='sentences', length=20, alpha=0.5)
  for loader in (cached, live):
    rows = {row.task: row for row in loader.statistics()}
    assert list(rows) == [f'corpus.mono.{code}' for code in ('de', 'en', 'ru')]
    assert [row.examples for row in rows.values()] == [60, 200, 100]
    expected = np.sqrt([60, 200, 100])
    np.testing.assert_allclose(
      [row.rate for row in rows.values()], expected / expected.sum()
    )
    assert rows['corpus.mono.en'].languages == ('en',)
  first = cached.statistics()[0]
  assert first.rows == 60 and 0 < first.truncated <= 60
  # A sequence of 20 tokens contains 18 text tokens.
  assert 60 * 5 < first.tokens <= 60 * 18


def test_rates_are_proportional_to_tokens(open_both, open_cached):
  loader = open_cached(alpha=1.0, sizes='tokens')
  tokens = [row.tokens for row in loader.statistics()]
  np.testing.assert_allclose(
    [row.rate for row in loader.statistics()], np.array(tokens) / sum(tokens)
  )
  pairs = {'layout': 'pairs', 'length': 64, 'alpha': 1.0, 'sizes': 'tokens'}
  all_statistics = open_cached(**pairs).statistics()
  few = open_cached(**pairs, max_examples=3)
  read = [3 * row.tokens // row.rows for row in all_statistics]
  np.testing.assert_allclose(
    [row.rate for row in few.statistics()], np.array(read) / sum(read)
  )
  with raises_error(
    errors.ConfigError, mentions=("dataset 's'", 'DatasetConfig.sizes=TOKENS')
  ):
    open_both(alpha=1.0, sizes='tokens')


def test_fraction_of_rows_follows_alpha(open_cached):
  loader = open_cached(alpha=0.5, layout='sentences')
  counts = collections.Counter()
  for step in range(128):
    counts.update(loader._schedule.slots(step)[0].tolist())
  expected = np.sqrt([60, 200, 100])
  np.testing.assert_allclose(
    [counts[i] for i in range(3)], 1024 * expected / expected.sum(), atol=1
  )


@pytest.mark.parametrize('limit', [None, 5])
def test_rates_count_only_pairs_that_pass_the_filters(open_cached, limit):
  """As in PPA, one epoch over the dataset is one epoch over every language."""
  loader = open_cached(
    layout='pairs',
    length=64,
    min_tokens=10,
    max_tokens=40,
    max_examples=limit,
    alpha=1.0,
  )
  (task_statistics,) = loader.statistics()
  assert task_statistics.examples > task_statistics.dropped > 0
  assert task_statistics.examples_read == task_statistics.examples
  assert loader._schedule.sizes.tolist() == [
    task_statistics.examples - task_statistics.dropped
    if limit is None
    else limit
  ]


def test_max_epochs_limits_the_uses_of_rows(open_cached):
  """Each task is used 1.5 times. Then the loader has no more batches."""
  loader = open_cached(max_epochs=1.5, alpha=1.0, layout='sentences')
  statistics = loader.statistics()
  max_uses = [math.floor(1.5 * task.rows) for task in statistics]
  batches = sum(max_uses) // 8
  assert loader.num_batches == batches
  batch_rows = [loader.rows(step, 0, 8) for step in range(batches)]
  rows = collections.Counter(
    (int(language[1]), ids.tobytes())
    for batch in batch_rows
    for language, ids in zip(
      batch['language_ids'], batch['token_ids'], strict=True
    )
  )
  rows_by_language = collections.Counter(
    language for language, _ in rows.elements()
  )
  assert sum(max_uses) - 8 < sum(rows_by_language.values()) <= sum(max_uses)
  for count, limit in zip(
    sorted(rows_by_language.values()), sorted(max_uses), strict=True
  ):
    assert limit - 8 < count <= limit
  read = sampling_order.count_rows_read(loader.dataset, statistics, 10**6)
  np.testing.assert_array_equal(read, [1.5 * task.rows for task in statistics])
  with raises_error(
    errors.ConfigError, mentions=("dataset 's'", 'max_epochs', 68)
  ):
    loader.rows(batches + 1, 0, 8)


def test_max_epochs_requires_a_cache(open_both):
  with raises_error(
    errors.ConfigError, mentions=("dataset 's'", 'DatasetConfig.max_epochs=2.0')
  ):
    open_both(max_epochs=2)


@pytest.mark.parametrize('value', [0, -1, float('inf'), float('nan')])
def test_max_epochs_must_be_positive(value):
  with raises_error(
    errors.ConfigError, mentions=('max_epochs', 's', 'DatasetConfig.max_epochs')
  ):
    loading.dataset(max_epochs=value)
