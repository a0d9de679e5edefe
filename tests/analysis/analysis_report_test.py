"""Tests of analysis reports, figures and learning curves."""

import csv
import html
import json
import math

import matplotlib.image
import numpy as np
import pytest

from tests.analysis import fakes
from tests.errors import assert_mentions, raises_error
from xlflax.analysis import (
  analysis_report,
  figures,
  lexicon_induction_report,
  training_curves,
)
from xlflax.evaluation import eval_task, plots, result_store
from xlflax.similarity import alignment_maps
from xlflax.utils import errors


def _rows(value=0.25):
  return [
    {
      'series': 's',
      'pair': 'en-fr',
      'step': step,
      'layer': layer,
      'mapping': 'none',
      'accuracy': value * step + layer / 10,
    }
    for step in (1, 2)
    for layer in (0, 1)
  ]


def _analysis(**settings):
  rows = _rows()
  canvas = plots.line_panels('t', 'y', {'p': {'a': [(0, math.nan), (1, 2.0)]}})
  return analysis_report.Analysis(
    **{
      'name': 'sentences',
      'title': 'A <title>',
      'explanation': 'what',
      'rows': rows,
      'tables': [
        analysis_report.grid(
          'grid',
          rows,
          value='accuracy',
          down=lambda row: row['layer'],
          across=lambda row: row['step'],
        )
      ],
      'pictures': {
        'pic': analysis_report.Figure('a picture', canvas, rows[:1])
      },
      'notes': ['a note'],
      'files': {'x.txt': 'text', 'y.npz': b'bytes'},
      'failures': [eval_task.Failure(task='t', part='p', message='broken')],
    }
    | settings
  )


def test_write_creates_the_report_its_tables_and_files(tmp_path):
  paths = analysis_report.write(
    tmp_path / 'out', _analysis(), command=['xlflax', 'analyze', '--output=a b']
  )
  assert sorted(path.name for path in paths) == sorted(
    path.name for path in (tmp_path / 'out').iterdir()
  )
  page = (tmp_path / 'out' / 'report.html').read_text()
  assert 'A &lt;title&gt;' in page and 'data:image/png;base64,' in page
  assert "xlflax analyze '--output=a b'" in html.unescape(page)
  assert 'failed: t: p: broken' in page and 'http' not in page
  with open(tmp_path / 'out' / 'sentences.csv') as stream:
    assert [row['accuracy'] for row in csv.DictReader(stream)] == [
      '0.25',
      '0.35',
      '0.5',
      '0.6',
    ]
  assert (tmp_path / 'out' / 'y.npz').read_bytes() == b'bytes'


def test_nan_is_null_in_json_and_empty_in_csv(tmp_path):
  analysis_report.write(tmp_path, _analysis(rows=[{'a': math.nan, 'b': 1}]))
  assert json.loads((tmp_path / 'analysis.json').read_text())['rows'] == [
    {'a': None, 'b': 1}
  ]
  assert (tmp_path / 'sentences.csv').read_text() == 'a,b\n,1\n'


def test_grid_formats_values_and_missing_cells():
  rows = [
    {'x': 1, 'y': 'a', 'v': 0.5},
    {'x': 2, 'y': 'a', 'v': math.nan},
    {'x': 1, 'y': 'b', 'v': None},
  ]
  table = analysis_report.grid(
    't',
    rows,
    value='v',
    down=lambda row: row['x'],
    across=lambda row: row['y'],
    corner='c',
  )
  assert (table.head, table.rows) == (
    ['c', 'a', 'b'],
    [['1', '50.0', '–'], ['2', '–', '–']],
  )


def test_analysis_without_rows_is_an_error(tmp_path):
  with raises_error(errors.AnalysisError, got='t: p: broken'):
    analysis_report.write(tmp_path / 'out', _analysis(rows=[]))
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize(
  'make',
  [
    lambda: figures.layer_columns(
      't',
      'v',
      {
        ('en-fr', 'model'): [0.1, 0.9],
        ('en-fr', 'random'): [0.2],
        ('en-de', 'a much longer name of a model'): [math.nan, 1.0],
      },
    ),
    lambda: figures.matrices(
      't',
      'v',
      {f'model {i}': np.linspace(0, 1, 12).reshape(4, 3) for i in range(4)},
      first='en',
      second='fr',
    ),
    lambda: plots.line_panels(
      't',
      'v',
      {
        f'panel {i}': {f'line {j}': [(0, j), (1, i)] for j in range(12)}
        for i in range(4)
      },
      whole=100,
    ),
    lambda: plots.line_panels(
      't',
      'v',
      {
        'p': {
          f'a rather long name of a line {j}': [(0, j), (1, j)]
          for j in range(9)
        }
      },
    ),
    lambda: figures.matrices(
      't',
      'v',
      {f'the quite long name of model {i}': np.ones((2, 2)) for i in range(3)},
      first='en',
      second='fr',
    ),
    lambda: figures.directions(
      'Directions of transfer, classification: gains',
      'gain (points)',
      {'MetaXLM − XLM': {('en', 'fr'): 0.5, ('fr', 'en'): -12.5}},
      around_zero=True,
    ),
    lambda: (
      lexicon_induction_report.pictures(
        [
          {
            'series': f'the quite long name of model {i}',
            'pair': pair,
            'step': 1,
            'score': 'csls',
            'mapping': 'procrustes',
            'layer': None,
            'precision@1': 0.1 * i,
          }
          for i in range(5)
          for pair in ('en-fr', 'ru-en')
        ]
      )['embeddings'].canvas
    ),
  ],
)
def test_figure_content_stays_inside_the_margins(tmp_path, make):
  """Checks that the margin of every figure is white."""
  make().savefig(tmp_path / 'x.png', dpi=100)
  image = matplotlib.image.imread(tmp_path / 'x.png')[..., :3]
  assert image.min() < 0.5
  for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
    assert edge.min() > 0.99


