"""Tests of fuzzy deduplication within and across splits."""

import random

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.corpus import corpus_writer, text_similarity
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.preprocessing import fuzzy_deduplication
from xlflax.data.preprocessing.fuzzy_deduplication import (
  Deduplication,
  DeduplicationMode,
)
from xlflax.utils import errors

_EXACT = Deduplication(mode=DeduplicationMode.EXACT)
_FUZZY = Deduplication(mode=DeduplicationMode.FUZZY)


def _sentences(count, seed=0):
  rng = random.Random(seed)
  letters = 'abcdefghijklmnopqrstuvwxyz'
  word_list = [''.join(rng.choices(letters, k=6)) for _ in range(2000)]
  return [' '.join(rng.choices(word_list, k=20)) for _ in range(count)]


def _altered(sentence, ratio, rng):
  return ' '.join(
    'zzzzz' + str(rng.random())[2:4] if rng.random() < ratio else word
    for word in sentence.split()
  )


def _jaccard(first_text, second_text):
  first, second = (
    text_similarity.n_grams(
      text_similarity.normalize_for_comparison(text), _FUZZY.ngram_size
    )
    for text in (first_text, second_text)
  )
  return len(first & second) / len(first | second)


def test_mask_first_occurrences():
  keys = np.array([5, 7, 5, 5, 9], np.uint64)
  assert fuzzy_deduplication.mask_first_occurrences(keys).tolist() == [
    True,
    True,
    False,
    False,
    True,
  ]


def test_exact_keys_ignore_case_and_punctuation():
  keys = fuzzy_deduplication.band_keys(
    ['The cat!', 'the  cat', 'the cats', '!'], _EXACT
  )
  assert keys.shape == (4, 1)
  assert keys[0] == keys[1] and len(set(keys[:, 0].tolist())) == 3


def test_fuzzy_matches_follow_the_banding_curve():
  """Compares 300 pairs with the probability of b bands of r rows (Broder)."""
  pytest.importorskip('rensa')
  rng = random.Random(1)
  lines = _sentences(300)
  edited_lines = [
    _altered(line, ratio, rng)
    for line, ratio in zip(lines, np.linspace(0.02, 0.3, 300), strict=True)
  ]
  expected = np.array(
    [
      _FUZZY.probability(_jaccard(first, second))
      for first, second in zip(lines, edited_lines, strict=True)
    ]
  )
  first, second = (
    fuzzy_deduplication.band_keys(texts, _FUZZY)
    for texts in (lines, edited_lines)
  )
  is_match = (first == second).any(-1)
  assert 0.2 < expected.mean() < 0.9  # the steep part of the curve
  deviation = np.sqrt((expected * (1 - expected)).sum())
  assert abs(is_match.sum() - expected.sum()) < 4 * deviation
  assert not (first == np.roll(second, 1, axis=0)).any()  # unrelated lines


@pytest.fixture
def corpus(tmp_path):
  """Training text with duplicates of itself and of held-out text."""
  lines = _sentences(40)
  train = [*lines[:20], lines[3].upper(), *lines[30:34]]
  corpus_writer.write_monolingual(tmp_path, 'en', [train])
  corpus_writer.write_monolingual(
    tmp_path, 'en', [lines[30:32]], split='validation'
  )
  corpus_writer.write_parallel(
    tmp_path, ('de', 'en'), [('x y z', lines[33])], split='test'
  )
  return Corpus(tmp_path)


@pytest.mark.parametrize('settings', [_EXACT, _FUZZY], ids=['equal', 'near'])
def test_duplicates_of_held_out_text_are_dropped_from_training(
  corpus, settings
):
  if settings is _FUZZY:
    pytest.importorskip('rensa')
  repeated, held_out = fuzzy_deduplication.find_duplicates(corpus, settings)
  assert {k: v.tolist() for k, v in repeated.items()} == {
    'mono/en.txt': [20],
    'valid/mono/en.txt': [],
    'test/parallel/de-en.tsv': [],
  }
  assert {k: v.tolist() for k, v in held_out.items()} == {
    'mono/en.txt': [21, 22, 24],
    'valid/mono/en.txt': [],
    'test/parallel/de-en.tsv': [],
  }


