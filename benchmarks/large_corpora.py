"""Benchmarks for reading and shuffling large token caches.

`read` opens a cache with synthetic token IDs and reads sequences. `order`
counts the bytes and pages that are read in one epoch over a task, for both
orders of sequences (with and without locality). `many` opens a cache with many
languages and shards, which are sparse files, in a process that may open at most
1,024 files.
"""

import argparse
import collections
import json
import math
import pathlib
import resource
import tempfile
import time

import numpy as np

from xlflax.data import dataset_config, tokenized_examples
from xlflax.data.cache import cache_format, cache_metadata, cached_loader
from xlflax.data.cache import shards as cache_shards
from xlflax.data.sampling import permutation
from xlflax.data.tokenizers import vocabulary_spec
from xlflax.storage import checksums

_VOCABULARY_SIZE = 50_000
_TEXT_LENGTH = 25  # Tokens per text.


class SyntheticVocabulary:
  """Vocabulary without token strings, for caches with synthetic token IDs."""

  hash = 'synthetic'
  spec = vocabulary_spec.VocabularySpec(
    _VOCABULARY_SIZE, 0, 1, 2, 3, 4, tuple(range(8)), ('en',)
  )

  def language_id(self, code: str) -> int:
    """Returns 0, the index of the only language."""
    del code
    return 0


def write_synthetic_cache(
  directory: pathlib.Path, tokens: int, shard_tokens: int
) -> None:
  """Writes a finalized token cache with one task of synthetic token IDs.

  Args:
    directory: Directory of the cache.
    tokens: Minimum number of tokens, excluding EOS tokens.
    shard_tokens: Tokens per shard, including EOS tokens.
  """
  target = cache_format.task_directory(directory, 't', 'train')
  rng = np.random.default_rng(0)
  texts_per_shard = shard_tokens // (_TEXT_LENGTH + 1)
  entries = []
  for number in range(math.ceil(tokens / (texts_per_shard * _TEXT_LENGTH))):
    ids = rng.integers(
      8, _VOCABULARY_SIZE, texts_per_shard * _TEXT_LENGTH, dtype=np.uint16
    )
    token_ids = tokenized_examples.Ragged(
      ids, np.full(texts_per_shard, _TEXT_LENGTH)
    )
    batch = tokenized_examples.Examples(
      (token_ids,), np.ones(texts_per_shard, bool)
    )
    entries.append(
      cache_shards.write_shard_file(
        cache_format.shard_file(target, f'part-{number:06d}'),
        [batch],
        dtype=np.dtype(np.uint16),
        spec=SyntheticVocabulary.spec,
        sides=('targets',),
      )
    )
  task_header = _seal_task(target, 't', entries)
  _write_header(
    directory,
    {'t': {'train': {'t': 1.0}}},
    {cache_format.task_key('t', 'train'): task_header},
  )


def _seal_task(target: pathlib.Path, task: str, entries: list) -> dict:
  """Finalizes a task with the given shards and returns its header entry."""
  meta = cache_format.TaskMeta(
    task=task,
    split='train',
    languages=('en',),
    source_examples=sum(entry.examples for entry in entries),
    vocabulary=SyntheticVocabulary.hash,
    fingerprint={},
    shard_size=1 << 20,
    shards=tuple(entries),
  )
  path = cache_format.generation_file(target, 1)
  cache_format.write_json(path, meta.to_json())
  files = {
    f'shards/{entry.name}{cache_format.SUFFIX}': entry.digest
    for entry in entries
  }
  checksums.write_seal(target, files | {path.name: checksums.digest_file(path)})
  return {'generation': 1, 'digest': checksums.digest_file(path)}


def _write_header(directory: pathlib.Path, mixtures: dict, tasks: dict) -> None:
  """Writes the header of a cache with one generation."""
  cache_metadata.Header(
    {
      'hash': SyntheticVocabulary.hash,
      'size': _VOCABULARY_SIZE,
      'languages': ['en'],
    },
    [cache_metadata.Generation(mixtures, tasks)],
  ).write(directory)


def measure_reading(
  directory: pathlib.Path, batches: int, locality: bool
) -> dict:
  """Opens a synthetic cache, reads batches and measures time and memory.

  Args:
    directory: Cache written by `write_synthetic_cache`.
    batches: Number of batches to read, each with 512 sequences.
    locality: Whether to shuffle block by block, as specified by
      `dataset_config.Locality`. If False, all sequences are shuffled together.

  Returns:
    The seconds for opening the cache the first time, which verifies digests
    (also in CPU seconds and per GB), and the second time; the tokens per CPU
    second; and the memory at its peak and before reading.
  """
  gigabytes = sum(path.stat().st_size for path in directory.rglob('*.*')) / 1e9
  start, cpu_start = time.perf_counter(), time.process_time()
  open_loader(directory, locality, verified=frozenset())
  first_open_seconds, first_open_cpu_seconds = (
    time.perf_counter() - start,
    time.process_time() - cpu_start,
  )
  memory_before = _measure_memory()
  start = time.perf_counter()
  loader = open_loader(directory, locality, verified=None)
  open_seconds = time.perf_counter() - start
  loader.rows(0, 0, 512)
  peak_memory, cpu_start = memory_before, time.process_time()
  for step in range(batches):
    loader.rows(step, 0, 512)
    if _measure_resident() > peak_memory['resident_mb']:
      peak_memory = _measure_memory()
  seconds = time.process_time() - cpu_start
  return {
    'tokens': sum(row.tokens for row in loader.statistics()),
    'gigabytes': round(gigabytes, 3),
    'first_open_seconds': round(first_open_seconds, 3),
    'first_open_seconds_for_each_gb': round(first_open_seconds / gigabytes, 3),
    'first_open_cpu_seconds_for_each_gb': round(
      first_open_cpu_seconds / gigabytes, 3
    ),
    'open_seconds': round(open_seconds, 3),
    'tokens_per_core_second': round(batches * 512 * 512 / seconds),
    **peak_memory,
    'before_reading': memory_before,
  }


