"""Which vocabulary, recipe and steps are chosen for text and devices."""

import argparse
import math
import random

import pytest

from xlflax.commands.pretrain import choices
from xlflax.data.corpus import directory
from xlflax.data.vocabularies import training


class _Corpus:
  """Languages and splits; the text is what `_text` is told."""

  def __init__(self, *, pairs=(), validation=False):
    self.languages = ('de', 'en')
    self._pairs, self._validation = pairs, validation

  def monolingual_languages(self, split='train'):
    held_out = split == 'validation' and self._validation
    return ('de', 'en') if split == 'train' or held_out else ()

  def parallel_pairs(self, split='train'):
    return self._pairs if split == 'train' else ()


@pytest.fixture
def fitting(monkeypatch):
  """Gin files and steps that are chosen where steps take so many seconds."""

  def call(*, tokens, seconds=(), platform='gpu', pairs=(), **given):
    timed = dict(zip(('small', 'medium', 'base'), seconds, strict=False))
    monkeypatch.setattr(
      choices,
      '_seconds',
      lambda made, name, smallest: timed[name[8:].removesuffix('.gin')],
    )
    args = argparse.Namespace(
      **{'steps': None, 'hours': None} | given,
      gin_file=[],
      gin_bindings=given.get('bindings', []),
      gin_search_paths=[],
    )
    corpus = _Corpus(pairs=pairs)
    return choices._fitting(args, corpus, tokens, 1000, platform)

  return call


_MANY = 10**9


def test_a_cpu_trains_the_small_recipe(fitting):
  files, steps = fitting(tokens=_MANY, seconds=[0.5], platform='cpu', hours=0.5)
  assert (files, steps) == (['pretrain/mlm.gin', 'recipes/small.gin'], 3600)
  files, steps = fitting(tokens=_MANY, platform='cpu', steps=10**9)
  assert (files[1], steps) == ('recipes/small.gin', 10**9)


def test_text_is_read_forty_times_at_most(fitting):
  _, steps = fitting(tokens=25_600, seconds=[0.01], platform='cpu', hours=100)
  assert steps == 40 * 25_600 // (40 * 64)
  _, steps = fitting(tokens=1, seconds=[0.01], platform='cpu', hours=100)
  assert steps == 1


@pytest.mark.parametrize(
  'tokens, seconds, hours, name, steps',
  [
    # base sees 65,536 tokens a step: 1.7e9 are 25,925 steps.
    (_MANY, [0.1, 0.1, 0.1], 1, 'base', 36_000),
    (_MANY, [0.1, 0.1, 0.2], 1, 'medium', 36_000),
    (_MANY, [0.1, 0.1, math.inf], 1, 'medium', 36_000),
    (_MANY, [0.1, 1.0], 1, 'small', 36_000),
    (10**7, [0.1, 0.1], 1, 'medium', 6103),  # 40 times 10^7 tokens
    (10**6, [0.1], 1, 'small', 15_625),
  ],
)
def test_an_accelerator_trains_what_is_fed(
  fitting, tokens, seconds, hours, name, steps
):
  files, found = fitting(tokens=tokens, seconds=seconds, hours=hours)
  assert (files[1], found) == (f'recipes/{name}.gin', steps)


def test_given_steps_choose_a_recipe(fitting):
  for steps, name in ((1000, 'small'), (10_000, 'medium'), (30_000, 'base')):
    assert fitting(tokens=_MANY, steps=steps) == (
      ['pretrain/mlm.gin', f'recipes/{name}.gin'],
      steps,
    )


def test_pairs_take_files_of_their_own(fitting):
  files, _ = fitting(tokens=_MANY, steps=9, pairs=(('de', 'en'),))
  assert files == ['recipes/small_pairs.gin']


def test_entries_grow_with_the_root_of_the_text():
  texts = [choices._Text(t, 90, 400_000) for t in (10**6, 3 * 10**6, 10**10)]
  found = [choices._entries(text, 'gpu') for text in texts]
  assert found == [8000, 13_000, 128_000]
  assert choices._entries(texts[-1], 'cpu') == 16_000


@pytest.mark.parametrize('letters', [26, 2000])
def test_sentencepiece_takes_the_entries(tmp_path, letters):
  """Of short text, uniform, or of more letters than the root of its length."""
  draw = random.Random(0)
  alphabet = [chr(0x4E00 + i) for i in range(letters)]
  words = [''.join(draw.choices(alphabet, k=5)) for _ in range(400)]
  text = [' '.join(draw.choices(words, k=8)) for _ in range(1500)]
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono/zh.txt').write_text('\n'.join([*text, *alphabet]), 'utf-8')
  corpus = directory.Corpus(tmp_path)
  entries = choices._entries(choices._text(corpus), 'cpu')
  made = training.train_vocabulary(
    corpus, tmp_path / 'vocabulary', size=entries, num_threads=1
  )
  assert made.spec.size == entries


def test_a_choice_says_what_it_is(monkeypatch):
  text = choices._Text(10**6, 90, 100_000)
  monkeypatch.setattr(choices, '_text', lambda corpus: text)
  args = argparse.Namespace(
    steps=7, hours=None, vocabulary_size=None, gin_file=[],
    gin_bindings=[], gin_search_paths=[],
  )  # fmt: skip
  found = choices.choose(args, _Corpus(validation=True))
  assert found.told.startswith('# de, en: about 1,000,000 tokens; ')
  assert found.told.endswith('recipes/small.gin, 7 steps')
  assert (found.entries, found.steps) == (8000, 7)
  assert (found.tasks, found.split) == ('perplexity', 'validation')
  assert choices.choose(args, _Corpus()).tasks == ''


def test_tokens_of_a_corpus(tmp_path, monkeypatch):
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono/de.txt').write_text('x' * 60 + '\n\n' + 'y' * 20)
  (tmp_path / 'mono/en.jsonl').write_text('{"text": "%s"}' % ('z' * 40))
  corpus = directory.Corpus(tmp_path)
  assert choices._text(corpus) == (30, 3, 3)
  monkeypatch.setattr(choices, '_MOST_BYTES', 70)
  assert choices._text(corpus) == (20, 2, 2)


def test_too_little_memory_ends_the_search():
  class Large:
    def benchmark(self, steps):
      raise RuntimeError('RESOURCE_EXHAUSTED: out of memory')

  assert choices._seconds(Large(), 'base', smallest=False) == math.inf
  with pytest.raises(RuntimeError):
    choices._seconds(Large(), 'small', smallest=True)
