"""Tests of reading GLUE's files in the published format."""

import pytest

from tests.errors import raises_error
from xlflax.tasks import glue
from xlflax.utils import errors

_MNLI = 'index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 sentence2 label1'
_FILES = {  # task: split, columns of two lines, what is read
  'cola': (
    'CoLA/dev',
    ['gj04', '0', '*', 'They "left'],
    ('They "left', None, '0'),
  ),
  'sst2': (
    'SST-2/train',
    ['sentence', 'label'],
    ['so bad ', '0'],
    ('so bad', None, '0'),
  ),
  'mrpc': (
    'MRPC/dev',
    ['Quality', '#1 ID', '#2 ID', '#1 String', '#2 String'],
    ['1', '13', '56', 'He said "no', 'He did .'],
    ('He said "no', 'He did .', '1'),
  ),
  'stsb': (
    'STS-B/dev',
    'index genre filename year old_index source1 source2 sentence1 sentence2 score'.split(),
    [
      '0',
      'main',
      'MSR',
      '2012',
      '1',
      'none',
      'none',
      'A "man',
      'A cat',
      '3.75',
    ],
    ('A "man', 'A cat', 3.75),
  ),
  'qqp': (
    'QQP/dev',
    'id qid1 qid2 question1 question2 is_duplicate'.split(),
    ['1', '2', '3', 'Why so ?', 'How so ?', '0'],
    ('Why so ?', 'How so ?', '0'),
  ),
  'mnli': (
    'MNLI/train',
    [*_MNLI.split(), 'gold_label'],
    [*'abcdefgh', 'It is .', 'Is it ?', 'neutral', 'neutral'],
    ('It is .', 'Is it ?', 'neutral'),
  ),
  'mnli_mm': (
    'MNLI/dev_mismatched',
    [*_MNLI.split(), *'2345', 'gold_label'],
    [*'abcdefgh', 'It is .', 'Is it ?', *'12345', 'entailment'],
    ('It is .', 'Is it ?', 'entailment'),
  ),
  'qnli': (
    'QNLI/dev',
    'index question sentence label'.split(),
    ['0', 'Who is it ?', 'It is me .', 'not_entailment'],
    ('Who is it ?', 'It is me .', 'not_entailment'),
  ),
  'rte': (
    'RTE/dev',
    'index sentence1 sentence2 label'.split(),
    ['0', 'It is me .', 'It is .', 'entailment'],
    ('It is me .', 'It is .', 'entailment'),
  ),
  'wnli': (
    'WNLI/dev',
    'index sentence1 sentence2 label'.split(),
    ['0', 'It is me .', 'It is .', '1'],
    ('It is me .', 'It is .', '1'),
  ),
}


@pytest.mark.parametrize('name', glue.TASKS)
def test_files_of_each_task_are_read(name, tmp_path):
  path, *lines, expected = _FILES[name]
  file = tmp_path / f'{path}.tsv'
  file.parent.mkdir()
  file.write_text(''.join('\t'.join(line) + '\n' for line in lines))
  split = 'train' if path.endswith('train') else 'dev'
  (example,) = glue.examples(str(tmp_path), name, split).load('en')
  gold = example.score if name == 'stsb' else example.label
  assert (example.text, example.paired_text, gold) == expected


def test_unknown_tasks_and_splits_are_rejected():
  with raises_error(errors.ConfigError, got='sts-b'):
    glue.examples('folder', 'sts-b')
  with raises_error(errors.ConfigError, got='test'):
    glue.examples('folder', 'stsb', 'test')
