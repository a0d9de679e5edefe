"""Token caches of large corpora: reading, and orders of rows.

`read` opens a cache of synthetic ids and reads rows. `order` counts the bytes
and places that an epoch reads of a task with both orders of rows. `many` opens
a cache of many languages and shards, whose tokens are holes in files, in a
process that may have 1,024 files open.
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

from xlflax.data import dataset_config
from xlflax.data import tokenized_examples as examples_lib
from xlflax.data.cache import cache_format
from xlflax.data.cache import cache_metadata as cache_header
from xlflax.data.cache import cached_loader as cache_loader
from xlflax.data.cache import shards as cache_shards
from xlflax.data.sampling import permutation
from xlflax.data.tokenizers import vocabulary_spec as spec_lib
from xlflax.storage import checksums

_VOCABULARY_SIZE = 50_000
_TEXT_LENGTH = 25  # tokens of a text


class SyntheticVocabulary:
  """A vocabulary of sizes, for caches of synthetic ids."""

  hash = 'synthetic'
  spec = spec_lib.VocabularySpec(
    _VOCABULARY_SIZE, 0, 1, 2, 3, 4, tuple(range(8)), ('en',)
  )

  def language_id(self, code: str) -> int:
    """There is one language."""
    del code
    return 0


def write_synthetic_cache(
  directory: pathlib.Path, tokens: int, shard: int
) -> None:
  """Writes a sealed cache of one task, of `tokens` at least.

  Args:
    directory: of the cache.
    tokens: of texts, ends of texts not counted.
    shard: tokens and ends in a shard.
  """
  target = cache_format.task_directory(directory, 't', 'train')
  rng = np.random.default_rng(0)
  texts = shard // (_TEXT_LENGTH + 1)
  entries = []
  for number in range(math.ceil(tokens / (texts * _TEXT_LENGTH))):
    ids = rng.integers(
      8, _VOCABULARY_SIZE, texts * _TEXT_LENGTH, dtype=np.uint16
    )
    side = examples_lib.Ragged(ids, np.full(texts, _TEXT_LENGTH))
    batch = examples_lib.Examples((side,), np.ones(texts, bool))
    entries.append(
      cache_shards.write_shard_file(
        cache_format.shard_file(target, f'part-{number:06d}'),
        [batch],
        dtype=np.dtype(np.uint16),
        spec=SyntheticVocabulary.spec,
        sides=('targets',),
      )
    )
  known = _seal_task(target, 't', entries)
  _write_header(
    directory,
    {'t': {'train': {'t': 1.0}}},
    {cache_format.task_key('t', 'train'): known},
  )


def _seal_task(target: pathlib.Path, task: str, entries: list) -> dict:
  """Seals a task of these shards; returns what the header says of it."""
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
  cache_header.Header(
    {
      'hash': SyntheticVocabulary.hash,
      'size': _VOCABULARY_SIZE,
      'languages': ['en'],
    },
    [cache_header.Generation(mixtures, tasks)],
  ).write(directory)


def measure_reading(
  directory: pathlib.Path, batches: int, locality: bool
) -> dict:
  """Opens a synthetic cache and reads rows, in this process.

  Returns:
    Seconds to open, for the first time (which compares digests, also in
    processor seconds and for each GB) and again; tokens a second of processor
    time; memory when it was most, and before.
  """
  gigabytes = sum(p.stat().st_size for p in directory.rglob('*.*')) / 1e9
  start, begun = time.perf_counter(), time.process_time()
  open_loader(directory, locality, verified=frozenset())
  first, used = time.perf_counter() - start, time.process_time() - begun
  before = _measure_memory()
  start = time.perf_counter()
  loader = open_loader(directory, locality, verified=None)
  opened = time.perf_counter() - start
  loader.rows(0, 0, 512)
  most, begun = before, time.process_time()
  for step in range(batches):
    loader.rows(step, 0, 512)
    if _measure_resident() > most['resident_mb']:
      most = _measure_memory()
  seconds = time.process_time() - begun
  return {
    'tokens': sum(row.tokens for row in loader.statistics()),
    'gigabytes': round(gigabytes, 3),
    'first_open_seconds': round(first, 3),
    'first_open_seconds_for_each_gb': round(first / gigabytes, 3),
    'first_open_processor_seconds_for_each_gb': round(used / gigabytes, 3),
    'open_seconds': round(opened, 3),
    'tokens_per_core_second': round(batches * 512 * 512 / seconds),
    **most,
    'before_reading': before,
  }


def open_loader(
  directory, locality: bool, verified, mixture: str = 't'
) -> cache_loader.CachedLoader:
  return cache_loader.CachedLoader(
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
  """MB of this process's memory, mapped files included."""
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * resource.getpagesize() / 1e6


def _measure_memory() -> dict[str, int]:
  """MB that are resident: in all, pages of mapped files, the rest.

  Pages of files are those that the system has in memory anyway and may take
  back; `shards_mb` of them are of shards, the others of libraries.
  """
  shards = total = own = 0
  name = ''
  for line in pathlib.Path('/proc/self/smaps').read_text().splitlines():
    key, _, value = line.partition(':')
    if ' ' in key:  # the head of a mapping, which names its file
      name = line
    elif key == 'Rss':
      total += int(value.split()[0])
      if name.endswith(cache_format.SUFFIX):
        shards += int(value.split()[0])
    elif key == 'Anonymous':
      own += int(value.split()[0])
  return {
    'resident_mb': round(total * 1024 / 1e6),
    'own_mb': round(own * 1024 / 1e6),
    'shards_mb': round(shards * 1024 / 1e6),
  }


