"""`xlflax cache`: writes the token cache of mixtures."""

import argparse
import functools
import os
import shlex

from xlflax.commands.cache import cache_flags, cache_report
from xlflax.commands.flags import apart, json_lines, parsing
from xlflax.foundation import errors, progress
from xlflax.storage import mirrors, paths

HELP = (
  "Writes a mixture's token cache, from which training reads without "
  'TensorFlow and resumes at once. Run again after an interruption, it '
  'goes on where it stopped.'
)

_WRITING = (
  'vocabulary corpus num_processes shard_size shard runner beam_options '
  'overwrite add task_module tfds_data_dir json'
)
RULES = (
  parsing.Excludes(_WRITING, 'verify'),
  parsing.Excludes(f'{_WRITING} verify', 'stage'),
  parsing.Excludes('runner beam_options json', 'shard'),
  parsing.Excludes(
    'num_processes', 'runner=beam', 'say in --beam_options how many there are'
  ),
)
# Flags that say who writes shards, or that something else is done.
_NOT_OF_FINISH = ('verify', 'stage', 'runner', 'beam_options', 'num_processes')
FLAGS = cache_flags.FLAGS


def run(args: argparse.Namespace) -> int:
  """Writes what is missing, and prints statistics per language."""
  _check_finish(args)
  if args.verify:
    return _verify(args)
  if args.stage:
    return _stage(args)
  _check(args)
  apart.check(args.corpus, args.output, what='cache', flag='output')
  mixtures = args.mixture or corpus_mixtures(args.corpus)
  _warn_of_corpus(args.corpus)
  if args.runner == 'beam':
    _name_from_the_root(args)
  if args.runner == 'beam':
    paths.local(args.output, where='--output of several machines')
  with mirrors.output(args.output, share=args.shard) as args.output:
    metas = write(args, mixtures)
  if args.shard:
    return 0
  cache_report.warn_of_unknown(metas)
  if args.json:
    json_lines.show(meta.to_json() for meta in metas)
  else:
    cache_report.show(metas)
  return 0


def _check(args: argparse.Namespace) -> None:
  """Refuses flags of writing that do not fit each other."""
  if args.vocabulary is None:
    raise errors.ConfigError(
      'Text is tokenised by a vocabulary',
      got='no --vocabulary',
      expected='a directory made by `xlflax vocab`',
      where='xlflax cache',
    )
  if args.shard and args.num_processes > 1:
    raise errors.ConfigError(
      '--shard does not go with --num_processes',
      got=f'--shard={args.shard[0]}/{args.shard[1]}',
      fix='Give each process a share of its own',
    )
  if args.beam_options and args.runner != 'beam':
    raise errors.ConfigError(
      "Beam's flags without Beam",
      got=f'--beam_options={args.beam_options}',
      fix='add --runner=beam',
    )


def _name_from_the_root(args: argparse.Namespace) -> None:
  """Names directories as workers know them that run in other ones."""
  for flag in ('output', 'corpus', 'tfds_data_dir'):
    name = getattr(args, flag)
    if name and '://' not in name:
      setattr(args, flag, os.path.abspath(name))


def _check_finish(args: argparse.Namespace) -> None:
  """Refuses flags of which `finish` makes no use."""
  given = [name for name in (*_NOT_OF_FINISH, 'shard') if name in args.given]
  if args.action == 'finish' and given:
    raise errors.ConfigError(
      '`finish` writes no shards, and does nothing but seal what is there',
      got=', '.join(f'--{name}' for name in given),
      where='xlflax cache finish',
      fix='Leave it out',
    )


def _stage(args: argparse.Namespace) -> int:
  """Copies the mixtures that are given, or all, to a local disk."""
  from xlflax.data.cache import reader as cache_reader
  from xlflax.data.cache import staging

  cache = cache_reader.TokenCache(args.output)
  with progress.Progress('copying', unit='MB') as told:

    def report(staged) -> None:
      told.reach(staged.done_bytes / 1e6, staged.total_bytes / 1e6)

    found = staging.stage(cache, args.stage, _tasks(cache, args), report=report)
  print(
    f'{found.copied_files} files were copied to {args.stage}; '
    f'{found.total_bytes / 1e9:.3f} GB are there.'
  )
  return 0