def open_loader(
  directory, locality: bool, verified, mixture: str = 't'
) -> cached_loader.CachedLoader:
  """Opens a cache loader that provides sequences of 512 tokens.

  Args:
    directory: Directory of the cache.
    locality: Whether to shuffle block by block, as specified by
      `dataset_config.Locality`. If False, all sequences are shuffled together.
    verified: Signatures of the caches whose digests have already been verified.
      If None, digests are not verified.
    mixture: Name of the mixture to read from the cache.
  """
  return cached_loader.CachedLoader(
    dataset_config.DatasetConfig(
      name='s',
      mixture=mixture,
      layout='blocks',
      length=512,
      batch_size=512,
      locality=dataset_config.Locality() if locality else None,
    ),
    vocabulary=SyntheticVocabulary(),
    seed=0,
    cache_dir=directory,
    verified=verified,
  )


def _measure_resident() -> float:
  """Returns this process's resident memory in MB, including mapped files."""
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * resource.getpagesize() / 1e6


def _measure_memory() -> dict[str, int]:
  """Returns the resident memory in MB by type.

  Pages of mapped files are in memory because the operating system caches them,
  and it may evict them. `resident_mb` is the total, `own_mb` is the anonymous
  memory, and `shards_mb` are the pages of mapped shards.
  """
  shards = total = anonymous = 0
  mapping = ''
  for line in pathlib.Path('/proc/self/smaps').read_text().splitlines():
    key, _, value = line.partition(':')
    if ' ' in key:  # The first line of a mapping, with the name of its file.
      mapping = line
    elif key == 'Rss':
      total += int(value.split()[0])
      if mapping.endswith(cache_format.SUFFIX):
        shards += int(value.split()[0])
    elif key == 'Anonymous':
      anonymous += int(value.split()[0])
  return {
    'resident_mb': round(total * 1024 / 1e6),
    'own_mb': round(anonymous * 1024 / 1e6),
    'shards_mb': round(shards * 1024 / 1e6),
  }


def write_sparse_cache(
  directory: pathlib.Path, languages: int, shards: int
) -> None:
  """Writes a cache with many tasks whose sparse files occupy no disk space.

  Args:
    directory: Directory of the cache.
    languages: Number of languages, with one task each.
    shards: Number of shards per task. Each shard has 1 MB.
  """
  tokens_per_shard, task_headers = (1 << 20) // 2, {}
  for number in range(languages):
    task = f't{number:05d}'
    target = cache_format.task_directory(directory, task, 'train')
    (target / cache_format.SHARDS).mkdir(parents=True)
    entries = [
      _write_sparse_shard(target, f'part-{shard:06d}', tokens_per_shard)
      for shard in range(shards)
    ]
    task_headers[cache_format.task_key(task, 'train')] = _seal_task(
      target, task, entries
    )
  rates = {f't{number:05d}': 1.0 for number in range(languages)}
  _write_header(directory, {'all': {'train': rates}}, task_headers)


def _write_sparse_shard(
  target: pathlib.Path, name: str, size: int
) -> cache_format.ShardEntry:
  """Writes a shard with one text of `size` zero tokens as a sparse file."""
  token_bytes = 2
  offsets_bytes = 2 * 4
  header = json.dumps(
    {
      'targets.offsets': {
        'dtype': 'U32',
        'shape': [2],
        'data_offsets': [0, offsets_bytes],
      },
      'targets': {
        'dtype': 'U16',
        'shape': [size],
        'data_offsets': [offsets_bytes, offsets_bytes + size * token_bytes],
      },
      cache_shards.STARTS: {
        'dtype': 'BOOL',
        'shape': [1],
        'data_offsets': [
          offsets_bytes + size * token_bytes,
          offsets_bytes + size * token_bytes + 1,
        ],
      },
    }
  ).encode()
  header += b' ' * (-len(header) % 8)
  data_start = 8 + len(header)
  with cache_format.shard_file(target, name).open('wb') as file:
    file.write(len(header).to_bytes(8, 'little') + header)
    file.write(np.array([0, size], np.uint32).tobytes())
    file.truncate(data_start + offsets_bytes + size * token_bytes + 1)
  digest = (
    f'{data_start + offsets_bytes + size * token_bytes + 1}-crc32c64:00000000'
  )
  return cache_format.ShardEntry(
    name=name,
    digest=digest,
    examples=1,
    empty=0,
    tokens=(size - 1,),
    unknown=(0,),
  )


