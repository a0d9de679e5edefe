"""Trees by content words and frozen vectors, from text to scores.

As in synthetic_test, by the commands and gin files of docs/synthetic.md, with
a smaller encoder of two languages.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

_FILES = pathlib.Path(__file__).parents[2] / 'docs/synthetic'
# Tasks on frozen vectors: metric and part, what vectors that say nothing give (a
# number, or another metric), and how much better these are at least.
_FROZEN = {
  'similarity': ('spearman/aa-en', 0.0, 0.08),
  'pairs': ('average_precision/aa-en', 'positive/aa-en', 0.05),
  'ranking': ('ndcg@10/aa', 0.023, 0.3),  # sum of 1 / log2(rank + 1) / 200
  'xsim': ('xsim/aa', 0.995, 0.3),  # an error: one of 200 is right
}

pytestmark = pytest.mark.slow


def _xlflax(*arguments: str) -> None:
  done = subprocess.run(
    [sys.executable, '-m', 'xlflax.cli', *arguments],
    text=True,
    check=False,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''},
  )
  assert done.returncode == 0, done.stdout


@pytest.fixture(scope='module')
def scores(tmp_path_factory) -> dict[str, dict[str, float]]:
  """task -> metric -> value, after pretraining and fine-tuning on `en`."""
  root = tmp_path_factory.mktemp('families')
  _xlflax(
    'synthetic',
    f'--output={root}/toy',
    '--languages=en,aa',
    '--anchors=0.5',
    '--sentences=5000',
    '--pairs=8000',
  )
  _xlflax(
    'vocab',
    f'--corpus={root}/toy/corpus',
    f'--output={root}/vocab',
    '--size=1000',
    '--model_type=bpe',
    '--character_coverage=1',
  )
  _xlflax(
    'train',
    '--gin_file=pretrain/mlm_tlm.gin',
    '--gin_file=models/encoder.gin',
    f'--gin_file={_FILES}/encoder.gin',
    '--gin.EncoderConfig.num_layers=3',
    '--gin.EncoderConfig.hidden_dim=96',
    '--gin.EncoderConfig.mlp_dim=384',
    '--gin.TRAIN_STEPS=500',
    '--gin.WARMUP_STEPS=50',
    '--gin.BATCH_SIZE=6',
    '--gin.PAIR_BATCH_SIZE=24',
    f'--corpus={root}/toy/corpus',
    f'--vocabulary={root}/vocab',
    f'--model_dir={root}/encoder',
  )
  _xlflax(
    'evaluate',
    f'--suite={_FILES}/suite.gin',
    f'--data={root}/toy',
    f'--model_dir={root}/encoder',
    f'--output={root}/suite',
    f'--suite_tasks={",".join(["trees", *_FROZEN])}',
  )
  [model] = json.loads((root / 'suite/suite.json').read_text())['models']
  return {
    name: {key: value['mean'] for key, value in task['scores'].items()}
    for name, task in model['tasks'].items()
  }


@pytest.mark.parametrize('metric', ['clas', 'mlas', 'blex'])
def test_trees_by_content_words(scores, metric):
  found = scores['trees']
  assert found[f'{metric}/aa'] > found['left_branching/aa']


@pytest.mark.parametrize('task', _FROZEN)
def test_frozen_vectors(scores, task):
  """Vectors of a model that read pairs are better than ones without sense."""
  name, baseline, least = _FROZEN[task]
  found = scores[task][name]
  if isinstance(baseline, str):
    baseline = scores[task][baseline]
  assert (baseline - found if task == 'xsim' else found - baseline) > least
