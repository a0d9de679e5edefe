"""Tests of selection and the report files of hyperparameter grids."""

import csv
import dataclasses
import io
import json
import math
import pathlib
import re

import pytest

from tests.errors import raises_error
from xlflax import evaluate
from xlflax.evaluation import eval_task, plots
from xlflax.finetuning import (
  grid_data,
  grid_report,
  grid_trials,
  hyperparameter_grid,
  model_selection,
)
from xlflax.utils import errors

Status = grid_trials.Status
METRIC = 'nli/accuracy/en'


class _Task(eval_task.EvalTask):
  @property
  def primary_metric(self):
    return 'accuracy'


def make_trial(rate: str, seed: str, value, status=Status.FINISHED):
  return grid_trials.TrialResult(
    trial=hyperparameter_grid.Trial({'RATE': rate, 'SEED': seed}),
    directory=pathlib.Path(f'trials/{rate}-{seed}'),
    status=status,
    config='abc',
    step=10,
    value=value,
    metrics={} if value is None else {METRIC: value},
  )


def make_report(**scores):
  """Returns a report of rates with the dev scores of several seeds."""
  return grid_report.GridReport(
    select=METRIC,
    trials=tuple(
      make_trial(rate[1:], str(seed), value)
      for rate, values in scores.items()
      for seed, value in enumerate(values)
    ),
  )


def with_test(grid_report, number: int, **accuracies):
  result = grid_report.trials[number]
  return grid_report.with_test(
    result,
    evaluate.Report(
      (_Task(name='nli'),),
      {
        'nli': {
          10: eval_task.EvalResult(
            metrics={
              f'accuracy/{part}': value for part, value in accuracies.items()
            }
          )
        }
      },
      (),
      1,
    ),
  )


def test_ranking_uses_the_mean_over_seeds():
  report = make_report(_1=[0.9, 0.1], _2=[0.6, 0.6], _3=[0.5, 0.5])
  assert [s.name for s in report.ranking] == ['RATE=2', 'RATE=1', 'RATE=3']
  assert report.ranking[0].dev.mean == pytest.approx(0.6)
  spread = report.ranking[1].dev
  assert spread.std == pytest.approx(math.sqrt(2 * 0.4**2))
  assert str(spread) == '0.5000 ± 0.5657'


def test_large_scores_have_thousands_separators():
  assert str(model_selection.Spread((11000.0, 13000.0))) == '12,000 ± 1,414'
  assert str(model_selection.Spread((341.78,))) == '341.8'


def test_ties_select_the_first_setting():
  assert make_report(_2=[0.5], _1=[0.5]).ranking[0].name == 'RATE=2'


def test_lower_error_is_better():
  trials = [make_trial('1', '0', 3.0), make_trial('2', '0', 2.0)]
  ranked = model_selection.rank_settings(
    model_selection.results_by_setting(trials), 'perplexity/perplexity/en'
  )
  assert [s.name for s in ranked] == ['RATE=2', 'RATE=1']


@pytest.mark.parametrize('status', [Status.DIVERGED, Status.FAILED])
def test_settings_with_missing_seeds_are_not_selected(status):
  report = grid_report.GridReport(
    select=METRIC,
    trials=(
      make_trial('1', '0', 0.9),
      make_trial('1', '1', None, status),
      make_trial('2', '0', 0.2),
      make_trial('2', '1', 0.2),
    ),
  )
  assert [s.name for s in report.ranking] == ['RATE=2']
  assert not report.is_complete
  assert report.best_two() is None


def test_several_settings_require_a_metric():
  with raises_error(
    errors.ConfigError, mentions=('--metric_for_best_model', 2)
  ):
    model_selection.check_metric(None, 2)
  model_selection.check_metric(None, 1)


def test_best_two_and_test_scores():
  report = make_report(_1=[0.4, 0.6], _2=[0.7, 0.7], _3=[0.1, 0.1])
  for number, accuracy in enumerate((0.2, 0.4, 0.5, 0.7)):
    report = with_test(report, number, fr=accuracy)
  two = report.best_two()
  assert two['settings'] == ['RATE=2', 'RATE=1']
  assert two['dev'] == pytest.approx(0.6)
  assert two['test'] == {'nli/accuracy/fr': pytest.approx(0.45)}
  [*_, test] = grid_report.grid_tables(report)
  assert [column.header for column in test.columns][1:] == [
    f'{setting.name}, mean ± standard deviation of 2 seeds'
    for setting in report.settings[:2]
  ]
  spread = report.test_spreads(report.ranking[0])['nli/accuracy/fr']
  assert (spread.mean, spread.std) == pytest.approx((0.6, 0.1 * 2**0.5))


