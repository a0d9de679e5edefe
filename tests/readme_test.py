"""Tests of the programs in README.md on tiny data."""

import ast
import importlib
import pathlib
import re
import shutil

import pytest

from tests.interop.huggingface import reference_models
from xlflax.training.checkpointing import checkpoint_reader

pytest_plugins = ['tests.evaluation.fixtures']

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / 'README.md'

_TINY_TRAINING = {
  'size=16000': 'size=76, num_threads=1',
  'length=128, batch_size=64': 'length=16, batch_size=8',
  'num_layers=6, hidden_dim=512, mlp_dim=2048, num_heads=8': (
    'num_layers=1, hidden_dim=16, mlp_dim=16, num_heads=2, max_position_embeddings=32'
  ),
  'warmup_steps=500': 'warmup_steps=1',
  'num_train_steps=10000': 'num_train_steps=2',
}


def _programs() -> list[str]:
  section = README.read_text(encoding='utf-8').split('## Python API')[1]
  return re.findall(r'```python\n(.*?)```', section.split('\n## ')[0], re.S)


def _run(program: str, smaller: dict[str, str]) -> None:
  """Runs a program after replacing some of its numbers."""
  for number, tiny in smaller.items():
    assert program.count(number), number
    program = program.replace(number, tiny)
  exec(compile(program, str(README), 'exec'), {})


def test_training_program_of_the_readme(corpus, tmp_path, monkeypatch, capsys):
  shutil.copytree(corpus, tmp_path / 'corpus')
  monkeypatch.chdir(tmp_path)
  _run(_programs()[0], _TINY_TRAINING)
  assert checkpoint_reader.finished_steps(tmp_path / 'runs' / 'mlm') == [2]
  assert 0 <= float(capsys.readouterr().out.splitlines()[-1]) <= 1


@pytest.fixture
def folder(tmp_path):
  model_dir = tmp_path / 'FacebookAI' / 'xlm-roberta-base'
  model_dir.parent.mkdir()
  reference_models.save_model(
    reference_models.make_model('xlm_roberta'), model_dir
  )
  return model_dir


def test_encoding_program_of_the_readme(folder, tmp_path, monkeypatch, capsys):
  del folder
  monkeypatch.chdir(tmp_path)
  _run(_programs()[1], {'layer=8': 'layer=2'})
  printed = capsys.readouterr().out.splitlines()
  assert [line.split(' -> ')[0] for line in printed] == [
    'A cat is sleeping.',
    'It is raining.',
  ]


def test_names_in_the_python_guide_exist():
  """Names such as `data.DatasetConfig` in docs/python.md are public."""
  text = (ROOT / 'docs' / 'python.md').read_text(encoding='utf-8')
  names = {
    (node.value.id, node.attr)
    for block in re.findall(r'```python\n(.*?)```', text, re.S)
    for node in ast.walk(ast.parse(block))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
  }
  packages = {'data', 'evaluation', 'models', 'objectives', 'training'}
  used_packages = {package for package, name in names if package in packages}
  assert used_packages == packages
  for package, name in names:
    if package in packages:
      assert name in dir(importlib.import_module(f'xlflax.{package}')), name
    elif package == 'xlflax':
      assert name in dir(importlib.import_module('xlflax')), name
