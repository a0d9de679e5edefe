"""Tests of the SQuAD reader."""

import json
import re

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import squad
from xlflax.utils import errors

_CONTEXT = 'Ομήρου Ιλιάς: η μήνις. Ομήρου Οδύσσεια.'


def _asked(name, *answers, question='τί;') -> dict:
  return {
    'id': name,
    'question': question,
    'answers': [
      {'text': text, 'answer_start': start} for text, start in answers
    ],
  }


def _file(write, *asked, context=_CONTEXT, **article) -> str:
  return write(
    'q.json',
    json.dumps(
      {
        'version': '1.1',
        'data': [
          {'paragraphs': [{'context': context, 'qas': list(asked)}]} | article
        ],
      }
    ),
  )


def test_questions_have_all_answers(write):
  path = _file(
    write, _asked('q1', ('Ιλιάς', 7), ('Ομήρου Ιλιάς', 0)), title='Όμηρος'
  )
  (example,) = squad.read_squad(path, 'el', question_language='en').examples
  assert example == labeled_examples.Question(
    id='q1',
    language='el',
    question_language='en',
    question='τί;',
    context=_CONTEXT,
    title='Όμηρος',
    answers=(
      labeled_examples.Answer('Ιλιάς', 7),
      labeled_examples.Answer('Ομήρου Ιλιάς', 0),
    ),
  )
  (second_question,) = squad.read_squad(
    path, 'el', question_language='el'
  ).examples
  assert second_question.question_language is None


def test_answers_that_do_not_match_are_moved_and_listed(write):
  path = _file(
    write,
    _asked('q1', ('Ομήρου', 20), ('Virgil', 3)),
    _asked('q2', ('Ιλιάς', 7)),
  )
  reading = squad.read_squad(path, 'el')
  assert reading.examples[0].answers == (
    labeled_examples.Answer('Ομήρου', 23),
    labeled_examples.Answer('Virgil', -1),
  )
  moved, missing = reading.problems
  assert_mentions(moved, path, 'q1', 'ς. Ομή', 20, 'Ομήρου', 23)
  assert_mentions(missing, path, 'q1', 'ρου Ιλ', 3, 'Virgil')


@pytest.mark.parametrize(
  'encoding, size, unit',
  [('utf-8', 1, 'UTF-8 bytes'), ('utf-16-le', 2, 'UTF-16 code units')],
)
def test_offsets_in_other_units_are_converted(
  write, caplog, encoding, size, unit
):
  """The nearest occurrence of the text would be another one."""
  context = '😀😀 Ο Όμηρος και ο Όμηρος. Ομηρικά έπη: ο Όμηρος τα έγραψε.'
  starts = [m.start() for m in re.finditer('Όμηρος', context)]
  offsets = [len(context[:i].encode(encoding)) // size for i in starts]
  questions = [
    {
      'id': f'q{i}',
      'question': 'Ποιος;',
      'answers': [{'text': 'Όμηρος', 'answer_start': offset}],
    }
    for i, offset in enumerate(offsets)
  ]
  paragraphs = [{'context': context, 'qas': questions}]
  path = write('units.json', json.dumps({'data': [{'paragraphs': paragraphs}]}))
  reading = squad.read_squad(path, 'el')
  assert [q.answers[0].start for q in reading.examples] == starts
  assert len(reading.problems) == 3
  (warning,) = caplog.messages
  assert_mentions(warning, path, 3, 'answer_start', unit)


def test_a_few_wrong_offsets_cause_no_warning(write, caplog):
  squad.read_squad(_file(write, _asked('q1', ('Ομήρου', 20))), 'el')
  assert not caplog.messages


@pytest.mark.parametrize('answers', [(), (('', 0),)])
def test_files_without_answers_are_blind(write, answers):
  path = _file(write, _asked('a', *answers), _asked('b', *answers))
  reading = squad.read_squad(path, 'el')
  assert [e.answers for e in reading.examples] == [(), ()]
  assert not reading.problems


def test_unanswered_questions_are_skipped_in_squad_v1(write):
  path = _file(write, _asked('a'), _asked('b', ('η', 14)))
  reading = squad.read_squad(path, 'el')
  assert [e.id for e in reading.examples] == ['b']
  (problem,) = reading.problems
  assert_mentions(problem, path, 'a')


def test_unanswerable_questions_are_kept_in_squad_v2(write):
  path = _file(write, _asked('a'), _asked('b', ('η', 14)))
  questions = file_formats.read_files('squad_v2', path, 'el').examples
  assert [e.is_unanswerable for e in questions] == [True, False]
  assert questions[0].answers == (labeled_examples.UNANSWERABLE,)
  assert not questions[0].is_blind
  again = labeled_examples.Question.from_columns(
    questions[0].to_columns(), number=0, languages=('el',), where='here'
  )
  assert again == questions[0]
  blind = file_formats.read_files('squad_v2', _file(write, _asked('a')), 'el')
  assert blind.examples[0].is_blind


def test_repeated_ids_get_a_number(write):
  path = _file(write, *[_asked(7, ('η', 14)) for _ in range(3)])
  reading = squad.read_squad(path, 'el')
  assert [e.id for e in reading.examples] == ['7', '7#2', '7#3']
  (problem,) = reading.problems
  assert_mentions(problem, path, 2)


def test_invalid_json_is_rejected(write):
  path = write('q.json', '{"data": [\n{"paragraphs": ]}')
  with raises_error(errors.CorpusError, where='q.json:2', mentions='JSON'):
    squad.read_squad(path, 'en')


@pytest.mark.parametrize(
  'value, values',
  [
    ({'items': []}, ('data', 'q.json:top level')),
    (
      {'data': [{'paragraphs': [{'qas': []}]}]},
      ('context', 'q.json:data[0].paragraphs[0]'),
    ),
    (
      {
        'data': [
          {
            'paragraphs': [
              {
                'context': 'c',
                'qas': [
                  {'id': 'x', 'question': 'q', 'answers': [{'text': 'c'}]}
                ],
              }
            ]
          }
        ]
      },
      ('answer_start', 'q.json:data[0].paragraphs[0].qas[0].answers[0]'),
    ),
    ({'data': []}, 'q.json'),
  ],
)
def test_missing_fields_are_reported(write, value, values):
  with raises_error(errors.CorpusError, mentions=values):
    squad.read_squad(write('q.json', json.dumps(value)), 'en')
