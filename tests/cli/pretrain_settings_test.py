"""Tests of the vocabulary size, recipe and steps of `xlflax pretrain`."""

import math
import random

import pytest

from tests.errors import assert_mentions
from xlflax.cli import options as cli_options
from xlflax.cli import pretrain_settings
from xlflax.data.corpus import corpus_directory
from xlflax.data.tokenizers import vocabulary_training


class _Corpus:
  """Corpus with languages and splits; `_read_statistics` is patched."""

  def __init__(self, *, pairs=(), validation=False):
    self.languages = ('de', 'en')
    self._pairs, self._validation = pairs, validation

  def monolingual_languages(self, split='train'):
    held_out = split == 'validation' and self._validation
    return ('de', 'en') if split == 'train' or held_out else ()

  def parallel_pairs(self, split='train'):
    return self._pairs if split == 'train' else ()


@pytest.fixture
def select_recipe(monkeypatch):
  """Function that returns gin files and steps for given step times."""

  def call(
    *, tokens, seconds=(), platform='gpu', pairs=(), hours=None, steps=None
  ):
    timed = dict(zip(('small', 'medium', 'base'), seconds, strict=False))
    monkeypatch.setattr(
      pretrain_settings,
      '_measure_step_seconds',
      lambda trainer, name, is_smallest: timed[name[8:].removesuffix('.gin')],
    )
    budget = pretrain_settings._Budget(
      hours=hours, steps=steps, gin=cli_options.GinOptions()
    )
    corpus = _Corpus(pairs=pairs)
    return pretrain_settings._select_recipe(
      budget, corpus, tokens, 1000, platform
    )

  return call


_MANY = 10**9


def test_cpu_selects_the_small_recipe(select_recipe):
  files, steps = select_recipe(
    tokens=_MANY, seconds=[0.5], platform='cpu', hours=0.5
  )
  assert (files, steps) == (['pretrain/mlm.gin', 'recipes/small.gin'], 3600)
  files, steps = select_recipe(tokens=_MANY, platform='cpu', steps=10**9)
  assert (files[1], steps) == ('recipes/small.gin', 10**9)


def test_training_is_limited_to_40_epochs(select_recipe):
  _, steps = select_recipe(
    tokens=25_600, seconds=[0.01], platform='cpu', hours=100
  )
  assert steps == 40 * 25_600 // (40 * 64)
  _, steps = select_recipe(tokens=1, seconds=[0.01], platform='cpu', hours=100)
  assert steps == 1


@pytest.mark.parametrize(
  'tokens, seconds, hours, name, steps',
  [
    # The base recipe reads 65,536 tokens per step, so 1.7e9 tokens are 25,925
    # steps.
    (_MANY, [0.1, 0.1, 0.1], 1, 'base', 36_000),
    (_MANY, [0.1, 0.1, 0.2], 1, 'medium', 36_000),
    (_MANY, [0.1, 0.1, math.inf], 1, 'medium', 36_000),
    (_MANY, [0.1, 1.0], 1, 'small', 36_000),
    (10**7, [0.1, 0.1], 1, 'medium', 6103),  # 40 epochs of 10^7 tokens
    (10**6, [0.1], 1, 'small', 15_625),
  ],
)
def test_accelerator_recipe_and_steps_depend_on_the_time(
  select_recipe, tokens, seconds, hours, name, steps
):
  files, selected_steps = select_recipe(
    tokens=tokens, seconds=seconds, hours=hours
  )
  assert (files[1], selected_steps) == (f'recipes/{name}.gin', steps)


def test_given_steps_select_a_recipe(select_recipe):
  for steps, name in ((1000, 'small'), (10_000, 'medium'), (30_000, 'base')):
    assert select_recipe(tokens=_MANY, steps=steps) == (
      ['pretrain/mlm.gin', f'recipes/{name}.gin'],
      steps,
    )


def test_pairs_select_a_pair_recipe(select_recipe):
  files, _ = select_recipe(tokens=_MANY, steps=9, pairs=(('de', 'en'),))
  assert files == ['recipes/small_pairs.gin']


def test_vocabulary_size_grows_with_the_root_of_the_text():
  texts = [
    pretrain_settings._TextStatistics(num_tokens, 90, 400_000)
    for num_tokens in (10**6, 3 * 10**6, 10**10)
  ]
  select = pretrain_settings._select_vocabulary_size
  sizes = [select(text, 'gpu') for text in texts]
  assert sizes == [8000, 13_000, 128_000]
  assert select(texts[-1], 'cpu') == 16_000


@pytest.mark.parametrize('letters', [26, 2000])
def test_sentencepiece_accepts_the_vocabulary_size(tmp_path, letters):
  """For short and uniform text, and for text with many letters."""
  draw = random.Random(0)
  alphabet = [chr(0x4E00 + i) for i in range(letters)]
  vocabulary = [''.join(draw.choices(alphabet, k=5)) for _ in range(400)]
  text = [' '.join(draw.choices(vocabulary, k=8)) for _ in range(1500)]
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono/zh.txt').write_text('\n'.join([*text, *alphabet]), 'utf-8')
  corpus = corpus_directory.Corpus(tmp_path)
  text = pretrain_settings._read_statistics(corpus)
  size = pretrain_settings._select_vocabulary_size(text, 'cpu')
  trained = vocabulary_training.train_vocabulary(
    corpus, tmp_path / 'vocabulary', size=size, num_threads=1
  )
  assert trained.spec.size == size


def test_select_settings(monkeypatch):
  text = pretrain_settings._TextStatistics(10**6, 90, 100_000)
  monkeypatch.setattr(
    pretrain_settings, '_read_statistics', lambda corpus: text
  )

  def select(corpus):
    return pretrain_settings.select_settings(
      corpus,
      hours=None,
      steps=7,
      vocabulary_size=None,
      gin=cli_options.GinOptions(),
    )

  settings = select(_Corpus(validation=True))
  assert_mentions(
    settings.summary, 'de, en', '1,000,000', 'recipes/small.gin', 7
  )
  assert settings.summary.startswith('# ')
  assert (settings.vocabulary_size, settings.steps) == (8000, 7)
  assert (settings.tasks, settings.split) == ('perplexity', 'validation')
  assert select(_Corpus()).tasks == ''


def test_read_statistics_extrapolates_the_number_of_tokens(
  tmp_path, monkeypatch
):
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono/de.txt').write_text('x' * 60 + '\n\n' + 'y' * 20)
  (tmp_path / 'mono/en.jsonl').write_text('{"text": "%s"}' % ('z' * 40))
  corpus = corpus_directory.Corpus(tmp_path)
  statistics = pretrain_settings._TextStatistics
  assert pretrain_settings._read_statistics(corpus) == statistics(30, 3, 3)
  monkeypatch.setattr(pretrain_settings, '_MAX_BYTES', 70)
  assert pretrain_settings._read_statistics(corpus) == statistics(20, 2, 2)


def test_out_of_memory_excludes_a_recipe():
  class Large:
    def benchmark(self, steps):
      raise RuntimeError('RESOURCE_EXHAUSTED: out of memory')

  assert (
    pretrain_settings._measure_step_seconds(Large(), 'base', is_smallest=False)
    == math.inf
  )
  with pytest.raises(RuntimeError):
    pretrain_settings._measure_step_seconds(Large(), 'small', is_smallest=True)
