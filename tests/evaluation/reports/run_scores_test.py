"""Tests of the score tables of several runs."""

import dataclasses
import re
import types

import numpy as np
import pytest

from tests.errors import assert_mentions
from xlflax.evaluation import eval_task, result_store, result_tables
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.reports import run_scores

_GROUP = result_store.Group('retrieval', 'test', 'aaaa')


def _run(tmp_path, right: list[int]):
  """Returns a run with the given right and wrong German examples at step 10."""
  result = eval_task.EvalResult(
    metrics={'accuracy/de': float(np.mean(right)), 'examples/de': len(right)},
    score_metrics=('accuracy',),
  )
  folder = tmp_path / 'eval' / _GROUP.folder / '10'
  folder.mkdir(parents=True)
  single = {'accuracy': example_statistics.Statistics(np.array(right, float))}
  for name, text in eval_task.statistics_files('de', single).items():
    (folder / name).write_text(text)
  return types.SimpleNamespace(
    selection_metric=None,
    name='mlm',
    results={_GROUP: {10: result}},
    directory=tmp_path,
    languages=('de', 'ja', 'sw'),
  )


def _table(runs, group=_GROUP):
  differences = run_scores.compare_runs(group, runs)
  return run_scores.build_table(group, runs, differences)


def test_scores_have_example_counts_and_intervals(tmp_path):
  table = _table([_run(tmp_path, [1, 0, 1, 1] * 25)])
  assert table.head == ['', 'examples', 'mlm, step 10']
  [[part, count, cell]] = table.rows
  assert (part, count) == ('de', '100')
  value, reach = map(float, cell.split(' ± '))
  # Normal approximation for 100 examples with p = 3/4.
  assert value == 0.75
  assert abs(reach - 1.96 * (0.75 * 0.25 / 100) ** 0.5) < 0.02
  assert 'higher is better' in table.title
  assert '± 95 % interval' in table.title


def test_scores_without_example_statistics_have_no_interval(tmp_path):
  run = _run(tmp_path, [1, 0])
  for file in (tmp_path / 'eval').rglob('*'):
    if file.is_file():
      file.unlink()
  table = _table([run])
  assert table.rows == [['de', '2', '0.500']]
  assert table.head[-1] == 'mlm, step 10'
  assert 'interval' not in table.title


def test_chance_and_languages_without_a_score_are_listed(tmp_path):
  run = _run(tmp_path, [1, 0, 1, 1])
  table = _table([run])
  assert "1 of the model's 3 languages (not tested: ja, sw)" in table.title
  assert 'chance level unknown' in table.title
  run.results[_GROUP][10].metrics['chance/de'] = 1 / 3
  table = _table([run])
  assert table.head[:3] == ['', 'examples', 'chance']
  assert table.rows[0][:3] == ['de', '4', '0.333']
  assert 'not known' not in table.title


def _find_coverages(title):
  """Returns the scored, expected and missing languages by run name or ''."""
  return {
    name: (int(scored), int(expected), missing.split(', ') if missing else [])
    for name, scored, expected, missing in re.findall(
      r"(?:(\w+): )?(\d+) of the model's (\d+) languages"
      r'(?: \(not tested: ([^)]*)\))?',
      title,
    )
  }


def test_coverage_counts_only_the_languages_of_the_runs_in_the_table(tmp_path):
  runs = [_run(tmp_path / name, [1, 0, 1, 1]) for name in ('mlm', 'tlm')]
  runs[1].name = 'tlm'
  runs[1].languages = ('de', 'es', 'fr')
  by_step = runs[1].results.pop(_GROUP)
  title = _table(runs).title
  assert _find_coverages(title) == {'': (1, 3, ['ja', 'sw'])}
  # Both runs have results, and different languages.
  runs[1].results[_GROUP] = by_step
  by_step[10].metrics['accuracy/es'] = 0.5
  title = _table(runs).title
  assert _find_coverages(title) == {
    'mlm': (1, 3, ['ja', 'sw']),
    'tlm': (2, 3, ['fr']),
  }
  # Both runs have the same languages.
  runs[1].languages = ('de', 'ja', 'sw')
  del by_step[10].metrics['accuracy/es']
  title = _table(runs).title
  assert _find_coverages(title) == {'': (1, 3, ['ja', 'sw'])}


