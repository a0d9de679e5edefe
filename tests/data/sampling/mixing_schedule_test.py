import concurrent.futures
import dataclasses
import time

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data import dataset_config
from xlflax.data.sampling import mixing_schedule
from xlflax.utils import errors

_MIXED = dataset_config.LanguageBatching.MIXED
_ONE = dataset_config.LanguageBatching.ONE_LANGUAGE


def _make(rates, batching=_MIXED, batch_size=4, key=1, block_steps=8):
  rates = np.asarray(rates, np.float64)
  function = lambda step: rates  # noqa: E731
  return mixing_schedule.TaskSchedule(
    function,
    batch_size=batch_size,
    batching=batching,
    key=key,
    block_steps=block_steps,
  )


def test_sampling_rates_match_hand_computed_values():
  sizes = np.array([900, 100])
  np.testing.assert_allclose(
    mixing_schedule.sampling_rates(sizes, 1), [0.9, 0.1]
  )
  np.testing.assert_allclose(
    mixing_schedule.sampling_rates(sizes, 0), [0.5, 0.5]
  )
  np.testing.assert_allclose(
    mixing_schedule.sampling_rates(sizes, 0.5), [0.75, 0.25]
  )


@pytest.mark.parametrize(
  'credit, total, counts',
  [
    ([1.5, 0.9, -0.4], 2, [1, 1, 0]),
    ([2.5, 1.5], 4, [3, 1]),
    ([0.25, 0.25, 0.25, 0.25], 1, [1, 0, 0, 0]),
    ([-0.9, -0.9, -0.2, 4.0], 2, [0, 0, 0, 2]),
  ],
)
def test_apportion_draws(credit, total, counts):
  np.testing.assert_array_equal(
    mixing_schedule.apportion_draws(np.array(credit), total), counts
  )


@pytest.mark.parametrize('batching', [_MIXED, _ONE])
def test_counts_follow_the_rates_at_every_block(batching):
  rates = np.array([0.7, 0.25, 0.046, 0.004])
  schedule = _make(rates, batching)
  counts, per_draw = np.zeros(4), 1 if batching is _MIXED else 4
  for step in range(8 * 100):
    counts += np.bincount(schedule.slots(step)[0], minlength=4)
    if step % 8 == 7:
      expected = rates * (step + 1) * 4
      assert np.abs(counts - expected).max() <= 2 * per_draw, step
  assert counts[3] > 0


@pytest.mark.parametrize('batching', [_MIXED, _ONE])
def test_uses_of_each_task_are_consecutive(batching):
  schedule = _make([0.6, 0.3, 0.1], batching)
  uses_by_task = [[], [], []]
  for step in range(40):
    for task, use in zip(*schedule.slots(step), strict=True):
      uses_by_task[task].append(use)
  for uses in uses_by_task:
    np.testing.assert_array_equal(uses, np.arange(len(uses)))


def test_slots_do_not_depend_on_previous_calls():
  forward, random_access = _make([0.6, 0.4]), _make([0.6, 0.4])
  expected = {step: forward.slots(step) for step in range(60)}
  for step in (57, 3, 31, 2, 59, 0):
    np.testing.assert_array_equal(random_access.slots(step), expected[step])


def test_one_language_batches_have_a_single_task():
  schedule = _make([0.5, 0.5], _ONE)
  tasks = np.stack([schedule.slots(step)[0] for step in range(16)])
  assert (tasks == tasks[:, :1]).all()
  assert set(tasks[:, 0]) == {0, 1}


def test_key_changes_the_order_but_not_the_counts():
  first, second = _make([0.5, 0.5], key=1), _make([0.5, 0.5], key=2)
  a = np.concatenate([first.slots(step)[0] for step in range(8)])
  b = np.concatenate([second.slots(step)[0] for step in range(8)])
  assert (a != b).any()
  assert a.sum() == b.sum() == 16


