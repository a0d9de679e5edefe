"""Opens the loader of a stream: cached, live, or of labelled examples."""

import os
from collections.abc import Collection, Sequence

from xlflax.data import dataset_config, loader_base
from xlflax.data.corpus import corpus_directory
from xlflax.data.supervised import supervised_dataset as labelled_stream
from xlflax.data.tokenizers import base_vocabulary
from xlflax.utils import errors, validation


@validation.validate_call
def open_loader(
  stream: loader_base.AnyStream,
  *,
  vocabulary: base_vocabulary.Vocabulary,
  seed: validation.Seed,
  cache_dir: validation.FilePath | None = None,
  cache_generation: validation.PositiveInt | None = None,
  corpus: validation.FilePath | corpus_directory.Corpus | None = None,
  task_modules: Sequence[str] = (),
  verified: Collection[str] | None = (),
) -> loader_base.Loader:
  """Opens a stream.

  Args:
    stream: what to read.
    vocabulary: a `base_vocabulary.Vocabulary`.
    seed: the run's seed.
    cache_dir: the token cache to read; None reads SeqIO live.
    cache_generation: state of the cache, from 1; None: the newest.
    corpus: a corpus directory or `corpus.Corpus`; a cache of its tasks is
      refused if its text has changed since, and the live loader registers
      its tasks.
    task_modules: modules that register SeqIO tasks; imported to read live.
    verified: signatures of caches whose content need not be read and compared
      with its digests; None: of all.

  Raises:
    CacheError: the cache is missing, incomplete, or does not fit.
    ConfigError: the layout does not fit the tasks, or the live loader is
      asked for where TensorFlow or SeqIO is not installed.
    CorpusError: no such mixture, or the filters leave nothing of a task.
  """
  if isinstance(stream, labelled_stream.LabelledStream):
    from xlflax.data.supervised import supervised_loader as labelled_loader

    return labelled_loader.LabelledLoader(
      stream, vocabulary=vocabulary, seed=seed, cache_dir=cache_dir
    )
  assert isinstance(stream, dataset_config.Stream)
  if isinstance(corpus, (str, os.PathLike)):
    corpus = corpus_directory.Corpus(corpus)
  if cache_dir is None:
    live_loader, registration = _import_live_modules(stream)
    registration.register_tasks(corpus, task_modules)
    return live_loader.LiveLoader(stream, vocabulary=vocabulary, seed=seed)
  from xlflax.data.cache import cached_loader

  return cached_loader.CachedLoader(
    stream,
    vocabulary=vocabulary,
    seed=seed,
    cache_dir=cache_dir,
    generation=cache_generation,
    corpus=corpus,
    verified=verified,
  )


def _import_live_modules(stream: dataset_config.Stream):
  """The modules that read SeqIO; a ConfigError where they cannot."""
  try:
    from xlflax.data.seqio_tasks import tensorflow_setup

    tensorflow_setup.load_tensorflow()
    from xlflax.data.seqio_tasks import live_loader, task_registration
  except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith('xlflax'):
      raise
    raise errors.ConfigError(
      'Reading text live needs TensorFlow and SeqIO',
      got=f'no module {error.name!r}',
      where=f'stream {stream.name!r}',
      fix='pip install seqio tensorflow tensorflow-datasets, or give the '
      'directory of a token cache',
    ) from error
  return live_loader, task_registration
