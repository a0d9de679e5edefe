"""Rates of devices: measured on CPUs, and told of devices that lie."""

import functools
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

from xlflax.foundation import errors
from xlflax.training.devices import accelerators, devices, gpu_state, rates

_H200 = accelerators.named('gpu', 'H200')
_SMALL = {
  'products': lambda: devices.product_rate(64, 'bfloat16', 2),
  'memory': lambda: devices.memory_rate(2**16, 2),
  'links': lambda: devices.link_rate(2**12, 2),
}


def _meet(measures, **options):
  lines = []
  found = rates.meet(
    options.pop('accelerator', _H200),
    report=lines.append,
    measures=measures,
    **options,
  )
  return found, lines


def test_rates_of_the_devices_here():
  found, lines = _meet(_SMALL, accelerator=None)
  assert list(found) == ['products', 'memory', 'links']
  assert all(rate > 0 for rate in found.values())
  assert lines[2].startswith('links ') and 'data sheet' not in lines[2]


def test_they_stand_beside_the_data_sheet(caplog):
  measures = {'products': lambda: 700e12, 'memory': lambda: 4.3e12}
  _, lines = _meet(measures | {'links': lambda: 300e9})
  assert lines == [
    'products 700.0 TFLOP/s, 71% of the data sheet (989.0)',
    'memory 4,300.0 GB/s, 90% of the data sheet (4,800.0)',
    'links 300.0 GB/s, 67% of the data sheet (450.0)',
  ]
  assert not caplog.records


def test_a_slow_one_is_a_warning(caplog):
  found, _ = _meet({'links': lambda: 12e9})
  assert found == {'links': pytest.approx(12e9)}
  assert 'links 12.0 GB/s, 3% of the data sheet' in caplog.text
  assert 'NCCL_DEBUG=INFO' in caplog.text


def test_the_slowest_process_is_named(monkeypatch):
  gathered = [5e14, 2e14, 6e14]
  monkeypatch.setattr(
    rates.multihost_utils, 'process_allgather', lambda mine: gathered
  )
  found, lines = _meet({'products': lambda: 5e14}, accelerator=None)
  assert found == {'products': 2e14}
  assert lines == ['products 200.0 TFLOP/s (process 1, the slowest)']


def test_broken_memory_is_a_warning(monkeypatch, caplog):
  monkeypatch.setattr(gpu_state, 'memory_errors', lambda: [0, 3])
  _meet({})
  assert 'GPU 1: 3 uncorrected errors' in caplog.text


def _fails():
  raise RuntimeError('NCCL: unhandled system error')


def test_one_that_hangs_or_fails_ends_the_run():
  never = threading.Event()
  with pytest.raises(errors.TrainingError, match='nothing in 0.1 s') as caught:
    _meet({'links': functools.partial(never.wait, 20)}, deadline=0.1)
  never.set()
  assert caught.value.status == errors.ExitStatus.FAILURE
  with pytest.raises(RuntimeError, match='unhandled system error'):
    _meet({'links': _fails})


_PROCESS = """
import sys
import jax
jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_cpu_collectives_implementation', 'gloo')
jax.distributed.initialize('localhost:' + sys.argv[1], 2, int(sys.argv[2]))
from tests.training.devices import rates_test
from xlflax.training.devices import rates
rates.meet(None, report=print, measures=rates_test._SMALL)
"""


@pytest.mark.slow
def test_two_processes_sum_together():
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    port = str(probe.getsockname()[1])
  root = pathlib.Path(__file__).parents[3]
  running = [
    subprocess.Popen(
      [sys.executable, '-c', _PROCESS, port, str(i)],
      cwd=root,
      stdout=subprocess.PIPE,
      text=True,
    )
    for i in range(2)
  ]
  said = [process.communicate(timeout=300)[0] for process in running]
  assert [process.returncode for process in running] == [0, 0]
  for text in said:
    assert 'links ' in text and text.count('the slowest') == 3