@pytest.mark.parametrize('settings', [_EXACT, _FUZZY], ids=['equal', 'near'])
def test_training_pairs_with_a_held_out_side_are_dropped(tmp_path, settings):
  """Held-out sides may be lines, or sides of pairs in other languages."""
  if settings is _FUZZY:
    pytest.importorskip('rensa')
  english, german = _sentences(8), _sentences(8, seed=1)
  pairs = list(zip(german, english, strict=True))
  corpus_writer.write_parallel(tmp_path, ('de', 'en'), pairs)
  corpus_writer.write_parallel(
    tmp_path, ('de', 'en'), [('anders', english[2])], split='test'
  )
  corpus_writer.write_parallel(
    tmp_path, ('de', 'fr'), [(german[4], 'oui')], split='validation'
  )
  corpus_writer.write_monolingual(
    tmp_path, 'en', [[english[6]]], split='validation'
  )
  duplicates = fuzzy_deduplication.find_duplicates(Corpus(tmp_path), settings)
  dropped = {k: v.tolist() for k, v in duplicates.held_out.items()}
  assert dropped.pop('parallel/de-en.tsv') == [2, 4, 6]
  assert not any(dropped.values())
  assert not any(indices.size for indices in duplicates.repeated.values())


@pytest.mark.parametrize('settings', [_EXACT, _FUZZY], ids=['equal', 'near'])
def test_held_out_text_may_be_a_side_of_held_out_pairs(tmp_path, settings):
  """Duplicates among held-out files do not leak into the training text."""
  if settings is _FUZZY:
    pytest.importorskip('rensa')
  english, german = _sentences(6), _sentences(6, seed=1)
  pairs = list(zip(german, english, strict=True))
  for split, part in (('validation', slice(0, 3)), ('test', slice(3, 6))):
    corpus_writer.write_parallel(
      tmp_path, ('de', 'en'), pairs[part], split=split
    )
  corpus_writer.write_monolingual(tmp_path, 'en', [english], split='test')
  corpus_writer.write_monolingual(tmp_path, 'de', [german], split='validation')
  corpus_writer.write_monolingual(tmp_path, 'en', [english])
  duplicates = fuzzy_deduplication.find_duplicates(Corpus(tmp_path), settings)
  dropped = {k: v.tolist() for k, v in duplicates.held_out.items()}
  assert dropped.pop('mono/en.txt') == [0, 1, 2, 3, 4, 5]
  assert not any(dropped.values())
  assert not any(indices.size for indices in duplicates.repeated.values())


@pytest.mark.parametrize('settings', [_EXACT, _FUZZY], ids=['equal', 'near'])
def test_a_repeated_pair_of_held_out_text_counts_as_held_out(
  tmp_path, settings
):
  """A repeated pair without held-out text counts as a duplicate."""
  if settings is _FUZZY:
    pytest.importorskip('rensa')
  english, german = _sentences(4), _sentences(4, seed=1)
  pairs = list(zip(german, english, strict=True))
  corpus_writer.write_parallel(tmp_path, ('de', 'en'), [*pairs, *pairs[:2]])
  corpus_writer.write_parallel(tmp_path, ('de', 'en'), [pairs[0]], split='test')
  duplicates = fuzzy_deduplication.find_duplicates(Corpus(tmp_path), settings)
  assert duplicates.held_out['parallel/de-en.tsv'].tolist() == [0, 4]
  assert duplicates.repeated['parallel/de-en.tsv'].tolist() == [5]


def test_deduplication_is_disabled_by_default(corpus):
  assert fuzzy_deduplication.find_duplicates(corpus, Deduplication()) == (
    {},
    {},
  )


def test_invalid_settings_are_rejected():
  with raises_error(
    errors.ConfigError, got=0, where='Deduplication.rows_per_band'
  ):
    Deduplication(mode='fuzzy', rows_per_band=0)