def measure_many_languages(directory: pathlib.Path) -> dict:
  """Opens a cache of sparse files and reads two batches in this process.

  Returns:
    The wall and CPU seconds for opening the dataset, including imports; the
    seconds for reading the batches; and the number of open files.
  """
  start, cpu_start = time.perf_counter(), time.process_time()
  loader = open_loader(directory, False, verified=None, mixture='all')
  open_seconds, open_cpu_seconds = (
    time.perf_counter() - start,
    time.process_time() - cpu_start,
  )
  start = time.perf_counter()
  batch_sizes = {len(loader.rows(step, 0, 512)) for step in range(2)}
  return {
    'languages': len(loader.statistics()),
    'open_seconds': round(open_seconds, 3),
    'open_cpu_seconds': round(open_cpu_seconds, 3),
    'batches': len(batch_sizes),
    'two_batches_seconds': round(time.perf_counter() - start, 3),
    'open_files': len(list(pathlib.Path('/proc/self/fd').iterdir())),
  }


def count_epoch_reads(
  rows: int, row_bytes: int, page: int, cached_pages: int
) -> dict:
  """Counts the storage pages read in one epoch, for each sequence order.

  The most recently used pages stay in memory (LRU) and are not read again.

  Args:
    rows: Number of sequences in the task.
    row_bytes: Number of bytes per sequence.
    page: Page size in bytes. Each read loads a complete page, for example from
      a network disk.
    cached_pages: Number of recently used pages that stay in memory.

  Returns:
    Map from order to the number of reads, and the bytes read per byte used.
  """
  index = np.arange(rows)
  size, key = np.full(rows, rows), np.full(rows, 7, np.uint64)
  locality = dataset_config.Locality()
  orders = {
    'full': permutation.permute_index(index, size, key),
    'locality': permutation.permute_windows(
      index, size, key, block=locality.block_rows, window=locality.window_blocks
    ),
  }
  results = {}
  for name, row_indices in orders.items():
    reads = _count_reads(row_indices * row_bytes, row_bytes, page, cached_pages)
    results[name] = {
      'bytes_per_byte_used': round(reads * page / (rows * row_bytes), 3),
      'reads': reads,
    }
  return results


def _count_reads(
  starts: np.ndarray, length: int, page: int, cached_pages: int
) -> int:
  """Counts the page reads that are not served by a cache of recent pages."""
  pages: collections.OrderedDict[int, None] = collections.OrderedDict()
  reads = 0
  for first, last in zip(
    (starts // page).tolist(),
    ((starts + length - 1) // page).tolist(),
    strict=True,
  ):
    for number in range(first, last + 1):
      if number in pages:
        pages.move_to_end(number)
        continue
      reads += 1
      pages[number] = None
      if len(pages) > cached_pages:
        pages.popitem(last=False)
  return reads


def main(arguments: list[str] | None = None) -> None:
  """Prints the measurements of the selected benchmark as JSON."""
  parser = argparse.ArgumentParser(description=__doc__)
  add = parser.add_argument
  add('part', choices=('read', 'order', 'many'), help='Measurement to run.')
  add(
    '--tokens',
    type=int,
    default=2_000_000_000,
    help='Minimum number of tokens in the cache for `read`.',
  )
  add(
    '--shard',
    type=int,
    default=16_000_000,
    help='Number of tokens per shard in the cache for `read`.',
  )
  add(
    '--batches',
    type=int,
    default=400,
    help='Number of batches that `read` reads.',
  )
  add(
    '--languages',
    type=int,
    default=2000,
    help='Number of languages in the cache for `many`.',
  )
  add(
    '--shards',
    type=int,
    default=50,
    help='Number of shards per language in the cache for `many`.',
  )
  add(
    '--rows',
    type=int,
    default=1_000_000,
    help='Number of sequences for `order`.',
  )
  add(
    '--page',
    type=int,
    default=1 << 17,
    help='Number of bytes per page for `order`.',
  )
  add(
    '--work',
    type=pathlib.Path,
    help='Directory of the cache, which is reused. Default: a temporary '
    'directory.',
  )
  add(
    '--locality',
    action='store_true',
    help='Read sequences with locality instead of shuffling all of them.',
  )
  args = parser.parse_args(arguments)
  if args.part == 'order':
    results = count_epoch_reads(
      args.rows, 1020, args.page, (1 << 28) // args.page
    )
  else:
    with tempfile.TemporaryDirectory() as folder:
      work = args.work or pathlib.Path(folder)
      is_new = not (work / cache_format.CACHE_FILE).exists()
      if args.part == 'many':
        if is_new:
          write_sparse_cache(work, args.languages, args.shards)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        results = measure_many_languages(work)
      else:
        if is_new:
          write_synthetic_cache(work, args.tokens, args.shard)
        results = measure_reading(work, args.batches, args.locality)
  print(json.dumps(results, indent=2))


if __name__ == '__main__':
  main()
