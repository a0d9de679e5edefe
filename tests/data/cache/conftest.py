"""The cache of the toy corpus, and loaders of it."""

import pytest

from tests.data.cache import loading, writing
from xlflax.data import loader_factory


@pytest.fixture(scope='session')
def written(tmp_path_factory, toy_corpus, toy_vocabulary):
  """An uninterrupted cache and what its tasks say; tests only read it."""
  directory = tmp_path_factory.mktemp('written')
  metas = writing.write(
    directory, toy_corpus, toy_vocabulary, mixtures=writing.BOTH
  )
  return directory, metas


@pytest.fixture
def open_both(written, toy_corpus, toy_vocabulary):
  """Opens a dataset from the cache and live; closes both."""
  opened = []

  def open_(seed=5, **settings):
    dataset = loading.dataset(**settings)
    for cache_dir in (written[0], None):
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
def open_cached(written, toy_vocabulary):
  """Opens a dataset from the cache."""

  def open_(seed=5, **settings):
    return loader_factory.open_loader(
      loading.dataset(**settings),
      vocabulary=toy_vocabulary,
      seed=seed,
      cache_dir=written[0],
    )

  return open_
