"""Tests of text normalization for duplicate detection and text similarity."""

import pytest

from xlflax.data.corpus import text_similarity


@pytest.mark.parametrize(
  'text, expected',
  [
    ("It's  1,000!", 'it s 1 000'),
    ('ＦＵＬＬ　ｗｉｄｔｈ', 'full width'),
    ('STRASSE_1', 'strasse 1'),
    ('मेरी किताब!', 'मेरी किताब'),  # vowel signs are marks, not letters
    ('!', '!'),
  ],
)
def test_normalize_for_comparison(text, expected):
  assert text_similarity.normalize_for_comparison(text) == expected


def test_vowel_signs_distinguish_words():
  assert text_similarity.normalize_for_comparison(
    'मेरा'
  ) != text_similarity.normalize_for_comparison('मेरी')


def test_ngram_similarity():
  assert text_similarity.ngram_similarity('The cat.', 'the cat') == 1
  assert text_similarity.ngram_similarity('abcd', 'abce') == pytest.approx(
    1 / 3
  )
  assert text_similarity.ngram_similarity('cat', 'кот') == 0
  assert text_similarity.ngram_similarity('a', 'b') == 0