def _dataset(alpha):
  return dataset_config.DatasetConfig(
    name='s', mixture='m', layout='blocks', length=8, batch_size=4, alpha=alpha
  )


def test_alpha_none_uses_the_rates_of_the_mixture():
  rates = mixing_schedule.dataset_rates(_dataset(None), [10, 1000], [3, 1])
  np.testing.assert_allclose(rates(0), [0.75, 0.25])


@pytest.mark.parametrize(
  'rates', [[1e308, 1e308], [0, 0], [2, -1], [1, np.nan]]
)
def test_invalid_mixing_rates_are_rejected(rates):
  with raises_error(errors.ConfigError, mentions=float(rates[0])):
    mixing_schedule.dataset_rates(_dataset(None), [10, 1000], rates)


@pytest.mark.parametrize(
  'rates, max_rate, expected',
  [
    ([0.8, 0.15, 0.05], 0.5, [0.5, 0.375, 0.125]),
    ([0.8, 0.15, 0.05], None, [0.8, 0.15, 0.05]),
    ([0.6, 0.39, 0.01], 0.4, [0.4, 0.4, 0.2]),
    ([0.9, 0.1], 0.3, [0.5, 0.5]),  # the limit is impossible
    ([0.3, 0.7], 0.7, [0.3, 0.7]),
  ],
)
def test_limit_rates(rates, max_rate, expected):
  np.testing.assert_allclose(
    mixing_schedule.limit_rates(np.array(rates), max_rate), expected
  )


def test_dataset_rates_are_limited():
  dataset = dataclasses.replace(_dataset(1.0), max_rate=0.6)
  limited_rates = mixing_schedule.dataset_rates(dataset, [900, 100], [1, 1])(0)
  np.testing.assert_allclose(limited_rates, [0.6, 0.4])


def test_apportion_at_most_matches_hand_computed_values():
  counts, credit = mixing_schedule.apportion_at_most(
    np.array([3.0, 2.0, 1.0]), np.array([1, 9, 9]), np.array([0.5, 0.3, 0.2])
  )
  np.testing.assert_array_equal(counts, [1, 3, 2])
  np.testing.assert_allclose(credit, [1, 3.2, 1.8])


def test_equal_rates_with_limits_equal_unimax():
  """See algorithm 1 of UniMax (Chung et al., 2023)."""
  limits = np.array([700.0, 20.0, 90.0, 5000.0, 400.0])
  for total in (60, 1000, 5500):
    remaining, expected = float(total), {}
    for n, i in enumerate(np.argsort(limits)):
      expected[i] = min(remaining / (limits.size - n), limits[i])
      remaining -= expected[i]
    np.testing.assert_allclose(
      mixing_schedule.expected_draws(np.full(5, 0.2), total, limits),
      [expected[i] for i in range(5)],
    )


