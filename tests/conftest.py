"""Configures the test session: eight CPU devices and no rank promotion."""

import gc
import os
import pathlib
import signal
import sys
import tempfile

from tests import xla_flags

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ['XLA_FLAGS'] = (
  os.environ.get('XLA_FLAGS', '')
  + ' --xla_force_host_platform_device_count=8'
  + f' {xla_flags.quick_compilation_flags()}'
  # Collectives of eight devices on two busy cores can be slow.
  + ' --xla_cpu_collective_call_warn_stuck_timeout_seconds=120'
  + ' --xla_cpu_collective_call_terminate_timeout_seconds=600'
)
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('HF_HUB_OFFLINE', '1')
# torch imports Triton if it is installed. Triton's and TensorFlow's LLVM in one
# process cause a segmentation fault.
sys.modules['triton'] = None  # type: ignore[assignment]

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

from tests.worker_memory import (  # noqa: E402, F401
  programs_freed,
  pytest_sessionfinish,
  pytest_terminal_summary,
  pytest_testnodedown,
)

# Background jobs of a shell ignore SIGINT, and child processes inherit this.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)
# A job that was started by nohup ignores SIGHUP.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
  signal.signal(signal.SIGHUP, signal.SIG_DFL)

jax.config.update('jax_numpy_rank_promotion', 'raise')
# Data generation may be slow on a busy machine.
hypothesis.settings.register_profile(
  'busy', deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile('busy')
# Compiled programs are long-lived, so garbage collection would free nothing.
gc.set_threshold(20_000, 20, 50)
# Commands called in this process would enable it for all later tests.
jax.config.update('jax_enable_compilation_cache', False)


@pytest.fixture
def shared_path():
  """A directory outside of /tmp, as on storage that all nodes share."""
  with tempfile.TemporaryDirectory(dir=pathlib.Path(__file__).parent) as path:
    yield pathlib.Path(path)


@pytest.fixture(scope='session', autouse=True)
def mirrors_of_buckets(tmp_path_factory):
  # Copies of bucket contents are not written to the user's cache directory.
  os.environ['XLFLAX_STAGE'] = str(tmp_path_factory.mktemp('staged'))


def pytest_addoption(parser):
  parser.addoption(
    '--slow', action='store_true', help='also run the slow tests'
  )
  parser.addoption(
    '--regenerate_goldens',
    action='store_true',
    help='write new golden files instead of comparing against them',
  )


def pytest_collection_modifyitems(config, items):
  if config.getoption('--slow'):
    return
  skip = pytest.mark.skip(reason='slow; run with --slow (make test-slow)')
  for item in items:
    if 'slow' in item.keywords:
      item.add_marker(skip)


def pytest_collection_finish():
  # Imported objects are permanent, so garbage collection skips them.
  gc.freeze()


@pytest.fixture
def regenerate_goldens(request) -> bool:
  return request.config.getoption('--regenerate_goldens')