def test_languages_outside_the_vocabulary_are_marked(tmp_path):
  runs = [_run(tmp_path / name, [1, 0, 1, 1]) for name in ('mlm', 'tlm')]
  for run, scores in zip(runs, ((0.2, 0.6, 1.0), (0.4, 0.8, 0.9)), strict=True):
    run.results[_GROUP][10] = eval_task.EvalResult(
      metrics=dict(
        zip(('accuracy/de', 'accuracy/es', 'accuracy/ja'), scores, strict=True)
      )
      | {'accuracy/mean': float(np.mean(scores))},
      score_metrics=('accuracy',),
    )
    run.languages = ('de', 'es', 'fr')
  runs[1].name = 'tlm'
  rows = {row[0]: row[1:3] for row in _table(runs).rows}
  assert list(rows) == [
    'de',
    'es',
    'ja (not in the vocabulary)',
    'mean',
    'mean over 2 in the vocabulary',
  ]
  assert rows['mean over 2 in the vocabulary'] == ['0.400', '0.600']
  # The vocabularies differ.
  runs[1].languages = ('de', 'ja')
  rows = {row[0]: row[1:3] for row in _table(runs).rows}
  assert list(rows) == [
    'de',
    'es (not in the vocabulary of tlm)',
    'ja (not in the vocabulary of mlm)',
    'mean',
    'mean over 1 in all vocabularies',
  ]
  assert rows['mean over 1 in all vocabularies'] == ['0.200', '0.400']
  # One vocabulary has an additional language.
  runs[1].languages = ('de', 'es', 'ja')
  labels = [row[0] for row in _table(runs).rows]
  assert labels[2:] == [
    'ja (not in the vocabulary of mlm)',
    'mean',
    'mean over 2 in all vocabularies',
  ]
  # The languages of the vocabularies are unknown.
  for run in runs:
    run.languages = ()
  assert [row[0] for row in _table(runs).rows] == ['de', 'es', 'ja', 'mean']


def test_vocabulary_note_requires_two_runs_in_the_table(tmp_path):
  runs = [
    _perplexity_run(tmp_path, name, 3, unknown_rates={})
    for name in ('mlm', 'tlm')
  ]
  runs[1].settings = {'vocabulary': 'other'}
  assert 'cannot be compared' in _table(runs).title
  del runs[1].results[_GROUP]
  assert 'cannot be compared' not in _table(runs).title


def test_counts_that_differ_between_runs_are_shown_for_each_run(tmp_path):
  runs = [_run(tmp_path / name, [1, 0, 1, 1]) for name in ('mlm', 'tlm')]
  runs[1].name = 'tlm'
  for run, counts in zip(
    runs, ({'de': 4, 'ja': 3781}, {'de': 4, 'ja': 2987}), strict=True
  ):
    for part, count in counts.items():
      run.results[_GROUP][10].metrics.update(
        {
          f'accuracy/{part}': 0.5,
          f'examples/{part}': count,
          f'chance/{part}': 0.25,
        }
      )
  table = _table(runs)
  cells = {
    row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows
  }
  assert 'examples' not in cells['ja']
  assert cells['ja']['mlm, examples'] == '3,781'
  assert cells['ja']['tlm, examples'] == '2,987'
  assert cells['de']['mlm, examples'] == cells['de']['tlm, examples'] == '4'
  # The same value of all runs has one column.
  assert cells['ja']['chance'] == '0.250'


