"""The cached loader over a real cache; its batches equal the live loader's."""

import collections
import functools
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from xlflax import errors
from xlflax.data import opening
from xlflax.data import stream as stream_lib
from xlflax.data.cache import reader as cache_reader
from xlflax.data.cache import writer as cache_writer
from xlflax.data.sampling import row_schedule
from xlflax.data.text_tasks.corpus_tasks import CorpusTasks


@pytest.fixture(scope='module')
def cache(tmp_path_factory, toy_corpus, toy_vocabulary):
  directory = tmp_path_factory.mktemp('cache')
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=directory,
      mixtures=['corpus.mono', 'corpus.parallel'],
      vocabulary=toy_vocabulary,
      shard_size=2048,
      open_tasks=functools.partial(CorpusTasks, str(toy_corpus.directory)),
    )
  )
  return directory


@pytest.fixture
def open_both(cache, toy_corpus, toy_vocabulary):
  """Opens a stream from the cache and live; closes both."""
  opened = []

  def open_(seed=5, **settings):
    stream = _stream(**settings)
    for cache_dir in (cache, None):
      opened.append(
        opening.open_loader(
          stream,
          vocabulary=toy_vocabulary,
          seed=seed,
          cache_dir=cache_dir,
          corpus=toy_corpus,
        )
      )
    return opened[-2:]

  yield open_
  for loader in opened:
    loader.close()


@pytest.fixture
def open_cached(cache, toy_vocabulary):
  def open_(seed=5, **settings):
    return opening.open_loader(
      _stream(**settings), vocabulary=toy_vocabulary, seed=seed, cache_dir=cache
    )

  return open_


def _stream(**settings):
  pairs = {
    k: settings.pop(k)
    for k in ('separator', 'positions', 'order', 'min_tokens', 'max_tokens')
    if k in settings
  }
  layout = settings.get('layout', 'blocks')
  kind = 'parallel' if layout in ('pairs', 'sides') else 'mono'
  return stream_lib.Stream(
    **{
      'name': 's',
      'mixture': f'corpus.{kind}',
      'layout': layout,
      'length': 16,
      'batch_size': 8,
      'alpha': 0.5,
      'pairs': stream_lib.PairOptions(**pairs),
    }
    | settings
  )


def _assert_same(batch, other):
  assert list(batch) == list(other)
  for key, value in batch.items():
    np.testing.assert_array_equal(value, other[key], err_msg=key)


_LAYOUTS = {
  'blocks': {},
  'blocks, one language': {'batching': 'one_language'},
  'blocks, own rates': {'alpha': None, 'remainder': 'drop'},
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
  'sides': {'layout': 'sides', 'order': 'random'},
  'reversed sides': {'layout': 'sides', 'order': 'reversed'},
  'adjacent': {'layout': 'adjacent', 'order': 'random', 'length': 32},
}


@pytest.mark.parametrize('settings', _LAYOUTS.values(), ids=list(_LAYOUTS))
def test_unshuffled_cached_and_live_batches_are_equal(open_both, settings):
  """Over several epochs of each task."""
  cached, live = open_both(shuffle=False, **settings)
  assert cached.spec == live.spec
  for step in range(40):
    batch = cached.rows(step, 0, 8)
    _assert_same(batch, live.rows(step, 0, 8))
    assert {k: (v.shape, v.dtype) for k, v in batch.items()} == {
      k: (v.shape, v.dtype) for k, v in cached.spec.items()
    }


@pytest.mark.parametrize('settings', [{}, {'batching': 'one_language'}])
def test_shuffled_loaders_take_the_same_tasks(open_both, settings):
  """The language of each row is equal, its text is not."""
  cached, live = open_both(shuffle=True, shuffle_window=10, **settings)
  different = 0
  for step in range(20):
    batch, other = cached.rows(step, 0, 8), live.rows(step, 0, 8)
    np.testing.assert_array_equal(
      batch['language_ids'].max(-1), other['language_ids'].max(-1)
    )
    different += (batch['token_ids'] != other['token_ids']).any()
  assert different


def _epoch_rows(loader, task, batches):
  """Rows of one task in order of use, as bytes."""
  schedule = loader._schedule
  uses = []
  for step in range(batches):
    tasks, numbers = schedule.slots(step)
    tokens = loader.rows(step, 0, 8)['token_ids']
    uses += [
      (numbers[i], tokens[i].tobytes())
      for i in np.flatnonzero(tasks == schedule.tasks.index(task))
    ]
  return [row for _, row in sorted(uses)]