def write_sparse_cache(
  directory: pathlib.Path, languages: int, shards: int
) -> None:
  """Writes a sealed cache of many tasks, whose tokens take no room on disk.

  Args:
    directory: of the cache.
    languages: one task each.
    shards: of each task, of 1 MB.
  """
  size, known = (1 << 20) // 2, {}
  for number in range(languages):
    task = f't{number:05d}'
    target = cache_format.task_directory(directory, task, 'train')
    (target / cache_format.SHARDS).mkdir(parents=True)
    entries = [
      _write_sparse_shard(target, f'part-{shard:06d}', size)
      for shard in range(shards)
    ]
    known[cache_format.task_key(task, 'train')] = _seal_task(
      target, task, entries
    )
  rates = {f't{number:05d}': 1.0 for number in range(languages)}
  _write_header(directory, {'all': {'train': rates}}, known)


def _write_sparse_shard(
  target: pathlib.Path, name: str, size: int
) -> cache_format.ShardEntry:
  """A shard of one text, of `size` tokens with its end, all 0."""
  width = 2
  ends = 2 * 4
  header = json.dumps(
    {
      'targets.offsets': {
        'dtype': 'U32',
        'shape': [2],
        'data_offsets': [0, ends],
      },
      'targets': {
        'dtype': 'U16',
        'shape': [size],
        'data_offsets': [ends, ends + size * width],
      },
      cache_shards.STARTS: {
        'dtype': 'BOOL',
        'shape': [1],
        'data_offsets': [ends + size * width, ends + size * width + 1],
      },
    }
  ).encode()
  header += b' ' * (-len(header) % 8)
  begin = 8 + len(header)
  with cache_format.shard_file(target, name).open('wb') as file:
    file.write(len(header).to_bytes(8, 'little') + header)
    file.write(np.array([0, size], np.uint32).tobytes())
    file.truncate(begin + ends + size * width + 1)
  digest = f'{begin + ends + size * width + 1}-crc32c64:00000000'
  return cache_format.ShardEntry(
    name=name,
    digest=digest,
    examples=1,
    empty=0,
    tokens=(size - 1,),
    unknown=(0,),
  )


def measure_many_languages(directory: pathlib.Path) -> dict:
  """Opens a sparse cache and reads two batches, in this process.

  Returns:
    Seconds of a dataset's opening, with what the process had loaded before;
    seconds of the batches; files open at the end.
  """
  start, begun = time.perf_counter(), time.process_time()
  loader = open_loader(directory, False, verified=None, mixture='all')
  opened, used = time.perf_counter() - start, time.process_time() - begun
  start = time.perf_counter()
  tasks = {len(loader.rows(step, 0, 512)) for step in range(2)}
  return {
    'languages': len(loader.statistics()),
    'open_seconds': round(opened, 3),
    'open_processor_seconds': round(used, 3),
    'batches': len(tasks),
    'two_batches_seconds': round(time.perf_counter() - start, 3),
    'open_files': len(list(pathlib.Path('/proc/self/fd').iterdir())),
  }


def count_epoch_reads(rows: int, row_bytes: int, page: int, kept: int) -> dict:
  """What one epoch reads, page by page, if `kept` pages stay in memory.

  Args:
    rows: of a task.
    row_bytes: of each.
    page: bytes that are read at once, as of a network disk.
    kept: pages that were used last and need not be read again.

  Returns:
    order -> bytes read per byte used, and reads.
  """
  index = np.arange(rows)
  size, key = np.full(rows, rows), np.full(rows, 7, np.uint64)
  near = dataset_config.Locality()
  orders = {
    'full': permutation.permute_index(index, size, key),
    'locality': permutation.permute_windows(
      index, size, key, block=near.block_rows, window=near.window_blocks
    ),
  }
  out = {}
  for name, places in orders.items():
    reads = _count_reads(places * row_bytes, row_bytes, page, kept)
    out[name] = {
      'bytes_per_byte_used': round(reads * page / (rows * row_bytes), 3),
      'reads': reads,
    }
  return out


def _count_reads(starts: np.ndarray, length: int, page: int, kept: int) -> int:
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
      if len(pages) > kept:
        pages.popitem(last=False)
  return reads


def main(arguments: list[str] | None = None) -> None:
  """Prints the figures of one part as JSON."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('part', choices=('read', 'order', 'many'))
  parser.add_argument('--tokens', type=int, default=2_000_000_000)
  parser.add_argument('--shard', type=int, default=16_000_000)
  parser.add_argument('--batches', type=int, default=400)
  parser.add_argument('--languages', type=int, default=2000)
  parser.add_argument('--shards', type=int, default=50)
  parser.add_argument('--rows', type=int, default=1_000_000)
  parser.add_argument('--page', type=int, default=1 << 17)
  parser.add_argument('--work', type=pathlib.Path)
  parser.add_argument('--locality', action='store_true')
  args = parser.parse_args(arguments)
  if args.part == 'order':
    found = count_epoch_reads(
      args.rows, 1020, args.page, (1 << 28) // args.page
    )
  else:
    with tempfile.TemporaryDirectory() as folder:
      work = args.work or pathlib.Path(folder)
      new = not (work / cache_format.CACHE_FILE).exists()
      if args.part == 'many':
        if new:
          write_sparse_cache(work, args.languages, args.shards)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        found = measure_many_languages(work)
      else:
        if new:
          write_synthetic_cache(work, args.tokens, args.shard)
        found = measure_reading(work, args.batches, args.locality)
  print(json.dumps(found, indent=2))


if __name__ == '__main__':
  main()
