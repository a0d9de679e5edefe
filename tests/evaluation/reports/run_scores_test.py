"""Scores of runs side by side: their number and their intervals."""

import types

import numpy as np

from xlflax.evaluation import eval_task, result_store
from xlflax.evaluation.metrics import example_statistics
from xlflax.evaluation.reports import run_scores

_GROUP = result_store.Group('retrieval', 'test', 'aaaa')


def _run(tmp_path, right: list[int]):
  """A run whose step 10 got these of the German examples right."""
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
    name='mlm',
    results={_GROUP: {10: result}},
    directory=tmp_path,
    losses={f'mlm/loss/{code}': {10: 2.0} for code in ('de', 'ja', 'sw')},
  )


def test_numbers_have_their_examples_and_intervals(tmp_path):
  table = run_scores.build_table(_GROUP, [_run(tmp_path, [1, 0, 1, 1] * 25)])
  assert table.head == ['', 'examples', 'mlm, step 10']
  [[part, count, cell]] = table.rows
  assert (part, count) == ('de', '100')
  value, reach = map(float, cell.split(' ± '))
  # Of 100 draws with p = 3/4 by the normal approximation.
  assert value == 0.75
  assert abs(reach - 1.96 * (0.75 * 0.25 / 100) ** 0.5) < 0.02
  assert 'higher is better' in table.title and '95 %' in table.title


def test_without_single_examples_there_is_no_interval(tmp_path):
  run = _run(tmp_path, [1, 0])
  for file in (tmp_path / 'eval').rglob('*'):
    if file.is_file():
      file.unlink()
  table = run_scores.build_table(_GROUP, [run])
  assert table.rows == [['de', '2', '0.500']]
  assert '95 %' not in table.title


def test_chance_and_languages_without_a_score_are_listed(tmp_path):
  run = _run(tmp_path, [1, 0, 1, 1])
  table = run_scores.build_table(_GROUP, [run])
  assert "1 of the model's 3 languages (not tested: ja, sw)" in table.title
  assert 'chance level unknown' in table.title
  run.results[_GROUP][10].metrics['chance/de'] = 1 / 3
  table = run_scores.build_table(_GROUP, [run])
  assert table.head[:3] == ['', 'examples', 'chance']
  assert table.rows[0][:3] == ['de', '4', '0.333']
  assert 'not known' not in table.title


def test_one_run_has_its_checkpoints_side_by_side(tmp_path):
  run = _run(tmp_path, [1, 0])
  run.results[_GROUP][5] = eval_task.EvalResult(
    metrics={'accuracy/de': 0.25}, score_metrics=('accuracy',)
  )
  single_run_table = run_scores.build_table(_GROUP, [run])
  assert single_run_table.head[-2:] == ['mlm, step 5', 'mlm, step 10']
  other = types.SimpleNamespace(**vars(run) | {'name': 'tlm'})
  two = run_scores.build_table(_GROUP, [run, other])
  assert two.head[-2:] == ['mlm, step 10', 'tlm, step 10']
