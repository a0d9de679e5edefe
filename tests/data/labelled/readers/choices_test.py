"""XCOPA and Belebele."""

import json

import pytest

from xlflax.data.labelled.readers import choices
from xlflax.foundation import errors

_XCOPA = {
  'premise': 'It is wet.',
  'question': 'cause',
  'choice1': 'Sun.',
  'choice2': 'Rain.',
  'label': 1,
}
_BELEBELE = {
  'flores_passage': 'It is wet.',
  'question': 'What?',
  'correct_answer_num': '3',
  **{f'mc_answer{i}': f'a{i}' for i in range(1, 5)},
}


def test_xcopa(write):
  lines = [_XCOPA, _XCOPA | {'question': 'effect', 'label': None}]
  path = write('a.jsonl', '\n'.join(map(json.dumps, lines)))
  first, second, third, _ = choices.read_xcopa(path, 'en').examples
  assert (first.text, first.paired_text) == (
    'It is wet.',
    'What was the cause? Sun.',
  )
  assert (first.label, second.label, third.label) == ('wrong', 'right', None)
  assert (first.question, second.question, third.question) == ('0', '0', '1')
  assert third.paired_text == 'What was the effect? Sun.' and third.is_blind


def test_belebele(write):
  path = write('a.jsonl', json.dumps(_BELEBELE))
  found = choices.read_belebele(path, 'sw').examples
  assert [one.label for one in found] == ['wrong', 'wrong', 'right', 'wrong']
  assert found[2].paired_text == 'What? a3'


def test_a_choice_without_text(write):
  path = write('a.jsonl', json.dumps(_XCOPA | {'choice2': ' '}))
  with pytest.raises(errors.CorpusError, match='text of the key choice2.*:1'):
    choices.read_xcopa(path, 'en')


def test_the_training_table_of_belebele(write):
  """As `assemble_training_set.py` writes it: pandas' TSV with an index."""
  head = (
    '\tdataset\tsplit\tpassage_id\tquestion_id\tpassage\tquestion\tanswer1'
    '\tanswer2\tanswer3\tanswer4\tcorrect_answer\tcorrect_answer_num\n'
  )
  rows = ''.join(
    f'{number}\tRACE\t{split}\thigh1.txt\t{number}\t'
    '"He said ""no"".\n\nThen\\the left."\t"What\nnow?"\t'
    'a1\ta2\ta3\ta4\ta2\t2\n'
    for number, split in enumerate(('train', 'train', 'dev'))
  )
  path = write('a.tsv', head + rows)
  found = choices.read_belebele_training(path, 'en', split='train').examples
  right = [one.label == 'right' for one in found]
  assert right == [False, True, False, False] * 2
  assert found[1].text == 'He said "no".\n\nThen\\the left.'
  assert found[1].paired_text == 'What\nnow? a2'
  whole = choices.read_belebele_training(path, 'en').examples
  assert len(whole) == 12 and len({one.question for one in whole}) == 3
  with pytest.raises(errors.CorpusError, match='no labelled examples'):
    choices.read_belebele_training(path, 'en', split='none')
  with pytest.raises(errors.CorpusError, match='correct_answer_num'):
    choices.read_belebele_training(write('b.tsv', 'passage\nx\n'), 'en')
