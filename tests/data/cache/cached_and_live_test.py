"""Tests that batches from a cache equal live tokenized batches."""

import numpy as np
import pytest

from tests.data.cache import loading

_LAYOUTS = {
  'blocks': {},
  'blocks, one language': {'batching': 'one_language'},
  'blocks, own rates': {'alpha': None},
  'sentences': {'layout': 'sentences'},
  'packed sentences': {
    'layout': 'sentences',
    'packing': 'next_fit',
    'length': 64,
  },
  'pairs': {
    'layout': 'pairs',
    'order': 'random',
    'separator': 'xlm',
    'positions': 'reset',
  },
  'filtered pairs': {
    'layout': 'pairs',
    'length': 64,
    'min_tokens': 10,
    'max_tokens': 40,
  },
  'the first pairs': {
    'layout': 'pairs',
    'length': 64,
    'min_tokens': 10,
    'max_tokens': 40,
    'max_examples': 5,
  },
  'packed pairs': {
    'layout': 'pairs',
    'length': 128,
    'packing': 'next_fit',
    'order': 'random',
  },
  'sides': {'layout': 'dual', 'order': 'random'},
  'reversed sides': {'layout': 'dual', 'order': 'reversed'},
  'adjacent': {'layout': 'interleaved', 'order': 'random', 'length': 32},
}


@pytest.mark.parametrize('settings', _LAYOUTS.values(), ids=list(_LAYOUTS))
def test_unshuffled_cached_and_live_batches_are_equal(open_both, settings):
  """Covers several epochs of each task."""
  cached, live = open_both(shuffle=False, **settings)
  assert cached.spec == live.spec
  for step in range(40):
    batch = cached.rows(step, 0, 8)
    loading.assert_same(batch, live.rows(step, 0, 8))
    assert {k: (v.shape, v.dtype) for k, v in batch.items()} == {
      k: (v.shape, v.dtype) for k, v in cached.spec.items()
    }


@pytest.mark.parametrize('settings', [{}, {'batching': 'one_language'}])
def test_shuffled_loaders_sample_the_same_languages(open_both, settings):
  """The languages of all rows are equal, but their text differs."""
  cached, live = open_both(shuffle=True, shuffle_window=10, **settings)
  different = 0
  for step in range(20):
    batch, other = cached.rows(step, 0, 8), live.rows(step, 0, 8)
    np.testing.assert_array_equal(
      batch['language_ids'].max(-1), other['language_ids'].max(-1)
    )
    different += (batch['token_ids'] != other['token_ids']).any()
  assert different
