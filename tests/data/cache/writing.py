"""Token caches as the tests write them."""

import functools
import pathlib

from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks

BOTH = ['corpus.mono', 'corpus.parallel']


def plan(directory, corpus, vocabulary, **settings) -> cache_writer.Plan:
  """For monolingual text in small shards; `settings` replace fields."""
  return cache_writer.Plan(
    directory=directory,
    **{
      'mixtures': ['corpus.mono'],
      'vocabulary': vocabulary,
      'shard_size': 2048,
      'open_tasks': functools.partial(CorpusTasks, str(corpus.directory)),
    }
    | settings,
  )


def write(directory, corpus, vocabulary, num_processes=1, **settings):
  """Writes a cache by `plan`; returns what its tasks say of themselves."""
  return cache_writer.write_cache(
    plan(directory, corpus, vocabulary, **settings), num_processes=num_processes
  )


def english(directory, lines) -> corpus_directory.Corpus:
  """A corpus directory of English lines, one document."""
  corpus_writer.write_monolingual(directory, 'en', [lines])
  return corpus_directory.Corpus(directory)


def files(directory) -> dict[str, bytes]:
  """Relative path -> content of every file but the lock."""
  return {
    str(path.relative_to(directory)): path.read_bytes()
    for path in sorted(pathlib.Path(directory).rglob('*'))
    if path.is_file() and not path.name.startswith('.lock')
  }


class OtherVocabulary:
  """A vocabulary of another hash."""

  def __init__(self, vocabulary):
    self.spec, self.hash = vocabulary.spec, 'f' * 64
    self.language_id = vocabulary.language_id
