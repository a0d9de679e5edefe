"""Tests of the notebooks and the script in examples/.

The code cells of notebooks run as plain programs without Jupyter.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import xlflax

pytest_plugins = ['tests.evaluation.fixtures']

EXAMPLES = pathlib.Path(__file__).parent.parent / 'examples'


def _program(name: str) -> str:
  """Returns the code cells of a notebook as one program."""
  text = (EXAMPLES / f'{name}.ipynb').read_text(encoding='utf-8')
  return '\n\n'.join(
    ''.join(cell['source'])
    for cell in json.loads(text)['cells']
    if cell['cell_type'] == 'code'
  )


def _run(program: str, folder: pathlib.Path) -> str:
  result = subprocess.run(
    [sys.executable, '-c', program],
    cwd=folder,
    env=os.environ | {'MPLBACKEND': 'agg', 'XLA_FLAGS': ''},
    capture_output=True,
    text=True,
    check=False,
  )
  assert not result.returncode, result.stderr[-4000:]
  return result.stdout


def test_notebooks_are_small_and_compile():
  for path in EXAMPLES.glob('*.ipynb'):
    assert path.stat().st_size < 100_000
    compile(_program(path.stem), str(path), 'exec')


@pytest.mark.slow
def test_notebooks_run(tmp_path):
  """30 of the 200 steps suffice to find more translations than before."""
  program = _program('pretrain_and_evaluate')
  assert program.count('STEPS = 200') == 1
  printed = _run(program.replace('STEPS = 200', 'STEPS = 30'), tmp_path)
  before, after = re.search(
    r'^mean +([\d.]+) -> ([\d.]+)', printed, re.M
  ).groups()
  assert float(after) > float(before) > 0
  printed = _run(_program('analyze_an_imported_encoder'), tmp_path)
  accuracies = re.findall(
    r'^(?:de|es|fr|nl|ru) +\d +([\d.]+) +([\d.]+)', printed, re.M
  )
  assert len(accuracies) == 5 * 3


@pytest.mark.slow
def test_gradio_demo_finds_a_sentence_in_its_own_file(make_run, tmp_path):
  spec = importlib.util.spec_from_file_location(
    'gradio_demo', EXAMPLES / 'gradio_demo.py'
  )
  demo = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(demo)
  (tmp_path / 'de.txt').write_text('die Katze schläft\n\nein Hund\n')
  (tmp_path / 'en.txt').write_text('a dog\n')
  sentences = demo.read_sentences(
    [f'{language}={tmp_path}/{language}.txt' for language in ('de', 'en')]
  )
  assert sentences == [
    ('de', 'die Katze schläft'), ('de', 'ein Hund'), ('en', 'a dog')
  ]  # fmt: skip
  run = xlflax.load_run(make_run(tmp_path / 'run'), step='untrained')
  rows = demo.SentenceSearch(run, sentences).search('ein Hund', 'de')
  assert len(rows) == 3
  assert rows[0][:2] == ['ein Hund', 'de']
  assert rows[0][2] == pytest.approx(1, abs=1e-4)
