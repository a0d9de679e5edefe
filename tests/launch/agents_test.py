"""Agents of several nodes: generations that begin and end together."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from xlflax.foundation import errors
from xlflax.launch import agent, agents

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def three():
  """A lead and two that follow it."""
  port = agents.free_port()
  with concurrent.futures.ThreadPoolExecutor(3) as pool:
    lead = pool.submit(agents.Lead, None, port, 3, 20.0)
    others = [
      pool.submit(agents.Follower, f'localhost:{port}', 20.0) for _ in range(2)
    ]
    yield lead.result(), [other.result() for other in others]


def _heard(ask, seconds=10.0):
  end = time.monotonic() + seconds
  while (found := ask()) is None and time.monotonic() < end:
    time.sleep(0.01)
  return found


def test_a_failure_ends_all_and_another_generation_begins(three):
  lead, (first, second) = three
  port = lead.begin()
  assert first.begin() == second.begin() == port
  assert lead.failed() is first.failed() is None
  first.agree(137, 'Process 1 on n1')
  assert _heard(lead.failed) == 137
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    agreed = pool.submit(lead.agree, 137)
    assert _heard(second.failed) == 137
    second.agree(137)
    assert agreed.result(10) == 137 and lead.is_whole
  assert lead.failure == 'Process 1 on n1'
  assert lead.begin() == first.begin() == second.begin()
  assert first.failed() is None


@pytest.mark.parametrize(
  'statuses, status',
  [((0, 0, 0), 0), ((75, 75, 75), 75), ((134, 74, 2), 2), ((0, 137, 0), 137)],
)
def test_one_status_of_all(three, statuses, status):
  lead, others = three
  lead.begin()
  for one, ended in zip(others, statuses[1:], strict=True):
    assert one.begin()
    one.agree(ended)
  assert lead.agree(statuses[0]) == status
  lead.end(status)
  assert [one.begin() or one.status for one in others] == [status] * 2


def test_a_lost_agent_ends_the_job(three):
  lead, (first, second) = three
  lead.begin()
  first.agree(0)
  second._lead._socket.close()
  assert lead.agree(0) == errors.ExitStatus.FAILURE and not lead.is_whole


def test_a_lost_lead_ends_the_others(three):
  lead, others = three
  for connection in lead._others:
    connection._socket.close()
  for one in others:
    assert one.begin() is None and one.status == errors.ExitStatus.FAILURE


def test_a_missing_agent_is_told():
  with pytest.raises(errors.ConfigError, match='Got: 1 of 2'):
    agents.Lead(None, agents.free_port(), 2, 0.2)
  with pytest.raises(errors.ConfigError, match='node 0 cannot be reached'):
    agents.Follower(f'localhost:{agents.free_port()}', 0.2)


def _start(tmp_path, code: str, node: int, port: int) -> subprocess.Popen:
  worker = tmp_path / 'worker.py'
  worker.write_text(
    'import os, pathlib, signal, sys, time\n'
    'flags = dict(a[2:].split("=") for a in sys.argv if a.startswith("--"))\n'
    'i, n = int(flags["process_id"]), int(flags["num_processes"])\n'
    f'folder, again = pathlib.Path({str(tmp_path)!r}), '
    '"XLFLAX_RESTART" in os.environ\n' + textwrap.dedent(code)
  )
  job = agent.AgentJob(
    command=('train',),
    num_processes=2,
    nodes=2,
    node=node,
    lead=f'localhost:{port}',
    cpu_devices=1,
    logs=tmp_path / 'logs',
    grace_seconds=1.0,
    restarts=1,
    program=(sys.executable, str(worker)),
  )
  return subprocess.Popen(
    [
      sys.executable,
      '-c',
      'import sys, pathlib\nfrom xlflax.launch import agent\n'
      f'Posix = pathlib.PosixPath\nPosixPath = Posix\njob = agent.{job!r}\n'
      'sys.exit(job.start())',
    ],
    cwd=_ROOT,
    stderr=(tmp_path / f'{node}.err').open('w'),
  )


def test_a_killed_process_of_another_node_starts_all_again(tmp_path):
  port = agents.free_port()
  code = """
    (folder / f'{i}of{n}_{again}').write_text(flags['coordinator'])
    if not again:
      while i == 3:
        if len([f for f in folder.glob('*of4_False') if f.stat().st_size]) == 4:
          os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
      time.sleep(60)
  """
  start = time.monotonic()
  both = [_start(tmp_path, code, node, port) for node in (0, 1)]
  assert [one.wait(60) for one in both] == [0, 0]
  assert time.monotonic() - start < 50
  addresses = {
    (tmp_path / f'{i}of4_{again}').read_text()
    for i in range(4)
    for again in (False, True)
  }
  assert len(addresses) == 2  # one port of each generation
  assert sorted(p.name for p in (tmp_path / 'logs').iterdir()) == [
    f'process_{i}.log' for i in range(4)
  ]


def test_a_lost_node_ends_all(tmp_path):
  port = agents.free_port()
  code = "(folder / f'{i}').touch()\ntime.sleep(60)"
  both = [_start(tmp_path, code, node, port) for node in (0, 1)]
  for _ in range(1000):
    if all((tmp_path / str(i)).exists() for i in range(4)):
      break
    time.sleep(0.02)
  os.kill(both[1].pid, signal.SIGKILL)
  assert both[0].wait(60) == errors.ExitStatus.FAILURE


def test_a_mistake_on_one_node_ends_both(tmp_path):
  port = agents.free_port()
  code = 'print("xlflax train: no corpus"); sys.exit(2 if i > 1 else 0)'
  both = [_start(tmp_path, code, node, port) for node in (0, 1)]
  assert [one.wait(60) for one in both] == [2, 2]
  assert (tmp_path / '1.err').read_text().endswith('xlflax train: no corpus\n')