def test_write_creates_all_files(tmp_path):
  report = with_test(make_report(_1=[0.5, math.nan]), 0, fr=0.25)
  report.write(tmp_path)
  record = json.loads((tmp_path / 'grid.json').read_text())
  assert record['selected'] == 'RATE=1'
  assert record['settings'][0]['dev'] == {
    'mean': 0.5,
    'std': None,
    'min': 0.5,
    'max': 0.5,
    'count': 1,
  }
  assert record['trials'][1]['value'] is None
  assert record['trials'][0]['test'] == {'nli/accuracy/fr': 0.25}
  assert [trial['setting'] for trial in record['trials']] == ['RATE=1'] * 2
  rows = list(csv.DictReader(io.StringIO((tmp_path / 'grid.csv').read_text())))
  assert [
    (
      r['RATE'],
      r['SEED'],
      r['status'],
      r[f'dev/{METRIC}'],
      r['test/nli/accuracy/fr'],
    )
    for r in rows
  ] == [
    ('1', '0', 'finished', '0.5', '0.25'),
    ('1', '1', 'finished', 'nan', ''),
  ]


def test_failed_trials_are_listed_as_failures(tmp_path):
  failed = dataclasses.replace(
    make_trial('3', '0', None, Status.FAILED), message='a reason'
  )
  make_report(_1=[0.5]).with_trial(failed).write(tmp_path)
  record = json.loads((tmp_path / 'grid.json').read_text())
  assert record['failures'] == [f'{failed.trial.name}: a reason']


def test_tables_mark_the_selected_setting():
  report = with_test(make_report(_1=[0.5], _2=[0.9]), 1, fr=0.25)
  settings, test = grid_report.grid_tables(report)
  setting_cells = [list(column.cells) for column in settings.columns]
  assert setting_cells[0] == ['RATE=1', 'RATE=2']
  assert setting_cells[1] == ['', 'selected']
  # The last column contains the steps of the selected checkpoints.
  assert setting_cells[4] == ['10', '10']
  assert settings.columns[2].header == 'score'
  for title in (settings.title, test.title):
    assert 'accuracy' in title and '(0 to 1, higher is better)' in title
  report = with_test(report, 0, fr=0.35)
  _, best_two, _ = grid_report.grid_tables(report)
  assert 'RATE=1' in best_two.title and 'RATE=2' in best_two.title
  assert [list(column.cells) for column in best_two.columns] == [
    [f'dev {METRIC}', 'test nli/accuracy/fr'],
    ['0.7000', '0.3000'],
  ]
  assert [list(column.cells) for column in test.columns] == [
    ['nli/accuracy/fr'],
    ['0.2500'],
  ]


def test_reports_without_a_selection_show_no_dev_scores(tmp_path):
  report = dataclasses.replace(make_report(_1=[None]), select=None)
  [table] = grid_report.grid_tables(report)
  assert [column.header for column in table.columns] == [
    'setting', 'status', 'seeds', 'step of each seed'
  ]  # fmt: skip
  assert [list(column.cells) for column in table.columns] == [
    ['RATE=1'], ['finished'], ['1/1'], ['10']
  ]  # fmt: skip
  page = grid_report.write_page(tmp_path, {'': report}).read_text()
  assert 'last checkpoint' in page and 'selected' not in page


def test_nan_baseline_has_an_empty_cell(tmp_path):
  result = eval_task.EvalResult(
    metrics={'accuracy/fr': 0.25, 'majority/fr': math.nan}
  )
  report = make_report(_1=[0.5])
  report = report.with_test(
    report.trials[0],
    evaluate.Report((_Task(name='nli'),), {'nli': {10: result}}, (), 1),
  )
  _, test = grid_report.grid_tables(report)
  assert [list(column.cells) for column in test.columns] == [
    ['nli/accuracy/fr'],
    ['-'],
    ['0.2500'],
  ]
  assert grid_report.write_page(tmp_path, {'': report}).exists()


def test_notes_compare_the_selected_setting_with_the_untrained_model():
  report = make_report(_1=[0.5], _2=[0.4])
  trials = [
    dataclasses.replace(
      trial,
      trial=dataclasses.replace(
        trial.trial, untrained=trial.trial.values['RATE'] == '2'
      ),
    )
    for trial in report.trials
  ]
  report = dataclasses.replace(report, trials=tuple(trials))
  report = with_test(with_test(report, 0, fr=0.3, de=0.2), 1, fr=0.3, de=0.6)
  equal, worse = grid_report.untrained_notes(report)
  assert 'nli/accuracy/fr' in equal and 'equals' in equal
  assert 'nli/accuracy/de' in worse and 'is worse' in worse
  assert grid_report.untrained_notes(make_report(_1=[0.5], _2=[0.4])) == []
  # Without a selection metric, the last checkpoints are compared.
  unselected = dataclasses.replace(report, select=None)
  assert grid_report.untrained_notes(unselected) == [
    note.replace('selected setting', 'last checkpoint')
    for note in (equal, worse)
  ]


def test_difference_within_a_standard_deviation_is_noted():
  def notes(rates_1, rates_2):
    report = make_report(_1=rates_1, _2=rates_2)
    trials = [
      dataclasses.replace(
        trial,
        trial=dataclasses.replace(
          trial.trial, untrained=trial.trial.values['RATE'] == '2'
        ),
      )
      for trial in report.trials
    ]
    report = dataclasses.replace(report, trials=tuple(trials))
    return grid_report.untrained_notes(report)

  (noisy,) = notes([0.2, 0.4], [0.25, 0.45])
  (clear,) = notes([0.2, 0.21], [0.45, 0.46])
  assert 'within one standard deviation' in noisy
  assert 'within one standard deviation' not in clear