def test_reversed_sides_are_the_same_pairs(open_cached):
  as_is, other = (
    open_cached(layout='sides', order=order).rows(3, 0, 8)
    for order in ('as_is', 'reversed')
  )
  for key in ('token_ids', 'segment_ids', 'positions', 'language_ids'):
    np.testing.assert_array_equal(as_is[key], other[f'paired_{key}'])
    np.testing.assert_array_equal(as_is[f'paired_{key}'], other[key])


@pytest.mark.parametrize('live', [False, True])
def test_only_the_first_examples_are_used(open_both, live):
  """Again and again, and the language is drawn as if it had no more."""
  settings = {'layout': 'sentences', 'length': 80, 'alpha': 1.0}
  few = open_both(max_examples=7, shuffle=True, **settings)[live]
  rows = _epoch_rows(few, 'corpus.mono.de', 60)
  assert len(set(rows)) == 7 and len(rows) > 70
  first = open_both(shuffle=False, **settings)[live]
  assert set(rows) == set(_epoch_rows(first, 'corpus.mono.de', 60)[:7])
  assert len({s.rate for s in few.statistics()}) == 1  # 7 of each task
  if not live:
    assert {s.rows for s in few.statistics()} == {7}


@pytest.mark.parametrize('live', [False, True])
def test_each_row_is_used_once_in_an_epoch(open_both, live):
  loader = open_both(layout='sentences', length=80, shuffle_window=7)[live]
  rows = _epoch_rows(loader, 'corpus.mono.de', 70)
  assert len(rows) >= 120
  first, second = rows[:60], rows[60:120]
  assert len(set(first)) == 60
  assert sorted(first) == sorted(second)
  assert first != second


def test_an_order_with_locality(open_cached):
  """Each row once in an epoch, in another order than without."""
  settings = {'layout': 'sentences', 'length': 80}
  plain = open_cached(**settings)
  near = open_cached(
    **settings, locality=stream_lib.Locality(block_rows=4, window_blocks=3)
  )
  rows = _epoch_rows(near, 'corpus.mono.de', 70)
  first, second = rows[:60], rows[60:120]
  assert len(set(first)) == 60
  assert sorted(first) == sorted(second) and first != second
  assert sorted(first) == sorted(_epoch_rows(plain, 'corpus.mono.de', 70)[:60])


@pytest.mark.parametrize('processes', [1, 2, 4])
def test_locality_on_any_number_of_processes_and_after_a_restart(
  open_cached, processes
):
  """Token for token what one process reads that came from step 0."""
  settings = {
    'layout': 'sentences',
    'length': 80,
    'locality': stream_lib.Locality(block_rows=4, window_blocks=3),
  }
  one = open_cached(**settings)
  steps = [one.rows(step, 0, 8) for step in range(12)]
  others = [open_cached(**settings) for _ in range(processes)]
  size = 8 // processes
  for step in (7, 11):
    parts = [
      other.rows(step, size * i, size * (i + 1))
      for i, other in enumerate(others)
    ]
    _assert_same(
      steps[step],
      {k: np.concatenate([part[k] for part in parts]) for k in parts[0]},
    )


def test_rows_of_a_batch_do_not_depend_on_how_they_are_asked_for(open_both):
  for loader in open_both(shuffle_window=16):
    whole = [loader.rows(step, 0, 8) for step in range(6)]
    for step in (5, 2):  # The live loader goes back here.
      parts = [loader.rows(step, a, b) for a, b in ((0, 3), (3, 4), (4, 8))]
      _assert_same(
        whole[step],
        {
          key: np.concatenate([part[key] for part in parts])
          for key in whole[step]
        },
      )


def test_resuming_in_another_loader_gives_the_same_batches(open_both):
  settings = {'layout': 'pairs', 'order': 'random', 'shuffle_window': 16}
  for first, second in zip(
    open_both(**settings), open_both(**settings), strict=True
  ):
    for step in range(9):
      expected = first.rows(step, 0, 8)
    _assert_same(expected, second.rows(8, 0, 8))


def test_seed_and_seed_offset_change_the_order(open_cached):
  base = open_cached(seed=5).rows(0, 0, 8)['token_ids']
  other = open_cached(seed=6).rows(0, 0, 8)['token_ids']
  shifted = open_cached(seed=5, seed_offset=1).rows(0, 0, 8)['token_ids']
  assert (base != other).any()
  np.testing.assert_array_equal(shifted, other)


