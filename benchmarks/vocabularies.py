"""Tokens/s of making and using vocabularies, for each choice of anchors.

  python -m benchmarks.vocabularies

Text of two made-up languages (see `input_pipeline.make_text`) is encoded in
blocks of 1024 lines, as caches and live loaders do it. Figures are per second
of processor time of the whole process. `gather` is the part of a union that a
joint vocabulary has not: from a language model's ids to those of the union.
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
from xlflax.data.corpus import corpus_directory as corpus_lib
from xlflax.data.corpus import corpus_writer
from xlflax.data.tokenizers import vocabulary_training
from xlflax.data.tokenizers.vocabulary_config import Anchors

_BLOCK_SIZE = 1024


def time_call(work: Callable[[], Any]) -> tuple[float, Any]:
  """(processor seconds, what `work` returns)."""
  start = time.process_time()
  result = work()
  return time.process_time() - start, result


def encode_texts(vocabulary, texts: dict[str, list[str]]) -> int:
  """Encodes all texts; the number of tokens."""
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
  """Figures by choice of anchors; see the module's docstring."""
  texts = {
    code: input_pipeline.make_text(lines, seed=seed)
    for seed, code in enumerate(('xa', 'xb'))
  }
  figures = {}
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for code, text in texts.items():
      corpus_writer.write_monolingual(folder / 'corpus', code, [text])
    corpus = corpus_lib.Corpus(folder / 'corpus')
    for anchors in Anchors:
      seconds, vocabulary = time_call(
        lambda anchors=anchors: vocabulary_training.train_vocabulary(
          corpus,
          folder / anchors.value,
          merges=merges,
          anchors=anchors,
          model_type='bpe',
          num_threads=1,
        )
      )
      used, tokens = time_call(lambda v=vocabulary: encode_texts(v, texts))
      figures[anchors.value] = {
        'entries': len(vocabulary),
        'trained_tokens_per_cpu_second': tokens / seconds,
        'encoded_tokens_per_cpu_second': tokens / used,
      }
  table = np.arange(merges, dtype=np.int32)
  ids = np.random.default_rng(0).integers(0, merges, 1_000_000, np.int32)
  seconds, _ = time_call(lambda: table[ids].size)
  return {
    'anchors': figures,
    'lines': 2 * lines,
    'merges': merges,
    'gathered_tokens_per_cpu_second': ids.size / max(seconds, 1e-9),
  }


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
    '--lines', type=int, default=20_000, help='of each language'
  )
  parser.add_argument('--merges', type=int, default=8000)
  parser.add_argument('--output', help='write the JSON to this file too')
  args = parser.parse_args(arguments)
  text = json.dumps(
    run_benchmark(lines=args.lines, merges=args.merges), indent=2
  )
  print(text)
  if args.output:
    pathlib.Path(args.output).write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
