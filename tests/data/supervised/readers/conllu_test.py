"""Tests of the CoNLL-U reader."""

import conllu as library
import pytest

from tests.errors import raises_error
from xlflax.data.supervised.readers import conllu
from xlflax.utils import errors


def _line(number, form, tag='NOUN', head='0', relation='root') -> str:
  return (
    '\t'.join(
      (str(number), form, form, tag, '_', '_', str(head), relation, '_', '_')
    )
    + '\n'
  )


_TREE = (
  '# sent_id = fr-1\n# text = Du pain là.\n'
  + _line('1-2', 'Du', '_', '_', '_')
  + _line(1, 'de', 'ADP', 3, 'case')
  + _line(2, 'le', 'DET', 3, 'det')
  + _line(3, 'pain', 'NOUN', 0, 'root')
  + _line('3.1', 'est', 'VERB', '_', '_')
  + _line(4, 'là', 'ADV', 3, 'advmod:loc')
  + '\n'
)
_TWO = _TREE + _line(1, '猫', 'NOUN', 2, 'nsubj') + _line(2, 'いる', 'VERB')


def test_read_trees(write):
  first, second = conllu.read_trees(write('a.conllu', _TWO), 'fr').examples
  assert first.id == 'fr-1' and second.id == '1'
  assert first.words == ('de', 'le', 'pain', 'là')
  assert first.tags == ('ADP', 'DET', 'NOUN', 'ADV')
  assert first.heads == (3, 3, 0, 3)
  assert first.relations == ('case', 'det', 'root', 'advmod:loc')
  assert second.words == ('猫', 'いる') and second.heads == (2, 0)
  assert (first.multiwords, second.multiwords) == (('1-2 Du',), ())


def test_predictions_keep_multiword_tokens(write):
  """The CoNLL 2018 scorer requires the same text in both files."""
  examples = conllu.read_trees(write('a.conllu', _TWO), 'fr').examples
  text = examples[0].write_predictions(examples, examples)
  again = conllu.read_trees(write('b.conllu', text), 'fr').examples
  assert [e.multiwords for e in again] == [('1-2 Du',), ()]
  assert [e.words for e in again] == [e.words for e in examples]
  assert text.splitlines()[1].split('\t')[:3] == ['1-2', 'Du', '_']
  assert examples[0].read_predictions(examples, text) == examples


def test_subtypes_can_be_dropped(write):
  first, _ = conllu.read_trees(
    write('a.conllu', _TWO), 'fr', keep_subtypes=False
  ).examples
  assert first.relations == ('case', 'det', 'root', 'advmod')


def test_parts_of_speech_need_no_tree(write):
  text = _line(1, 'Да', 'PART', '_', '_') + _line(2, '.', 'PUNCT', '_', '_')
  path = write('a.conllu', text)
  (example,) = conllu.read_tags(path, 'ru').examples
  assert (example.words, example.tags) == (('Да', '.'), ('PART', 'PUNCT'))
  (blind,) = conllu.read_trees(path, 'ru').examples
  assert blind.heads is None and blind.relations is None
  untagged = write('b.conllu', text.replace('PART', '_').replace('PUNCT', '_'))
  assert conllu.read_tags(untagged, 'ru').examples[0].tags is None


def test_double_spaces_do_not_separate_columns(write):
  text = _line(1, 'a  b').replace('\t_\n', '\tGloss=c  d\n')
  (example,) = conllu.read_trees(write('a.conllu', text), 'xx').examples
  assert (example.words, example.tags) == (('a b',), ('NOUN',))


def test_agrees_with_the_conllu_library(write):
  examples = conllu.read_trees(write('a.conllu', _TWO), 'fr').examples
  for example, tokens in zip(examples, library.parse(_TWO), strict=True):
    tokens = tokens.filter(id=lambda number: isinstance(number, int))
    assert example.words == tuple(t['form'] for t in tokens)
    assert example.heads == tuple(t['head'] for t in tokens)
    assert example.relations == tuple(t['deprel'] for t in tokens)
    assert example.tags == tuple(t['upos'] for t in tokens)


@pytest.mark.parametrize(
  'text, values',
  [
    ('1\tde\n', ('1\\tde', 2, 10, 'bad.conllu:1')),
    (_line(1, 'a').replace('root', ' '), (8, 'bad.conllu:1')),
    (_line(1, 'a') + _line(3, 'b', head=1), (3, 'bad.conllu:2')),
    (_line('2-3', 'ab') + _line(1, 'a'), ('2-3', 1, 'bad.conllu:1')),
    (_line('2.1', 'ab'), ('2.1', 2, 'bad.conllu:1')),
    (_line(1, 'a', head=4) + _line(2, 'b'), (4, 0, 2, 'bad.conllu:1')),
    (_line(1, 'a', head=1), 'bad.conllu:1'),
    (_line(1, 'a', head='_') + _line(2, 'b'), 'bad.conllu:1'),
    (_line(1, 'a') + _line(2, 'b'), (0, 'bad.conllu:2')),
    (_line(1, 'a', head=2) + _line(2, 'b', head=1), (0, 'bad.conllu:2')),
    (
      _line(1, 'a') + _line(2, 'b', head=3) + _line(3, 'c', head=2),
      (3, 'bad.conllu:2'),
    ),
    ('x' + _line('', 'a'), ('x', 'id', 'bad.conllu:1')),
    (_line(1, 'a', head='b'), ('b', 'head', 'parse_int_value', 'bad.conllu:1')),
    (_line('2-1', 'ab'), ('2-1', 'id', 'bad.conllu:1')),
    ('# nothing\n', 'bad.conllu'),
  ],
)
def test_malformed_files_are_reported_by_line(write, text, values):
  with raises_error(errors.CorpusError, mentions=values):
    conllu.read_trees(write('bad.conllu', text), 'xx')


def test_partially_tagged_sentences_are_rejected(write):
  text = _line(1, 'a') + _line(2, 'b', '_', 1)
  with raises_error(errors.CorpusError, where='a.conllu:2', mentions='b'):
    conllu.read_tags(write('a.conllu', text), 'xx')
