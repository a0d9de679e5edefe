"""Tests of the XTREME tasks and their files."""

import pathlib

import pytest

from tests.data.supervised import xtreme_files
from tests.errors import raises_error
from xlflax.data.supervised.sources import xtreme, xtreme_tasks
from xlflax.utils import errors


@pytest.fixture
def folder(tmp_path):
  return xtreme_files.write(tmp_path / 'download')


def test_languages_equal_those_of_the_paper():
  """Table 1 of the paper lists the number of languages of each task."""
  assert {name: len(task.languages) for name, task in xtreme.TASKS.items()} == {
    'xnli': 15,
    'pawsx': 7,
    'udpos': 33,
    'panx': 40,
    'xquad': 11,
    'mlqa': 7,
    'tydiqa': 9,
    'bucc2018': 4,
    'tatoeba': 36,
  }
  everything = {
    language for task in xtreme.TASKS.values() for language in task.languages
  }
  assert len(everything) == 40  # Hu et al. 2020, abstract.
  assert set(xtreme.TASKS['panx'].languages) == everything
  assert {'ms', 'my', 'yo', 'en'} == everything - set(
    xtreme.TASKS['tatoeba'].languages
  )


def test_xtreme_r_languages_equal_its_evaluation_script():
  """See `evaluate.py` of XTREME-R."""
  sizes = {n: len(task.languages) for n, task in xtreme_tasks.R_TASKS.items()}
  assert sizes == {
    'xnli': 15,
    'udpos': 38,
    'panx': 48,
    'xquad': 12,
    'mlqa': 7,
    'tydiqa': 9,
    'tatoeba': 41,
    'xcopa': 11,
  }
  assert len(xtreme_tasks.RANKED['mewslix'][1]) == 11
  with raises_error(errors.ConfigError, got=2, mentions='XTREME'):
    xtreme.find_xtreme_task('xnli', '2')


def test_choices_with_all_zero_labels_are_blind(tmp_path):
  line = '{"premise": "p", "question": "cause", "choice1": "a", "choice2": "b"'
  for name, labels in {'val-en': (0, 1), 'test-sw': (0, 0)}.items():
    path = tmp_path / 'xcopa' / f'{name}.jsonl'
    path.parent.mkdir(exist_ok=True)
    path.write_text(''.join(f'{line}, "label": {x}}}\n' for x in labels))

  def load(split, part):
    source = xtreme.xtreme_examples(
      str(tmp_path), 'xcopa', split, version=xtreme_tasks.XTREME_R
    )
    return [example.is_blind for example in source.load(part)]

  assert load('validation', 'en') == [False] * 4
  assert load('test', 'sw') == [True] * 4


def test_xtreme_rankings(tmp_path):
  (tmp_path / 'mewslix/ranked/dev').mkdir(parents=True)
  rankings = xtreme.xtreme_rankings(str(tmp_path), 'mewslix', 'dev')
  assert rankings.directory == str(tmp_path / 'mewslix/ranked/dev')
  with raises_error(errors.CorpusError, where='ranked'):
    xtreme.xtreme_rankings(str(tmp_path), 'lareqa')
  with raises_error(errors.ConfigError, got='xnli'):
    xtreme.xtreme_rankings(str(tmp_path), 'xnli')


@pytest.mark.parametrize(
  'task, split, part, texts, labels',
  [
    ('xnli', 'train', 'en', ['a', 'c "d"'], ['neutral', 'entailment']),
    ('xnli', 'test', 'ur', ['ایک', 'تین'], [None, None]),
    ('pawsx', 'test', 'ko', ['하나'], [None]),
  ],
)
def test_classification_examples(folder, task, split, part, texts, labels):
  examples = xtreme.xtreme_examples(folder, task, split).load(part)
  assert [e.text for e in examples] == texts
  assert [e.label for e in examples] == labels


def test_tagging_examples(folder):
  first, second = xtreme.xtreme_examples(folder, 'udpos', 'train').load('en')
  assert (first.words, first.tags) == (('a', 'cat'), ('DET', 'NOUN'))
  assert [
    e.tags for e in xtreme.xtreme_examples(folder, 'udpos').load('yo')
  ] == [None, None]
  assert xtreme.xtreme_examples(folder, 'panx').load('my')[0].words == ('ရန်ကုန်',)