@pytest.mark.parametrize('batching', [_MIXED, _ONE])
def test_draws_do_not_exceed_the_maximum_per_task(batching):
  rates, max_draws = np.array([0.2, 0.5, 0.3]), np.array([4000, 400, 840])
  schedule = mixing_schedule.TaskSchedule(
    lambda step: rates,
    batch_size=4,
    batching=batching,
    key=2,
    block_steps=8,
    max_rows=max_draws,
    name='text',
  )
  unlimited = _make(rates, batching, key=2)
  counts = np.zeros(3, int)
  for step in range(max_draws.sum() // 4):
    tasks, uses = schedule.slots(step)
    if step < 160:  # no task has reached its maximum
      np.testing.assert_array_equal(tasks, unlimited.slots(step)[0])
    for task, use in zip(tasks, uses, strict=True):
      assert use == counts[task] < max_draws[task]
      counts[task] += 1
    if step % 8 == 7:  # draws follow the rates until a task is exhausted
      expected = mixing_schedule.expected_draws(
        rates, 4 * (step + 1), max_draws
      )
      assert np.abs(counts - expected).max() <= 12, step
  np.testing.assert_array_equal(counts, max_draws)
  assert schedule.num_steps == step + 1
  with raises_error(
    errors.ConfigError, mentions=("dataset 'text'", 'max_epochs', 1310)
  ):
    schedule.slots(step + 1)
  np.testing.assert_array_equal(  # a new schedule starts at any step
    mixing_schedule.TaskSchedule(
      lambda step: rates,
      batch_size=4,
      batching=batching,
      key=2,
      block_steps=8,
      max_rows=max_draws,
    ).slots(1000)[0],
    schedule.slots(1000)[0],
  )


def test_task_smaller_than_a_batch_has_one_batch():
  schedule = mixing_schedule.TaskSchedule(
    lambda step: np.array([0.5, 0.5]),
    batch_size=8,
    batching=_ONE,
    key=2,
    block_steps=8,
    max_rows=np.array([100, 3]),
  )
  tasks = np.concatenate([schedule.slots(step)[0] for step in range(13)])
  assert np.bincount(tasks).tolist() == [96, 8]


def test_alpha_may_be_scheduled():
  rates = mixing_schedule.dataset_rates(
    _dataset(lambda step: 1.0 if step < 16 else 0.0), [900, 100], [1, 1]
  )
  schedule = mixing_schedule.TaskSchedule(
    rates, batch_size=5, batching=_MIXED, key=3, block_steps=8
  )
  counts = [
    np.bincount(
      np.concatenate(
        [schedule.slots(step)[0] for step in range(first, first + 8)]
      )
    )
    for first in (0, 8, 16, 24)
  ]
  np.testing.assert_array_equal(counts, [[36, 4], [36, 4], [20, 20], [20, 20]])


def test_scheduled_alpha_above_one_is_rejected():
  rates = mixing_schedule.dataset_rates(
    _dataset(lambda step: 0.5 if step < 16 else 4.0), [900, 100], [1, 1]
  )
  rates(0)
  with raises_error(
    errors.ConfigError, got='4.0', mentions=('DatasetConfig.alpha', 16, 0.25)
  ):
    rates(16)


def test_concurrent_threads_get_the_slots_of_one_thread():
  """A prefetcher and a token counter use different steps concurrently."""

  def rates(step):
    time.sleep(1e-3)  # lets other threads run
    return np.array([0.5, 0.3, 0.2])

  def make():
    return mixing_schedule.TaskSchedule(
      rates,
      batch_size=4,
      batching=dataset_config.LanguageBatching.MIXED,
      key=7,
      block_steps=4,
    )

  single_threaded, shared = make(), make()
  steps = [40, 0, 17, 3, 60, 9, 33, 21]
  with concurrent.futures.ThreadPoolExecutor(len(steps)) as pool:
    results = list(pool.map(shared.slots, steps))
  for step, slots in zip(steps, results, strict=True):
    for ours, theirs in zip(slots, single_threaded.slots(step), strict=True):
      np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
  'is_new, fraction, expected',
  [
    ([True, False, False], 0.4, [0.6, 0.25, 0.15]),
    ([False, True, True], 0.1, [0.1, 0.9 * 5 / 8, 0.9 * 3 / 8]),
    ([True, False, False], 0.0, [1, 0, 0]),
  ],
)
def test_replay_rates_have_the_given_fraction(is_new, fraction, expected):
  rates = mixing_schedule.replay_rates(
    np.array([0.2, 0.5, 0.3]), np.array(is_new), fraction
  )
  np.testing.assert_allclose(rates, expected)


def test_replay_requires_positive_old_and_new_rates():
  is_new = np.array([True, False, False])
  with pytest.raises(errors.ConfigError):
    mixing_schedule.replay_rates(np.array([0.0, 0.6, 0.4]), is_new, 0.25)
  rates = mixing_schedule.replay_rates(np.array([1.0, 0.0, 0.0]), is_new, 0.0)
  np.testing.assert_array_equal(rates, [1, 0, 0])
