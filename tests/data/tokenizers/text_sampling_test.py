"""Tests of sentence sampling with p ∝ N^α."""

import collections

import pytest

from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import text_sampling
from xlflax.data.tokenizers.text_sampling import Quota


def test_exponential_rates():
  sizes = {'en': 100, 'sw': 1}
  assert text_sampling.exponential_rates(sizes, 0.5) == pytest.approx(
    {'en': 10 / 11, 'sw': 1 / 11}
  )
  assert text_sampling.exponential_rates(sizes, 1.0) == pytest.approx(
    {'en': 100 / 101, 'sw': 1 / 101}
  )
  assert text_sampling.exponential_rates(sizes, 0.0) == {'en': 0.5, 'sw': 0.5}


def test_sampling_quotas_repeat_small_languages():
  quotas = text_sampling.sampling_quotas(
    {'en': 100, 'sw': 1}, alpha=0.5, max_sentences=1000
  )
  assert quotas == {'en': Quota(100, 92), 'sw': Quota(1, 9)}
  quotas = text_sampling.sampling_quotas(
    {'en': 100, 'sw': 1}, alpha=0.5, max_sentences=11
  )
  assert quotas == {'en': Quota(100, 10), 'sw': Quota(1, 1)}


def test_sentences_include_lines_and_sides_of_pairs(toy_corpus, toy_sentences):
  counts = text_sampling.count_sentences(toy_corpus)
  assert counts == {'de': 110, 'en': 250, 'ru': 100}
  sentence_counts = collections.Counter(
    text_sampling.iterate_sentences(toy_corpus, 'en')
  )
  assert sum(sentence_counts.values()) == 250
  assert sentence_counts[toy_sentences['en'][0]] == 2


@pytest.mark.parametrize('drawn', [3, 7, 10, 25])
def test_sample_repeats_evenly(tmp_path, drawn):
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono' / 'en.txt').write_text(
    '\n'.join(f'line {i}' for i in range(10))
  )
  corpus = Corpus(tmp_path)
  plan = {'en': Quota(10, drawn)}
  lines = list(text_sampling.sample_sentences(corpus, plan, seed=1))
  assert len(lines) == drawn
  counts = collections.Counter(lines)
  assert max(counts.values()) - min(counts.values()) <= 1
  assert lines == list(text_sampling.sample_sentences(corpus, plan, seed=1))


def test_sample_depends_on_the_seed(toy_corpus):
  plan = {'en': Quota(250, 50)}
  draws = [
    list(text_sampling.sample_sentences(toy_corpus, plan, seed=seed))
    for seed in (0, 1)
  ]
  assert draws[0] != draws[1]


@pytest.mark.parametrize(
  'text, parts',
  [
    ('one two three', ['one two', 'three']),
    ('elevenletters', ['elevenle', 'tters']),
    ('ééééé', ['éééé', 'é']),
    ('aéééé', ['aééé', 'é']),
    ('short', ['short']),
    ('', []),
  ],
)
def test_long_texts_are_split(text, parts):
  assert list(text_sampling.split_long_text(text, max_bytes=8)) == parts
