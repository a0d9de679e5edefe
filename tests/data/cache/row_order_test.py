"""Tests of the order of rows in a loader."""

import numpy as np
import pytest

from tests.data.cache import loading
from tests.errors import raises_error
from xlflax.data import dataset_config
from xlflax.data.sampling import sampling_order
from xlflax.utils import errors


@pytest.mark.parametrize('live', [False, True])
def test_max_examples_limits_rows_and_rates(open_both, live):
  """The first examples are repeated, and rates depend on their number."""
  settings = {'layout': 'sentences', 'length': 80, 'alpha': 1.0}
  few = open_both(max_examples=7, shuffle=True, **settings)[live]
  rows = loading.epoch_rows(few, 'corpus.mono.de', 60)
  assert len(set(rows)) == 7 and len(rows) > 70
  first = open_both(shuffle=False, **settings)[live]
  assert set(rows) == set(loading.epoch_rows(first, 'corpus.mono.de', 60)[:7])
  assert len({s.rate for s in few.statistics()}) == 1  # 7 examples per task
  if not live:
    assert {s.rows for s in few.statistics()} == {7}


@pytest.mark.parametrize('live', [False, True])
def test_each_row_is_used_once_per_epoch(open_both, live):
  loader = open_both(layout='sentences', length=80, shuffle_window=7)[live]
  rows = loading.epoch_rows(loader, 'corpus.mono.de', 70)
  assert len(rows) >= 120
  first, second = rows[:60], rows[60:120]
  assert len(set(first)) == 60
  assert sorted(first) == sorted(second)
  assert first != second


def test_locality_shuffles_all_rows_of_an_epoch(open_cached):
  settings = {'layout': 'sentences', 'length': 80}
  plain = open_cached(**settings)
  with_locality = open_cached(
    **settings, locality=dataset_config.Locality(block_rows=4, window_blocks=3)
  )
  rows = loading.epoch_rows(with_locality, 'corpus.mono.de', 70)
  first, second = rows[:60], rows[60:120]
  assert len(set(first)) == 60
  assert sorted(first) == sorted(second) and first != second
  assert sorted(first) == sorted(
    loading.epoch_rows(plain, 'corpus.mono.de', 70)[:60]
  )


@pytest.mark.parametrize('processes', [1, 2, 4])
def test_locality_does_not_depend_on_processes_or_restarts(
  open_cached, processes
):
  """Compares with a single process that reads from step 0."""
  settings = {
    'layout': 'sentences',
    'length': 80,
    'locality': dataset_config.Locality(block_rows=4, window_blocks=3),
  }
  single_loader = open_cached(**settings)
  steps = [single_loader.rows(step, 0, 8) for step in range(12)]
  process_loaders = [open_cached(**settings) for _ in range(processes)]
  size = 8 // processes
  for step in (7, 11):
    parts = [
      other.rows(step, size * i, size * (i + 1))
      for i, other in enumerate(process_loaders)
    ]
    loading.assert_same(
      steps[step],
      {k: np.concatenate([part[k] for part in parts]) for k in parts[0]},
    )


def test_rows_do_not_depend_on_the_requested_ranges(open_both):
  for loader in open_both(shuffle_window=16):
    full_batches = [loader.rows(step, 0, 8) for step in range(6)]
    for step in (5, 2):  # The live loader restarts for an earlier step.
      parts = [loader.rows(step, a, b) for a, b in ((0, 3), (3, 4), (4, 8))]
      loading.assert_same(
        full_batches[step],
        {
          key: np.concatenate([part[key] for part in parts])
          for key in full_batches[step]
        },
      )


def test_new_loader_resumes_with_the_same_batches(open_both):
  settings = {'layout': 'pairs', 'order': 'random', 'shuffle_window': 16}
  for first, second in zip(
    open_both(**settings), open_both(**settings), strict=True
  ):
    for step in range(9):
      expected = first.rows(step, 0, 8)
    loading.assert_same(expected, second.rows(8, 0, 8))


def test_seed_and_seed_offset_change_the_order(open_cached):
  base = open_cached(seed=5).rows(0, 0, 8)['token_ids']
  other = open_cached(seed=6).rows(0, 0, 8)['token_ids']
  shifted = open_cached(seed=5, seed_offset=1).rows(0, 0, 8)['token_ids']
  assert (base != other).any()
  np.testing.assert_array_equal(shifted, other)


def _replay(*languages, fraction=0.25):
  return dataset_config.ReplayOptions(
    new_languages=languages, fraction=fraction
  )


@pytest.mark.parametrize('live', [False, True])
@pytest.mark.parametrize('fraction', [0.25, 0.0])
def test_replay_is_a_fraction_of_the_sequences(open_both, live, fraction):
  loader = open_both(replay=_replay('de', fraction=fraction))[live]
  rates = {task.task: task.rate for task in loader.statistics()}
  new = rates.pop('corpus.mono.de')
  assert new == pytest.approx(1 - fraction)
  assert sum(rates.values()) == pytest.approx(fraction)
  steps = 64
  batches = [loader.rows(s, 0, loader.dataset.batch_size) for s in range(steps)]
  language_ids = np.concatenate(
    [batch['language_ids'][:, 0] for batch in batches]
  )
  _, counts = np.unique(language_ids, return_counts=True)
  assert counts.max() / language_ids.size == pytest.approx(
    1 - fraction, abs=0.02
  )


def test_pair_with_a_new_language_is_not_replayed():
  languages = {'a': ('en', 'fr'), 'b': ('en', 'sl'), 'c': ('en', 'ru')}
  schedule = sampling_order.RowSchedule(
    loading.dataset(layout='pairs', length=40, alpha=1.0, replay=_replay('sl')),
    seed=0,
    sizes={'a': 30, 'b': 7, 'c': 10},
    rates=dict.fromkeys(languages, 1.0),
    languages=languages,
  )
  assert schedule.tasks == ['a', 'b', 'c']
  np.testing.assert_allclose(
    schedule.rates(), [0.25 * 3 / 4, 0.75, 0.25 * 1 / 4]
  )


def test_replay_excludes_a_maximum_rate():
  with raises_error(
    errors.ConfigError, got=0.5, mentions='DatasetConfig.max_rate'
  ):
    loading.dataset(max_rate=0.5, replay=_replay('de'))


_WITHOUT_REPLAY = 'DatasetConfig.replay=None'


def test_replay_requires_text_in_the_new_language(open_cached):
  with raises_error(errors.ConfigError, got='xx') as caught:
    open_cached(name='pairs', replay=_replay('xx'))
  assert _WITHOUT_REPLAY in caught.value.fix
  # Without replay, the dataset would contain too much of the language 'de'.
  with raises_error(errors.ConfigError, got='xx') as caught:
    open_cached(name='pairs', replay=_replay('de', 'xx'))
  assert _WITHOUT_REPLAY not in caught.value.fix


def test_replay_requires_text_in_another_language(open_cached):
  with raises_error(errors.ConfigError, got=0.25) as caught:
    open_cached(name='pairs', languages=('de',), replay=_replay('de'))
  assert _WITHOUT_REPLAY in caught.value.fix
