"""Tests of the prediction files for XTREME's leaderboard."""

import json

import pytest

from tests.errors import raises_error
from xlflax.data.supervised import labeled_examples, xtreme_submission
from xlflax.data.supervised.sources import xtreme
from xlflax.utils import errors

_TEXTS = [
  labeled_examples.ClassifiedText(id=str(i), language='ur', text='ایک')
  for i in range(2)
]
_SENTENCES = [
  labeled_examples.TaggedSentence(id='0', language='yo', words=('ẹ', 'ni')),
  labeled_examples.TaggedSentence(id='1', language='yo', words=('bẹ́ẹ̀',)),
]
_QUESTIONS = [
  labeled_examples.Question(id=name, language='th', question='?', context='กข')
  for name in ('q2', 'q1')
]
_MINED = labeled_examples.BitextSentences(
  languages=('ka', 'en'),
  first={'0': 'კი', '1': 'არა'},
  second={'0': 'No.', '1': 'Nay.', '2': 'Yes.'},
)


def test_write_predictions():
  assert labeled_examples.ClassifiedText.write_predictions(
    _TEXTS, ['neutral', 'entailment']
  ) == ('neutral\nentailment\n')
  assert labeled_examples.TaggedSentence.write_predictions(
    _SENTENCES, [('PRON', 'AUX'), ('INTJ',)]
  ) == ('PRON\nAUX\n\nINTJ\n')
  text = labeled_examples.Question.write_predictions(
    _QUESTIONS, {'q1': 'ข', 'q2': 'ก'}
  )
  assert 'ก' in text
  assert list(json.loads(text).items()) == [('q2', 'ก'), ('q1', 'ข')]
  assert _MINED.write_pairs([('1', '0'), ('0', '1'), ('0', '1')]) == (
    '0\t1\n1\t0\n'
  )
  assert _MINED.write_nearest([1, 0, 0]) == '1\n0\n0\n'  # English questions


def test_file_names():
  assert xtreme_submission.file_name('xnli', 'ur') == 'xnli/test-ur.tsv'
  assert xtreme_submission.file_name('tydiqa', 'fi') == 'tydiqa/test-fi.json'
  assert (
    xtreme_submission.file_name('bucc2018', 'ru-en') == 'bucc2018/test-ru.tsv'
  )
  with raises_error(errors.ConfigError, got='ur', mentions=('de', 'en', 'es')):
    xtreme_submission.file_name('pawsx', 'ur')


def test_xtreme_r_files(tmp_path):
  assert xtreme_submission.file_name('xcopa', 'qu', 'xtreme-r') == (
    'xcopa/test-qu.jsonl'
  )
  run = 'm1 Q0 Q64 1 0.9 x\nm1 Q0 Q90 2 0.8 x\nm2 Q0 Q1 1 0.7 x\n'
  assert json.loads(xtreme_submission.entities_json(run, count=1)) == {
    'm1': ['Q64'],
    'm2': ['Q1'],
  }
  name = xtreme_submission.file_name('mewslix', 'uk', 'xtreme-r')
  missing_files = xtreme_submission.write_submission(
    str(tmp_path), {name: '{}'}, 'xtreme-r'
  )
  assert name == 'mewslix/test-uk.json' not in missing_files
  assert 'panx/test-qu.tsv' in missing_files and len(missing_files) == 181 + 10


def test_write_submission_returns_missing_files(tmp_path):
  name = xtreme_submission.file_name('xnli', 'ur')
  missing_files = xtreme_submission.write_submission(
    str(tmp_path),
    {
      name: labeled_examples.ClassifiedText.write_predictions(
        _TEXTS, ['neutral', 'neutral']
      )
    },
  )
  assert (tmp_path / name).read_text() == 'neutral\nneutral\n'
  assert (
    len(missing_files)
    == sum(len(task.languages) for task in xtreme.TASKS.values()) - 1
  )
  assert name not in missing_files and 'xquad/test-th.json' in missing_files


@pytest.mark.parametrize(
  'make, values',
  [
    (
      lambda: labeled_examples.ClassifiedText.write_predictions(
        _TEXTS, ['neutral']
      ),
      (2, 1),
    ),
    (
      lambda: labeled_examples.TaggedSentence.write_predictions(
        _SENTENCES, [('X', 'X')]
      ),
      1,
    ),
    (
      lambda: labeled_examples.TaggedSentence.write_predictions(
        _SENTENCES, [('X',), ('X',)]
      ),
      (2, 1, 0),
    ),
    (
      lambda: labeled_examples.Question.write_predictions(
        _QUESTIONS, {'q2': 'ก'}
      ),
      (1, 2, 'q1'),
    ),
    (lambda: _MINED.write_pairs([('0', '7')]), ('id', '0 7')),
    (lambda: _MINED.write_nearest([0]), (3, 1)),
    (lambda: _MINED.write_nearest([0, 1, 2]), (0, 1, 2)),
  ],
)
def test_mismatched_predictions_are_rejected(make, values):
  with raises_error(errors.CorpusError, mentions=values):
    make()
