"""Tests of transfer matrices from files that `xlflax finetune` writes."""

import pytest

from tests.analysis import fakes
from tests.errors import assert_mentions
from xlflax.analysis import analysis_report, transfer_matrix_study

_LINES = {
  'a': 'train,en,fr,gap\nen,0.9,0.7,0.2\nfr,0.6,0.8,0.2\n',
  'b': 'train,en,fr,ja,gap\nen,0.95,0.65,0.5,0.375\nfr,0.6,,,\n',
}


@pytest.fixture
def folders(tmp_path):
  for name, lines in _LINES.items():
    (tmp_path / name).mkdir()
    (tmp_path / name / 'directions.nli.csv').write_text(lines)
  return {name: str(tmp_path / name) for name in _LINES}


def _run(results, **settings):
  return transfer_matrix_study.TransferMatrixStudy(
    results=results, **settings
  ).run(fakes.FakeModels())


def test_transfer_matrices_of_several_models(folders, tmp_path):
  result = _run(folders)
  assert not result.failures
  assert result.rows[:2] == [
    {
      'series': 'a',
      'task': 'nli',
      'train': 'en',
      'test': 'en',
      'value': 0.9,
      'gap': 0.2,
    },
    {
      'series': 'a',
      'task': 'nli',
      'train': 'en',
      'test': 'fr',
      'value': 0.7,
      'gap': 0.2,
    },
  ]
  assert len(result.rows) == 8  # empty cells have no row
  assert [table.title for table in result.tables] == [
    'nli: a (points)',
    'nli: b (points)',
  ]
  assert result.tables[0].head == ['trained on', 'en', 'fr', 'gap']
  assert result.tables[1].rows == [
    ['en', '95.0', '65.0', '50.0', '37.5'],
    ['fr', '60.0', '–', '–', '–'],
  ]
  analysis_report.write(tmp_path / 'out', result)
  assert {path.name for path in (tmp_path / 'out').iterdir()} >= {
    'nli.png',
    'nli.csv',
    'nli.gains.png',
    'nli.gains.csv',
    'report.html',
    'directions.csv',
    'analysis.json',
  }


def test_gains_are_relative_to_the_first_model(folders):
  gains = _run(folders).pictures['nli.gains']
  assert {
    (row['train'], row['test']): round(row['gain'], 6) for row in gains.rows
  } == {('en', 'en'): 5, ('en', 'fr'): -5, ('fr', 'en'): 0}
  assert {text.get_text() for text in gains.canvas.axes[0].texts} == {
    '+5.0',
    '-5.0',
    '+0.0',
  }
  single_model = _run({'a': folders['a']})
  assert set(single_model.pictures) == {'nli'}


def test_matrices_share_languages_and_color_range(folders):
  axes = _run(folders).pictures['nli'].canvas.axes
  assert [label.get_text() for label in axes[0].get_xticklabels()] == [
    'en',
    'fr',
    'ja',
  ]
  assert (
    axes[0].images[0].get_clim() == axes[1].images[0].get_clim() == (50, 95)
  )


@pytest.mark.parametrize(
  'lines, location',
  [
    ('train,en,gap\nen,high,0.1\n', 'directions.nli.csv:2'),
    ('en,fr,gap\n0.1,0.2,0.1\n', 'directions.nli.csv'),
    ('train,en,gap\n', 'directions.nli.csv'),
    ('train,en,gap\nen,0.5,0.1,0.2\n', 'directions.nli.csv:2'),
    ('train,en,gap\ncaf\udce9,0.5,0.1\n', 'directions.nli.csv'),
  ],
)
def test_invalid_files_are_failures(folders, tmp_path, lines, location):
  (tmp_path / 'b' / 'directions.nli.csv').write_text(
    lines, errors='surrogateescape'
  )
  result = _run(folders)
  assert {row['series'] for row in result.rows} == {'a'}
  assert_mentions(result.failures[0], location)


def test_missing_results_are_failures(folders, tmp_path):
  result = _run({'x': str(tmp_path)})
  assert_mentions(result.failures[0], '--train_languages')
  result = _run(folders, tasks=('xnli',))
  assert_mentions(result.failures[0], 'nli', 'xnli')
  result = _run(folders, tasks=('nli', 'xnli'))
  assert {row['task'] for row in result.rows} == {'nli'}
  assert_mentions(result.failures[0], 'nli', 'xnli')
