"""Tests of `train --phases`, which trains several phases and resumes."""

import json
import pathlib

import numpy as np
import pytest

from tests.end_to_end.conftest import losses, parameters
from xlflax.training.checkpointing import run_directory

_STEPS = {'phase1': 30, 'phase2': 20, 'phase3': 10}
_RECIPE = 'recipes/modernbert/tiny'


def _train(space, root, *more, phases=_RECIPE, status=0):
  return space.run(
    'train',
    f'--phases={phases}',
    '--gin.trainer.Trainer.log_metrics_every=5',
    *space.inputs,
    space.cache,
    f'--model_dir={root}',
    *more,
    status=status,
  )


def _results(output):
  lines = [line for line in output.splitlines() if line.startswith('{')]
  return [json.loads(line) for line in lines]


@pytest.fixture(scope='module')
def all_phases(workspace, tmp_path_factory):
  """Directory of a run with all phases in one call."""
  root = tmp_path_factory.mktemp('phases') / 'whole'
  results = _results(_train(workspace, root))
  assert [(r['model_dir'], r['step'], r['finished']) for r in results] == [
    (f'{root}/{name}', steps, True) for name, steps in _STEPS.items()
  ]
  return root


@pytest.mark.slow
def test_each_phase_starts_from_the_previous_phase(all_phases):
  models = {n: run_directory.read_model(all_phases / n).config for n in _STEPS}
  assert [m.rope_theta for m in models.values()] == [1e4, 1.6e5, 1.6e5]
  assert all(m.local_rope_theta == 1e4 for m in models.values())
  first, second, _ = (losses(all_phases / name) for name in _STEPS)
  # An untrained model has log 100 = 4.6; the second phase starts below it.
  assert second[5]['loss'] < first[10]['loss'] < first[5]['loss']


@pytest.mark.slow
def test_moments_are_carried_and_schedules_restart(all_phases):
  restored = parameters(all_phases / 'phase3', 10, 'train')
  counts = [int(v) for name, v in restored.items() if 'count' in name]
  assert sorted(counts) == [10, 60]


@pytest.mark.slow
def test_resumed_phases_equal_uninterrupted_phases(
  all_phases, workspace, tmp_path
):
  root = tmp_path / 'run'
  [stopped] = _results(_train(workspace, root, '--stop_after_steps=12'))
  assert (stopped['step'], stopped['finished']) == (12, False)
  assert not (root / 'phase2').exists()
  _train(workspace, root, phases=f'{_RECIPE}/phase1.gin')
  [stopped] = _results(_train(workspace, root, '--stop_after_steps=15'))
  assert stopped['model_dir'] == f'{root}/phase2'
  output = _train(workspace, root)
  assert [r['step'] for r in _results(output)] == [20, 10]
  assert f'Skipping {root}/phase1' in output
  for name, step in _STEPS.items():
    ours, theirs = (parameters(at / name, step) for at in (root, all_phases))
    for key, value in ours.items():
      np.testing.assert_array_equal(value, theirs[key], err_msg=key)
    assert losses(root / name) == losses(all_phases / name)
  assert _results(_train(workspace, root)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
  'recipe',
  [
    '--phases=recipes/eurobert/tiny',
    '--phases=recipes/mmbert/tiny',
    '--gin_file=recipes/xlm_e/tiny.gin',
  ],
)
def test_other_recipes_reduce_the_loss(workspace, tmp_path, recipe):
  root = tmp_path / 'run'
  results = _results(
    workspace.run(
      'train',
      recipe,
      *workspace.inputs,
      workspace.cache,
      f'--model_dir={root}',
      '--gin.trainer.Trainer.log_metrics_every=5',
    )
  )
  assert len(results) in (1, 2, 3) and all(
    result['finished'] for result in results
  )
  runs = [pathlib.Path(result['model_dir']) for result in results]
  reported = [row['loss'] for run in runs for row in losses(run).values()]
  assert min(reported[-2:]) < reported[0]


@pytest.mark.slow
def test_changed_settings_of_a_finished_phase_are_rejected(
  all_phases, workspace
):
  output = _train(workspace, all_phases, '--gin.BATCH_SIZE=4', status=2)
  assert 'batch_size' in output and 'Traceback' not in output


def test_extending_a_phase_after_later_phases_is_rejected(
  all_phases, workspace
):
  output = _train(workspace, all_phases, '--gin.PHASE1_STEPS=40', status=2)
  assert 'phase2' in output and 'Traceback' not in output
  assert not (all_phases / 'phase1/checkpoints/40').exists()