def test_missing_count_of_one_run_is_not_shared(tmp_path):
  runs = [_run(tmp_path / name, [1, 0, 1, 1]) for name in ('mlm', 'tlm')]
  runs[1].name = 'tlm'
  metrics = runs[1].results[_GROUP][10].metrics
  metrics.update({'accuracy/ja': 0.5, 'examples/ja': 7})
  table = _table(runs)
  cells = {
    row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows
  }
  # The counts agree where both runs have a score.
  assert cells['ja']['examples'] == '7'


def test_single_run_shows_all_checkpoints(tmp_path):
  run = _run(tmp_path, [1, 0])
  run.results[_GROUP][5] = eval_task.EvalResult(
    metrics={'accuracy/de': 0.25}, score_metrics=('accuracy',)
  )
  single_run_table = _table([run])
  assert single_run_table.head[-2:] == ['mlm, step 5', 'mlm, step 10']
  other = types.SimpleNamespace(**vars(run) | {'name': 'tlm'})
  two = _table([run, other])
  assert two.head[-3:] == [
    'mlm, step 10',
    'tlm, step 10',
    'tlm - mlm [95 % interval]',
  ]
  three = _table([run, other, run])
  assert not any(' - ' in heading for heading in three.head)


def test_two_runs_have_a_paired_difference(tmp_path):
  rng = np.random.default_rng(0)
  hits = [(rng.random(400) < rate).astype(int) for rate in (0.6, 0.7)]
  # The runs agree on most examples, so the paired interval is narrow.
  hits[1] = np.where(np.arange(400) < 300, hits[0], hits[1])
  runs = [
    _run(tmp_path / name, list(values))
    for name, values in zip(('first', 'second'), hits, strict=True)
  ]
  runs[1].name = 'tlm'
  table = _table(runs)
  assert table.head[-1] == 'tlm - mlm [95 % interval]'
  [[*_, cell]] = table.rows
  difference, low, high = (
    float(number) for number in re.findall(r'[+-][\d.]+', cell)
  )
  paired = hits[1] - hits[0]
  differences = run_scores.compare_runs(_GROUP, runs)
  [line] = run_scores.summarize(_GROUP, runs, differences)
  relation = 'significantly better' if low > 0 else 'not differ significantly'
  assert_mentions(line, 'mlm', 'tlm', relation, 'de')
  half_width = 1.97 * paired.std(ddof=1) / 20
  assert difference == round(paired.mean(), 3)
  assert abs(low - (paired.mean() - half_width)) < 0.15 * half_width
  assert abs(high - (paired.mean() + half_width)) < 0.15 * half_width


def test_perplexities_of_unknown_vocabularies_have_no_difference(tmp_path):
  runs = []
  for name in ('mlm', 'tlm'):
    run = _run(tmp_path / name, [1, 0, 1, 1])
    result = run.results[_GROUP][10]
    result.metrics['perplexity/de'] = result.metrics.pop('accuracy/de')
    run.results[_GROUP][10] = dataclasses.replace(
      result, score_metrics=('perplexity',)
    )
    run.name, run.settings = name, {}
    runs.append(run)
  table = _table(runs)
  assert table.head[-1] == 'tlm, step 10'
  assert 'cannot be compared' in table.title


