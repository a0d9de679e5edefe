"""The baselines and splits of docs/measured/evaluation.md on hand-made cases."""

import importlib.util
import pathlib
import random
import types

import pytest

from xlflax.data.labelled import examples

FOLDER = pathlib.Path(__file__).parent.parent / 'docs' / 'evaluation'


def _script(name: str) -> types.ModuleType:
  spec = importlib.util.spec_from_file_location(name, FOLDER / f'{name}.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.fixture(name='baselines', scope='module')
def _baselines():
  return _script('baselines')


def _tree(words, heads, relations):
  return examples.ParsedSentence(
    id='0',
    language='en',
    words=tuple(words),
    tags=('X',) * len(words),
    heads=tuple(heads),
    relations=tuple(relations),
  )


def test_majority_is_the_training_sets_class(baselines):
  assert baselines.majority(['a', 'a', 'b'], ['b', 'b', 'b', 'a']) == 0.25


@pytest.mark.parametrize(
  'unseen, expected',
  [
    ('majority', ['DET', 'NOUN', 'NOUN', 'NOUN']),
    ('shape', ['DET', 'NOUN', 'PUNCT', 'PROPN']),
  ],
)
def test_lexicon_of_words_and_shapes(baselines, unseen, expected):
  lexicon = baselines.Lexicon(
    ['The', 'the', 'the', 'dog', 'cat', 'ox', '.', 'USA'],
    ['PRON', 'DET', 'DET', 'NOUN', 'NOUN', 'NOUN', 'PUNCT', 'PROPN'],
    unseen,
  )
  assert [
    lexicon.label(word) for word in ('THE', 'dog', '。', 'ГУМ')
  ] == expected


def test_chains(baselines):
  assert baselines.chain(3, 'right') == (0, 1, 2)
  assert baselines.chain(3, 'left') == (2, 3, 0)


def test_attachment_of_branching_trees(baselines):
  left = _tree('ab', (2, 0), ('det', 'root'))
  right = _tree('ab', (0, 1), ('root', 'det'))
  scores = baselines.attachment([left], {'x': [left], 'y': [right]})
  assert scores['uas'] == {
    'right-branching': {'x': 0.0, 'y': 1.0},
    'left-branching': {'x': 1.0, 'y': 0.0},
  }
  # 'b' was a root in training, and is none in `y`.
  assert scores['las'] == {
    'right-branching': {'x': 0.0, 'y': 0.5},
    'left-branching': {'x': 1.0, 'y': 0.0},
  }


def test_random_spans_are_spans_of_the_context(baselines):
  questions = [
    examples.Question(
      id='a', language='en', question='?', context='one two three'
    ),
    examples.Question(id='b', language='zh', question='?', context='一二三'),
  ]
  found = baselines.random_spans(questions, [2], random.Random(0))
  assert found['a'] in ('one two', 'two three')
  assert found['b'] in ('一二', '二三')


def test_random_mining(baselines):
  # 4 guesses, each right with probability 2 / 5: 1.6 of 4 and of 2.
  precision, recall = (2 / 5) / 4, (2 / 5) / 2
  assert baselines.random_mining_f1(4, 5, 2) == pytest.approx(
    2 * precision * recall / (precision + recall)
  )


def test_diagonal(baselines):
  assert baselines.diagonal(2, 4) == {(0, 0), (0, 1), (1, 2), (1, 3)}
  assert baselines.diagonal(3, 1) == {(0, 0), (1, 0), (2, 0)}


def test_nearest_translations(baselines):
  train = [('a b', '1'), ('a b c', '2'), ('d', '3')]
  assert baselines.nearest_translations(train, ['b a', 'c b x', 'd d']) == [
    '1',
    '2',
    '3',
  ]


def test_splits_go_by_the_text_alone():
  splits = _script('splits')
  names = [splits.pawsx_split(f'sentence {n}') for n in range(1000)]
  assert 430 < names.count('train') < 570
  assert splits.pawsx_split('sentence 7') == names[7]


def test_table_compares_with_every_baseline(tmp_path):
  table = _script('table')
  folder = tmp_path / 'runs' / 'encoder' / 'eval' / 'tatoeba' / 'all-1'
  folder.mkdir(parents=True)
  for step, value in (('9', 0.1), ('10', 0.2), ('untrained', 0.15)):
    (folder / f'{step}.json').write_text(
      f'{{"metrics": {{"accuracy/fr": {value}, "accuracy/mean": 1.0}}}}'
    )
  row = table.Row('T', '', 'tatoeba/accuracy', 'tatoeba', ('random',))

  def line(chance):
    return table.lines(tmp_path, row, {'tatoeba': {'random': {'fr': chance}}})

  assert line(0.001) == [
    '| T | fr | random 0.001; untrained 0.150 | **0.200** |'
  ]
  assert line(0.3) == ['| T | fr | random 0.300; untrained 0.150 | 0.200 |']
