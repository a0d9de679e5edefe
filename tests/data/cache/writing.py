"""Helpers to write token caches."""

import functools
import pathlib

from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks

BOTH = ['corpus.mono', 'corpus.parallel']


def plan(directory, corpus, vocabulary, **settings) -> cache_writer.Plan:
  """Returns a plan for monolingual text in small shards.

  The arguments in `settings` replace fields of the plan.
  """
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
  """Writes a cache by `plan` and returns the metadata of its tasks."""
  return cache_writer.write_cache(
    plan(directory, corpus, vocabulary, **settings), num_processes=num_processes
  )


def english(directory, lines) -> corpus_directory.Corpus:
  """Writes and returns a corpus of English lines in one document."""
  corpus_writer.write_monolingual(directory, 'en', [lines])
  return corpus_directory.Corpus(directory)


def files(directory) -> dict[str, bytes]:
  """Returns a mapping from relative path to content, without lock files."""
  return {
    str(path.relative_to(directory)): path.read_bytes()
    for path in sorted(pathlib.Path(directory).rglob('*'))
    if path.is_file() and not path.name.startswith('.lock')
  }


class OtherVocabulary:
  """Vocabulary with a different hash."""

  def __init__(self, vocabulary):
    self.spec, self.hash = vocabulary.spec, 'f' * 64
    self.language_id = vocabulary.language_id