def test_metrics_of_text_replace_perplexities_of_different_vocabularies(
  tmp_path,
):
  runs = [
    _perplexity_run(tmp_path, name, scale, unknown_rates={})
    for name, scale in (('mlm', 3), ('tlm', 2))
  ]
  assert run_scores.compared_metrics(_GROUP, runs) == ['perplexity']
  assert not run_scores.describe_vocabulary_problem(_GROUP, runs)
  runs[1].settings = {'vocabulary': 'other'}
  [note] = run_scores.describe_vocabulary_problem(_GROUP, runs)
  assert_mentions(note, 'vocabularies', 'pseudo_perplexity', 'bits_per_byte')
  for run, value in zip(runs, (3.0, 2.5), strict=True):
    run.results[_GROUP][10].metrics['bits_per_byte/de'] = value
    folder = run.directory / 'eval' / _GROUP.folder / '10'
    # Each of 50 sentences has one byte.
    rows = np.stack([np.ones(50), np.full(50, value)], 1)
    statistics = {
      'bits_per_byte': example_statistics.Statistics(
        rows[:, ::-1], example_statistics.Aggregate.RATIO
      )
    }
    files = eval_task.statistics_files('de', statistics)
    for file, content in files.items():
      (folder / file).write_text(content)
  metrics = run_scores.compared_metrics(_GROUP, runs)
  assert metrics == ['perplexity', 'bits_per_byte']
  assert not run_scores.describe_vocabulary_problem(_GROUP, runs)
  assert 'bits_per_byte' in run_scores.shown_metrics(_GROUP, runs)
  differences = run_scores.compare_runs(_GROUP, runs, metric='bits_per_byte')
  assert differences['de'].difference == pytest.approx(-0.5)
  table = run_scores.build_table(
    _GROUP, runs, differences, metric='bits_per_byte'
  )
  assert 'cannot be compared' not in table.title
  [row] = table.rows
  assert row[0] == 'de' and row[-1].startswith('-0.5')
  [line] = run_scores.summarize(
    _GROUP, runs, differences, metric='bits_per_byte'
  )
  assert_mentions(line, 'bits_per_byte', 'tlm is significantly better')


def _perplexity_run(tmp_path, name, scale, *, unknown_rates):
  """Returns a run with perplexities of two languages and their mean."""
  rng = np.random.default_rng(0)
  metrics, folder = {}, tmp_path / name / 'eval' / _GROUP.folder / '10'
  folder.mkdir(parents=True)
  for code in ('de', 'ru'):
    rows = np.stack([rng.random(50) * scale, np.full(50, 2.0)], 1)
    statistics = example_statistics.Statistics(
      rows, example_statistics.Aggregate.PERPLEXITY
    )
    metrics[f'perplexity/{code}'] = statistics.value
    files = eval_task.statistics_files(code, {'perplexity': statistics})
    for file, content in files.items():
      (folder / file).write_text(content)
  metrics['perplexity/mean'] = float(
    np.sqrt(metrics['perplexity/de'] * metrics['perplexity/ru'])
  )
  metrics |= {f'unknown_rate/{code}': x for code, x in unknown_rates.items()}
  result = eval_task.EvalResult(metrics=metrics, score_metrics=('perplexity',))
  return types.SimpleNamespace(
    selection_metric=None,
    name=name,
    results={_GROUP: {10: result}},
    directory=tmp_path / name,
    languages=(),
    settings={'vocabulary': 'same'},
  )


@pytest.mark.parametrize('index', [0, 1])
def test_perplexities_of_unknown_tokens_have_no_difference(tmp_path, index):
  rates = [{'de': 0.01}, {}]
  rates[index] = rates[index] | {'ru': 0.4375}
  runs = [
    _perplexity_run(tmp_path, name, scale, unknown_rates=unknown_rates)
    for name, scale, unknown_rates in zip(
      ('mlm', 'tlm'), (3, 2), rates, strict=True
    )
  ]
  differences = run_scores.compare_runs(_GROUP, runs)
  assert list(differences) == ['de']
  [line] = run_scores.summarize(_GROUP, runs, differences)
  assert 'for de.' in line
  [note] = run_scores.describe_unknown_tokens(_GROUP, runs)
  for text in (runs[index].name, 'ru', '43.8 %'):
    assert text in note
  rows = {row[0]: row for row in _table(runs).rows}
  assert rows['ru'][-1] == rows['mean'][-1] == '-' != rows['de'][-1]
  assert '-' not in rows['ru'][1:-1]  # The scores are shown.


