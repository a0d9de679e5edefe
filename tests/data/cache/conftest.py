"""Fixtures with a cache of the toy corpus and its loaders."""

import pytest

from tests.data.cache import loading, writing
from xlflax.data import loader_factory


@pytest.fixture(scope='session')
def complete_cache(tmp_path_factory, toy_corpus, toy_vocabulary):
  """Complete cache and the metadata of its tasks. Tests must not modify it."""
  directory = tmp_path_factory.mktemp('written')
  metas = writing.write(
    directory, toy_corpus, toy_vocabulary, mixtures=writing.BOTH
  )
  return directory, metas


@pytest.fixture
def open_both(complete_cache, toy_corpus, toy_vocabulary):
  """Function that opens a dataset from the cache and live."""
  opened = []

  def open_(seed=5, **settings):
    dataset = loading.dataset(**settings)
    for cache_dir in (complete_cache[0], None):
      opened.append(
        loader_factory.open_loader(
          dataset,
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
def open_cached(complete_cache, toy_vocabulary):
  """Function that opens a dataset from the cache."""

  def open_(seed=5, **settings):
    return loader_factory.open_loader(
      loading.dataset(**settings),
      vocabulary=toy_vocabulary,
      seed=seed,
      cache_dir=complete_cache[0],
    )

  return open_
