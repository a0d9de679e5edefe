"""What suits a corpus and the devices: vocabulary size, recipe and steps.

The vocabulary grows with the square root of the text, as the number of its
words does (Heaps' law): 8,000 entries for a million tokens, as in
docs/recipes.md; short or uniform text has fewer pieces. CPUs train `recipes/small.gin`. GPUs and TPUs train the largest
recipe that sees 20 tokens for each parameter of its layers (Hoffmann et al.
2022) in the time, from text that is read 40 times at most.
"""

import argparse
import itertools
import logging
import math
from typing import Any, NamedTuple

_MOST_BYTES = 1 << 30  # of text that is looked at
_BYTES = 4  # of text a token
_MOST_WORDS = 400_000  # whose thirds are more than any vocabulary
_EPOCHS = 40  # from which `train` warns
_TOKENS_A_PARAMETER = 20
_TIMED = 5  # steps
_RECIPES = ('small', 'medium', 'base')


class Choice(NamedTuple):
  """What is trained.

  Attributes:
    told: a shell's comment on it.
    entries: of the vocabulary.
    gin_files: of the training.
    steps: of the training.
    tasks: of the evaluation, with commas between; '' where nothing is held out.
    split: that is evaluated.
  """

  told: str
  entries: int
  gin_files: list[str]
  steps: int
  tasks: str
  split: str


def choose(args: argparse.Namespace, corpus: Any) -> Choice:
  """Looks at text and devices, and times some steps where hours are given.

  Args:
    args: of `xlflax pretrain`.
    corpus: of the languages to train on.
  """
  import jax

  text, device = _text(corpus), jax.devices()[0]
  tokens = text.tokens
  entries = args.vocabulary_size or _entries(text, device.platform)
  files, steps = _fitting(args, corpus, tokens, entries, device.platform)
  told = (
    f'# {", ".join(corpus.languages)}: about {tokens:,} tokens; '
    f'{jax.device_count()} x {device.device_kind}; {files[-1]}, {steps:,} steps'
  )
  held_out = {
    split: [
      *['perplexity'] * bool(corpus.monolingual_languages(split)),
      *['retrieval'] * bool(corpus.parallel_pairs(split)),
    ]
    for split in ('validation', 'test')
  }
  split = 'test' if held_out['test'] else 'validation'
  return Choice(told, entries, files, steps, ','.join(held_out[split]), split)


def _fitting(
  args, corpus, tokens: int, entries: int, platform: str
) -> tuple[list[str], int]:
  """Gin files and steps of the largest recipe that is fed."""
  most = math.inf if tokens >= _MOST_BYTES // _BYTES else _EPOCHS * tokens
  found: tuple[list[str], int] | None = None
  for name in _RECIPES[: 1 if platform == 'cpu' else None]:
    files = ['pretrain/mlm.gin', f'recipes/{name}.gin']
    if corpus.parallel_pairs():
      files = [f'recipes/{name}_pairs.gin']
    made = _trainer(args, files, entries, len(corpus.languages))
    shape, stream = made.model.config, made.streams[0]
    step = stream.batch_size * stream.length
    layer = 4 * shape.hidden_dim**2 + 2 * shape.hidden_dim * shape.mlp_dim
    need = _TOKENS_A_PARAMETER * shape.num_layers * layer
    if found and most < need:
      break
    steps = args.steps
    if steps is None:
      seconds = _seconds(made, f'recipes/{name}.gin', smallest=not found)
      steps = max(1, int(min(3600 * args.hours / seconds, most / step)))
    if found and steps * step < need:
      break
    found = files, steps
  assert found is not None
  return found


def _trainer(args, files: list[str], entries: int, languages: int):
  from xlflax import trainer
  from xlflax.configuration import config
  from xlflax.data.vocabularies import spec

  return config.load(
    [*files, *args.gin_file],
    ['TRAIN_STEPS=100000', *args.gin_bindings],
    args.gin_search_paths,
    macros={'MODEL_DIR': 'unused', 'VOCABULARY': 'unused'},
  ).build(
    trainer.Trainer, vocabulary=spec.invented(entries, num_languages=languages)
  )


def _seconds(made: Any, name: str, *, smallest: bool) -> float:
  """Seconds of a step; infinite where a larger recipe has too little memory."""
  try:
    found = made.benchmark(steps=_TIMED)['seconds_per_step']['median']
  except Exception as error:
    if smallest or 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    found = math.inf
  logging.info('%s: %.3f s a step', name, found)
  return found


class _Text(NamedTuple):
  """About how much monolingual text there is, and of how many kinds."""

  tokens: int
  letters: int
  words: int  # up to `_MOST_WORDS`


def _text(corpus: Any) -> _Text:
  from xlflax.data.corpus import lines

  read = itertools.chain.from_iterable(
    lines.read_text(path)
    for language in corpus.monolingual_languages()
    for path in corpus.text_files(language)
  )
  size, letters, words = 0, set[str](), set[bytes]()
  for _, line in read:
    size += len(line)
    letters.update(line.decode('utf-8', 'replace'))
    if len(words) < _MOST_WORDS:
      words.update(line.split())
    if size >= _MOST_BYTES:
      break
  return _Text(size // _BYTES, len(letters), len(words))


def _entries(text: _Text, platform: str) -> int:
  """Of a vocabulary for the text, in two digits.

  Each letter is one; a third of the words bounds how many pieces there can be.
  """
  most = 16_000 if platform == 'cpu' else 128_000
  found = min(int(8 * math.sqrt(text.tokens)), text.letters + text.words // 3)
  digits = 10 ** max(0, len(str(found)) - 2)
  fewest = text.letters + text.letters // 10 + 50
  return min(most, max(fewest, found // digits * digits))