def test_perplexities_of_few_unknown_tokens_have_differences(tmp_path):
  runs = [
    _perplexity_run(tmp_path, name, scale, unknown_rates={'ru': 0.01})
    for name, scale in (('mlm', 3), ('tlm', 2))
  ]
  differences = run_scores.compare_runs(_GROUP, runs)
  assert set(differences) == {'de', 'ru', 'mean'}
  assert not run_scores.describe_unknown_tokens(_GROUP, runs)


def test_a_single_run_is_not_compared(tmp_path):
  run = _perplexity_run(tmp_path, 'mlm', 3, unknown_rates={'ru': 0.5})
  assert not run_scores.describe_unknown_tokens(_GROUP, [run])


@pytest.mark.parametrize(
  ('split', 'label'),
  [
    ('all', 'development set'),
    ('validation', 'development set'),
    ('test', 'evaluated during training'),
    ('train', 'evaluated during training'),
  ],
)
def test_results_of_evaluations_during_training_are_labeled(
  tmp_path, split, label
):
  run = _run(tmp_path, [1, 0, 1, 1])
  by_step = run.results.pop(_GROUP)
  group = _GROUP._replace(split=split)
  run.results[group] = by_step
  labels = {'development set', 'evaluated during training'}

  def find_labels(title):
    return {label for label in labels if label in title}

  assert not find_labels(_table([run], group).title)
  by_step[10] = dataclasses.replace(by_step[10], is_development=True)
  title = _table([run], group).title
  assert find_labels(title) == {label}
  task = result_tables.summarize_group(group, by_step, is_one_of_many=False)
  table = result_tables.result_table(task, by_step, folder=tmp_path)
  assert find_labels(table.title) == {label}
  # The label is stored with the result.
  stored = eval_task.EvalResult.from_json(by_step[10].to_json())
  assert stored.is_development


def test_different_layers_are_shown_in_the_headings(tmp_path):
  runs = []
  for name in ('mlm', 'tlm'):
    run = _run(tmp_path / name, [1, 0, 1, 1])
    run.name = name
    run.results[_GROUP][10] = dataclasses.replace(
      run.results[_GROUP][10], layers=(12,), num_layers=12
    )
    runs.append(run)
  table = _table(runs)
  assert 'layer 12 of 12' in table.title
  assert table.head[2:4] == ['mlm, step 10', 'tlm, step 10']
  runs[1].results[_GROUP][10] = dataclasses.replace(
    runs[1].results[_GROUP][10], layers=(6,), num_layers=6
  )
  table = _table(runs)
  assert 'layer' not in table.title
  assert table.head[2:4] == [
    'mlm, step 10, layer 12 of 12',
    'tlm, step 10, layer 6 of 6',
  ]


@pytest.mark.parametrize('split, has_split', [('all', False), ('test', True)])
def test_title_names_the_split_only_if_it_is_a_data_split(
  tmp_path, split, has_split
):
  run = _run(tmp_path, [1, 0, 1, 1])
  group = _GROUP._replace(split=split)
  run.results[group] = run.results.pop(_GROUP)
  assert ('split' in _table([run], group).title) == has_split


def test_selection_metric_is_compared(tmp_path):
  run = _run(tmp_path, [1, 0, 1, 1])
  run.results[_GROUP][10].metrics['f1/de'] = 0.5
  for task, expected in (
    ('retrieval', ['accuracy', 'f1']),
    ('retriev', ['accuracy']),
  ):
    run.selection_metric = f'{task}/f1/de'
    assert run_scores.compared_metrics(_GROUP, [run]) == expected
  group = _GROUP._replace(task='retrieval_test')
  run.results[group] = run.results.pop(_GROUP)
  for metric, expected in (
    ('retrieval/f1/de', ['accuracy', 'f1']),
    ('retrieval/accuracy/de', ['accuracy']),
    ('retrieval/precision/de', ['accuracy']),
  ):
    run.selection_metric = metric
    assert run_scores.compared_metrics(group, [run]) == expected
