"""Tests of learning curves by epoch."""

import csv

import pytest

from studies.papers import learning_curves
from tests.errors import raises_error
from xlflax.evaluation import eval_task, result_store
from xlflax.utils import errors


def _write_result(run, step, score, *, split='test'):
  """Writes the BLEU score of a checkpoint."""
  run.mkdir(parents=True, exist_ok=True)
  result_store.write_result(
    run,
    eval_task.EvalResult(metrics={'bleu/en-de': score}),
    step=step,
    identity={'task': {'name': 'translation'}, 'split': split},
  )


def test_test_scores_are_plotted_by_epoch(tmp_path):
  """Steps become epochs, and scores of the validation set are not used."""
  for step, score in ((50, 1.5), (100, 2.5), (400, 3.0)):
    _write_result(tmp_path / 'veco', step, score)
  _write_result(tmp_path / 'veco', 50, 9.0, split='validation')
  _write_result(tmp_path / 'random', 100, 0.5)
  learning_curves.main(
    [
      '--steps_per_epoch=200',
      f'--output={tmp_path / "out"}',
      f'{tmp_path / "veco"}',
      f'{tmp_path / "random"}',
    ]
  )
  with (tmp_path / 'out/curves.csv').open() as file:
    rows = [tuple(row.values()) for row in csv.DictReader(file)]
  assert rows == [
    ('veco', '0.25', '1.5'),
    ('veco', '0.5', '2.5'),
    ('veco', '2.0', '3.0'),
    ('random', '0.5', '0.5'),
  ]
  assert (tmp_path / 'out/curves.png').read_bytes().startswith(b'\x89PNG')


def test_run_without_results_is_an_error(tmp_path):
  _write_result(tmp_path / 'veco', 50, 1.5)
  with raises_error(errors.CheckpointError, got='bleu/en-fr'):
    learning_curves.read_curve(tmp_path / 'veco', 'bleu/en-fr', 10)


@pytest.mark.parametrize('steps', ['0', '-1'])
def test_steps_per_epoch_must_be_positive(steps, tmp_path):
  with pytest.raises(SystemExit):
    learning_curves.main(
      [f'--steps_per_epoch={steps}', '--output=x', str(tmp_path)]
    )
