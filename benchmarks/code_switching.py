"""Speed of tokenization and code-switching, compared with training steps.

  python -m benchmarks.code_switching

Measures the tokens per CPU second for five tasks on synthetic text:
tokenization, code-switching with a dictionary, both together, Moses processing,
and vocabulary training. Then computes each task's time as a fraction of the
time that a training step takes. The step is measured on this machine
(`--layers`, `--hidden`, `--vocabulary`). With `--tokens_per_second`, the tasks
are also compared with a training run measured elsewhere. With a token cache,
text is prepared only once instead of in each epoch.
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
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary, Entry
from xlflax.data.dictionaries.code_switching import Switcher
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.preprocessing.text_processing import Processor, TextProcessing
from xlflax.data.tokenizers import vocabulary_training

_LETTERS = np.array(list('etaoinshrdlucmfwypvbgkjqxz'))


def make_words(count: int, *, seed: int = 0) -> list[str]:
  """Returns distinct synthetic words, ordered roughly by length."""
  rng = np.random.default_rng(seed)
  unique_words: dict[str, None] = {}
  while len(unique_words) < count:
    size = int(rng.integers(2, 5 + 6 * len(unique_words) // count))
    unique_words[''.join(rng.choice(_LETTERS, size))] = None
  return list(unique_words)


def make_text(
  vocabulary: Sequence[str], lines: int, *, seed: int = 1
) -> list[str]:
  """Returns lines of 8 to 40 words with capitals and punctuation.

  Words are drawn with frequencies that follow Zipf's law.
  """
  rng = np.random.default_rng(seed)
  weights = 1 / np.arange(1, len(vocabulary) + 1)
  sampled_words = rng.choice(
    np.array(vocabulary), 40 * lines, p=weights / weights.sum()
  )
  line_lengths = rng.integers(8, 41, lines).tolist()
  text_lines = []
  for i, size in enumerate(line_lengths):
    line = sampled_words[40 * i : 40 * i + size].tolist()
    line[0], line[size // 2] = line[0].capitalize(), f'{line[size // 2]},'
    text_lines.append(' '.join(line) + '.')
  return text_lines


def make_dictionary(vocabulary: Sequence[str], entries: int) -> Dictionary:
  """Returns a synthetic dictionary with two translations for each source term.

  One source entry in 20 consists of two words.
  """
  rng = np.random.default_rng(2)
  source_indices = rng.choice(
    len(vocabulary), entries // 2, replace=False
  ).tolist()
  translations = []
  for i in source_indices:
    word = vocabulary[i] if i % 20 else f'{vocabulary[i]} {vocabulary[i // 2]}'
    translations += [
      Entry(word, vocabulary[i][::-1], 2.0),
      Entry(word, vocabulary[i][::-1] + 'e', 1.0),
    ]
  return Dictionary(('en', 'xx'), tuple(translations))


def measure_core_seconds(
  function: Callable[[], object], *, rounds: int
) -> float:
  """Returns the median CPU seconds of a function after one warm-up call."""
  seconds = []
  for _ in range(rounds + 1):
    start = time.process_time()
    function()
    seconds.append(time.process_time() - start)
  return statistics.median(seconds[1:])


def measure_text_preparation(
  *, lines: int, entries: int, vocabulary_size: int, rounds: int
) -> dict:
  """Measures the tokens per CPU second for each text preparation task.

  Args:
    lines: Number of lines of text.
    entries: Number of dictionary entries.
    vocabulary_size: Vocabulary size.
    rounds: Number of timed calls of each task.

  Returns:
    The rates, and statistics about the text and the replaced words.
  """
  vocabulary_words = make_words(2 * entries)
  text = make_text(vocabulary_words, lines)
  switcher = Switcher(
    'en', [make_dictionary(vocabulary_words, entries)], CodeSwitching()
  )
  moses = Processor('en', TextProcessing(moses=True))
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    corpus_writer.write_monolingual(folder / 'corpus', 'en', [text])
    start = time.process_time()
    vocabulary = vocabulary_training.train_vocabulary(
      corpus_directory.Corpus(folder / 'corpus'),
      folder / 'vocabulary',
      size=vocabulary_size,
    )
    training_seconds = time.process_time() - start

  def encode(texts):
    return vocabulary.encode_ragged(texts, num_threads=1)[0].size

  switched = switcher.switch(text)
  tokens, sample = encode(text), text[: max(lines // 20, 1)]
  seconds = {
    'tokenize': measure_core_seconds(lambda: encode(text), rounds=rounds),
    'switch': measure_core_seconds(
      lambda: switcher.switch(text), rounds=rounds
    ),
    'switch_and_tokenize': measure_core_seconds(
      lambda: encode(switcher.switch(text).lines), rounds=rounds
    ),
    'moses': measure_core_seconds(lambda: list(map(moses, sample)), rounds=1)
    * tokens
    / encode(sample),
    'train_the_vocabulary': training_seconds,
  }
  return {
    'tokens_per_core_second': {
      task: tokens / task_seconds for task, task_seconds in seconds.items()
    },
    'switching_to_tokenizing': seconds['switch'] / seconds['tokenize'],
    'words': switched.words,
    'tokens': tokens,
    'words_with_an_entry': switched.candidates / switched.words,
    'words_changed': switched.changed / switched.words,
    'dictionary_entries': len(switcher.table),
  }


def measure_step_rate(shape: shapes.Shape, *, calls: int) -> float:
  """Returns the tokens per CPU second of a training step on this machine."""
  timings = measure.time_calls(
    xlflax_step.make_step_function(shape, 'gathered'), calls=calls
  )
  return shape.tokens / statistics.median(timings['cpu_seconds'])


def run_benchmark(
  shape: shapes.Shape,
  *,
  lines: int,
  entries: int,
  calls: int,
  rounds: int = 5,
  tokens_per_second: float | None = None,
) -> dict:
  """Compares the speed of text preparation tasks with that of a training step.

  Args:
    shape: Sizes of the model and the batch in the training step.
    lines: Number of lines of text.
    entries: Number of dictionary entries.
    calls: Number of timed training steps.
    rounds: Number of timed calls for each text preparation task.
    tokens_per_second: Tokens per second of a training run on a different
      machine. If given, the tasks are also compared with this run.
  """
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
  per_step = ('tokenize', 'switch', 'switch_and_tokenize')
  return figures | {
    'step_tokens_per_second': steps,
    'share_of_a_step': {
      step: {work: rate / rates[work] for work in per_step}
      for step, rate in steps.items()
    },
    'shape': json.loads(shape.to_json()),
  }


def main(arguments=None) -> None:
  """Runs the benchmark and prints its measurements as JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--lines', type=int, default=20_000, help='Number of lines of text.')
  add(
    '--entries',
    type=int,
    default=100_000,
    help='Number of dictionary entries, two for each source word.',
  )
  add('--layers', type=int, default=4, help='Number of Transformer layers.')
  add('--hidden', type=int, default=256, help='Size of the hidden states.')
  add('--vocabulary', type=int, default=32_000, help='Vocabulary size.')
  add('--calls', type=int, default=5, help='Number of timed training steps.')
  add(
    '--tokens_per_second',
    type=float,
    help='Tokens per second of a different training run, for example from '
    '`xlflax benchmark`.',
  )
  add('--output', help='JSON file to which the measurements are written.')
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
