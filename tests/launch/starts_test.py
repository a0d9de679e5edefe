"""Spares: processes of the next start that wait beside the running ones."""

import sys
import time

import pytest

from xlflax.launch import starts

_WORKER = """
import os
from xlflax.launch import starts
print('ready', flush=True)
given = starts.wait_for_turn()
print(given, os.environ.get('WORD'), flush=True)
"""


@pytest.fixture
def specs(tmp_path):
  def make(port: int) -> list[starts.Process]:
    return [
      starts.Process(
        arguments=[sys.executable, '-c', _WORKER, f'--coordinator={port}'],
        variables={},
        log=tmp_path / f'{i}.log',
        name=f'Process {i} of 2',
      )
      for i in range(2)
    ]

  return make


def _looked(spares) -> None:
  spares.look()
  assert len(spares._waiting) == 2


def test_spares_go_on_as_the_next_processes(specs, tmp_path):
  spares = starts.Spares(specs, after_seconds=0)
  _looked(spares)
  taken = spares.take(specs(7), {'WORD': 'told'})
  assert [one.wait(60) for one in taken] == [0, 0]
  ready, given = (tmp_path / '1.log').read_text().splitlines()
  assert ready == 'ready' and '--coordinator=7' in given and 'told' in given
  spares.close()


def test_one_that_is_gone_makes_all_start_anew(specs):
  spares = starts.Spares(specs, after_seconds=0)
  _looked(spares)
  first, second = spares._waiting
  second.kill()
  second.wait()
  assert spares.take(specs(7), {}) == []
  assert first.poll() is not None


def test_they_end_with_the_job(specs):
  spares = starts.Spares(specs, after_seconds=0)
  _looked(spares)
  waiting = spares._waiting
  spares.close()
  assert all(one.poll() is not None for one in waiting)


def test_there_are_none_at_first_or_unasked(specs):
  spares = starts.Spares(specs, after_seconds=1000)
  spares.look()
  assert spares.take(specs(7), {}) == []
  spares = starts.Spares(None, after_seconds=0)
  spares.look()
  assert spares.take(specs(7), {}) == []


def test_other_processes_do_not_wait(monkeypatch):
  monkeypatch.delenv('XLFLAX_STANDBY', raising=False)
  start = time.monotonic()
  assert starts.wait_for_turn() is None
  assert time.monotonic() - start < 5
