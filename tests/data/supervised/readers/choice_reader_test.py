"""Tests of the readers of multiple-choice data."""

import json

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised.readers import choice_reader
from xlflax.data.supervised.sources import example_source
from xlflax.utils import errors

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


def test_read_xcopa(write):
  lines = [_XCOPA, _XCOPA | {'question': 'effect', 'label': None}]
  path = write('a.jsonl', '\n'.join(map(json.dumps, lines)))
  first, second, third, _ = choice_reader.read_xcopa(path, 'en').examples
  assert (first.text, first.paired_text) == (
    'It is wet.',
    'What was the cause? Sun.',
  )
  assert (first.label, second.label, third.label) == ('wrong', 'right', None)
  assert (first.question, second.question, third.question) == ('0', '0', '1')
  assert third.paired_text == 'What was the effect? Sun.' and third.is_blind


@pytest.mark.parametrize(
  ('label', 'labels'),
  [
    ('1', ['wrong', 'right']),
    (0, ['right', 'wrong']),
    (-1, [None, None]),
    ('', [None, None]),
    (2, None),
    (True, None),
  ],
)
def test_xcopa_labels(write, label, labels):
  line = json.dumps(_XCOPA | {'label': label})
  path = write('a.jsonl', f'{json.dumps(_XCOPA)}\n{line}')
  if labels is None:
    with raises_error(errors.CorpusError, where='a.jsonl:2'):
      choice_reader.read_xcopa(path, 'en')
  else:
    choices = choice_reader.read_xcopa(path, 'en').examples[2:]
    assert [choice.label for choice in choices] == labels


def test_max_examples_keeps_complete_questions(write):
  path = write('a.jsonl', '\n'.join([json.dumps(_BELEBELE)] * 3))
  counts = {
    limit: len(
      example_source.FileDataset(
        files={'sw': path}, format='belebele', max_examples=limit
      ).load('sw')
    )
    for limit in (3, 4, 6, 11, 12, 99)
  }
  assert counts == {3: 0, 4: 4, 6: 4, 11: 8, 12: 12, 99: 12}


def test_read_belebele(write):
  path = write('a.jsonl', json.dumps(_BELEBELE))
  choices = choice_reader.read_belebele(path, 'sw').examples
  assert [choice.label for choice in choices] == [
    'wrong',
    'wrong',
    'right',
    'wrong',
  ]
  assert choices[2].paired_text == 'What? a3'


def test_blank_choices_are_rejected(write):
  path = write('a.jsonl', json.dumps(_XCOPA | {'choice2': ' '}))
  with raises_error(
    errors.CorpusError, where='a.jsonl:1', mentions=('choice2', 'choice1')
  ):
    choice_reader.read_xcopa(path, 'en')


def test_belebele_training_table(write):
  """The format of `assemble_training_set.py`: a TSV file of pandas with an index."""
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
  choices = choice_reader.read_belebele_training(
    path, 'en', split='train'
  ).examples
  right = [choice.label == 'right' for choice in choices]
  assert right == [False, True, False, False] * 2
  assert choices[1].text == 'He said "no".\n\nThen\\the left.'
  assert choices[1].paired_text == 'What\nnow? a2'
  all_choices = choice_reader.read_belebele_training(path, 'en').examples
  assert (
    len(all_choices) == 12
    and len({choice.question for choice in all_choices}) == 3
  )
  with raises_error(errors.CorpusError, where='a.tsv'):
    choice_reader.read_belebele_training(path, 'en', split='none')
  with raises_error(
    errors.CorpusError, where='b.tsv:2', mentions='correct_answer_num'
  ):
    choice_reader.read_belebele_training(write('b.tsv', 'passage\nx\n'), 'en')
  for answer in ('0', '5', '2.5', 'b'):
    path = write('c.tsv', head + rows.replace('a2\t2\n', f'a2\t{answer}\n'))
    with raises_error(errors.CorpusError, mentions='1 to 4'):
      choice_reader.read_belebele_training(path, 'en')
  path = write('d.tsv', head + rows.replace('a2\t2\n', 'a2\t2.0\n'))
  assert len(choice_reader.read_belebele_training(path, 'en').examples) == 12


_STORY = (
  'InputStoryid\tInputSentence1\tInputSentence2\tInputSentence3\t'
  'InputSentence4\tRandomFifthSentenceQuiz1\tRandomFifthSentenceQuiz2\t'
  'AnswerRightEnding\r\n'
  'a-1\tOne.\t"""Two,"" he said."\tA 5" disc.\tFour.\tFive.\tSix.\t1\r\n'
  'b-2\t"One\ttab."\tTwo.\tThree.\t "Four."\tFive.\tSix.\t2\r\n'
  'c-3\ttoo few\t1\r\n'
  '\r\n'
)


def test_xstory_cloze_equals_the_published_loader(write):
  # csv.reader(delimiter='\t', quotechar='"', skipinitialspace=True), rows of
  # eight fields, of juletxara/xstory_cloze; texts joined as by the harness.
  path = write('a.tsv', _STORY)
  reading = choice_reader.read_xstory_cloze(path, 'sw')
  assert [(x.id, x.text, x.paired_text, x.label) for x in reading.examples] == [
    ('a-1#0', 'One. "Two," he said. A 5" disc. Four.', 'Five.', 'right'),
    ('a-1#1', 'One. "Two," he said. A 5" disc. Four.', 'Six.', 'wrong'),
    ('b-2#0', 'One\ttab. Two. Three. Four.', 'Five.', 'wrong'),
    ('b-2#1', 'One\ttab. Two. Three. Four.', 'Six.', 'right'),
  ]
  (problem,) = reading.problems
  assert_mentions(problem, 'a.tsv:4', 3)
  for wrong in ('3', 'x'):
    row = f's\t1\t2\t3\t4\t5\t6\t{wrong}\n'
    with raises_error(errors.CorpusError, where='b.tsv:2', mentions=1):
      choice_reader.read_xstory_cloze(write('b.tsv', 'header\n' + row), 'sw')
  blind = write('c.tsv', 'header\ns\t1\t2\t3\t4\t5\t6\t\n')
  assert all(
    x.is_blind for x in choice_reader.read_xstory_cloze(blind, 'sw').examples
  )


def test_xwinograd_equals_the_evaluation_harness(write):
  line = {
    'sentence': 'A sued B because _ was hurt; _ won.',
    'option1': 'A',
    'option2': 'B',
    'answer': '2',
  }
  ja = line | {'sentence': '太郎は次郎に_が勝ったと言った。', 'answer': ''}
  text = '\n'.join(
    json.dumps(record, ensure_ascii=False) for record in (line, ja)
  )
  choices = choice_reader.read_xwinograd(write('a.jsonl', text), 'en').examples
  assert [(x.text, x.paired_text, x.label) for x in choices] == [
    ('A sued B because A', 'was hurt; _ won.', 'wrong'),
    ('A sued B because B', 'was hurt; _ won.', 'right'),
    ('太郎は次郎にA', 'が勝ったと言った。', None),
    ('太郎は次郎にB', 'が勝ったと言った。', None),
  ]
  for change, values in (
    ({'sentence': 'none'}, '_'),
    ({'answer': '0'}, (1, 2)),
    ({'option1': ''}, 'option1'),
  ):
    path = write('b.jsonl', json.dumps(line | change))
    with raises_error(errors.CorpusError, mentions=values):
      choice_reader.read_xwinograd(path, 'en')
