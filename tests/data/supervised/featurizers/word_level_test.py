"""Tests of the featurizers of tagged and parsed sentences."""

import numpy as np
import pytest

from tests.data.labeled_words import WordVocabulary
from tests.errors import raises_error
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import (
  featurizer,
  parsing_featurizer,
  tagging_featurizer,
  word_level,
)
from xlflax.utils import errors

_WORDS = ('the', 'dogs', 'bark')
_TAGGED = labeled_examples.TaggedSentence(
  id='0', language='en', words=_WORDS, tags=('DET', 'NOUN', 'VERB')
)
_PARSED = labeled_examples.ParsedSentence(
  id='0',
  language='en',
  words=_WORDS,
  tags=('DET', 'NOUN', 'VERB'),
  heads=(2, 3, 0),
  relations=('det', 'nsubj', 'root'),
)
_TAGS = tagging_featurizer.TaggingFeaturizer(labels=('DET', 'NOUN', 'VERB'))
_TREES = parsing_featurizer.ParsingFeaturizer(
  relations=('det', 'nsubj', 'root')
)


@pytest.fixture
def vocabulary():
  """The ids are <s> 1, </s> 2, ▁the 5, ▁dog 6, s 7 and ▁bark 8."""
  return WordVocabulary(_WORDS)


def _lists(row):
  return {key: np.asarray(value).tolist() for key, value in row.items()}


def test_labels_are_at_the_first_token_of_each_word(vocabulary):
  [[row]] = _TAGS.make([_TAGGED], vocabulary, length=16)
  columns = _lists(row)
  assert columns['token_ids'] == [1, 5, 6, 7, 8, 2]
  assert columns['labels'] == [-1, 0, 1, -1, 2, -1]
  assert set(columns) == set(_TAGS.fields(16, vocabulary.spec))


def test_parsed_sentence_features(vocabulary):
  [[row]] = _TREES.make([_PARSED], vocabulary, length=16)
  columns = _lists(row)
  assert columns['token_ids'] == [1, 5, 6, 7, 8, 2]
  assert columns['word_starts'] == [0, 1, 2, 4]
  assert columns['word_lengths'] == [1, 1, 2, 1]
  assert columns['heads'] == [-1, 2, 3, 0]
  assert columns['relations'] == [-1, 0, 1, 2]
  batch = featurizer.stack_features([row], _TREES.fields(8, vocabulary.spec))
  assert batch['heads'].tolist() == [[-1, 2, 3, 0, -1, -1, -1, -1]]
  assert batch['word_lengths'].tolist() == [[1, 1, 2, 1, 0, 0, 0, 0]]


def test_long_sentences_are_split_between_words(vocabulary):
  [rows] = word_level.text_rows([_TAGGED], vocabulary, length=5)
  assert [row.row['token_ids'].tolist() for row in rows] == [
    [1, 5, 6, 7, 2],
    [1, 8, 2],
  ]
  assert [(row.first, row.starts.tolist()) for row in rows] == [
    (0, [1, 2]),
    (2, [1]),
  ]
  [tagged] = _TAGS.make([_TAGGED], vocabulary, length=5)
  assert [_lists(row)['labels'] for row in tagged] == [
    [-1, 0, 1, -1, -1],
    [-1, 2, -1],
  ]
  [parsed] = _TREES.make([_PARSED], vocabulary, length=5)
  assert [_lists(row)['heads'] for row in parsed] == [[-1, 2, -1], [-1, 0]]
  assert [_lists(row)['relations'] for row in parsed] == [[-1, 0, -1], [-1, 2]]


def test_heads_are_relative_to_the_window(vocabulary):
  sentence = labeled_examples.ParsedSentence(
    id='0',
    language='en',
    words=('a', 'b', 'c', 'd'),
    tags=('_',) * 4,
    heads=(0, 1, 4, 2),
    relations=('root', 'det', 'det', 'nsubj'),
  )
  [rows] = _TREES.make([sentence], vocabulary, length=4)
  assert [_lists(row)['heads'] for row in rows] == [[-1, 0, 1], [-1, 2, -1]]


@pytest.mark.parametrize(
  ('lengths', 'expected'),
  [
    ([2, 2, 5, 1], [(0, 2), (2, 3), (3, 4)]),
    ([4], [(0, 1)]),
    ([], []),
    ([1, 1, 1, 1], [(0, 4)]),
    ([3, 3], [(0, 1), (1, 2)]),
  ],
)
def test_split_windows_covers_every_word_once(lengths, expected):
  """A window has space for four tokens."""
  assert [
    (w.start, w.stop) for w in word_level.split_windows(lengths, 4)
  ] == expected


def test_words_longer_than_the_sequence_are_truncated(vocabulary):
  [rows] = word_level.text_rows(
    [_TAGGED.__class__(id='0', language='en', words=('dogs', 'bark'))],
    vocabulary,
    length=3,
  )
  assert [row.row['token_ids'].tolist() for row in rows] == [
    [1, 6, 2],
    [1, 8, 2],
  ]
  assert [row.lengths.tolist() for row in rows] == [[1], [1]]


def test_unlabeled_sentences_have_no_features(vocabulary):
  blind = labeled_examples.TaggedSentence(id='1', language='fr', words=_WORDS)
  features = _TAGS.make([blind, _TAGGED, blind], vocabulary, length=16)
  assert [len(rows) for rows in features] == [0, 1, 0]
  assert _TREES.make(
    [
      labeled_examples.ParsedSentence(
        id='1', language='fr', words=_WORDS, tags=('_',) * 3
      )
    ],
    vocabulary,
    length=16,
  ) == [[]]


def test_language_ids_are_those_of_the_sentence(vocabulary):
  french = labeled_examples.TaggedSentence(
    id='1', language='fr', words=('the',), tags=('DET',)
  )
  [[row]] = _TAGS.make([french], vocabulary, length=16)
  assert row['language_ids'].tolist() == [1, 1, 1]


def test_unknown_labels_are_rejected(vocabulary):
  with raises_error(errors.CorpusError, mentions=('VERB', 'en', 0)):
    tagging_featurizer.TaggingFeaturizer(labels=('DET', 'NOUN')).make(
      [_TAGGED], vocabulary, length=16
    )


def test_length_below_the_special_tokens_is_rejected(vocabulary):
  with raises_error(errors.ConfigError, mentions=2):
    _TAGS.make([_TAGGED], vocabulary, length=2)