def test_lines_are_distinguishable():
  looks = [tuple(plots.line_style(i).values()) for i in range(28)]
  assert len(set(looks)) == 28


def test_axes_end_above_the_highest_value():
  lines = {'p': {'a': [(0, 28.0), (1, math.nan)]}}
  for axis_end, top in ((100, 30), (None, None)):
    axes = plots.line_panels('t', 'v', lines, whole=axis_end).axes[0]
    assert axes.get_xlabel() == 'layer (0: embeddings)'
    if top:
      assert axes.get_ylim()[1] == pytest.approx(1.02 * top)


def test_load_map_rejects_invalid_files(tmp_path):
  (tmp_path / 'x.npz').write_text('no map')
  with raises_error(errors.AnalysisError, where='x.npz', mentions='BadZipFile'):
    alignment_maps.load_map(tmp_path / 'x.npz')


def _write_results(directory, task, metrics, split='all'):
  for step, values in metrics.items():
    result_store.write_result(
      directory,
      eval_task.EvalResult(metrics=values),
      step=step,
      identity={
        'task': {'name': task, 'split': split},
        'split': split,
        'seed': 0,
        'parameters': 'default',
      },
    )


def test_learning_curves_of_stored_results(tmp_path):
  run = tmp_path / 'run'
  _write_results(
    run,
    'xnli',
    {
      step: {
        'accuracy/en': 0.5 + step / 100,
        'accuracy/fr': 0.4,
        'accuracy/ru': 0.2,
        'accuracy/mean': 0.4,
        'loss/en': 1.0,
      }
      for step in (10, 20)
    },
  )
  _write_results(run, 'perplexity', {20: {'perplexity/mean': 7.5}})
  result = training_curves.LearningCurvesStudy(runs=(str(run),)).run(
    fakes.FakeModels()
  )
  values = {
    (row['task'], row['part'], row['step']): row['value'] for row in result.rows
  }
  assert values['xnli', 'en', 20] == pytest.approx(70)
  assert values['perplexity', 'mean', 20] == 7.5
  assert ('xnli', 'loss', 10) not in values
  gaps = {
    (row['part'], row['step']): row['value']
    for row in result.pictures['xnli.transfer'].rows
  }
  assert gaps['gap', 10] == pytest.approx(30) and gaps['gap', 20] == (
    pytest.approx(40)
  )
  assert gaps['transfer', 10] == pytest.approx(30)
  assert set(result.pictures) == {'xnli', 'xnli.transfer'}
  for settings, values in (
    ({'tasks': ('xnli', 'pos')}, ('perplexity', 'xnli', 'pos')),
    ({'metric': 'accuracy'}, ('accuracy', 'perplexity')),
  ):
    result = training_curves.LearningCurvesStudy(
      runs=(str(run),), **settings
    ).run(fakes.FakeModels())
    assert {row['task'] for row in result.rows} == {'xnli'}
    assert_mentions(result.failures[0], *values)


def test_curves_never_join_splits(tmp_path):
  run = tmp_path / 'run'
  for split, value in (('validation', 0.9), ('test', 0.5)):
    steps = {'untrained': 0.1, 10: value, 20: value}
    _write_results(
      run,
      'retrieval',
      {step: {'accuracy/mean': accuracy} for step, accuracy in steps.items()},
      split,
    )
  result = training_curves.LearningCurvesStudy(runs=(str(run),)).run(
    fakes.FakeModels()
  )
  assert set(result.pictures) == {'retrieval.validation', 'retrieval.test'}
  values = [
    (row['step'], row['value'])
    for row in result.rows
    if row['task'] == 'retrieval (test)'
  ]
  assert values == [(0, 10.0), (10, 50.0), (20, 50.0)]


def test_run_without_results_is_reported_as_failure():
  result = training_curves.LearningCurvesStudy(runs=('nowhere',)).run(
    fakes.FakeModels()
  )
  assert result.failures
