"""Tests that a killed grid resumes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.end_to_end import conftest

pytest_plugins = ['tests.evaluation.fixtures']
_TAGS = {
  'der': 'DET',
  'Hund': 'NOUN',
  'schläft': 'VERB',
  'und': 'CCONJ',
  'die': 'DET',
  'kleine': 'ADJ',
  'Katze': 'NOUN',
  'trinkt': 'VERB',
}


@pytest.fixture
def grid(make_run, tmp_path):
  """Fixture that starts a grid of two trials on a small treebank."""
  run = make_run(tmp_path / 'mlm', [10])
  vocabulary = list(_TAGS)
  sentences = [
    [vocabulary[(i * k + i) % 8] for k in range(1, 5)] for i in range(1, 17)
  ]
  (tmp_path / 'de.conll').write_text(
    '\n'.join(
      ''.join(f'{word}\t{_TAGS[word]}\n' for word in sentence)
      for sentence in sentences
    ),
    encoding='utf-8',
  )
  files = f"{{'de': {str(tmp_path / 'de.conll')!r}}}"
  arguments = [
    '--gin_file=finetune/tagging.gin',
    f'--init_from={run}',
    f'--output={tmp_path / "out"}',
    "--gin.FORMAT='conll'",
    f'--gin.TRAIN_FILES={files}',
    f'--gin.DEV_FILES={files}',
    '--gin.LENGTH=16',
    '--gin.BATCH_SIZE=4',
    '--gin.TRAIN_STEPS=150',
    '--gin.EVAL_STEPS=75',
    '--gin.LEARNING_RATE=1e-2',
    '--gin.checkpoints.CheckpointOptions.save_interval_steps=5',
    '--grid=SEED=0,1',
    '--metric_for_best_model=tagging/accuracy/de',
    '--eval_gin_file=evaluate/tagging.gin',
    "--eval_gin=FORMAT='conll'",
    f'--eval_gin=TEST_FILES={files}',
    f'--compilation_cache={tmp_path / "compiled"}',
  ]

  def start():
    return subprocess.Popen(
      [sys.executable, '-m', 'xlflax.cli', 'finetune', *arguments],
      text=True,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      env=os.environ | {'XLA_FLAGS': '--xla_backend_optimization_level=0'},
    )

  return start, tmp_path / 'out'


def _changes(folder):
  return {
    path: path.stat().st_mtime_ns
    for path in folder.rglob('*')
    if path.is_file() and 'vocabulary' not in path.parts
  }


@pytest.mark.slow
def test_killed_grid_resumes(grid):
  start, output = grid
  second = output / 'trials' / 'SEED=1'
  process = start()
  while (
    process.poll() is None
    and not (second / 'checkpoints' / '5' / 'params').is_dir()
  ):
    time.sleep(0.01)
  printed = conftest.kill(process)
  assert process.returncode == -signal.SIGKILL, printed
  for name, status in (('SEED=0', 'finished'), ('SEED=1', 'stopped')):
    record = json.loads((output / 'trials' / f'{name}.json').read_text())
    assert record['status'] == status
  before = _changes(output / 'trials' / 'SEED=0')

  process = start()
  printed, _ = process.communicate(timeout=300)
  assert process.returncode == 0, printed
  assert printed.count('Resuming from the checkpoint of step') == 1
  after = _changes(output / 'trials' / 'SEED=0')
  assert {path: after[path] for path in before} == before
  report = json.loads((output / 'grid.json').read_text())
  assert [c['status'] for c in report['trials']] == ['finished', 'finished']
  assert [row['num_examples'] > 0 for row in report['training_data']] == [True]
  (setting,) = report['settings']
  assert setting['dev']['mean'] > 0.55  # above the majority baseline of 0.5
  assert setting['test']['tagging_test/accuracy/de']['count'] == 2
  times = _changes(output / 'trials')

  process = start()  # All trials have finished.
  printed, _ = process.communicate(timeout=300)
  assert process.returncode == 0, printed
  assert 'ETA' not in printed
  changed = {
    path.name
    for path, when in _changes(output / 'trials').items()
    if times.get(path) != when
  }
  plots = {'tagging.png', 'tagging_test.png'}
  assert changed <= {'summary.csv', 'report.html', *plots}
