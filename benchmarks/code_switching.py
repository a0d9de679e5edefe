"""Text preparation beside training: tokens/s of one core.

  python -m benchmarks.code_switching

Tokens for each second of one core when text of generated words is tokenised as
it is, code-switched by a dictionary and then tokenised, and switched alone; and
the same for Moses's processing and for training a vocabulary. Then the share of
a training step that these would take, if the step's core did them: of a step on
this machine (`--layers`, `--hidden`, `--vocabulary`) and, by
`--tokens_per_second`, of a training that you have measured elsewhere. A token
cache pays this once, not in each epoch.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import measure, shapes, xlflax_step
from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.corpus import corpus_writer
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary, Entry
from xlflax.data.dictionaries.code_switching import Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing.text_processing import Processor, TextProcessing
from xlflax.data.tokenizers import vocabulary_training

_LETTERS = np.array(list('etaoinshrdlucmfwypvbgkjqxz'))


def make_words(count: int, *, seed: int = 0) -> list[str]:
  """Different made-up words, the shorter ones first."""
  rng = np.random.default_rng(seed)
  words: dict[str, None] = {}
  while len(words) < count:
    size = int(rng.integers(2, 5 + 6 * len(words) // count))
    words[''.join(rng.choice(_LETTERS, size))] = None
  return list(words)


def make_text(words: Sequence[str], lines: int, *, seed: int = 1) -> list[str]:
  """Lines of 8 to 40 words by Zipf's law, with capitals and punctuation."""
  rng = np.random.default_rng(seed)
  weights = 1 / np.arange(1, len(words) + 1)
  drawn = rng.choice(np.array(words), 40 * lines, p=weights / weights.sum())
  sizes = rng.integers(8, 41, lines).tolist()
  out = []
  for i, size in enumerate(sizes):
    line = drawn[40 * i : 40 * i + size].tolist()
    line[0], line[size // 2] = line[0].capitalize(), f'{line[size // 2]},'
    out.append(' '.join(line) + '.')
  return out


def make_dictionary(words: Sequence[str], entries: int) -> Dictionary:
  """Half of the entries are second translations; one in 20 is of two words."""
  rng = np.random.default_rng(2)
  sources = rng.choice(len(words), entries // 2, replace=False).tolist()
  pairs = []
  for i in sources:
    word = words[i] if i % 20 else f'{words[i]} {words[i // 2]}'
    pairs += [
      Entry(word, words[i][::-1], 2.0),
      Entry(word, words[i][::-1] + 'e', 1.0),
    ]
  return Dictionary(('en', 'xx'), tuple(pairs))


def measure_core_seconds(work: Callable[[], object], *, rounds: int) -> float:
  """The median of processor seconds, after a first call that is left out."""
  times = []
  for _ in range(rounds + 1):
    start = time.process_time()
    work()
    times.append(time.process_time() - start)
  return statistics.median(times[1:])


def measure_text_preparation(
  *, lines: int, entries: int, vocabulary_size: int, rounds: int
) -> dict:
  """Tokens per core second of each kind of work, and counts."""
  words = make_words(2 * entries)
  text = make_text(words, lines)
  switcher = Switcher('en', [make_dictionary(words, entries)], CodeSwitching())
  moses = Processor('en', TextProcessing(moses=True))
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    corpus_writer.write_monolingual(folder / 'corpus', 'en', [text])
    start = time.process_time()
    vocabulary = vocabulary_training.train_vocabulary(
      corpus.Corpus(folder / 'corpus'),
      folder / 'vocabulary',
      size=vocabulary_size,
    )
    training = time.process_time() - start

  def encode(texts):
    return vocabulary.encode_ragged(texts, num_threads=1)[0].size

  switched = switcher.switch(text)
  tokens, few = encode(text), text[: max(lines // 20, 1)]
  seconds = {
    'tokenise': measure_core_seconds(lambda: encode(text), rounds=rounds),
    'switch': measure_core_seconds(
      lambda: switcher.switch(text), rounds=rounds
    ),
    'switch_and_tokenise': measure_core_seconds(
      lambda: encode(switcher.switch(text).lines), rounds=rounds
    ),
    'moses': measure_core_seconds(lambda: list(map(moses, few)), rounds=1)
    * tokens
    / encode(few),
    'train_the_vocabulary': training,
  }
  return {
    'tokens_per_core_second': {k: tokens / s for k, s in seconds.items()},
    'switching_to_tokenising': seconds['switch'] / seconds['tokenise'],
    'words': switched.words,
    'tokens': tokens,
    'words_with_an_entry': switched.candidates / switched.words,
    'words_changed': switched.changed / switched.words,
    'dictionary_entries': len(switcher.table),
  }


def measure_step_rate(shape: shapes.Shape, *, calls: int) -> float:
  """Tokens per core second of a training step on this machine."""
  timed = measure.time_calls(
    xlflax_step.make_step_function(shape, 'gathered'), calls=calls
  )
  return shape.tokens / statistics.median(timed['cpu_seconds'])


def run_benchmark(
  shape: shapes.Shape,
  *,
  lines: int,
  entries: int,
  calls: int,
  rounds: int = 5,
  tokens_per_second: float | None = None,
) -> dict:
  """All figures; see the module."""
  figures = measure_text_preparation(
    lines=lines,
    entries=entries,
    vocabulary_size=min(shape.vocabulary, 16_000),
    rounds=rounds,
  )
  rates = figures['tokens_per_core_second']
  steps = {'step_here': measure_step_rate(shape, calls=calls)}
  if tokens_per_second:
    steps['step_elsewhere'] = tokens_per_second
  per_step = ('tokenise', 'switch', 'switch_and_tokenise')
  return figures | {
    'step_tokens_per_second': steps,
    'share_of_a_step': {
      step: {work: rate / rates[work] for work in per_step}
      for step, rate in steps.items()
    },
    'shape': json.loads(shape.to_json()),
  }


def main(arguments=None) -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--lines', type=int, default=20_000)
  parser.add_argument(
    '--entries',
    type=int,
    default=100_000,
    help='lines of the dictionary, two for each word',
  )
  parser.add_argument('--layers', type=int, default=4)
  parser.add_argument('--hidden', type=int, default=256)
  parser.add_argument('--vocabulary', type=int, default=32_000)
  parser.add_argument(
    '--calls', type=int, default=5, help='training steps that are timed'
  )
  parser.add_argument(
    '--tokens_per_second',
    type=float,
    help='of a training elsewhere, such as `xlflax benchmark` prints',
  )
  parser.add_argument('--output', help='write the JSON to this file too')
  args = parser.parse_args(arguments)
  shape = shapes.Shape(
    vocabulary=args.vocabulary,
    layers=args.layers,
    hidden=args.hidden,
    mlp=4 * args.hidden,
    heads=max(args.hidden // 64, 1),
  )
  text = json.dumps(
    run_benchmark(
      shape,
      lines=args.lines,
      entries=args.entries,
      calls=args.calls,
      tokens_per_second=args.tokens_per_second,
    ),
    indent=2,
  )
  print(text)
  if args.output:
    pathlib.Path(args.output).write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
