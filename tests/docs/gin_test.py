"""Tests the complete configuration of docs/gin.md."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from studies.synthetic import __main__ as synthetic
from xlflax import data

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE = (_ROOT / 'docs' / 'gin.md').read_text('utf-8')
_BLOCKS = re.findall(r'^```(\w+)\n(.*?)^```$', _PAGE, re.M | re.S)


def _run(command: str, folder: pathlib.Path) -> subprocess.CompletedProcess:
  """Runs a shell command of the page on one device."""
  programs = pathlib.Path(sys.executable).parent
  return subprocess.run(
    ['bash', '-euo', 'pipefail', '-c', command],
    cwd=folder,
    env=os.environ
    | {
      'PATH': f'{programs}:{os.environ["PATH"]}',
      'PYTHONPATH': '',
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': '',
    },
    text=True,
    capture_output=True,
    check=False,
  )


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Directory with the files of the page, a corpus and a vocabulary."""
  root = tmp_path_factory.mktemp('project')
  for _, text in _BLOCKS:
    if match := re.match(r'# ([\w./]+\.\w+)\n', text):
      path = root / match[1]
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(text, encoding='utf-8')
  sizes = ['--sentences=100', '--examples=16', '--held_out=16']
  assert not synthetic.main([f'--output={root / "toy"}', *sizes])
  corpus = data.Corpus(root / 'toy' / 'corpus')
  data.train_vocabulary(corpus, root / 'vocab', size=300)
  return root


_COMMAND = next(text for kind, text in _BLOCKS if kind == 'bash')
_TEXTS = [text for kind, text in _BLOCKS if kind == 'text']


@pytest.mark.slow
def test_complete_configuration_trains(folder):
  result = _run(_COMMAND.replace('STEPS=20', 'STEPS=2'), folder)
  assert not result.returncode, result.stderr[-4000:]
  for line in _TEXTS[-1].splitlines():
    assert line in result.stderr
  operative = (folder / 'runs/language_id/config.gin').read_text()
  assert 'components.Lion.weight_decay = 0.01' in operative


def test_error_message_equals_the_page(folder):
  flag, message = _TEXTS[0].split('\n\n')
  command = _COMMAND.strip().replace('language_id.gin', 'pretrain/mlm.gin')
  command = re.sub(r' --gin\.(LANG|comp)\S+', '', command)
  command += f' --gin_file=models/tiny.gin {flag}'
  result = _run(command, folder)
  assert result.returncode == 2
  assert ' '.join(message.split()) in ' '.join(result.stderr.split())
