"""`xlflax cache`: writes, verifies and copies token caches."""

import dataclasses
import functools
import json
import logging
import os
import pathlib
import shlex
from typing import Literal

from xlflax.cli import cache_statistics, output_paths
from xlflax.cli import options as shared_options
from xlflax.storage import bucket_staging, paths
from xlflax.utils import errors, logs, progress_reporting, user_modules


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinalizeOptions:
  """Merges the shards that several jobs wrote into one token cache.

  Pass the same options as the jobs that wrote the shards.

  Attributes:
    output: Directory of the cache. Mixtures that it already contains are kept.
    vocabulary: Directory written by `xlflax vocab`.
    corpus: Corpus directory to read. Registers the tasks `corpus.*`.
    mixture: SeqIO mixture or task to cache. Repeat the option for several
      mixtures. Defaults to corpus.mono and corpus.parallel.
    split: Split to cache. Repeat the option for several splits.
    shard_size: Bytes of text per cache file. After an interruption, only
      unfinished files are written again.
    overwrite: Replace mixtures that were written with different text,
      preprocessing steps or vocabulary.
    append: Add the corpus's new files to the cache as a new version.
      Older versions remain readable.
    task_module: Module that registers SeqIO tasks, as an importable name or the
      path of a Python file. Repeat the option for several modules.
    tfds_data_dir: Directory that contains prepared TensorFlow Datasets.
  """

  output: str
  vocabulary: str
  corpus: str | None = None
  mixture: tuple[str, ...] = ()
  split: tuple[str, ...] = ('train',)
  shard_size: shared_options.NumBytes = 1 << 26
  overwrite: bool = False
  append: bool = False
  task_module: tuple[str, ...] = ()
  tfds_data_dir: str | None = None
  format: shared_options.OutputOptions = shared_options.OutputOptions()

  def __post_init__(self):
    shared_options.check_excludes(
      self, ['append'], excluded_by='--overwrite', given=self.overwrite
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheOptions(FinalizeOptions):
  """Tokenizes mixtures and writes them as a memory-mapped token cache.

  Training reads the cache without TensorFlow and resumes immediately. Run the
  same command again after an interruption to resume.

  Attributes:
    num_workers: Number of worker processes on this host.
    runner: Engine that writes the cache: local worker processes, or Apache
      Beam.
    beam_options: Options of Apache Beam, such as "--runner=DirectRunner
      --direct_num_workers=8".
  """

  num_workers: shared_options.NumWorkers = 1
  runner: Literal['local', 'beam'] = 'local'
  beam_options: str | None = None
  shard: shared_options.ShardOptions = shared_options.ShardOptions()

  def __post_init__(self):
    super().__post_init__()
    is_sharded = self.shard != shared_options.ShardOptions()
    shared_options.check_excludes(
      self,
      ['runner', 'beam_options', 'json'],
      excluded_by='--shard_index or --shard_from_env',
      given=is_sharded,
    )
    shared_options.check_excludes(
      self,
      ['num_workers'],
      excluded_by='--shard_index or --shard_from_env',
      given=is_sharded,
      fix='Start one job per shard.',
    )
    shared_options.check_excludes(
      self,
      ['num_workers'],
      excluded_by='--runner=beam',
      given=self.runner == 'beam',
      fix='Set the number of workers in --beam_options.',
    )
    shared_options.check_requires(
      self,
      ['beam_options'],
      requires='--runner=beam',
      satisfied=self.runner == 'beam',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions:
  """Verifies every file in a token cache against its recorded digest.

  Attributes:
    cache: Directory of the cache.
    mixture: Mixture to verify. Repeat the option for several mixtures. Defaults
      to all mixtures.
    split: Split to verify. Repeat the option for several splits. Defaults to
      all splits.
  """

  cache: str = dataclasses.field(kw_only=False)
  mixture: tuple[str, ...] = ()
  split: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopyOptions:
  """Copies a token cache, for example from a bucket to a local disk.

  Attributes:
    cache: Directory or bucket path of the cache.
    destination: Local directory to write.
    mixture: Mixture to copy. Repeat the option for several mixtures. Defaults
      to all mixtures.
    split: Split to copy. Repeat the option for several splits. Defaults to all
      splits.
  """

  cache: str = dataclasses.field(kw_only=False)
  destination: str = dataclasses.field(kw_only=False)
  mixture: tuple[str, ...] = ()
  split: tuple[str, ...] = ()


EXAMPLES = r"""
Cache all text of a corpus:
  xlflax cache --corpus=corpus --vocabulary=vocabulary --output=cache

Cache some mixtures and splits with 8 worker processes:
  xlflax cache --corpus=corpus --vocabulary=vocabulary --output=cache \
      --mixture=corpus.mono --mixture=corpus.parallel \
      --split=train --split=validation --num_workers=8

Write one of 16 shards, each on a separate machine; any job may be restarted:
  xlflax cache --corpus=corpus --vocabulary=vocabulary --output=cache \
      --shard_index=3 --num_shards=16
Merge the shards after the last job:
  xlflax cache finalize --corpus=corpus --vocabulary=vocabulary --output=cache

Run on Apache Beam with 8 processes; the same options name a cluster:
  xlflax cache --runner=beam --beam_options="--runner=DirectRunner \
      --direct_num_workers=8 --direct_running_mode=multi_processing" \
      --corpus=corpus --vocabulary=vocabulary --output=cache

Add files that are new in the corpus as a new version of the cache:
  xlflax cache --append --corpus=corpus --vocabulary=vocabulary --output=cache

Add your own tasks to the same cache:
  xlflax cache --task_module=my_tasks --mixture=news.all \
      --vocabulary=vocabulary --output=cache

Compare every file of a cache with its digest:
  xlflax cache verify cache

Copy a cache to a local disk, for `xlflax train --cache=/local/cache`:
  xlflax cache copy gs://bucket/cache /local/cache
"""


def main(options: CacheOptions) -> None:
  """Writes the missing files of the cache and prints statistics."""
  shard = options.shard.resolve()
  output_paths.check_outside_corpus(
    options.corpus, options.output, content='cache', option='output'
  )
  mixtures = list(options.mixture) or corpus_mixtures(options.corpus)
  _log_data_warnings(options, mixtures)
  if options.runner == 'beam':
    options = _with_absolute_paths(options)
    paths.to_local_path(options.output, where='--output of several machines')
  with bucket_staging.stage_output(options.output, share=shard) as directory:
    options = dataclasses.replace(options, output=str(directory))
    if shard is not None:
      num_units = write_shard(options, mixtures, shard)
      print(
        f'Shard {shard[0]} of {shard[1]}: {num_units} units of work are '
        'complete.'
      )
      return
    metas = write(options, mixtures)
  _print_statistics(metas, as_json=options.format.json)


def finalize(options: FinalizeOptions) -> None:
  """Merges the shards into one cache and prints its statistics."""
  from xlflax.data.cache import cache_writer

  output_paths.check_outside_corpus(
    options.corpus, options.output, content='cache', option='output'
  )
  mixtures = list(options.mixture) or corpus_mixtures(options.corpus)
  _log_data_warnings(options, mixtures)
  with bucket_staging.stage_output(options.output) as directory:
    plan = _plan(dataclasses.replace(options, output=str(directory)), mixtures)
    metas = cache_writer.finalize_cache(plan)
  _print_statistics(metas, as_json=options.format.json)


def verify(options: VerifyOptions) -> None:
  """Verifies the digests of the selected mixtures."""
  from xlflax.data.cache import cache_reader

  cache = cache_reader.TokenCache(options.cache)
  tasks = set()
  for mixture in options.mixture or sorted(cache.mixtures):
    for split in options.split or sorted(
      cache.mixtures.get(mixture, {'train': 0})
    ):
      cache.verify(mixture, split)
      tasks |= {(task, split) for task in cache.open(mixture, split)}
  print(f'Verified {len(tasks)} tasks.')


def copy(options: CopyOptions) -> None:
  """Copies the selected mixtures of a token cache to a local directory."""
  from xlflax.data.cache import cache_reader, local_copy

  cache = cache_reader.TokenCache(options.cache)
  tasks = {
    (task, split)
    for mixture in options.mixture or cache.mixtures
    for split in options.split or cache.mixtures.get(mixture, {'train': {}})
    for task in cache.rates(mixture, split)
  }
  with progress_reporting.Progress('copying', unit='MB') as bar:

    def report(staged) -> None:
      bar.reach(staged.done_bytes / 1e6, staged.total_bytes / 1e6)

    result = local_copy.copy_tasks(
      cache, options.destination, sorted(tasks), report=report
    )
  print(
    f'Copied {result.copied_files} files to {options.destination}, which now '
    f'holds {result.total_bytes / 1e9:.3f} GB.'
  )


SUBCOMMANDS = {'finalize': finalize, 'verify': verify, 'copy': copy}


def write(options: CacheOptions, mixtures: list[str]) -> list:
  """Writes the caches for all tasks in mixtures and returns their metadata."""
  from xlflax.data.cache import cache_writer

  with progress_reporting.Progress('cache', unit='shards') as bar:
    return cache_writer.write_cache(
      _plan(options, mixtures),
      num_processes=options.num_workers,
      runner=_beam_runner(options) if options.runner == 'beam' else None,
      report=functools.partial(_show_progress, bar),
    )


def write_shard(
  options: CacheOptions, mixtures: list[str], shard: tuple[int, int]
) -> int:
  """Writes a partition of the cache and returns the number of its shard ranges.

  A shard range consists of consecutive shard files; see `write_plan.Unit`.
  """
  from xlflax.data.cache import cache_writer

  with progress_reporting.Progress('cache', unit='shards') as bar:
    return cache_writer.write_partition(
      _plan(options, mixtures),
      shard,
      report=functools.partial(_show_progress, bar),
    )


def corpus_mixtures(directory: str | None) -> list[str]:
  """Returns the names of a corpus's tasks, which can be used as mixtures.

  Raises:
    ConfigError: If no corpus directory is given.
  """
  if not directory:
    raise errors.ConfigError(
      'Either --mixture or --corpus is required',
      fix='Pass --mixture=NAME or --corpus=DIR. Run `xlflax tasks list` to '
      'list the families of tasks and mixtures.',
    )
  from xlflax.data.corpus.corpus_directory import Corpus

  corpus = Corpus(directory)
  contents = {
    'corpus.mono': corpus.monolingual_languages(),
    'corpus.parallel': corpus.parallel_pairs(),
  }
  return [name for name, content in contents.items() if content]


def _plan(options: FinalizeOptions, mixtures: list[str]):
  """Returns the plan of the cache that the options describe."""
  from xlflax.data.cache import cache_writer
  from xlflax.data.tokenizers.base_vocabulary import Vocabulary

  if options.overwrite:
    changed = cache_writer.Changed.REPLACE
  elif options.append:
    changed = cache_writer.Changed.ADD
  else:
    changed = cache_writer.Changed.ERROR
  return cache_writer.Plan(
    directory=pathlib.Path(options.output),
    mixtures=mixtures,
    splits=list(options.split),
    vocabulary=Vocabulary.load(options.vocabulary),
    open_tasks=_task_opener(options, mixtures),
    shard_size=options.shard_size,
    changed=changed,
  )


def _task_opener(options: FinalizeOptions, mixtures: list[str]):
  """Returns a function that opens the tasks, without SeqIO if possible."""
  from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks

  if options.corpus and not (options.task_module or options.tfds_data_dir):
    corpus_tasks = CorpusTasks(options.corpus)
    if all(name in corpus_tasks for name in mixtures):
      return functools.partial(CorpusTasks, options.corpus)
  from xlflax.data.seqio_tasks import cache_adapter  # Imports TensorFlow.

  return functools.partial(
    cache_adapter.open_tasks,
    options.corpus,
    list(options.task_module),
    options.tfds_data_dir,
  )


def _beam_runner(options: CacheOptions):
  """Returns the function that writes shards on Apache Beam."""
  try:
    from xlflax.data.cache import beam_runner
  except ModuleNotFoundError as error:
    if error.name != 'apache_beam':
      raise
    raise errors.ConfigError(
      '--runner=beam requires Apache Beam, which is not installed',
      fix='Run `pip install ".[beam]"` in a checkout of xlflax.',
    ) from error
  try:
    return beam_runner.make_runner(shlex.split(options.beam_options or ''))
  except ValueError as error:
    raise errors.ConfigError(
      f'The value of --beam_options cannot be parsed: {error}',
      got=options.beam_options,
      fix='Pass Apache Beam options, and put options that contain spaces in '
      'quotes.',
    ) from error


def _with_absolute_paths(options: CacheOptions) -> CacheOptions:
  """Returns the options with absolute paths, which Beam workers can read."""
  changes = {}
  for name in ('output', 'corpus', 'tfds_data_dir'):
    path = getattr(options, name)
    if path and '://' not in path:
      changes[name] = os.path.abspath(path)
  task_module = tuple(map(user_modules.to_absolute, options.task_module))
  return dataclasses.replace(options, task_module=task_module, **changes)


def _show_progress(bar: progress_reporting.Progress, state) -> None:
  """Updates the progress line on the terminal."""
  bar.what = state.message
  bar.reach(state.done, state.total)


def _log_data_warnings(options: FinalizeOptions, mixtures: list[str]) -> None:
  """Logs the data warnings of the corpus and of the other tasks."""
  if options.corpus:
    from xlflax.data import corpus_checks
    from xlflax.data.corpus.corpus_directory import Corpus

    corpus_checks.log_anomalies(Corpus(options.corpus))
  from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks

  tasks = _task_opener(options, mixtures)()
  if isinstance(tasks, CorpusTasks):
    return
  for split in options.split:
    names = {
      name for mixture in mixtures for name in tasks.names(mixture, split=split)
    }
    for anomaly in tasks.find_anomalies(sorted(names), split=split):
      logging.warning('%s', anomaly, extra=logs.ONCE)


def _print_statistics(metas: list, *, as_json: bool) -> None:
  """Prints the statistics of the cache as a table or JSON."""
  cache_statistics.log_unknown_tokens(metas)
  if not as_json:
    cache_statistics.print_table(metas)
    return
  for meta in metas:
    print(json.dumps(meta.to_json()), flush=True)
