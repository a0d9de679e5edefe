"""Tests of parsing with known scores: trees, metrics, files and devices."""

import dataclasses
import itertools

import conllu
import numpy as np
import pytest

from tests.data.labeled_words import WordVocabulary
from tests.errors import assert_mentions
from tests.evaluation import one_hot_model
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation.tasks import parsing_task
from xlflax.objectives.finetuning import dependency_parsing
from xlflax.training.devices import partitioning

_RELATIONS = ('root', 'nsubj', 'det', 'punct')
_OBJECTIVE = dependency_parsing.DependencyParsing(
  relations=_RELATIONS, arc_dim=32, relation_dim=32
)
_WORDS = ('the', 'dogs', 'bark', '.')


def _sentence(
  forms=_WORDS,
  heads=(2, 3, 0, 3),
  relations=('det', 'nsubj:pass', 'root', 'punct'),
  id='0',
  tags=('DET', 'NOUN', 'VERB', 'PUNCT'),
):
  return labeled_examples.ParsedSentence(
    id=id,
    language='en',
    words=forms,
    tags=tags,
    heads=heads,
    relations=relations,
  )


@pytest.fixture(scope='module')
def eval_model():
  """Model that scores `dogs` and `bark` as roots and labels `the` as subject."""
  vocabulary = WordVocabulary(_WORDS)
  head = one_hot_model.parser(
    vocabulary,
    _RELATIONS,
    arcs=[
      ('bark', None),
      ('dogs', None),
      ('dogs', 'bark'),
      ('the', 'dogs'),
      ('.', 'bark'),
    ],
    names={'the': 'nsubj', 'dogs': 'nsubj', 'bark': 'root', '.': 'punct'},
  )
  return one_hot_model.make_eval_model(
    _OBJECTIVE, head, vocabulary, batch_size=2
  )


def _task(*parts, **fields):
  return parsing_task.Parsing(source=one_hot_model.Held(parts=parts), **fields)


def test_scores_of_known_trees(eval_model):
  result = _task(('en', (_sentence(),))).evaluate(eval_model)
  assert not result.failures
  assert result.metrics['uas/en'] == 1.0
  assert result.metrics['las/en'] == 0.75  # `the` is not a subject
  # Heads in the word before: 1 of 4; in the word after: 2 of 4.
  assert result.metrics['right_branching/en'] == 0.25
  assert result.metrics['left_branching/en'] == 0.5
  assert result.metrics['las/mean'] == 0.75
  assert result.notes == (
    'punctuation is included; subtypes of relations do not count',
  )
  [tree] = conllu.parse(result.files['en.conllu'])
  assert [(t['form'], t['upos'], t['head'], t['deprel']) for t in tree] == [
    ('the', 'DET', 2, 'nsubj'),
    ('dogs', 'NOUN', 3, 'nsubj'),
    ('bark', 'VERB', 0, 'root'),
    ('.', 'PUNCT', 3, 'punct'),
  ]
  assert tree.metadata == {'sent_id': '0'}


def test_punctuation_can_be_excluded(eval_model):
  result = _task(('en', (_sentence(),)), exclude_punctuation=True).evaluate(
    eval_model
  )
  assert result.metrics['las/en'] == pytest.approx(2 / 3)
  assert 'punctuation is excluded' in result.notes[0]


def test_windows_of_long_sentences_form_one_tree(eval_model):
  """Rows of three tokens of text: `the dogs`, `bark .`; the first row's root
  is `dogs`, and `bark` becomes its dependent."""
  result = _task(
    (
      'en',
      (
        _sentence(),
        _sentence(
          forms=('bark',), heads=(0,), relations=('root',), tags=('VERB',)
        ),
      ),
    ),
    length=5,
  ).evaluate(eval_model)
  first, second = conllu.parse(result.files['en.conllu'])
  assert [(t['head'], t['deprel']) for t in first] == [
    (2, 'nsubj'),
    (0, 'root'),
    (2, 'nsubj'),
    (3, 'punct'),
  ]
  assert [t['head'] for t in second] == [0]
  assert 'en: 1 sentence exceeded the maximum length and was split' in (
    result.notes
  )


def test_eight_devices_equal_one(eval_model):
  task = _task(('en', (_sentence(), _sentence(id='1'))), ('fr', (_sentence(),)))
  sharded = dataclasses.replace(
    eval_model, partitioner=partitioning.Partitioner()
  )
  assert task.evaluate(sharded) == task.evaluate(eval_model)


def test_blind_and_invalid_parts_are_reported(eval_model):
  blind = dataclasses.replace(_sentence(), heads=None, relations=None)
  empty = dataclasses.replace(_sentence(id='3'), words=())
  result = _task(
    ('en', (_sentence(), blind)), ('fr', (empty,)), ('zh', (blind,))
  ).evaluate(eval_model)
  assert [f.part for f in result.failures] == ['fr']
  assert_mentions(result.failures[0], 3)
  assert result.metrics['las/en'] == 0.75 and 'las/zh' not in result.metrics
  assert set(result.files) == {'en.conllu', 'en.examples', 'zh.conllu'}
  assert (
    'en: 1 of 2 examples have no gold labels and are not scored' in result.notes
  )


def test_unknown_relations_count_as_wrong_or_are_rejected(eval_model):
  """Subtypes of known relations are accepted."""
  other = _sentence(relations=('clf', 'nsubj:x', 'root', 'punct'))
  result = _task(('zh', (other,))).evaluate(eval_model)
  assert result.metrics['las/zh'] == 0.75
  assert result.notes[1] == (
    'zh: labels that were not seen in training count as wrong: clf (1)'
  )
  result = _task(('zh', (other,)), unseen='error').evaluate(eval_model)
  message = result.failures[0].message
  assert_mentions(message, "'0'", "'en'", 'Got: clf')


def _is_tree(heads) -> bool:
  """Returns whether there is one root that all words reach."""
  if sum(head == 0 for head in heads) != 1:
    return False
  for word in range(1, len(heads) + 1):
    visited = set()
    while word and word not in visited:
      visited.add(word)
      word = heads[word - 1]
    if word:
      return False
  return True


def _best(scores):
  count = len(scores) - 1
  word_numbers = np.arange(1, count + 1)
  return max(
    (
      heads
      for heads in itertools.product(range(count + 1), repeat=count)
      if _is_tree(heads)
    ),
    key=lambda heads: scores[word_numbers, list(heads)].sum(),
  )


def test_decode_tree_docstring_example():
  scores = np.array([[0, 0, 0], [1, 0, 5], [3, 2, 0]])
  assert parsing_task.decode_tree(scores).tolist() == [2, 0]


@pytest.mark.parametrize('seed', range(12))
def test_decode_tree_equals_brute_force(seed):
  rng = np.random.default_rng(seed)
  scores = rng.normal(0, 5, (5, 5))
  scores[:, 0] += 4 * (seed % 2)  # high scores of several roots
  assert tuple(parsing_task.decode_tree(scores)) == _best(scores)


def test_decode_tree_with_one_word_and_impossible_arcs():
  assert parsing_task.decode_tree(np.full((2, 2), -np.inf)).tolist() == [0]
  scores = np.log(
    np.array([[1, 1, 1, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0.5, 0, 0.5, 0]])
    + 1e-300
  )
  scores[0] = np.inf  # This row is ignored.
  with np.errstate(all='raise'):
    assert parsing_task.decode_tree(scores).tolist() == [2, 0, 2]
