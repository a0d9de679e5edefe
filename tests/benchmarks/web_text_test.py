"""Tests of the web-text benchmark at small sizes, without baselines."""

import random

import pytest

from benchmarks import web_text


def _lines(count):
  draw = random.Random(0)
  vocabulary_words = [
    ''.join(draw.choices('abcdefghij', k=6)) for _ in range(500)
  ]
  return [' '.join(draw.choices(vocabulary_words, k=15)) for _ in range(count)]


def test_jaccard_similarity_of_character_n_grams():
  assert web_text.compute_jaccard('The house!', 'the  house') == 1
  # The 5-grams are {abcde, bcdef} and {bcdef, cdefg}.
  assert web_text.compute_jaccard('abcdef', 'bcdefg') == pytest.approx(1 / 3)


def test_planted_copies_are_matched_and_dropped():
  pytest.importorskip('rensa')
  planted = web_text.plant_copies([*_lines(200), 'short'], 200)
  assert len(planted.lines) == 200 and 'short' not in planted.lines
  assert planted.similarity.min() < 0.5 and planted.similarity.max() > 0.9
  matched = web_text._match_with_xlflax(planted.lines, planted.copies)
  assert matched[planted.similarity > 0.95].all()
  assert not matched[planted.similarity < 0.1].any()
  remaining_copies = web_text._measure_across_splits(planted)
  assert remaining_copies['dropped'] == matched.sum()
  assert remaining_copies['left_with_a_band_of_a_held_out_line'] == 0
  assert remaining_copies['left_of_similarity']['0.9'].startswith('0 of ')


def test_identifier_accuracy_on_supported_and_common_languages(tmp_path):
  (tmp_path / 'languages.tsv').write_text(
    'key\tbcp47\na\ten\nb\tde-1996\nc\tug-Latn\nd\tfr\n'
  )
  for key, word in {'a': 'one', 'b': 'eins', 'c': 'bir', 'd': 'un'}.items():
    (tmp_path / f'{key}.txt').write_text(f'{word * 25}\n{word}\n{word * 30}\n')
  texts = list(web_text.read_declarations(tmp_path))
  assert [(x.tag, len(x.lines)) for x in texts] == [
    ('en', 2),
    ('de-1996', 2),
    ('fr', 2),
  ]
  english = web_text.LanguageIdentifier(
    frozenset({'en', 'de'}), lambda text: 'en'
  )
  accuracies = web_text._evaluate_identifier(english, texts, frozenset({'en'}))
  assert (accuracies['texts'], accuracies['lines']) == (2, 4)
  assert (
    accuracies['identified'] == 0.5 and accuracies['identified_of_these'] == 1
  )
  assert accuracies['least'] == {'de-1996': 0.0, 'en': 1.0}
