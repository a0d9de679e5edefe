"""Demo settings, and the steps from text to a token cache."""

import dataclasses
import functools
import logging
import pathlib
from collections.abc import Sequence

from xlflax.config import gin_config
from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_directory
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.tokenizers import vocabulary_training
from xlflax.demo import demo_corpus
from xlflax.storage import paths

GIN_FILE = 'demo/demo.gin'
MIXTURES = ('corpus.mono', 'corpus.parallel')
_TOKENS_PER_LANGUAGE = 700  # Vocabulary size.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """Settings for a run of the demo.

  Attributes:
    model_dir: Directory of the run.
    languages: Language codes, which must include English.
    vocabulary_size: Number of tokens in the vocabulary. If None, 700 per
      language.
    num_test: Number of messages held out for evaluation in every language.
    gin_files: Gin files that configure training.
    gin_bindings: Gin bindings in the form 'NAME=VALUE', which override the gin
      files.
    gin_search_paths: Folders in which to search for gin files.
  """

  model_dir: str = 'runs/demo'
  languages: tuple[str, ...] = demo_corpus.LANGUAGES
  vocabulary_size: int | None = None
  num_test: int = 100
  gin_files: Sequence[str] = (GIN_FILE,)
  gin_bindings: Sequence[str] = ()
  gin_search_paths: Sequence[str] = ()

  @property
  def data_dir(self) -> pathlib.Path:
    """Directory of corpus, vocabulary and token cache: `<model_dir>_data`."""
    path = paths.to_local_path(self.model_dir, where='--model_dir')
    return path.with_name(f'{path.name}_data')

  def path(self, name: str) -> str:
    """Returns the path to the folder `name` in `data_dir`."""
    return str(self.data_dir / name)


def configured(settings: Settings) -> gin_config.Configuration:
  """Returns the gin configuration of the demo's training run.

  The bindings in the settings override bindings in the gin files.
  """
  macros = {
    'MODEL_DIR': settings.model_dir,
    'CORPUS': settings.path('corpus'),
    'VOCABULARY': settings.path('vocabulary'),
    'CACHE_DIR': settings.path('cache'),
  }
  return gin_config.load_gin_files(
    settings.gin_files,
    settings.gin_bindings,
    settings.gin_search_paths,
    macros=macros,
  )


def make_vocabulary(settings: Settings):
  """Trains a vocabulary on the corpus and returns the vocabulary."""
  vocabulary = vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(settings.path('corpus')),
    settings.path('vocabulary'),
    size=settings.vocabulary_size
    or _TOKENS_PER_LANGUAGE * len(settings.languages),
    character_coverage=0.9999,
    alpha=1.0,
    num_threads=2,
    overwrite=True,
  )
  logging.info(
    'Wrote a vocabulary of %d tokens to %s.',
    vocabulary.spec.size,
    settings.path('vocabulary'),
  )
  return vocabulary


def write_cache(settings: Settings, vocabulary) -> None:
  """Writes a token cache for the corpus, unless the cache already exists."""
  tasks = cache_writer.write_cache(
    cache_writer.Plan(
      directory=pathlib.Path(settings.path('cache')),
      mixtures=MIXTURES,
      vocabulary=vocabulary,
      open_tasks=functools.partial(CorpusTasks, settings.path('corpus')),
      changed=cache_writer.Changed.REPLACE,
    )
  )
  logging.info(
    'The token cache %s contains %d tasks.', settings.path('cache'), len(tasks)
  )
