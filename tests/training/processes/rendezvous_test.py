"""What each process of a job hears where they were started differently."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

from xlflax.foundation import errors
from xlflax.training.processes import cluster, rendezvous, statements

_MANY = str(pathlib.Path(__file__).with_name('many_processes.py'))


@pytest.fixture
def port():
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    return listener.getsockname()[1]


def _statement(process_id, num_processes=3, **more):
  return statements.Statement(
    **{
      'process_id': process_id,
      'num_processes': num_processes,
      'host': f'host{process_id}',
      'versions': {'jax': '1'},
      'configuration': 'LR = 1\nSTEPS = 2',
    }
    | more
  )


def _hold(port, statement, timeout=20.0, patience=1.0):
  """The message of the process's error, or None."""
  job = cluster.Job(
    coordinator=f'127.0.0.1:{port}',
    num_processes=statement.num_processes,
    process_id=statement.process_id,
    source='flags',
  )
  try:
    rendezvous.meet(
      job, statement, timeout_seconds=timeout, patience_seconds=patience
    )
  except errors.ConfigError as error:
    return str(error)


def _hold_all(port, statements, **more):
  with concurrent.futures.ThreadPoolExecutor(len(statements)) as pool:
    return list(pool.map(lambda s: _hold(port, s, **more), statements))


def test_all_agree(port):
  assert _hold_all(port, [_statement(i) for i in range(3)]) == [None] * 3


def test_port_is_free_afterwards(port):
  _hold_all(port, [_statement(i) for i in range(3)])
  with socket.create_server(('', port)):
    pass


@pytest.mark.parametrize(
  'last, text',
  [
    (
      _statement(2, num_processes=4),
      'do not agree on how many they are. Got: '
      '3 for process 0 (on host0), 4 for process 2 (on host2)',
    ),
    (
      _statement(1, host='other'),
      'Two processes have the same number. Got: 1 on ',
    ),
    (
      _statement(2, versions={'jax': '2'}),
      'different packages installed. Got: '
      'process 0 (on host0): jax 1; process 2 (on host2): jax 2',
    ),
    (
      _statement(2, configuration='LR = 3\nSTEPS = 2'),
      'different '
      'configurations. Got: \n--- process 0 (on host0)\n+++ process 2 (on '
      'host2)\n-LR = 1\n+LR = 3\n',
    ),
  ],
)
def test_difference_is_told_to_all(port, last, text, monkeypatch):
  monkeypatch.setattr(rendezvous, '_LINGER', 0.5)
  heard = _hold_all(port, [_statement(0), _statement(1), last])
  assert heard[0] == heard[1] == heard[2]
  assert text in heard[0]


def test_missing_process_is_named_to_all(port, monkeypatch):
  monkeypatch.setattr(rendezvous, '_LINGER', 0.2)
  heard = _hold_all(port, [_statement(0), _statement(2)], timeout=1)
  assert heard[0] == heard[1]
  assert '2 of 3 processes within 1 s; missing: 1.' in heard[0]


def test_no_process_0(port):
  start = time.monotonic()
  heard = _hold(port, _statement(1), timeout=1)
  assert 'Process 0 of the job cannot be reached' in heard
  assert 'process 0 within 1 s' in heard and 'process 1 (on host1)' in heard
  assert time.monotonic() - start < 5


def test_unknown_host(port):
  job = cluster.Job(
    coordinator=f'no-such-host.invalid:{port}',
    num_processes=2,
    process_id=1,
    source='flags',
  )
  with pytest.raises(errors.ConfigError, match='cannot be reached'):
    rendezvous.meet(job, _statement(1, 2), timeout_seconds=1)


@pytest.mark.parametrize('answer', [b'HTTP/1.1 400 Bad Request\r\n\r\n\n', b''])
def test_port_is_taken(port, answer):
  """By a server that answers something else, or hangs up."""
  with socket.create_server(('', port)) as server:

    def serve():
      with contextlib.suppress(OSError):
        while True:
          peer, _ = server.accept()
          with peer:
            peer.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    lead, other = _hold_all(port, [_statement(0, 2), _statement(1, 2)])
  assert f'cannot listen on the port of the job. Got: port {port}' in lead
  assert "Something that is not the job's process 0 answers" in other


def test_what_is_no_process_does_not_disturb(port):
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    lead = pool.submit(_hold, port, _statement(0, 2))
    for _ in range(100):
      with contextlib.suppress(OSError):
        with socket.create_connection(('127.0.0.1', port)) as scanner:
          scanner.sendall(b'GET / HTTP/1.1\n')
        break
      time.sleep(0.05)
    other = pool.submit(_hold, port, _statement(1, 2))
    assert (lead.result(), other.result()) == (None, None)


def test_process_0_may_come_last(port):
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    other = pool.submit(_hold, port, _statement(1, 2))
    time.sleep(0.5)
    lead = pool.submit(_hold, port, _statement(0, 2))
    assert (lead.result(), other.result()) == (None, None)


def test_long_difference_is_cut(port):
  first = _statement(0, 2, configuration='')
  second = _statement(1, 2, configuration='\n'.join(map(str, range(100))))
  heard = _hold_all(port, [first, second])
  assert 'and 82 more lines' in heard[0]


def test_a_process_that_ended_may_come_again(port):
  """A pod that was replaced while the others still wait."""
  with concurrent.futures.ThreadPoolExecutor(3) as pool:
    held = [pool.submit(_hold, port, _statement(0))]
    with _connected(port) as connection:
      assert rendezvous._line(connection) == rendezvous._GREETING
      said = json.dumps(dataclasses.asdict(_statement(1)))
      connection.sendall(f'{said}\n'.encode())
    held += [pool.submit(_hold, port, _statement(i)) for i in (1, 2)]
    assert [one.result(30) for one in held] == [None] * 3


def _connected(port):
  for _ in range(100):
    with contextlib.suppress(ConnectionError):
      return socket.create_connection(('127.0.0.1', port), timeout=10)
    time.sleep(0.05)
  raise AssertionError('nobody listens')


def test_too_few_descriptors_are_told(port):
  """By a process that may not open as many files as the job has processes."""
  run = subprocess.run(
    [sys.executable, _MANY, str(port), '100', '64'],
    text=True,
    capture_output=True,
    check=False,
  )
  assert 'more processes than files that process 0 may open. Got: 64' in (
    run.stdout
  ), run
  assert 'Expected: at least 612' in run.stdout and 'ulimit -n' in run.stdout


@pytest.mark.slow
def test_a_thousand_processes(port, capsys):
  """1,024 light processes on this machine: seconds, and those of processors."""
  run = subprocess.run(
    [sys.executable, _MANY, str(port), '1024'],
    text=True,
    capture_output=True,
    check=True,
  )
  met, lead, spent = map(float, run.stdout.split())
  with capsys.disabled():
    print(
      f'\n1,024 processes met after {met:.1f} s; processor seconds: '
      f'{lead:.2f} of process 0, {spent:.1f} of all, their start included'
    )
  assert lead < 1 and spent < 20
  # What else runs on this machine takes its share.
  assert met < 10 * max(1, os.getloadavg()[0] / os.cpu_count())
