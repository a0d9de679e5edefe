"""Tests the pipeline on synthetic languages, from text to scores.

Everything runs with the commands and gin files of docs/measured/synthetic.md,
with fewer steps and the tasks that need the fewest steps.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from studies.synthetic import __main__ as synthetic

_ROOT = pathlib.Path(__file__).parents[2]
_FILES = _ROOT / 'studies/synthetic'
# Mapping from tasks to (metric, metric of an untrained model or None).
_TASKS = {
  'reviews': ('accuracy', 'majority'),
  'pos': ('accuracy', 'majority'),
  'ner': ('f1', None),
  'trees': ('las', 'left_branching'),
}
# The label of a review depends on the meaning of one word, which needs much
# more pretraining to transfer than categories and structure.
_TRANSFERRED = ('pos', 'ner', 'trees')

pytestmark = pytest.mark.slow


def _run_xlflax(*arguments: str) -> None:
  done = subprocess.run(
    [sys.executable, '-m', 'xlflax.cli', *arguments],
    cwd=_ROOT,
    text=True,
    check=False,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    timeout=1200,
    # One device, because eight virtual devices would run in turn.
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''},
  )
  assert done.returncode == 0, done.stdout


@pytest.fixture(scope='module')
def scores(tmp_path_factory) -> dict[str, dict[str, float]]:
  """Metrics by task and name, after pretraining and fine-tuning on `en`."""
  root = tmp_path_factory.mktemp('synthetic')
  corpus = f'--corpus={root}/toy/corpus'
  arguments = [
    f'--output={root}/toy',
    '--languages=en,aa,bb',
    '--anchors=0.5',
    '--sentences=6000',
    '--pairs=8000',
  ]
  assert not synthetic.main(arguments)
  _run_xlflax(
    'vocab',
    corpus,
    f'--output={root}/vocab',
    '--size=1500',
    '--model_type=bpe',
    '--character_coverage=1',
  )
  _run_xlflax(
    'train',
    '--gin_file=pretrain/mlm_tlm.gin',
    '--gin_file=models/encoder.gin',
    f'--gin_file={_FILES}/encoder.gin',
    corpus,
    f'--vocabulary={root}/vocab',
    f'--model_dir={root}/encoder',
    '--gin.TRAIN_STEPS=500',
  )
  _run_xlflax(
    'evaluate',
    f'--suite={_FILES}/suite.gin',
    f'--data={root}/toy',
    f'--model_dir={root}/encoder',
    f'--output={root}/suite',
    f'--tasks={",".join(_TASKS)}',
  )
  [model] = json.loads((root / 'suite/suite.json').read_text())['models']
  return {
    name: {key: value['mean'] for key, value in task['scores'].items()}
    for name, task in model['tasks'].items()
  }


@pytest.mark.parametrize('task', _TASKS)
def test_fine_tuning_language_is_learned(scores, task):
  metric, _ = _TASKS[task]
  assert scores[task][f'{metric}/en'] > 0.95


@pytest.mark.parametrize('language', ['aa', 'bb'])
@pytest.mark.parametrize('task', _TRANSFERRED)
def test_other_languages_are_above_the_baseline(scores, task, language):
  metric, baseline = _TASKS[task]
  chance = scores[task][f'{baseline}/{language}'] if baseline else 0
  assert scores[task][f'{metric}/{language}'] > chance + 0.15
