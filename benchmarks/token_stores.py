"""Speed of storing and reading token IDs in several formats, on one core.

  python -m benchmarks.token_stores --work=DIR

The same synthetic lines, encoded by the same SentencePiece model, are written
by the writer of `xlflax cache`, as a memory map with offsets (as in Megatron),
as ArrayRecord, as MDS (mosaicml-streaming) and by `datasets.map`. `bare`
encodes them without writing. Each store is then read in batches of randomly
permuted lines. Each store is written and read in its own process on one core.
The stores take turns for `--rounds` rounds, and every second round runs in
reverse order. The results are medians of tokens per CPU second, excluding
imports. Stores whose library is not installed are omitted. All stores contain
32-bit IDs.
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
_CHUNK_SIZE = 1024  # Lines that are encoded together.
_BATCH_SIZE = 256  # Lines that are read together.


def prepare_data(work: pathlib.Path, lines: int) -> None:
  """Writes a corpus and a vocabulary, unless they exist."""
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
  """Yields the token IDs for chunks of lines."""
  import sentencepiece

  model = sentencepiece.SentencePieceProcessor(
    model_file=str(work / 'vocabulary/sentencepiece.model')
  )
  with open(work / 'corpus/mono/en.txt', encoding='utf-8') as file:
    while chunk := list(itertools.islice(file, _CHUNK_SIZE)):
      yield model.encode([line.rstrip('\n') for line in chunk], num_threads=1)


def write_bare(work: pathlib.Path, store: pathlib.Path) -> int:
  """Encodes lines without writing them, and returns the number of tokens."""
  del store
  return sum(len(ids) for chunk in _encode_lines(work) for ids in chunk)


def write_xlflax(work: pathlib.Path, store: pathlib.Path) -> int:
  """Writes a token cache and returns the number of tokens."""
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
  """Writes raw token IDs and offsets, and returns the number of tokens."""
  lengths: list[int] = []
  with open(store.with_suffix('.bin'), 'wb') as file:
    for chunk in _encode_lines(work):
      lengths += map(len, chunk)
      file.write(
        np.array(
          [token_id for ids in chunk for token_id in ids], 'i4'
        ).tobytes()
      )
  offsets = np.cumsum(lengths)
  np.save(store.with_suffix('.npy'), np.concatenate([[0], offsets]))
  return int(offsets[-1])


def write_array_record(work: pathlib.Path, store: pathlib.Path) -> int:
  """Writes an ArrayRecord file and returns the number of tokens."""
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
  """Writes a folder in the MDS format and returns the number of tokens."""
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
  """Writes a Hugging Face dataset and returns the number of tokens."""
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
  tokenized = text.map(
    lambda batch: {'ids': model.encode(batch['text'], num_threads=1)},
    batched=True,
    batch_size=_CHUNK_SIZE,
    remove_columns=['text'],
    features=ids,
  )
  tokenized.save_to_disk(str(store))
  return sum(len(chunk.values) for chunk in tokenized.data.column('ids').chunks)


def read_xlflax(store: pathlib.Path, batches) -> int:
  """Reads batches of a token cache and returns the number of tokens."""
  from xlflax.data.cache import cache_reader

  tasks = cache_reader.TokenCache(store).open('corpus.mono', 'train')
  [side] = tasks['corpus.mono.en'].sides
  return sum(
    _copy_rows(side.slices(*side.bounds(batch)))
    for batch in batches(sum(map(len, side.lengths())))
  )


def read_memmap(store: pathlib.Path, batches) -> int:
  """Reads batches of memory-mapped token IDs; returns the number of tokens."""
  ids = np.memmap(store.with_suffix('.bin'), 'i4', 'r')
  offsets = np.load(store.with_suffix('.npy'))
  return sum(
    _copy_rows([
      ids[start:stop]
      for start, stop in zip(
        offsets[batch].tolist(), offsets[batch + 1].tolist(), strict=True
      )
    ])
    for batch in batches(offsets.size - 1)
  )  # fmt: skip


def read_array_record(store: pathlib.Path, batches) -> int:
  """Reads batches of an ArrayRecord file and returns the number of tokens."""
  from array_record.python import array_record_module

  reader = array_record_module.ArrayRecordReader(str(store))
  return sum(
    _copy_rows(
      [np.frombuffer(record, 'i4') for record in reader.read(batch.tolist())]
    )
    for batch in batches(reader.num_records())
  )


def read_mds(store: pathlib.Path, batches) -> int:
  """Reads batches in the MDS format and returns the number of tokens."""
  import streaming

  rows = streaming.LocalDataset(str(store))
  return sum(
    _copy_rows([rows[i]['ids'] for i in batch.tolist()])
    for batch in batches(len(rows))
  )


def read_datasets(store: pathlib.Path, batches) -> int:
  """Counts the tokens while reading batches of a Hugging Face dataset."""
  import datasets

  rows = datasets.load_from_disk(str(store)).with_format('numpy')
  return sum(
    _copy_rows(rows[batch.tolist()]['ids']) for batch in batches(len(rows))
  )


def _copy_rows(rows) -> int:
  """Copies sequences into one array, as in a batch, and returns its size."""
  return np.concatenate(list(rows)).size


def iterate_batches(count: int) -> Iterator[np.ndarray]:
  """Returns batches of line indices in random order."""
  order = np.random.default_rng(0).permutation(count)
  return (order[i : i + _BATCH_SIZE] for i in range(0, count, _BATCH_SIZE))


def measure_store(
  work: pathlib.Path, store: str, action: str
) -> dict[str, Any]:
  """Measures writing or reading token IDs in one storage format.

  Reading is timed after two warm-up batches, so that imports and opening files
  are not included.

  Args:
    work: Directory that contains the corpus, the vocabulary and the stored
      tokens.
    store: Storage format, one of `STORES`.
    action: Operation to measure: 'write' or 'read'.

  Returns:
    The number of tokens and the CPU seconds.
  """
  path = work / f'store-{store}'
  if action == 'read':
    call = functools.partial(globals()[f'read_{store}'], path)
    call(lambda count: itertools.islice(iterate_batches(count), 2))
    start = _cpu_seconds()
    tokens = call(iterate_batches)
  else:
    _import_libraries(store)
    for old_path in work.glob(f'store-{store}*'):
      old_path.unlink() if old_path.is_file() else shutil.rmtree(old_path)
    start = _cpu_seconds()
    tokens = globals()[f'write_{store}'](work, path)
  return {'tokens': tokens, 'seconds': _cpu_seconds() - start}


def _cpu_seconds() -> float:
  """Returns the CPU seconds of this process and its finished children."""
  children = resource.getrusage(resource.RUSAGE_CHILDREN)
  return time.process_time() + children.ru_utime + children.ru_stime


def _import_libraries(store: str) -> None:
  """Imports the modules that writing a store requires."""
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
  """Measures all storage formats and prints a table of their rates."""
  parser = argparse.ArgumentParser(description=__doc__)
  add = parser.add_argument
  add(
    '--work',
    required=True,
    type=pathlib.Path,
    help='Working directory for all outputs.',
  )
  add(
    '--lines', type=int, default=200_000, help='Number of lines in the corpus.'
  )
  add(
    '--rounds',
    type=int,
    default=3,
    help='Number of processes per store and action.',
  )
  add(
    '--stores',
    default=','.join(STORES),
    help='Stores to measure, separated by commas.',
  )
  add(
    '--only',
    nargs=2,
    metavar=('STORE', 'ACTION'),
    help='Measure one store in this process and print JSON.',
  )
  args = parser.parse_args(arguments)
  if args.only:
    print(json.dumps(measure_store(args.work, *args.only)))
    return
  args.work.mkdir(parents=True, exist_ok=True)
  prepare_data(args.work, args.lines)
  rates_by_action = {
    action: _measure_rates(args, action) for action in ('write', 'read')
  }
  print('| store | tokens written per second | tokens read per second |')
  print('| --- | ---: | ---: |')
  for store in args.stores.split(','):
    rates = [rates_by_action[action].get(store) for action in ('write', 'read')]
    cells = ' | '.join(
      '–' if rate is None else f'{rate:,.0f}' for rate in rates
    )
    print(f'| {store} | {cells} |')


def _measure_rates(args: argparse.Namespace, action: str) -> dict[str, float]:
  """Returns the median tokens per CPU second of each store."""
  stores = [
    store
    for store in args.stores.split(',')
    if action == 'write' or store != 'bare'
  ]
  rates: dict[str, list[float]] = {}
  for number in range(args.rounds):
    for store in stores[:: -1 if number % 2 else 1]:
      arguments = (f'--work={args.work.absolute()}', '--only', store, action)
      try:
        figures = measure.run_module(
          'benchmarks.token_stores', *arguments, cores=1
        )
      except RuntimeError as error:
        if 'ModuleNotFoundError' not in str(error):
          raise
        continue
      rates.setdefault(store, []).append(figures['tokens'] / figures['seconds'])
  return {
    store: float(np.median(store_rates)) for store, store_rates in rates.items()
  }


if __name__ == '__main__':
  main()
