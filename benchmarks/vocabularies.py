"""Speed of training bilingual vocabularies and of encoding text with them.

  python -m benchmarks.vocabularies

The type of anchors determines which tokens the two languages' vocabularies
share. Text in two synthetic languages (see `input_pipeline.make_text`) is
encoded in blocks of 1,024 lines, as token caches and live loaders do. All rates
are per CPU second of the process. `gathered_tokens_per_cpu_second` measures a
step that only a union of vocabularies requires: mapping the token IDs of one
language's model to those in the union.
"""

import argparse
import json
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import input_pipeline
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.tokenizers import vocabulary_training
from xlflax.data.tokenizers.vocabulary_config import Anchors

_BLOCK_SIZE = 1024


def time_call(work: Callable[[], Any]) -> tuple[float, Any]:
  """Calls a function and returns its CPU seconds and its result."""
  start = time.process_time()
  result = work()
  return time.process_time() - start, result


def encode_texts(vocabulary, texts: dict[str, list[str]]) -> int:
  """Encodes the lines of each language and returns the number of tokens."""
  return sum(
    int(
      vocabulary.encode_ragged(lines[i : i + _BLOCK_SIZE], language=language)[
        1
      ].sum()
    )
    for language, lines in texts.items()
    for i in range(0, len(lines), _BLOCK_SIZE)
  )


def run_benchmark(*, lines: int, merges: int) -> dict:
  """Measures vocabulary training and encoding for two languages.

  The measurement is repeated for each value of `Anchors`. The values differ in
  the tokens that the two languages share.

  Args:
    lines: Number of lines in each language.
    merges: Number of BPE merges.
  """
  texts = {
    code: input_pipeline.make_text(lines, seed=seed)
    for seed, code in enumerate(('xa', 'xb'))
  }
  figures = {}
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for code, lines_of_language in texts.items():
      corpus_writer.write_monolingual(
        folder / 'corpus', code, [lines_of_language]
      )
    corpus = corpus_directory.Corpus(folder / 'corpus')
    for anchors in Anchors:
      training_seconds, vocabulary = time_call(
        lambda anchors=anchors: vocabulary_training.train_vocabulary(
          corpus,
          folder / anchors.value,
          merges=merges,
          anchors=anchors,
          model_type='bpe',
          num_threads=1,
        )
      )
      encoding_seconds, tokens = time_call(
        lambda v=vocabulary: encode_texts(v, texts)
      )
      figures[anchors.value] = {
        'entries': len(vocabulary),
        'trained_tokens_per_cpu_second': tokens / training_seconds,
        'encoded_tokens_per_cpu_second': tokens / encoding_seconds,
      }
  table = np.arange(merges, dtype=np.int32)
  ids = np.random.default_rng(0).integers(0, merges, 1_000_000, np.int32)
  training_seconds, _ = time_call(lambda: table[ids].size)
  return {
    'anchors': figures,
    'lines': 2 * lines,
    'merges': merges,
    'gathered_tokens_per_cpu_second': ids.size / max(training_seconds, 1e-9),
  }


def main(arguments=None) -> None:
  """Runs the benchmark and prints its measurements as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--lines',
    type=int,
    default=20_000,
    help='Number of lines in each language.',
  )
  parser.add_argument(
    '--merges', type=int, default=8000, help='Number of BPE merges.'
  )
  parser.add_argument(
    '--output', help='JSON file to which the measurements are written.'
  )
  args = parser.parse_args(arguments)
  text = json.dumps(
    run_benchmark(lines=args.lines, merges=args.merges), indent=2
  )
  print(text)
  if args.output:
    pathlib.Path(args.output).write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
