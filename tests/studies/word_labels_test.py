"""Tests of transferring labels of Chinese characters to words."""

import pytest

from studies.papers import word_labels


def test_words_receive_the_labels_of_their_characters():
  labels = word_labels.transfer_labels(
    '我在北京大学学习',
    ['O', 'O', 'B-ORG', 'I-ORG', 'I-ORG', 'I-ORG', 'O', 'O'],
    ['我', '在', '北京', '大学', '学习'],
  )
  assert labels == [
    ('我', 'O'),
    ('在', 'O'),
    ('北京', 'B-ORG'),
    ('大学', 'I-ORG'),
    ('学习', 'O'),
  ]


def test_words_are_split_at_entities():
  labels = word_labels.transfer_labels(
    '王明说上海',
    ['B-PER', 'I-PER', 'O', 'B-LOC', 'I-LOC'],
    ['王', '明说', '上海'],
  )
  assert labels == [
    ('王', 'B-PER'),
    ('明', 'I-PER'),
    ('说', 'O'),
    ('上海', 'B-LOC'),
  ]


def test_adjacent_entities_are_separated():
  labels = word_labels.transfer_labels(
    ['2006', '年', '京', '沪'],
    ['O', 'O', 'B-LOC', 'B-LOC'],
    ['20', '06年', '京沪'],
  )
  assert labels == [('2006年', 'O'), ('京', 'B-LOC'), ('沪', 'B-LOC')]


def test_label_files_are_converted():
  lines = ['北 B-LOC', '京 I-LOC', '', '好\tO']
  labels = list(word_labels.convert(lines, lambda text: [text]))
  assert labels == ['北京\tB-LOC', '', '好\tO']


def test_words_that_do_not_match_the_characters_are_rejected():
  with pytest.raises(ValueError, match='京'):
    word_labels.transfer_labels(['北', '京'], ['O', 'O'], ['北'])
