"""Speed of xlflax and other input pipelines in tokens/s per core.

  python -m benchmarks.input_pipeline

The text is synthetic (random words with a Zipf-like distribution), so nothing
is downloaded. Each rate is the number of non-padding tokens divided by the
process's CPU seconds. It covers the work from tokenized examples (`cached`,
`collator`) or from text (`live`) to the batch that a training step reads. The
collator masks tokens on the host. xlflax masks them on the device, and the time
for masking is measured separately. `array_record` is an alternative cache
format. `need` is the rate at which eight H200 GPUs consume tokens when they
train XLM-R base at half their peak FLOP/s, and the number of this machine's
cores that can supply this rate from the cache.
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
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.tokenizers import base_vocabulary, vocabulary_training
from xlflax.objectives.corruption import masking


def make_text(lines: int, *, seed: int = 0) -> list[str]:
  """Returns lines of 8 to 40 words with Zipf-like word frequencies."""
  rng = np.random.default_rng(seed)
  letters = np.array(list('abcdefghijklmnopqrstuvwxyz'))
  vocabulary = np.array(
    [''.join(rng.choice(letters, rng.integers(2, 10))) for _ in range(5000)]
  )
  weights = 1 / np.arange(1, 5001)
  sampled_words = rng.choice(vocabulary, 40 * lines, p=weights / weights.sum())
  line_lengths = rng.integers(8, 41, lines)
  return [
    ' '.join(sampled_words[40 * i : 40 * i + length])
    for i, length in enumerate(line_lengths)
  ]


def prepare_data(
  folder: pathlib.Path, lines: int
) -> base_vocabulary.Vocabulary:
  """Writes a synthetic corpus, its vocabulary and its token cache.

  Args:
    folder: Parent of the directories `corpus`, `vocabulary` and `cache`.
    lines: Number of lines in the corpus.

  Returns:
    The vocabulary of the corpus.
  """
  corpus_writer.write_monolingual(folder / 'corpus', 'en', [make_text(lines)])
  vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(folder / 'corpus'), folder / 'vocabulary', size=2000
  )
  vocabulary = base_vocabulary.Vocabulary.load(folder / 'vocabulary')
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
  """Returns the dataset configuration that the benchmark uses."""
  return dataset_config.DatasetConfig(
    name='text',
    mixture='corpus.mono',
    layout=dataset_config.ExampleLayout.BLOCKS,
    length=length,
    batch_size=batch,
    alpha=1.0,
  )


def measure_rate(batches, tokens_of) -> float:
  """Returns an iterator's throughput in tokens per CPU second.

  Args:
    batches: Iterator over batches. The first batch is not timed.
    tokens_of: Function that returns the number of tokens in a batch.
  """
  # Opening files and the first reads belong to the startup.
  next(batches)
  start, tokens = time.process_time(), 0
  for batch in batches:
    tokens += tokens_of(batch)
  return tokens / (time.process_time() - start)


def measure_loader_rate(dataset, vocabulary, batches: int, **source) -> float:
  """Returns the tokens per CPU second that an xlflax data loader provides.

  Args:
    dataset: Configuration of the dataset.
    vocabulary: Vocabulary of the corpus or the cache.
    batches: Number of batches to read.
    **source: Data to read, given as `cache_dir` or `corpus`.
  """
  loader = loader_factory.open_loader(
    dataset, vocabulary=vocabulary, seed=0, **source
  )
  try:
    return measure_rate(
      (loader.rows(step, 0, dataset.batch_size) for step in range(batches)),
      lambda batch: int((batch['segment_ids'] > 0).sum()),
    )
  finally:
    loader.close()


def measure_collator_rate(folder, vocabulary, dataset, batches: int) -> float:
  """Returns the rate of Hugging Face's MLM collator in tokens per CPU second.

  The collator receives sequences that are already tokenized and truncated.
  """
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
  """Returns the rate of random ArrayRecord reads in tokens per CPU second.

  Each batch is read at once and stacked. The rate is an upper bound for a cache
  in this format, because the sequences are already truncated and have special
  tokens, and only `token_ids` is computed.
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
  """Returns the median seconds for masking one batch on the device."""
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
    position_rng, replacement_rng = jax.random.split(rng)
    batch = {'token_ids': ids, 'segment_ids': jax.numpy.ones_like(ids)}
    choice = policy(
      position_rng, masking.is_text(batch, spec), jax.numpy.int32(0)
    )
    replacements = masking.uniform_words(
      replacement_rng, jax.numpy.zeros_like(choice.positions), spec
    )
    return masking.apply_choice(ids, choice, replacements, spec)

  times = []
  for i in range(calls + 1):
    key = jax.random.key(i)
    start = time.perf_counter()
    jax.block_until_ready(mask(key, ids))
    times.append(time.perf_counter() - start)
  return float(np.median(times[1:]))


def estimate_required_cores(
  tokens_per_cpu_second: float,
  *,
  gpus: int = 8,
  peak_flops: float = 989e12,
  utilization: float = 0.5,
  shape: shapes.Shape | None = None,
) -> dict[str, float]:
  """Estimates the CPU cores that are required to feed GPUs with tokens.

  Args:
    tokens_per_cpu_second: Number of tokens that are read from the cache per CPU
      second.
    gpus: Number of GPUs.
    peak_flops: Peak FLOP/s of one GPU for dense bf16 matmuls.
    utilization: Assumed model FLOP utilization, as a fraction of the peak.
    shape: Sizes of the model and the batch. If None, those of XLM-R base with
      sequences of 512 tokens.

  Returns:
    'tokens_per_second' that all GPUs together consume, the required 'cores',
    and the assumptions.
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
  flops_per_token = xlflax_step.count_model_flops(shape) / shape.tokens
  tokens_per_second = gpus * peak_flops * utilization / flops_per_token
  return {
    'gpus': gpus,
    'utilisation': utilization,
    'flops_per_token': flops_per_token,
    'tokens_per_second': tokens_per_second,
    'cores': tokens_per_second / tokens_per_cpu_second,
  }


def run_benchmark(*, lines: int, batches: int, batch: int, length: int) -> dict:
  """Measures the speed of loading, tokenization, masking and the baselines.

  Args:
    lines: Number of lines in the corpus.
    batches: Number of batches to read from the token cache.
    batch: Sequences per batch.
    length: Tokens per sequence.
  """
  dataset = make_dataset(batch, length)
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    vocabulary = prepare_data(folder, lines)
    figures = {
      'cached': measure_loader_rate(
        dataset, vocabulary, batches, cache_dir=folder / 'cache'
      ),
      # A shuffle buffer would be filled during the startup.
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
  """Runs the benchmark and prints its measurements as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--lines', type=int, default=40_000, help='Number of lines in the corpus.'
  )
  parser.add_argument(
    '--batches',
    type=int,
    default=400,
    help='Number of batches to read with the cached loader.',
  )
  parser.add_argument(
    '--batch', type=int, default=64, help='Number of sequences per batch.'
  )
  parser.add_argument(
    '--length', type=int, default=128, help='Number of tokens per sequence.'
  )
  parser.add_argument(
    '--output', help='JSON file to which the measurements are written.'
  )
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
