"""Input tokens/s for each core: cached, live, and the peers.

  python -m benchmarks.input_pipeline

Text is made up (words of random letters, Zipf-like), so nothing has to be
fetched. Each figure is non-padding tokens over processor seconds of the whole
process, from tokenised examples (cached, collator) or from text (live) to the
batch that a training step takes. The collator masks on the host, which xlflax
does on the device; that cost is timed apart. `array_record` is the other
format that a cache could have. `need` is what eight H200 would take of
XLM-R-base at half their peak rate, by the model's FLOPs, and how many of this
machine's cores deliver that from the cache.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import tempfile
import time

import jax
import numpy as np

from benchmarks import shapes, xlflax_step
from xlflax.data import dataset_config, loader_factory
from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.corpus import corpus_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.tokenizers import base_vocabulary as vocabulary_lib
from xlflax.data.tokenizers import vocabulary_training
from xlflax.objectives.corruption import masking


def make_text(lines: int, *, seed: int = 0) -> list[str]:
  """Lines of 8 to 40 words drawn from 5,000, the frequent ones often."""
  rng = np.random.default_rng(seed)
  letters = np.array(list('abcdefghijklmnopqrstuvwxyz'))
  words = np.array(
    [''.join(rng.choice(letters, rng.integers(2, 10))) for _ in range(5000)]
  )
  weights = 1 / np.arange(1, 5001)
  drawn = rng.choice(words, 40 * lines, p=weights / weights.sum())
  sizes = rng.integers(8, 41, lines)
  return [' '.join(drawn[40 * i : 40 * i + n]) for i, n in enumerate(sizes)]


def prepare_data(folder: pathlib.Path, lines: int) -> vocabulary_lib.Vocabulary:
  """Writes corpus, vocabulary and cache."""
  corpus_writer.write_monolingual(folder / 'corpus', 'en', [make_text(lines)])
  vocabulary_training.train_vocabulary(
    corpus.Corpus(folder / 'corpus'), folder / 'vocabulary', size=2000
  )
  vocabulary = vocabulary_lib.Vocabulary.load(folder / 'vocabulary')
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=folder / 'cache',
      mixtures=['corpus.mono'],
      vocabulary=vocabulary,
      open_tasks=functools.partial(CorpusTasks, str(folder / 'corpus')),
    )
  )
  return vocabulary


def make_dataset(batch: int, length: int) -> dataset_config.DatasetConfig:
  return dataset_config.DatasetConfig(
    name='text',
    mixture='corpus.mono',
    layout=dataset_config.ExampleLayout.BLOCKS,
    length=length,
    batch_size=batch,
    alpha=1.0,
  )


def measure_rate(batches, tokens_of) -> float:
  """Tokens per processor second over an iterable of batches."""
  next(batches)  # opening and first reads are start-up, not throughput
  start, tokens = time.process_time(), 0
  for batch in batches:
    tokens += tokens_of(batch)
  return tokens / (time.process_time() - start)


def measure_loader_rate(dataset, vocabulary, batches: int, **where) -> float:
  loader = loader_factory.open_loader(
    dataset, vocabulary=vocabulary, seed=0, **where
  )
  try:
    return measure_rate(
      (loader.rows(step, 0, dataset.batch_size) for step in range(batches)),
      lambda batch: int((batch['segment_ids'] > 0).sum()),
    )
  finally:
    loader.close()


def measure_collator_rate(folder, vocabulary, dataset, batches: int) -> float:
  """DataCollatorForLanguageModeling over rows that are tokenised and cut."""
  import tokenizers
  import transformers

  vocab = [(vocabulary.piece(i), 0.0) for i in range(len(vocabulary))]
  tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(
      tokenizers.models.Unigram(vocab, unk_id=3)
    ),
    pad_token='<pad>',
    bos_token='<s>',
    eos_token='</s>',
    unk_token='<unk>',
    mask_token='<mask>',
  )
  collator = transformers.DataCollatorForLanguageModeling(
    tokenizer, mlm_probability=shapes.MASK_RATIO
  )
  loader = loader_factory.open_loader(
    dataset, vocabulary=vocabulary, seed=0, cache_dir=folder / 'cache'
  )
  rows = [
    loader.rows(step, 0, dataset.batch_size)['token_ids'].tolist()
    for step in range(batches)
  ]
  loader.close()
  return measure_rate(
    (collator([{'input_ids': row} for row in batch]) for batch in rows),
    lambda batch: batch['input_ids'].numel(),
  )


def measure_array_record_rate(
  folder, vocabulary, dataset, batches: int
) -> float:
  """Random rows of an ArrayRecord file, read a batch at a time and stacked.

  What a cache in that format would at least cost: the rows are already cut
  and wrapped, and nothing but `token_ids` is made.
  """
  from array_record.python import array_record_data_source, array_record_module

  path = str(folder / 'rows.array_record')
  loader = loader_factory.open_loader(
    dataset, vocabulary=vocabulary, seed=0, cache_dir=folder / 'cache'
  )
  writer = array_record_module.ArrayRecordWriter(path, 'group_size:1')
  count = 0
  for step in range(batches):
    for row in loader.rows(step, 0, dataset.batch_size)['token_ids']:
      writer.write(row.astype(np.uint16).tobytes())
      count += 1
  writer.close()
  loader.close()
  order = np.random.default_rng(0).permutation(count)
  source = array_record_data_source.ArrayRecordDataSource([path])

  def read(i):
    indices = order[i * dataset.batch_size : (i + 1) * dataset.batch_size]
    return np.stack(
      [
        np.frombuffer(record, np.uint16)
        for record in source.__getitems__(indices.tolist())
      ]
    ).astype(np.int32)

  return measure_rate(
    (read(i) for i in range(batches)), lambda batch: batch.size
  )


def measure_masking_seconds(vocabulary, dataset, calls: int) -> float:
  """Median seconds of choosing and masking one batch, jitted."""
  spec = vocabulary.spec
  policy = masking.MaskingPolicy(mask_ratio=shapes.MASK_RATIO)
  ids = jax.device_put(
    np.random.default_rng(0).integers(
      len(spec.special_ids),
      spec.size,
      (dataset.batch_size, dataset.length),
      np.int32,
    )
  )

  @jax.jit
  def mask(rng, ids):
    choice_rng, word_rng = jax.random.split(rng)
    batch = {'token_ids': ids, 'segment_ids': jax.numpy.ones_like(ids)}
    choice = policy(
      choice_rng, masking.is_text(batch, spec), jax.numpy.int32(0)
    )
    words = masking.uniform_words(
      word_rng, jax.numpy.zeros_like(choice.positions), spec
    )
    return masking.apply_choice(ids, choice, words, spec)

  times = []
  for i in range(calls + 1):
    key = jax.random.key(i)
    start = time.perf_counter()
    jax.block_until_ready(mask(key, ids))
    times.append(time.perf_counter() - start)
  return float(np.median(times[1:]))


def estimate_required_cores(
  cached: float,
  *,
  gpus: int = 8,
  peak: float = 989e12,
  utilisation: float = 0.5,
  shape: shapes.Shape | None = None,
) -> dict[str, float]:
  """What GPUs need, against what a core delivers.

  Args:
    cached: tokens per processor second from the cache.
    gpus: how many.
    peak: FLOP/s of one, dense bf16.
    utilisation: share of the peak that the model's own FLOPs reach.
    shape: of the step; None for XLM-R-base on rows of 512.
  """
  shape = shape or shapes.Shape(
    vocabulary=250_002,
    layers=12,
    hidden=768,
    mlp=3072,
    heads=12,
    batch=8,
    length=512,
  )
  flops = xlflax_step.count_model_flops(shape) / shape.tokens
  tokens = gpus * peak * utilisation / flops
  return {
    'gpus': gpus,
    'utilisation': utilisation,
    'flops_per_token': flops,
    'tokens_per_second': tokens,
    'cores': tokens / cached,
  }


def run_benchmark(*, lines: int, batches: int, batch: int, length: int) -> dict:
  """All figures; see the module's docstring."""
  dataset = make_dataset(batch, length)
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    vocabulary = prepare_data(folder, lines)
    figures = {
      'cached': measure_loader_rate(
        dataset, vocabulary, batches, cache_dir=folder / 'cache'
      ),
      # In order: a shuffled window would be read at start-up.
      'live': measure_loader_rate(
        dataclasses.replace(dataset, shuffle=False),
        vocabulary,
        max(batches // 4, 3),
        corpus=folder / 'corpus',
      ),
      'array_record': measure_array_record_rate(
        folder, vocabulary, dataset, max(batches // 4, 3)
      ),
      'collator': measure_collator_rate(
        folder, vocabulary, dataset, max(batches // 10, 3)
      ),
    }
    return {
      'tokens_per_cpu_second': figures,
      'cached_to_collator': figures['cached'] / figures['collator'],
      'live_to_collator': figures['live'] / figures['collator'],
      'masking_seconds_per_batch': measure_masking_seconds(
        vocabulary, dataset, calls=20
      ),
      'need': estimate_required_cores(figures['cached']),
      'batch': batch,
      'length': length,
    }


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--lines', type=int, default=40_000)
  parser.add_argument('--batches', type=int, default=400)
  parser.add_argument('--batch', type=int, default=64)
  parser.add_argument('--length', type=int, default=128)
  parser.add_argument('--output', help='write the JSON to this file too')
  args = parser.parse_args(arguments)
  text = json.dumps(
    run_benchmark(
      lines=args.lines,
      batches=args.batches,
      batch=args.batch,
      length=args.length,
    ),
    indent=2,
  )
  print(text)
  if args.output:
    pathlib.Path(args.output).write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
