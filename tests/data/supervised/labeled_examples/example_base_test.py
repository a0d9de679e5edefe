"""Tests of the columns and labels of example classes."""

import dataclasses
import json
import math

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.labeled_examples import FeatureType, Role
from xlflax.utils import errors

_TEXT = labeled_examples.ClassifiedText(id='2', language='ur', text='x')
_SENTENCE = labeled_examples.TaggedSentence(
  id='0', language='fr', words=('Paris', '!'), tags=('B-LOC', 'O')
)
_TREE = labeled_examples.ParsedSentence(
  id='0',
  language='ru',
  words=('да', '!'),
  tags=('PART', 'PUNCT'),
  heads=(0, 1),
  relations=('root', 'punct'),
)
_QUESTION = labeled_examples.Question(
  id='q',
  language='th',
  question='?',
  context='กข',
  answers=(labeled_examples.Answer('ข', 1),),
)
_ALIGNED = labeled_examples.AlignedSentence(
  id='1',
  language='grc',
  target_language='en',
  source_words=('ναί',),
  target_words=('yes', 'it'),
  sure=frozenset({(0, 0)}),
  possible=frozenset({(0, 0), (0, 1)}),
)
_ALL = (_TEXT, _SENTENCE, _TREE, _QUESTION, _ALIGNED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rated(labeled_examples.Example):
  """User-defined example class."""

  KIND = 'rated'
  text: str
  rating: float | None = labeled_examples.feature_field(Role.GOLD, default=None)


def _read(example, columns, **options):
  arguments = dict(number=7, languages=('aa', 'bb'), where='task t') | options
  return type(example).from_columns(columns, **arguments)


@pytest.mark.parametrize('example', _ALL, ids=lambda e: e.KIND)
def test_examples_round_trip_through_columns(example):
  columns = example.to_columns()
  assert list(columns) == list(example.columns())
  json.dumps(columns)  # The values can be serialized.
  assert _read(example, columns, languages=('aa',)) == example


def test_columns_of_a_user_defined_class():
  assert Rated.columns() == {
    'id': FeatureType.TEXT,
    'language': FeatureType.TEXT,
    'text': FeatureType.TEXT,
    'rating': FeatureType.NUMBER,
  }
  rated = Rated(id='a', language='en', text='x', rating=0.0)
  assert _read(rated, rated.to_columns()) == rated
  assert not rated.is_blind
  blind = dataclasses.replace(rated, rating=None)
  assert math.isnan(blind.to_columns()['rating'])
  assert _read(blind, blind.to_columns()).is_blind
  assert labeled_examples.class_of('rated') is Rated


def test_missing_columns_have_defaults_or_raise():
  example = _read(_TEXT, {'text': b'x', 'paired_text': b'y', 'label': b''})
  assert example == labeled_examples.ClassifiedText(
    id='7', language='aa', text='x', paired_text='y', paired_language='bb'
  )
  with raises_error(
    errors.CorpusError, got='text', where='task t', mentions='label'
  ):
    _read(_TEXT, {'text': 'x'})


def test_is_blind_without_gold_fields():
  assert [example.is_blind for example in _ALL] == [True, *[False] * 4]
  assert dataclasses.replace(_SENTENCE, tags=None).is_blind
  assert dataclasses.replace(_TREE, heads=None, relations=None).is_blind
  assert dataclasses.replace(_QUESTION, answers=()).is_blind


def test_labels_of_each_class():
  assert _TEXT.labels is None
  assert dataclasses.replace(_TEXT, label='no').labels == ('no',)
  assert _SENTENCE.labels == ('B-LOC', 'O')
  assert _TREE.labels == ('root', 'punct')
  with raises_error(errors.ConfigError, got='rated'):
    _ = Rated(id='a', language='en', text='x').labels


def test_predictions_round_trip_through_text():
  cls = labeled_examples.TaggedSentence
  text = cls.write_predictions([_SENTENCE] * 2, [['A', 'B'], ['C', 'D']])
  assert text == 'A\nB\n\nC\nD\n'
  assert cls.read_predictions([_SENTENCE] * 2, text) == [['A', 'B'], ['C', 'D']]
  trees = [_TREE, dataclasses.replace(_TREE, heads=(2, 0))]
  text = labeled_examples.ParsedSentence.write_predictions([_TREE] * 2, trees)
  assert '2\t!\t_\tPUNCT\t_\t_\t1\tpunct\t_\t_\n\n# sent_id = 0' in text
  assert (
    labeled_examples.ParsedSentence.read_predictions([_TREE] * 2, text) == trees
  )
  text = Rated.write_predictions([], ['0.5', '2.0'][:0])
  assert text == ''


def test_duplicate_kinds_are_rejected():
  with raises_error(errors.ConfigError, mentions='rated'):

    class Other(labeled_examples.Example):
      KIND = 'rated'

    del Other


def test_unsupported_field_types_are_rejected():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Unsupported(labeled_examples.Example):
    place: complex

  with raises_error(
    errors.ConfigError, got="<class 'complex'>", mentions='_Unsupported.place'
  ):
    _Unsupported.columns()
