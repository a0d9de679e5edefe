"""Tests of device measurements on CPUs."""

import json
import subprocess
import sys

import pytest

from benchmarks import devices, measure


def test_measure_devices_returns_positive_rates():
  results = devices.measure_devices(
    matmul_size=64,
    dtype='float32',
    memory_bytes=2**16,
    link_bytes=2**12,
    repeats=2,
  )
  assert results['matmul']['rate'] > 0 and results['memory']['rate'] > 0
  assert results['matmul']['slowest_process'] == 0
  assert 'fraction' not in results['matmul']  # A CPU has no data-sheet rate.


def test_all_reduce_rate_of_two_devices_is_measured():
  process = subprocess.run(
    [
      *(sys.executable, '-m', 'benchmarks.devices', '--matmul_size=64'),
      *('--memory_mib=1', '--link_mib=1', '--repeats=2'),
    ],
    cwd=measure.ROOT,
    env={
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': '--xla_force_host_platform_device_count=2',
      'PATH': '',
    },
    capture_output=True,
    text=True,
    timeout=200,
    check=True,
  )
  results = json.loads(process.stdout)
  assert results['devices'] == 2 and results['all_reduce']['rate'] > 0


def test_link_times_names_both_ends_of_a_slow_link():
  """Processes 2 and 3 are delayed by the link between them."""
  links = devices.link_times([0.02, 0.02, 0.4, 0.4], ['a', 'a', 'b', 'c'])
  assert [link['seconds'] for link in links] == [0.02, 0.02, 0.4, 0.02]
  assert links[2]['from'] == 'process 2 on b'
  assert links[2]['to'] == 'process 3 on c'


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
  def install(text: str, status: int = 0) -> None:
    program = tmp_path / 'nvidia-smi'
    program.write_text(f'#!/bin/sh\necho "{text}"\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:/bin:/usr/bin')

  return install


def test_nvidia_smi_reports_clocks_and_memory_errors(nvidia_smi):
  nvidia_smi('1980, 1980, 0\n495, 1980, 7\n1980, 1980, [N/A]')
  assert devices.read_nvidia_smi() == [
    dict(clock_mhz=1980, max_clock_mhz=1980, uncorrected_memory_errors=0),
    dict(clock_mhz=495, max_clock_mhz=1980, uncorrected_memory_errors=7),
    dict(clock_mhz=1980, max_clock_mhz=1980, uncorrected_memory_errors=0),
  ]


def test_failing_nvidia_smi_returns_no_gpus(nvidia_smi):
  nvidia_smi('1980, 1980, 0', status=9)
  assert devices.read_nvidia_smi() == []
