"""Tests of the reader of rated text pairs."""

import pytest

from tests.errors import raises_error
from xlflax.data.supervised.readers import similarity_reader
from xlflax.utils import errors


def test_read_rated_pairs(write):
  path = write('sts.tsv', 'It rains.\tIt pours.\t3.5\nA\tB\t\n')
  first, second = similarity_reader.read_rated_pairs(path, 'en').examples
  assert (first.text, first.paired_text) == ('It rains.', 'It pours.')
  assert first.score == 3.5 and second.is_blind


def test_label_names_are_mapped_to_scores(write):
  path = write('a.tsv', 'a\tb\tyes\nc\td\tno\n')
  pairs = similarity_reader.read_rated_pairs(
    path, 'en', labels={'yes': '1', 'no': '0'}
  ).examples
  assert [pair.score for pair in pairs] == [1, 0]


@pytest.mark.parametrize(
  'text, values', [('a\tb\tmany\n', 'many'), ('a\tb\tnan\n', 'nan')]
)
def test_non_numeric_scores_are_rejected(write, text, values):
  with raises_error(errors.CorpusError, mentions=values, where='a.tsv:1'):
    similarity_reader.read_rated_pairs(write('a.tsv', text), 'en')
