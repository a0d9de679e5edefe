import dataclasses

import numpy as np
import pytest

from tests.errors import raises_error
from tests.finetuning import grid_report_test
from xlflax.finetuning import transfer_matrix
from xlflax.utils import errors


@pytest.fixture
def matrix():
  reports = {
    language: grid_report_test.with_test(
      grid_report_test.make_report(_1=[0.5]), 0, **scores
    )
    for language, scores in {
      'en': dict(en=0.9, fr=0.7, ja=0.5, mean=0.7),
      'fr': dict(en=0.6, fr=0.8),
    }.items()
  }
  (result,) = transfer_matrix.transfer_matrices(reports)
  return result


def test_matrix_has_training_and_test_languages(matrix):
  assert (matrix.metric, matrix.rows) == ('nli/accuracy', ('en', 'fr'))
  assert matrix.columns == ('en', 'fr', 'ja')
  np.testing.assert_allclose(
    matrix.scores, [[0.9, 0.7, 0.5], [0.6, 0.8, np.nan]]
  )
  np.testing.assert_allclose(matrix.gaps, [0.3, np.nan])


def test_write_matrices(matrix, tmp_path):
  table, picture = transfer_matrix.write_matrices(tmp_path, [matrix])
  assert table.read_text() == (
    'train,en,fr,ja,gap\n'
    'en,0.900000,0.700000,0.500000,0.300000\n'
    'fr,0.600000,0.800000,,\n'
  )
  assert picture.name == 'directions.nli.png'
  assert picture.read_bytes().startswith(b'\x89PNG')
  axes = transfer_matrix.plot_matrix(matrix).axes[0]
  assert sorted(text.get_text() for text in axes.texts) == [
    '50.0',
    '60.0',
    '70.0',
    '80.0',
    '90.0',
  ]


def test_missing_scores_have_no_plot(matrix, tmp_path):
  empty = dataclasses.replace(matrix, scores=np.full((2, 3), np.nan))
  (table,) = transfer_matrix.write_matrices(tmp_path, [empty])
  assert table.read_text().splitlines()[1:] == ['en,,,,', 'fr,,,,']


@pytest.mark.parametrize('languages', [['en'], ['en', 'en']])
def test_invalid_directions_are_rejected(languages):
  with raises_error(
    errors.ConfigError, got=','.join(languages), mentions='--train_languages'
  ):
    transfer_matrix.check_directions(languages)
