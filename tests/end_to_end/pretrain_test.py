"""Tests that a killed `xlflax pretrain` equals the separate commands."""

import shlex
import subprocess
import time

import pytest

from tests.end_to_end import conftest

pytestmark = pytest.mark.slow
_TINY = [flag for flag in conftest.TINY if '_file=' not in flag] + [
  '--gin.checkpoints.CheckpointOptions.save_interval_steps=4'
]


def _wait_for(process, path) -> None:
  while process.poll() is None and not path.exists():
    time.sleep(0.005)


def test_twice_killed_pretrain_equals_the_commands(workspace, tmp_path):
  words = [
    *('pretrain', str(workspace.root / 'corpus'), '--languages=de,en'),
    *('--steps=12', '--vocabulary_size=70', *_TINY),
  ]
  killed = [*words, f'--output={tmp_path / "one"}']
  environment = {'XLFLAX_COMPILATION_CACHE': str(tmp_path / 'compiled')}
  process = workspace.start(*killed, **environment)
  _wait_for(process, tmp_path / 'one/cache')
  conftest.kill(process)
  process = workspace.start(*killed, **environment)
  _wait_for(process, tmp_path / 'one/model/checkpoints/4')
  output = conftest.kill(process)
  assert process.returncode == -9, output
  last = workspace.run(*killed, **environment)
  assert 'Finished at step 12' in last

  other = tmp_path / 'two'
  shell = workspace.run(*words, f'--output={other}', '--dry_run', **environment)
  assert not other.exists()
  lines = shell.splitlines()
  assert lines[0].startswith('# de, en: ')
  for line in lines[1:]:
    command, *arguments = shlex.split(line)
    if command == 'xlflax':
      workspace.run(*arguments, **environment)
    else:
      subprocess.run([command, *arguments], check=True)
  one, two = tmp_path / 'one', other
  for name in ('cache/cache.json', 'vocabulary/vocabulary.json'):
    assert (one / name).read_bytes() == (two / name).read_bytes()
  assert conftest.losses(one / 'model') == conftest.losses(two / 'model')
  left, right = (conftest.parameters(root / 'model', 12) for root in (one, two))
  assert left.keys() == right.keys()
  assert all((left[name] == right[name]).all() for name in left)
  results = {p.name for p in (one / 'model/eval').iterdir()}
  assert results >= {'perplexity', 'retrieval'}


def test_signal_exits_with_preemption_exit_code(workspace, tmp_path):
  arguments = [
    *('pretrain', str(workspace.root / 'corpus'), '--preemption_exit_code=75'),
    *('--steps=100000', '--vocabulary_size=100', f'--output={tmp_path / "o"}'),
    *(*_TINY,),
  ]
  process = workspace.start(*arguments)
  _wait_for(process, tmp_path / 'o/model/checkpoints/4')
  output = conftest.kill(process, 15)
  assert process.returncode == 75, output
  assert not (tmp_path / 'o/model/eval').exists()
