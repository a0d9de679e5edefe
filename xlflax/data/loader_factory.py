"""Factory for the cached, live and labeled loaders of a dataset."""

import os
from collections.abc import Collection, Sequence

from xlflax.data import dataset_config, loader_base
from xlflax.data.corpus import corpus_directory
from xlflax.data.supervised import supervised_dataset
from xlflax.data.tokenizers import base_vocabulary
from xlflax.utils import errors, validation


@validation.validate_call
def open_loader(
  dataset: loader_base.AnyDatasetConfig,
  *,
  vocabulary: base_vocabulary.Vocabulary,
  seed: validation.Seed,
  cache_dir: validation.FilePath | None = None,
  cache_generation: validation.PositiveInt | None = None,
  corpus: validation.FilePath | corpus_directory.Corpus | None = None,
  task_modules: Sequence[str] = (),
  verified: Collection[str] | None = (),
) -> loader_base.Loader:
  """Opens the loader that reads a dataset.

  Args:
    dataset: Dataset to read.
    vocabulary: Vocabulary that the run uses.
    seed: Random seed that determines the order of the sequences.
    cache_dir: Directory of the token cache. If None, the SeqIO tasks are read
      and tokenized while the loader is used.
    cache_generation: Generation of the cache to read, counted from 1. If None,
      the newest generation is read.
    corpus: Corpus directory or `Corpus`. A cache with tasks from this corpus is
      rejected if the text has changed since the cache was written. Without a
      cache, the SeqIO tasks of the corpus are registered.
    task_modules: Names or paths of modules that register SeqIO tasks. They are
      imported only without a token cache.
    verified: Signatures (`Loader.signature`) of caches whose files have already
      been compared with their checksums, and which are not compared again. If
      None, no files are compared with their checksums.

  Returns:
    The loader.

  Raises:
    CacheError: If the cache is missing or incomplete, or if it does not fit the
      dataset, the vocabulary or the corpus.
    ConfigError: If the layout does not fit the tasks, or if tasks are read
      without a token cache but TensorFlow or SeqIO is not installed.
    CorpusError: If the mixture does not exist, or if the filters drop every
      example of a task.
  """
  if isinstance(dataset, supervised_dataset.LabeledDatasetConfig):
    from xlflax.data.supervised import supervised_loader

    labeled_loader = supervised_loader.LabeledLoader(
      dataset, vocabulary=vocabulary, seed=seed, cache_dir=cache_dir
    )
    labeled_loader.log_lengths()
    return labeled_loader
  assert isinstance(dataset, dataset_config.DatasetConfig)
  if isinstance(corpus, (str, os.PathLike)):
    corpus = corpus_directory.Corpus(corpus)
  if cache_dir is None:
    live_loader, registration = _import_live_modules(dataset)
    registration.register_tasks(corpus, task_modules, mixture=dataset.mixture)
    return live_loader.LiveLoader(dataset, vocabulary=vocabulary, seed=seed)
  from xlflax.data.cache import cached_loader

  return cached_loader.CachedLoader(
    dataset,
    vocabulary=vocabulary,
    seed=seed,
    cache_dir=cache_dir,
    generation=cache_generation,
    corpus=corpus,
    verified=verified,
  )


def _import_live_modules(dataset: dataset_config.DatasetConfig):
  """Imports the modules that read SeqIO tasks.

  Raises:
    ConfigError: If TensorFlow or SeqIO is not installed.
  """
  try:
    from xlflax.data.seqio_tasks import tensorflow_setup

    tensorflow_setup.load_tensorflow()
    from xlflax.data.seqio_tasks import live_loader, task_registration
  except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith('xlflax'):
      raise
    raise errors.ConfigError(
      f'The dataset {dataset.name!r} cannot be read, because SeqIO tasks '
      'without a token cache require TensorFlow and SeqIO, and the module '
      f'{error.name!r} is not installed',
      fix='Run `pip install seqio tensorflow tensorflow-datasets`, or pass '
      '--cache=DIR to read a token cache.',
    ) from error
  return live_loader, task_registration
