"""Tests CLAS, MLAS and BLEX; tests/official compares them with the scorer."""

import dataclasses

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation.metrics import clas
from xlflax.utils import errors

_GOLD = labeled_examples.ParsedSentence(
  id='0',
  language='en',
  words=('the', 'dogs', 'have', 'barked', '.'),
  tags=('DET', 'NOUN', 'AUX', 'VERB', 'PUNCT'),
  heads=(2, 4, 4, 0, 4),
  relations=('det', 'nsubj', 'aux', 'root', 'punct'),
  lemmas=('the', 'dog', 'have', '_', '.'),
  features=('_', 'Number=Plur', 'Typo=Yes', 'Tense=Past|VerbForm=Part', '_'),
)


def _values(**changes):
  predicted = dataclasses.replace(_GOLD, **changes)
  scores = clas.content_word_scores([_GOLD], [predicted])
  return [score.value for score in (scores.clas, scores.mlas, scores.blex)]


def test_correct_tree_scores_1():
  assert _values() == [1, 1, 1]
  assert _values(relations=('det:x', 'nsubj:y', 'aux', 'root', 'dep')) == (
    pytest.approx([0.8, 0.8, 0.8])  # Punctuation counts as content: 2 * 2 / 5.
  )


def test_function_words_count_only_with_their_head():
  assert _values(heads=(4, 4, 4, 0, 4)) == [1, 0, 1]
  assert _values(tags=('PRON', 'NOUN', 'AUX', 'VERB', 'PUNCT')) == [1, 0.5, 1]


def test_features_affect_mlas_and_lemmas_affect_blex():
  features = list(_GOLD.features)
  features[2] = '_'  # no universal feature
  assert _values(features=tuple(features)) == [1, 1, 1]
  features[1] = 'Number=Sing'
  assert _values(features=tuple(features)) == [1, 0.5, 1]
  lemmas = ('the', 'cat', 'have', 'bark', '.')
  assert _values(lemmas=lemmas) == [1, 1, 0.5]  # '_' in the gold matches


def test_gold_trees_without_lemmas_or_features():
  bare = dataclasses.replace(_GOLD, lemmas=(), features=())
  scores = clas.content_word_scores([bare], [bare])
  assert scores.blex is None and scores.mlas.value == 1
  with raises_error(errors.CorpusError, mentions=(1, 5)):
    clas.content_word_scores([bare], [dataclasses.replace(bare, heads=(0,))])
