"""Cards as nvidia-smi describes them."""

import stat

import pytest

from xlflax.training.devices import gpu_state


@pytest.fixture
def says(tmp_path, monkeypatch):
  """Puts a program called nvidia-smi first, that runs a line of a shell."""

  def put(line):
    program = tmp_path / 'nvidia-smi'
    program.write_text(f'#!/bin/sh\n{line}\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)

  monkeypatch.setenv('PATH', str(tmp_path), prepend=':')
  return put


def test_clocks(says):
  says(r"echo '1980, 1980'; echo '495, 1980'; echo '[N/A], [N/A]'")
  assert gpu_state.clocks() == [1, 0.25]


def test_memory_errors(says):
  says(r"echo 0; echo 7; echo '[N/A]'")
  assert gpu_state.memory_errors() == [0, 7, 0]


@pytest.mark.parametrize('line', ['exit 9', 'echo no devices', 'sleep 9'])
def test_where_it_tells_nothing(says, monkeypatch, line):
  monkeypatch.setattr(gpu_state, '_SECONDS', 0.5)
  says(line)
  assert gpu_state.clocks() == []


def test_without_it(monkeypatch, tmp_path):
  monkeypatch.setenv('PATH', str(tmp_path))
  assert gpu_state.clocks() == []