def _tasks(cache, args: argparse.Namespace) -> list[tuple[str, str]]:
  """(task, split) of the mixtures and splits that are given, or of all."""
  return sorted(
    {
      (task, split)
      for mixture in args.mixture or cache.mixtures
      for split in args.split or cache.mixtures.get(mixture, {'train': 0})
      for task in cache.rates(mixture, split)
    }
  )


def _verify(args: argparse.Namespace) -> int:
  """Compares the mixtures that are given, or all, with their digests."""
  from xlflax.data.cache import reader as cache_reader

  cache = cache_reader.TokenCache(args.output)
  done = set()
  for mixture in args.mixture or sorted(cache.mixtures):
    for split in args.split or sorted(
      cache.mixtures.get(mixture, {'train': 0})
    ):
      cache.verify(mixture, split)
      done |= {(task, split) for task in cache.open(mixture, split)}
  print(f'{len(done)} tasks are as they were written.')
  return 0


def write(args: argparse.Namespace, mixtures: list[str]) -> list:
  """Writes the mixtures' tasks; returns what their caches say of them."""
  # Slow imports, after the checks.
  from xlflax.data.cache import writer as cache_writer
  from xlflax.data.vocabularies.vocabulary import Vocabulary

  plan = cache_writer.Plan(
    directory=args.output,
    mixtures=mixtures,
    splits=args.split or ['train'],
    vocabulary=Vocabulary.load(args.vocabulary),
    open_tasks=_tasks_to_open(args, mixtures),
    shard_size=args.shard_size,
    changed=_changed(args, cache_writer.Changed),
  )
  if args.action == 'finish':
    return cache_writer.finish(plan)
  with progress.Progress('cache', unit='shards') as told:

    def report(found) -> None:
      told.what = found.message
      told.reach(found.done, found.total)

    if args.shard:
      count = cache_writer.write_share(plan, args.shard, report=report)
      print(f'Share {args.shard[0]}/{args.shard[1]}: {count} shards are there.')
      return []
    return cache_writer.write_cache(
      plan,
      num_processes=args.num_processes,
      runner=_beam_runner(args),
      report=report,
    )


def _tasks_to_open(args: argparse.Namespace, mixtures: list[str]):
  """What opens the tasks: without SeqIO where the corpus has all of them."""
  from xlflax.data.text_tasks.corpus_tasks import CorpusTasks

  if args.corpus and not (args.task_module or args.tfds_data_dir):
    known = CorpusTasks(args.corpus)
    if all(name in known for name in mixtures):
      return functools.partial(CorpusTasks, args.corpus)
  from xlflax.data.seqio_tasks import registered  # imports TensorFlow

  return functools.partial(
    registered.open_tasks, args.corpus, args.task_module, args.tfds_data_dir
  )


def _beam_runner(args: argparse.Namespace):
  """What writes the shards on Beam; None where this machine does."""
  if args.runner != 'beam':
    return None
  try:
    from xlflax.data.cache import beam_runner
  except ModuleNotFoundError as error:
    if error.name != 'apache_beam':
      raise
    raise errors.ConfigError(
      'Apache Beam is not installed',
      where='--runner=beam',
      fix='pip install ".[beam]" in a checkout of xlflax',
    ) from error
  try:
    return beam_runner.runner(shlex.split(args.beam_options or ''))
  except ValueError as error:
    raise errors.ConfigError(
      '--beam_options cannot be read',
      got=f'{args.beam_options}: {error}',
      expected='flags, with those that have spaces in quotes',
    ) from error


def _changed(args: argparse.Namespace, kinds):
  if args.overwrite:
    return kinds.REPLACE
  return kinds.ADD if args.add else kinds.REFUSE


def _warn_of_corpus(directory: str | None) -> None:
  """Logs what is odd about the corpus directory."""
  if directory:
    from xlflax.data import corpus_oddities as oddities
    from xlflax.data.corpus.directory import Corpus

    oddities.warn(Corpus(directory))


def corpus_mixtures(directory) -> list[str]:
  """The mixtures of a corpus directory."""
  if not directory:
    raise errors.ConfigError(
      'Nothing says what to cache',
      expected='--mixture or --corpus',
      fix='Name a mixture by --mixture; `xlflax tasks list` shows them',
    )
  from xlflax.data.corpus.directory import Corpus

  corpus = Corpus(directory)
  kinds = {
    'corpus.mono': corpus.monolingual_languages(),
    'corpus.parallel': corpus.parallel_pairs(),
  }
  return [name for name, found in kinds.items() if found]
