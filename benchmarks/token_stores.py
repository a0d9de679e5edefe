"""Writing and reading token ids on one core, beside what others store.

  python -m benchmarks.token_stores --work=DIR

The same made-up lines, encoded by the same SentencePiece model, are written by
`xlflax cache`'s writer, as a memory map with offsets (Megatron's way), as
ArrayRecord, as MDS (mosaicml-streaming) and by `datasets.map`; `bare` encodes
them and writes nothing. Then each is read at random: lines in the batches of a
permutation. A store is written, and read, in a process of its own on one core,
`--rounds` times in turn, every second round backwards; figures are medians of
tokens over processor seconds, imports not counted. Stores whose library is
missing are left out. `array_record`, `mds` and `datasets` keep 32-bit ids, as
`memmap` and the cache do.
"""

import argparse
import functools
import itertools
import json
import pathlib
import resource
import shutil
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import input_pipeline, measure

STORES = ('bare', 'xlflax', 'memmap', 'array_record', 'mds', 'datasets')
_CHUNK_SIZE = 1024  # lines encoded together
_BATCH_SIZE = 256  # lines read together


def prepare_data(work: pathlib.Path, lines: int) -> None:
  """Writes corpus and vocabulary, unless they are there."""
  from xlflax.data.corpus import corpus_directory, corpus_writer
  from xlflax.data.tokenizers import vocabulary_training

  corpus = work / 'corpus'
  if not corpus.exists():
    corpus_writer.write_monolingual(
      corpus, 'en', [input_pipeline.make_text(lines)]
    )
  vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(corpus),
    work / 'vocabulary',
    size=2000,
    max_sentences=20_000,
  )


def _encode_lines(work: pathlib.Path) -> Iterator[list[list[int]]]:
  """Ids of the corpus's lines, in chunks."""
  import sentencepiece

  model = sentencepiece.SentencePieceProcessor(
    model_file=str(work / 'vocabulary/sentencepiece.model')
  )
  with open(work / 'corpus/mono/en.txt', encoding='utf-8') as file:
    while chunk := list(itertools.islice(file, _CHUNK_SIZE)):
      yield model.encode([line.rstrip('\n') for line in chunk], num_threads=1)


def write_bare(work: pathlib.Path, store: pathlib.Path) -> int:
  del store
  return sum(len(ids) for chunk in _encode_lines(work) for ids in chunk)


def write_xlflax(work: pathlib.Path, store: pathlib.Path) -> int:
  from xlflax.data.cache import cache_writer
  from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
  from xlflax.data.tokenizers.base_vocabulary import Vocabulary

  [meta] = cache_writer.write_cache(
    cache_writer.Plan(
      directory=store,
      mixtures=['corpus.mono'],
      vocabulary=Vocabulary.load(work / 'vocabulary'),
      open_tasks=functools.partial(CorpusTasks, str(work / 'corpus')),
    )
  )
  return sum(side.tokens for side in meta.statistics)


def write_memmap(work: pathlib.Path, store: pathlib.Path) -> int:
  lengths: list[int] = []
  with open(store.with_suffix('.bin'), 'wb') as file:
    for chunk in _encode_lines(work):
      lengths += map(len, chunk)
      file.write(np.array([i for ids in chunk for i in ids], 'i4').tobytes())
  ends = np.cumsum(lengths)
  np.save(store.with_suffix('.npy'), np.concatenate([[0], ends]))
  return int(ends[-1])


def write_array_record(work: pathlib.Path, store: pathlib.Path) -> int:
  from array_record.python import array_record_module

  writer = array_record_module.ArrayRecordWriter(str(store), 'group_size:1')
  tokens = 0
  for chunk in _encode_lines(work):
    for ids in chunk:
      tokens += len(ids)
      writer.write(np.array(ids, 'i4').tobytes())
  writer.close()
  return tokens


def write_mds(work: pathlib.Path, store: pathlib.Path) -> int:
  import streaming

  tokens = 0
  with streaming.MDSWriter(
    out=str(store), columns={'ids': 'ndarray:int32'}
  ) as writer:
    for chunk in _encode_lines(work):
      for ids in chunk:
        tokens += len(ids)
        writer.write({'ids': np.array(ids, 'i4')})
  return tokens


def write_datasets(work: pathlib.Path, store: pathlib.Path) -> int:
  import datasets
  import sentencepiece

  model = sentencepiece.SentencePieceProcessor(
    model_file=str(work / 'vocabulary/sentencepiece.model')
  )
  text = datasets.load_dataset(
    'text',
    data_files=str(work / 'corpus/mono/en.txt'),
    cache_dir=f'{store}-cache',
    split='train',
  )
  ids = datasets.Features({'ids': datasets.Sequence(datasets.Value('int32'))})
  found = text.map(
    lambda batch: {'ids': model.encode(batch['text'], num_threads=1)},
    batched=True,
    batch_size=_CHUNK_SIZE,
    remove_columns=['text'],
    features=ids,
  )
  found.save_to_disk(str(store))
  return sum(len(part.values) for part in found.data.column('ids').chunks)


def read_xlflax(store: pathlib.Path, batches) -> int:
  from xlflax.data.cache import cache_reader

  tasks = cache_reader.TokenCache(store).open('corpus.mono', 'train')
  [side] = tasks['corpus.mono.en'].sides
  return sum(
    _copy_rows(side.slices(*side.bounds(batch)))
    for batch in batches(sum(map(len, side.lengths())))
  )


