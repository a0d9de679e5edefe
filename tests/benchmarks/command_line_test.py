"""Tests of the command line benchmark."""

import json

from benchmarks import command_line
from xlflax import cli


def test_invocations_cover_all_commands():
  lines = {line for line, _ in command_line.list_invocations()}
  assert {f'{name} --help' for name in cli.COMMANDS} <= lines
  assert {'analyze cka --help', 'tasks list --help'} <= lines


def test_invocations_with_mistakes_are_rejected(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  for line in command_line.MISTAKES:
    assert cli.main(line.split()) == 2, line
  assert 'Traceback' not in capsys.readouterr().err


def test_benchmark_measures_the_selected_invocation(tmp_path, capsys):
  out = tmp_path / 'out.json'
  command_line.main(['--rounds=1', '--only=trian', f'--output={out}'])
  rows = json.loads(out.read_text())
  assert [row['answer'] for row in rows] == ['python', 'trian']
  assert all(0 < row['cpu'] for row in rows)
  assert 'trian' in capsys.readouterr().out
