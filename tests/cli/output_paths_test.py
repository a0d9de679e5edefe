"""Tests that outputs never replace the inputs of a command."""

import os

import pytest

from xlflax import cli


@pytest.fixture
def input_directory(tmp_path, monkeypatch):
  """Directory with input files that must not change."""
  monkeypatch.chdir(tmp_path)
  names = ('en.txt', 'en.conll', 'pairs.tsv', 'corpus/mono/en.txt', 'run/a')
  for name in names:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text('own text\n')
  (tmp_path / 'run/model.json').write_text('{}')
  os.symlink('en.txt', 'link')
  return tmp_path


_TRANSLATE = 'translate --model_dir=run --source=en --target=de'


@pytest.mark.parametrize(
  'command',
  [
    f'{_TRANSLATE} --input=en.txt --output=en.txt',
    f'{_TRANSLATE} --input=en.txt --output=link',
    'mine-hard-negatives --model_dir=run --pairs=pairs.tsv --language=en --output=pairs.tsv',
    'predict --model_dir=run --input=en=en.conll --output=.',
    'tasks convert sib200 --input=corpus --output=corpus',
    'inspect corpus --html=corpus/mono/en.txt',
    'analyze cka --model_dir=run --text=de-en=en.txt,en.txt --output=run',
  ],
)
def test_output_does_not_replace_inputs(input_directory, command, capsys):
  assert cli.main(command.split()) == 2
  error = capsys.readouterr().err
  assert '--output' in error or '--html' in error
  for path in input_directory.rglob('*'):
    if path.is_file() and path.name != 'model.json':
      assert path.read_text() == 'own text\n'
