"""Tests that processes join despite HTTP proxies in the environment."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.end_to_end.conftest import free_port
from xlflax.training.distributed import proxies

_ROOT = pathlib.Path(__file__).parents[3]
_WORKER = """
import sys
from xlflax.training.distributed import distributed_job
distributed_job.initialize_distributed(
  coordinator_address=sys.argv[1], num_processes=2, process_id=int(sys.argv[2]),
  initialization_timeout=20)
import jax
assert jax.process_count() == 2
jax.distributed.shutdown()
"""


@pytest.mark.parametrize(
  'environment, expected',
  [
    ({}, {}),
    ({'no_proxy': 'a'}, {'no_proxy': 'a'}),
    (
      {'http_proxy': 'p'},
      {'http_proxy': 'p', 'no_proxy': 'n1', 'NO_PROXY': 'n1'},
    ),
    (
      {'grpc_proxy': 'p', 'no_proxy': 'a,n1', 'no_grpc_proxy': 'b'},
      {
        'grpc_proxy': 'p',
        'no_proxy': 'a,n1',
        'NO_PROXY': 'n1',
        'no_grpc_proxy': 'b,n1',
      },
    ),
  ],
)
def test_coordinator_is_exempt_from_proxies(environment, expected):
  proxies.exempt_coordinator('n1:7000', environment)
  assert environment == expected


def test_exempt_ipv6_address_has_no_brackets():
  environment = {'https_proxy': 'p'}
  proxies.exempt_coordinator('[::1]:7000', environment)
  assert environment['no_proxy'] == '::1'


@pytest.mark.slow
def test_processes_join_with_an_unresponsive_proxy():
  coordinator = f'localhost:{free_port()}'
  processes = [
    subprocess.Popen(
      [sys.executable, '-c', _WORKER, coordinator, str(i)],
      cwd=_ROOT,
      env={
        **{k: v for k, v in os.environ.items() if 'proxy' not in k.lower()},
        'JAX_PLATFORMS': 'cpu',
        'http_proxy': f'http://127.0.0.1:{free_port()}',
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for i in range(2)
  ]
  outputs = [process.communicate(timeout=90)[0] for process in processes]
  assert [process.returncode for process in processes] == [0, 0], outputs
