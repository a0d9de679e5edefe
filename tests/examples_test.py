"""The notebooks in examples/, executed one after the other.

Their code cells run as plain programs: that needs no Jupyter, which would add
some thirty packages to the tests, and shows that they need no kernel.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / 'examples'


def _program(name: str) -> str:
  """The code cells of a notebook, joined."""
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
  """30 of the 200 steps are enough to find more translations than before."""
  program = _program('pretrain_and_evaluate')
  assert program.count('STEPS = 200') == 1
  printed = _run(program.replace('STEPS = 200', 'STEPS = 30'), tmp_path)
  before, after = re.search(
    r'^mean +([\d.]+) -> ([\d.]+)', printed, re.M
  ).groups()
  assert float(after) > float(before) > 0
  printed = _run(_program('analyse_an_imported_encoder'), tmp_path)
  accuracies = re.findall(
    r'^(?:de|es|fr|nl|ru) +\d +([\d.]+) +([\d.]+)', printed, re.M
  )
  assert len(accuracies) == 5 * 3
