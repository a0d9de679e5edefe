"""The scripts of T5X: train, resume, evaluate, infer and convert."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.interop.t5x import conftest
from xlflax import cli
from xlflax.config import gin_config
from xlflax.data.tokenizers import vocabulary_training
from xlflax.training.checkpointing import saved_run

conftest.import_t5x('t5x.train')

import t5x  # noqa: E402

pytestmark = pytest.mark.slow

_ROOT = pathlib.Path(t5x.__file__).parents[1]
_CASES = {
  'mlm': (
    'models/tiny.gin',
    'encoder_mlm',
    'corpus.mono',
    {'targets': 24},
    'en',
  ),
  'translation': (
    'models/tiny_t5.gin',
    'encoder_decoder',
    'corpus.parallel',
    {'inputs': 24, 'targets': 24},
    'de_en',
  ),
}


@pytest.fixture
def t5x_script(toy_corpus, toy_vocabulary, tmp_path):
  """Fixture that runs a script of T5X and returns its log."""
  vocabulary_training.write_vocabulary(
    toy_vocabulary,
    toy_vocabulary.description | toy_vocabulary.describe(),
    tmp_path / 'vocabulary',
  )

  def run(script, files, **macros):
    macros = (
      dict(
        VOCABULARY_DIR=str(tmp_path / 'vocabulary'),
        CORPUS_DIR=str(toy_corpus.directory),
      )
      | macros
    )
    command = [
      sys.executable,
      '-m',
      f't5x.{script}',
      f'--gin_search_paths={gin_config.SHIPPED},{_ROOT}',
    ]
    command += [f'--gin_file={file}' for file in files]
    command += [f'--gin.{name}={value!r}' for name, value in macros.items()]
    done = subprocess.run(
      command,
      capture_output=True,
      text=True,
      check=False,
      timeout=600,
      env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr

  return run


@pytest.mark.parametrize('case', _CASES)
def test_train_resume_evaluate_infer_convert(case, t5x_script, tmp_path):
  size, model, tasks, lengths, task = _CASES[case]
  settings = dict(TASKS=tasks, TASK_FEATURE_LENGTHS=lengths)
  more = {
    'train.eval_period': 2,
    'train.eval_steps': 1,
    'BATCH_SIZE': 8,
    'utils.SaveCheckpointConfig.period': 2,
    'MODEL_DIR': str(tmp_path / 't5x'),
    'train_eval/utils.DatasetConfig.split': 'train',
  }
  for steps in (2, 4):
    log = t5x_script(
      'train',
      [size, f't5x/train_{model}.gin'],
      TRAIN_STEPS=steps,
      **settings,
      **more,
    )
  assert '[3] collection' not in log and '[1] collection' not in log
  assert sorted(p.name for p in (tmp_path / 't5x').glob('checkpoint_*')) == [
    'checkpoint_0',
    'checkpoint_2',
    'checkpoint_4',
  ]
  checkpoint = str(tmp_path / 't5x' / 'checkpoint_4')
  used = dict(CHECKPOINT_PATH=checkpoint, SPLIT='train', **settings)
  t5x_script(
    'eval',
    [size, f't5x/{model}.gin', 't5x/eval.gin'],
    EVAL_OUTPUT_DIR=str(tmp_path / 'scores'),
    **used,
  )
  scores = next((tmp_path / 'scores').rglob(f'*{task}*-metrics.jsonl'))
  assert json.loads(scores.read_text())['log_likelihood'] < 0
  used['TASKS'] = f'{tasks}.{task}'
  t5x_script(
    'infer',
    [size, f't5x/{model}.gin', 't5x/infer.gin'],
    INFER_OUTPUT_DIR=str(tmp_path / 'out'),
    **used,
  )
  prediction_file = next(
    (tmp_path / 'out').glob('*-predict.jsonl-00000-of-00001')
  )
  assert all(
    'prediction' in json.loads(line)
    for line in prediction_file.read_text().splitlines()
  )
  assert (
    cli.main(
      [
        'convert',
        'from-t5x',
        checkpoint,
        f'--gin_file={size}',
        f'--vocabulary={tmp_path / "vocabulary"}',
        f'--output={tmp_path / "run"}',
      ]
    )
    == 0
  )
  assert saved_run.load_run(tmp_path / 'run').steps == [4]