def test_sides_are_exchanged_in_half_of_the_rows(open_cached):
  loader = open_cached(layout='sides', order='random', length=64)
  plain = open_cached(layout='sides', length=64)
  swapped = 0
  for step in range(25):
    batch, original = loader.rows(step, 0, 8), plain.rows(step, 0, 8)
    languages = batch['language_ids'][:, 0]
    np.testing.assert_array_equal(
      languages, 1 - batch['paired_language_ids'][:, 0]
    )
    rows = np.where(
      (languages == 0)[:, None], batch['token_ids'], batch['paired_token_ids']
    )
    np.testing.assert_array_equal(rows, original['token_ids'])
    swapped += languages.sum()
  assert 70 < swapped < 130  # Of 200; four standard deviations.


def test_blocks_hold_the_text_of_the_corpus(
  open_cached, toy_corpus, toy_vocabulary
):
  loader = open_cached(mixture='corpus.mono.ru', length=66, shuffle=False)
  [statistics] = loader.statistics()
  lines = [line.text for line in toy_corpus.monolingual('ru')]
  eos = toy_vocabulary.spec.eos_id
  tokens = []
  for line in lines:
    tokens += [*toy_vocabulary.encode(line), eos]
  expected, row = tokens[:-1], 0
  while expected:
    batch = loader.rows(row // 8, row % 8, row % 8 + 1)
    part, expected = expected[:64], expected[64:]
    assert batch['token_ids'][0, : len(part) + 2].tolist() == [
      toy_vocabulary.spec.bos_id,
      *part,
      eos,
    ]
    assert batch['segment_ids'].sum() == len(part) + 2
    row += 1
  assert row == statistics.rows


def test_statistics(open_both):
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
  assert first.tokens > 60 * 5


def test_rates_by_tokens(open_both, open_cached):
  loader = open_cached(alpha=1.0, sizes='tokens')
  tokens = [row.tokens for row in loader.statistics()]
  np.testing.assert_allclose(
    [row.rate for row in loader.statistics()], np.array(tokens) / sum(tokens)
  )
  with pytest.raises(errors.ConfigError, match='Rates by tokens need a token'):
    open_both(alpha=1.0, sizes='tokens')


def test_the_share_of_rows_follows_alpha(open_cached):
  loader = open_cached(alpha=0.5, layout='sentences')
  counts = collections.Counter()
  for step in range(128):
    counts.update(loader._schedule.slots(step)[0].tolist())
  expected = np.sqrt([60, 200, 100])
  np.testing.assert_allclose(
    [counts[i] for i in range(3)], 1024 * expected / expected.sum(), atol=1
  )


@pytest.mark.parametrize(
  'settings, message',
  [
    (
      {'mixture': 'corpus.parallel', 'layout': 'blocks'},
      'Layout.BLOCKS needs a monolingual task. Got: corpus.parallel.de_en '
      r'\(de-en\), a parallel task',
    ),
    (
      {'mixture': 'corpus.mono', 'layout': 'sides'},
      'Layout.SIDES needs a parallel task. Got: corpus.mono.de',
    ),
  ],
)
def test_layout_and_task_must_fit(open_both, settings, message):
  with pytest.raises(errors.ConfigError, match=message):
    open_both(**settings)


@pytest.mark.parametrize('limit', [None, 5])
def test_rates_follow_the_pairs_that_are_kept(open_cached, limit):
  """PPA: an epoch over the stream is one over every language."""
  loader = open_cached(
    layout='pairs',
    length=64,
    min_tokens=10,
    max_tokens=40,
    max_examples=limit,
    alpha=1.0,
  )
  (found,) = loader.statistics()
  assert found.examples > found.dropped > 0
  assert loader._schedule.sizes.tolist() == [
    found.examples - found.dropped if limit is None else limit
  ]


def test_filters_that_leave_nothing(open_cached):
  with pytest.raises(
    errors.CorpusError,
    match="The filters of stream 's' "
    'leave nothing of corpus.parallel.de_en. Got: 50 '
    'examples',
  ):
    open_cached(layout='pairs', min_tokens=1000)


def test_no_such_rows(open_cached):
  with pytest.raises(ValueError, match='No rows 4..9 in batches of 8'):
    open_cached().rows(0, 4, 9)


def test_ids_beyond_the_vocabulary(
  cache, toy_vocabulary, tmp_path, monkeypatch
):
  """Refused in the batch that has them, also where digests are not compared."""
  monkeypatch.setattr(cache_reader, '_SHORT', 0)
  copy = tmp_path / 'cache'
  shutil.copytree(cache, copy)
  for path in (copy / 'tasks/corpus.mono.en/train/shards').iterdir():
    arrays = safetensors.numpy.load_file(path)
    arrays['targets'][::2] = 60000
    safetensors.numpy.save_file(arrays, path)
  arguments = {'vocabulary': toy_vocabulary, 'seed': 0, 'cache_dir': copy}
  stream = _stream(mixture='corpus.mono.en')
  with pytest.raises(errors.CacheError, match='another content'):
    opening.open_loader(stream, **arguments)
  loader = opening.open_loader(stream, **arguments, verified=None)
  with pytest.raises(errors.CacheError, match='Got: .* to 60000. Expected: 0'):
    loader.rows(0, 0, stream.batch_size)


def test_reading_a_cache_imports_no_tensorflow(cache):
  """In a fresh process, from opening to a device batch."""
  program = f"""
import sys
from xlflax.data.cache import reader as cache_reader
from xlflax.data.cache import loader as cached_loader
from xlflax.data import loader as loader_lib
from xlflax.data import opening
from xlflax.data import prefetch
from xlflax.data import stream
from xlflax.data.vocabularies import spec as vocabulary_spec
import jax

class Vocabulary:
  hash = cache_reader.TokenCache({str(cache)!r})._header.vocabulary['hash']
  spec = vocabulary_spec.VocabularySpec(
      180, 0, 1, 2, 3, 4, tuple(range(8)), ('de', 'en', 'ru'))
  def language_id(self, code):
    return self.spec.languages.index(code)

opened = opening.open_loader(
    stream.Stream(name='s', mixture='corpus.mono', layout='blocks',
                  length=16, batch_size=8),
    vocabulary=Vocabulary(), seed=0, cache_dir={str(cache)!r})
sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
with prefetch.Prefetcher(opened, sharding=sharding) as feed:
  print(feed.next()['token_ids'].shape)
print([m for m in sys.modules
       if m.split('.')[0] in ('tensorflow', 'seqio', 'tensorflow_datasets')])
"""
  done = subprocess.run(
    [sys.executable, '-c', program], text=True, capture_output=True, check=False
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.split('\n')[:2] == ['(8, 16)', '[]']


def test_sides_and_pairs_of_one_mixture_are_the_same_pairs(open_both):
  """In the same random order of sides: PPA trains two objectives on them."""
  alike = dict(order='random', min_tokens=6, max_tokens=40, length=48)
  for sides, pairs in zip(
    open_both(name='sides', layout='sides', **alike),
    open_both(name='pairs', layout='pairs', separator='bert', **alike),
    strict=True,
  ):
    for step in (0, 3):
      apart, joined = (loader.rows(step, 0, 8) for loader in (sides, pairs))
      for first, second, row in zip(
        apart['token_ids'],
        apart['paired_token_ids'],
        joined['token_ids'],
        strict=True,
      ):
        both = [*first[first > 0], *second[second > 0][1:]]
        np.testing.assert_array_equal(row[row > 0], both)
    languages = apart['language_ids'][:, 1]
    assert len(set(languages.tolist())) == 2


def test_no_row_comes_more_often_than_max_epochs(open_cached):
  """Of each task 1.5 times its rows, at any rate; then there are none."""
  loader = open_cached(max_epochs=1.5, alpha=1.0, layout='sentences')
  statistics = loader.statistics()
  most = [math.floor(1.5 * task.rows) for task in statistics]
  batches = sum(most) // 8
  seen = [loader.rows(step, 0, 8) for step in range(batches)]
  rows = collections.Counter(
    (int(language[1]), ids.tobytes())
    for batch in seen
    for language, ids in zip(
      batch['language_ids'], batch['token_ids'], strict=True
    )
  )
  of_languages = collections.Counter(
    language for language, _ in rows.elements()
  )
  assert sum(most) - 8 < sum(of_languages.values()) <= sum(most)
  for count, limit in zip(
    sorted(of_languages.values()), sorted(most), strict=True
  ):
    assert limit - 8 < count <= limit
  read = row_schedule.rows_read(loader.stream, statistics, 10**6)
  np.testing.assert_array_equal(read, [1.5 * task.rows for task in statistics])
  with pytest.raises(errors.ConfigError, match='max_epochs times'):
    loader.rows(batches + 1, 0, 8)


def test_a_limit_of_epochs_needs_a_cache(open_both):
  with pytest.raises(errors.ConfigError, match='needs a token cache'):
    open_both(max_epochs=2)


@pytest.mark.parametrize('value', [0, -1, float('inf'), float('nan')])
def test_limits_of_epochs_are_positive(value):
  with pytest.raises(errors.ConfigError, match='max_epochs'):
    _stream(max_epochs=value)
