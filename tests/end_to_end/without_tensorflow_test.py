"""Tests of training and evaluation from a cache without TensorFlow."""

import pytest

from tests.end_to_end.conftest import losses

_BLOCKER = """
from importlib import machinery
_find = machinery.PathFinder.find_spec
def find_spec(name, *rest):
  if name.split('.')[0] in ('tensorflow', 'seqio', 'tensorflow_datasets'):
    return None
  return _find(name, *rest)
machinery.PathFinder.find_spec = find_spec
"""


@pytest.fixture
def without_tensorflow(tmp_path):
  """Environment variables that hide TensorFlow and SeqIO."""
  (tmp_path / 'absent').mkdir()
  (tmp_path / 'absent/sitecustomize.py').write_text(_BLOCKER)
  return {'PYTHONPATH': str(tmp_path / 'absent')}


@pytest.mark.slow
def test_cache_is_trained_and_evaluated_without_tensorflow(
  workspace, tmp_path, without_tensorflow
):
  from tests.end_to_end.conftest import TINY

  run = tmp_path / 'run'
  workspace.run(
    'train',
    *TINY,
    *workspace.inputs,
    workspace.cache,
    f'--model_dir={run}',
    '--gin.TRAIN_STEPS=6',
    **without_tensorflow,
  )
  assert sorted(losses(run)) == [3, 6]
  workspace.run(
    'evaluate',
    f'--model_dir={run}',
    '--tasks=retrieval',
    f'--corpus={workspace.root / "corpus"}',
    **without_tensorflow,
  )
  assert list(run.glob('eval/retrieval/test-*/6.json'))


def test_training_without_a_cache_reports_the_missing_package(
  workspace, tmp_path, without_tensorflow
):
  from tests.end_to_end.conftest import TINY

  output = workspace.run(
    'train',
    *TINY,
    *workspace.inputs,
    f'--model_dir={tmp_path / "run"}',
    '--gin.TRAIN_STEPS=6',
    status=2,
    **without_tensorflow,
  )
  assert 'pip install seqio' in output
  assert 'Traceback' not in output