def test_question_answering_examples(folder):
  for task in ('xquad', 'mlqa'):
    train = xtreme.xtreme_examples(folder, task, 'train')
    assert train.languages() == ('en',)
    assert train.load('en')[0].answers[0].text == 'kissa'
  assert [e.id for e in xtreme.xtreme_examples(folder, 'xquad').load('th')] == [
    'x1',
    'x2',
  ]
  assert xtreme.xtreme_examples(folder, 'tydiqa').load('fi')[0].answers == ()
  train = xtreme.xtreme_examples(folder, 'tydiqa', 'train')
  assert [e.id for e in train.load('en')] == ['1', '1#2']
  pairs = xtreme.mlqa_pairs(folder)
  assert pairs.languages() == ('hi-en', 'hi')
  assert pairs.load('hi-en')[0].question_language == 'en'


def test_mining_examples(folder):
  dev = xtreme.xtreme_examples(folder, 'bucc2018', 'validation')
  assert dev.languages() == ('ru-en',)
  assert dev.load('ru-en').gold == {('ru-1', 'en-1')}
  assert xtreme.xtreme_examples(folder, 'bucc2018').load('ru-en').gold is None
  shuffled = xtreme.xtreme_examples(folder, 'tatoeba').load('ka-en')
  assert shuffled.second == {'0': 'No.', '1': 'Yes.'}
  assert shuffled.gold is None


def test_gold_files_next_to_the_texts_are_read(folder):
  root = pathlib.Path(folder)
  (root / 'bucc2018/ru-en.test.gold').write_text('ru-1\ten-2\n')
  (root / 'tatoeba/ka-en.gold').write_text('1\n0\n')
  gold = {
    name: xtreme.xtreme_examples(folder, name).load(part).gold
    for name, part in (('bucc2018', 'ru-en'), ('tatoeba', 'ka-en'))
  }
  assert gold == {
    'bucc2018': {('ru-1', 'en-2')},
    'tatoeba': {('1', '0'), ('0', '1')},
  }


def test_parent_folder_is_accepted(folder):
  above = str(pathlib.Path(folder).parent)
  assert xtreme.find_xtreme_files(
    above, 'xnli', 'test'
  ) == xtreme.find_xtreme_files(folder, 'xnli', 'test')


def test_languages_can_be_selected(folder):
  chosen = xtreme.xtreme_examples(
    folder, 'xnli', languages=('ur',), max_examples=1
  )
  assert chosen.languages() == ('ur',)
  assert len(chosen.load('ur')) == 1
  assert xtreme.xtreme_examples(
    folder, 'bucc2018', languages=('ru',)
  ).languages() == ('ru-en',)


def test_languages_without_test_files_are_logged(folder, caplog):
  xtreme.xtreme_examples(folder, 'xnli', languages=('ur',))
  xtreme.xtreme_examples(folder, 'xnli', 'validation')
  assert not caplog.records
  xtreme.xtreme_examples(folder, 'xnli')
  (record,) = caplog.records
  assert record.levelname == 'WARNING'
  assert record.args[:3] == ('xnli', 13, 15)  # The files are en and ur.
  assert 'sw' in record.args[-1].split(', ')


def test_missing_files_are_reported(folder):
  notes = xtreme.describe_missing_files(folder, 'mlqa')
  assert notes == (
    'mlqa: no test data for ar, de, en, es, vi, zh (mlqa/MLQA_V1/test/'
    'test-context-<language>-question-<language>.json)',
  )
  with raises_error(
    errors.CorpusError,
    where=folder,
    mentions=(
      'sw',
      'test',
      'xnli/test-<language>',
      'xnli/test-<language>.tsv',
      'download_data.sh',
    ),
  ):
    xtreme.xtreme_examples(folder, 'xnli', languages=('ur', 'sw'))
  with raises_error(
    errors.CorpusError,
    mentions=('pawsx/dev-<language>', 'pawsx/dev-<language>.tsv'),
  ):
    xtreme.xtreme_examples(folder, 'pawsx', 'validation')
  with raises_error(errors.CorpusError, mentions='one of the splits test'):
    xtreme.xtreme_examples(folder, 'tatoeba', 'train')


def test_unknown_tasks_and_folders_are_rejected(folder, tmp_path):
  with raises_error(errors.ConfigError, got='xcopa', mentions='XTREME'):
    xtreme.xtreme_examples(folder, 'xcopa')
  with raises_error(
    errors.CorpusError,
    mentions=('scripts/download_data.sh', 'github.com/google-research/xtreme'),
  ):
    xtreme.xtreme_examples(str(tmp_path / 'nowhere'), 'xnli')
  with raises_error(errors.CorpusError, where='dev'):
    xtreme.mlqa_pairs(folder, 'validation')
