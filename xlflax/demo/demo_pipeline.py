"""The demo's settings, and its steps from text to a token cache."""

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
_ENTRIES = 700  # of the vocabulary, for each language


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """What a demo run is made of.

  Attributes:
    model_dir: the run's directory.
    languages: codes, English among them.
    vocabulary_size: entries of the vocabulary; None: 700 a language.
    num_test: messages held out for the evaluation, in every language.
    gin_files: configuration of the training.
    gin_bindings: 'NAME=VALUE', after the files.
    gin_search_paths: folders to look gin files up in.
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
    """Where corpus, vocabulary and cache lie: beside the run."""
    path = paths.to_local_path(self.model_dir, where='--model_dir')
    return path.with_name(f'{path.name}_data')

  def path(self, name: str) -> str:
    """The folder `name` of `data_dir`."""
    return str(self.data_dir / name)


def configured(settings: Settings) -> gin_config.Configuration:
  """The training's configuration; the settings' bindings override others."""
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
  """Trains the vocabulary on the corpus."""
  vocabulary = vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(settings.path('corpus')),
    settings.path('vocabulary'),
    size=settings.vocabulary_size or _ENTRIES * len(settings.languages),
    character_coverage=0.9999,
    alpha=1.0,
    num_threads=2,
    overwrite=True,
  )
  logging.info(
    '%d entries: %s', vocabulary.spec.size, settings.path('vocabulary')
  )
  return vocabulary


def write_cache(settings: Settings, vocabulary) -> None:
  """Writes the token cache of the corpus, unless it is there."""
  tasks = cache_writer.write_cache(
    cache_writer.Plan(
      directory=pathlib.Path(settings.path('cache')),
      mixtures=MIXTURES,
      vocabulary=vocabulary,
      open_tasks=functools.partial(CorpusTasks, settings.path('corpus')),
      changed=cache_writer.Changed.REPLACE,
    )
  )
  logging.info('%d tasks: %s', len(tasks), settings.path('cache'))