def test_test_scores_are_shown_with_their_baselines():
  report = make_report(_1=[0.5])
  report = with_test(report, 0, fr=0.3, mean=0.3)
  tests = {
    name: scores | {'nli/majority/fr': 0.4}
    for name, scores in report.tests.items()
  }
  report = dataclasses.replace(report, tests=tests)
  *_, test = grid_report.grid_tables(report)
  cells = {column.header: [*column.cells] for column in test.columns}
  assert cells['majority'] == ['0.4000', '']


@pytest.mark.parametrize(
  ('split', 'is_development'),
  [('all', True), ('validation', True), ('test', False), ('train', False)],
)
def test_page_names_the_selection_split(tmp_path, split, is_development):
  report = dataclasses.replace(make_report(_1=[0.5]), select_split=split)
  text = grid_report.write_page(tmp_path, {'': report}).read_text()
  assert ('development set' in text) == is_development
  assert (f'<h2>{split} split' in text) == (not is_development)


def test_page_has_both_tables_and_failures(tmp_path):
  report = with_test(make_report(r1=(0.5, 0.7), r2=(0.1, 0.2)), 1, fr=0.25)
  failed = make_trial('3', '0', None, Status.DIVERGED)
  page = grid_report.write_page(
    tmp_path,
    {'en': report.with_trial(failed)},
    command=['xlflax', 'finetune', '--grid', 'RATE=1,2'],
  )
  text = page.read_text()
  assert '<h2>en, development set: nli/accuracy/en (0 to 1, ' in text
  assert '<h2>en, test set: accuracy (0 to 1, ' in text
  assert 'Selected setting: RATE=' in text.partition('<table>')[0]
  assert text.count('<img') == 1 and list(tmp_path.glob('*.png'))
  assert 'diverged: RATE=3' in text
  assert '<pre>xlflax finetune \\\n    --grid RATE=1,2' in text


def test_the_summary_counts_settings_with_equal_scores(tmp_path):
  def summary(**scores):
    report = {'': make_report(**scores)}
    page = grid_report.write_page(tmp_path, report)
    return page.read_text().partition('<table>')[0]

  assert '2 of the others' in summary(_1=[0.5], _2=[0.5], _3=[0.5], _4=[0.1])
  assert 'of the others' not in summary(_1=[0.5], _2=[0.4])
  assert 'settings;' not in summary(_1=[0.5])


def test_the_figure_has_the_baselines_of_the_table(tmp_path, monkeypatch):
  drawn = []
  bar_chart = plots.bar_chart

  def record_chart(*arguments, baselines, **options):
    drawn.append(baselines)
    return bar_chart(*arguments, baselines=baselines, **options)

  monkeypatch.setattr(plots, 'bar_chart', record_chart)
  report = with_test(make_report(_1=[0.5]), 0, fr=0.3, de=0.6)
  baselines = {'nli/majority/fr': 0.4, 'nli/majority/de': 0.5}
  tests = {name: scores | baselines for name, scores in report.tests.items()}
  grid_report.write_page(
    tmp_path, {'': dataclasses.replace(report, tests=tests)}
  )
  assert drawn == [{'majority': {'fr': 0.4, 'de': 0.5}}]


def test_the_page_lists_the_training_data(tmp_path):
  data = tuple(
    grid_data.TrainingData(
      dataset='labeled',
      language=language,
      source=f'data/train-{language}.tsv',
      num_examples=num_examples,
    )
    for language, num_examples in (('en', 392_702), ('fr', 10))
  )
  report = dataclasses.replace(make_report(_1=[0.5]), training_data=data)
  html = grid_report.write_page(tmp_path, {'': report}).read_text()
  table = html.split('<h2>training data</h2>')[1].split('</table>')[0]
  cells = re.findall(r'<td[^>]*>([^<]*)</td>', table)
  assert cells == [
    *('labeled', 'en', '392,702', 'data/train-en.tsv'),
    *('labeled', 'fr', '10', 'data/train-fr.tsv'),
  ]
  summary = html.partition('<h2>Summary</h2>')[2].partition('</ul>')[0]
  assert '392,712' in summary
  report.write(tmp_path)
  record = json.loads((tmp_path / 'grid.json').read_text())
  assert [row['num_examples'] for row in record['training_data']] == (
    [392_702, 10]
  )


def test_different_training_data_has_no_total(tmp_path):
  data = tuple(
    grid_data.TrainingData(
      dataset='labeled', language='en', source=source, num_examples=100
    )
    for source in ('a.tsv', 'b.tsv')
  )
  report = dataclasses.replace(make_report(_1=[0.5]), training_data=data)
  html = grid_report.write_page(tmp_path, {'': report}).read_text()
  assert 'a.tsv' in html and 'b.tsv' in html
  assert '200' not in html.partition('<table>')[0].partition('<main>')[2]
