"""A ring of processes: real ones on this machine, and stand-ins that lie."""

import json
import pathlib
import socket
import subprocess
import sys
import threading

import jax
import pytest

from xlflax.foundation import errors
from xlflax.training.processes import ring


class _Store:
  """What the other processes have told; process 0 is the one that is tested."""

  def __init__(self, told):
    self.told = {f'{ring._KEY}{p}': json.dumps(x) for p, x in told.items()}

  def key_value_set(self, key, value):
    self.told[key] = value

  def key_value_delete(self, key):
    del self.told[key]

  def key_value_dir_get(self, folder):
    return list(self.told.items())

  def wait_at_barrier(self, name, milliseconds):
    pass


def _told(seconds, host, slice_=0, problem=''):
  return dict(seconds=seconds, host=host, slice=slice_, problem=problem)


def _meet(monkeypatch, others, exchange=lambda: 0.02, **options):
  monkeypatch.setattr(jax, 'process_count', lambda: 1 + len(others))
  lines = []
  found = ring.meet(
    report=lines.append,
    exchange=exchange,
    client=_Store(dict(enumerate(others, 1))),
    **options,
  )
  return found, lines


def test_a_process_alone_has_no_ring():
  assert ring.meet(report=print, exchange=pytest.fail) == []


def test_a_healthy_ring_is_told(monkeypatch, caplog):
  others = [_told(0.02, f'n{p // 2}') for p in range(1, 8)]
  found, lines = _meet(monkeypatch, others)
  assert [link[:2] for link in found] == [(p, (p + 1) % 8) for p in range(8)]
  assert len(lines) == 2 and any('within hosts, 1 MiB' in x for x in lines)
  assert not caplog.records


def test_a_slow_link_is_named_by_its_hosts(monkeypatch, caplog):
  times = [0.02, 0.02, 0.4, 0.4, 0.02]  # between processes 3 and 4
  others = [_told(t, f'n{p}') for p, t in enumerate(times, 1)]
  found, _ = _meet(monkeypatch, others)
  assert [link[:2] for link in ring.slow(found)] == [(3, 4)]
  assert 'from process 3 on n3 to process 4 on n4 takes 20.0' in caplog.text


def test_links_between_slices_are_compared_with_each_other(monkeypatch, caplog):
  """Two slices of four: the links 3 to 4 and 7 to 0 are the slow network's."""
  times = [0.02, 0.02, 0.4, 0.4, 0.02, 0.02, 0.4]
  others = [_told(t, f'n{p}', p // 4) for p, t in enumerate(times, 1)]
  found, lines = _meet(monkeypatch, others, exchange=lambda: 0.4)
  assert not ring.slow(found) and not caplog.records
  assert any('between slices' in line for line in lines)


def test_a_dead_link_a_silent_process_and_wrong_bytes_end_the_run(monkeypatch):
  others = [_told(t, f'n{p}') for p, t in enumerate([0.02, None, None], 1)]
  with pytest.raises(errors.TrainingError, match='2 on n2 to process 3 on n3'):
    _meet(monkeypatch, others)
  others = [_told(0.02, 'n1'), _told(None, 'n2', 0, 'the bytes that arrived')]
  with pytest.raises(errors.TrainingError, match='process 2 on n2: the bytes'):
    _meet(monkeypatch, others)
  monkeypatch.setattr(_Store, 'key_value_dir_get', lambda *_: [])
  with pytest.raises(errors.TrainingError, match='nothing from process 0; n'):
    _meet(monkeypatch, others, deadline=0.1)


def test_an_exchange_that_hangs_is_told(monkeypatch):
  never = threading.Event()
  others = [_told(0.02, 'n1')]
  with pytest.raises(errors.TrainingError, match='did not end') as caught:
    _meet(monkeypatch, others, exchange=lambda: never.wait(20), deadline=0.1)
  never.set()
  assert caught.value.status == errors.ExitStatus.FAILURE


_PROCESS = """
import sys
import jax
jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_cpu_collectives_implementation', 'gloo')
jax.distributed.initialize('localhost:' + sys.argv[1], 3, int(sys.argv[2]))
from xlflax.training.processes import ring
print(len(ring.meet(report=print)))
"""


@pytest.mark.slow
def test_three_processes_exchange():
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    port = str(probe.getsockname()[1])
  running = [
    subprocess.Popen(
      [sys.executable, '-c', _PROCESS, port, str(i)],
      cwd=pathlib.Path(__file__).parents[3],
      stdout=subprocess.PIPE,
      text=True,
    )
    for i in range(3)
  ]
  said = [process.communicate(timeout=300)[0] for process in running]
  assert [process.returncode for process in running] == [0, 0, 0]
  assert 'links within hosts, 1 MiB to the next process' in said[0]
  assert said[0].split()[-1] == '3' and said[1].split()[-1] == '0'