def read_memmap(store: pathlib.Path, batches) -> int:
  ids = np.memmap(store.with_suffix('.bin'), 'i4', 'r')
  ends = np.load(store.with_suffix('.npy'))
  return sum(
    _copy_rows([
      ids[start:stop]
      for start, stop in zip(
        ends[batch].tolist(), ends[batch + 1].tolist(), strict=True
      )
    ])
    for batch in batches(ends.size - 1)
  )  # fmt: skip


def read_array_record(store: pathlib.Path, batches) -> int:
  from array_record.python import array_record_module

  reader = array_record_module.ArrayRecordReader(str(store))
  return sum(
    _copy_rows(
      [np.frombuffer(one, 'i4') for one in reader.read(batch.tolist())]
    )
    for batch in batches(reader.num_records())
  )


def read_mds(store: pathlib.Path, batches) -> int:
  import streaming

  rows = streaming.LocalDataset(str(store))
  return sum(
    _copy_rows([rows[i]['ids'] for i in batch.tolist()])
    for batch in batches(len(rows))
  )


def read_datasets(store: pathlib.Path, batches) -> int:
  import datasets

  rows = datasets.load_from_disk(str(store)).with_format('numpy')
  return sum(
    _copy_rows(rows[batch.tolist()]['ids']) for batch in batches(len(rows))
  )


def _copy_rows(rows) -> int:
  """Copies rows into one array, as a batch does; the number of tokens."""
  return np.concatenate(list(rows)).size


def iterate_batches(count: int) -> Iterator[np.ndarray]:
  """All lines, in batches of a permutation."""
  order = np.random.default_rng(0).permutation(count)
  return (order[i : i + _BATCH_SIZE] for i in range(0, count, _BATCH_SIZE))


def measure_store(
  work: pathlib.Path, store: str, action: str
) -> dict[str, Any]:
  """Writes or reads one store; tokens and processor seconds.

  What reads runs on two batches before: imports and opening are no rate.
  """
  place = work / f'store-{store}'
  if action == 'read':
    call = functools.partial(globals()[f'read_{store}'], place)
    call(lambda count: itertools.islice(iterate_batches(count), 2))
    start = _cpu_seconds()
    tokens = call(iterate_batches)
  else:
    _import_libraries(store)
    for path in work.glob(f'store-{store}*'):
      path.unlink() if path.is_file() else shutil.rmtree(path)
    start = _cpu_seconds()
    tokens = globals()[f'write_{store}'](work, place)
  return {'tokens': tokens, 'seconds': _cpu_seconds() - start}


def _cpu_seconds() -> float:
  children = resource.getrusage(resource.RUSAGE_CHILDREN)
  return time.process_time() + children.ru_utime + children.ru_stime


def _import_libraries(store: str) -> None:
  """What writing a store imports."""
  import sentencepiece  # noqa: F401

  if store == 'array_record':
    from array_record.python import array_record_module  # noqa: F401
  elif store == 'mds':
    import streaming  # noqa: F401
  elif store == 'datasets':
    import datasets  # noqa: F401
  elif store == 'xlflax':
    from xlflax.data.cache import cache_writer  # noqa: F401
    from xlflax.data.plain_text import corpus_directory_tasks  # noqa: F401


def main(arguments: list[str] | None = None) -> None:
  """Prints a table of rates."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--work', required=True, type=pathlib.Path)
  parser.add_argument('--lines', type=int, default=200_000)
  parser.add_argument('--rounds', type=int, default=3)
  parser.add_argument('--stores', default=','.join(STORES))
  parser.add_argument('--only', nargs=2, metavar=('STORE', 'ACTION'))
  args = parser.parse_args(arguments)
  if args.only:
    print(json.dumps(measure_store(args.work, *args.only)))
    return
  args.work.mkdir(parents=True, exist_ok=True)
  prepare_data(args.work, args.lines)
  found = {action: _measure_rates(args, action) for action in ('write', 'read')}
  print('| store | tokens written a second | tokens read a second |')
  print('| --- | ---: | ---: |')
  for store in args.stores.split(','):
    rates = [found[action].get(store) for action in ('write', 'read')]
    told = ' | '.join('–' if one is None else f'{one:,.0f}' for one in rates)
    print(f'| {store} | {told} |')


def _measure_rates(args: argparse.Namespace, action: str) -> dict[str, float]:
  """Store -> median of tokens a processor second."""
  stores = [
    store
    for store in args.stores.split(',')
    if action == 'write' or store != 'bare'
  ]
  rates: dict[str, list[float]] = {}
  for number in range(args.rounds):
    for store in stores[:: -1 if number % 2 else 1]:
      words = (f'--work={args.work.absolute()}', '--only', store, action)
      try:
        one = measure.run_module('benchmarks.token_stores', *words, cores=1)
      except RuntimeError as error:
        if 'ModuleNotFoundError' not in str(error):
          raise
        continue
      rates.setdefault(store, []).append(one['tokens'] / one['seconds'])
  return {store: float(np.median(each)) for store, each in rates.items()}


if __name__ == '__main__':
  main()
