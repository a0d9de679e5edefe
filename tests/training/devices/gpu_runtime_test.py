"""Tests of environment variables of runs on GPUs."""

import os

import pytest
from jaxlib import xla_client

from xlflax.training.devices import gpu_runtime
from xlflax.training.distributed import platforms
from xlflax.utils import errors


def test_default_memory_fraction_is_0_9():
  environment: dict[str, str] = {}
  assert gpu_runtime.memory_fraction(environment) == 0.9
  gpu_runtime.set_defaults(environment)
  assert environment[gpu_runtime.MEMORY] == '0.9'
  assert environment['NCCL_DEBUG'] == 'WARN'


@pytest.mark.parametrize(
  'name', ['XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION']
)
def test_existing_variables_are_kept(name):
  """JAX rejects setting both variables."""
  environment = {name: '.6', 'NCCL_DEBUG': 'INFO'}
  gpu_runtime.set_defaults(environment)
  assert environment == {name: '.6', 'NCCL_DEBUG': 'INFO'}
  assert gpu_runtime.memory_fraction(environment) == 0.6


@pytest.mark.parametrize('text', ['90', '0', 'half', 'nan'])
def test_invalid_memory_fraction_is_rejected(text):
  with pytest.raises(errors.ConfigError, match='XLA_CLIENT_MEM_FRACTION'):
    gpu_runtime.memory_fraction({gpu_runtime.MEMORY: text})


def test_jax_reads_the_memory_fraction(monkeypatch):
  monkeypatch.setenv(gpu_runtime.MEMORY, '0.9')
  options = xla_client.generate_pjrt_gpu_plugin_options()
  assert options['memory_fraction'] == 0.9


@pytest.mark.parametrize(
  ('platform', 'package', 'is_set'),
  [
    (platforms.Platform.CPU, 'jax_cuda12_plugin', False),
    (platforms.Platform.GPU, 'jax_cuda12_plugin', True),
    (None, 'jax_cuda12_plugin', True),
    (None, 'libtpu', False),
  ],
)
def test_memory_fraction_is_set_for_gpus(
  monkeypatch, platform, package, is_set
):
  monkeypatch.setattr(os, 'environ', {})
  monkeypatch.setattr(
    platforms.accelerator_packages.importlib.util,
    'find_spec',
    lambda name: name == package or None,
  )
  platforms.choose_platform(platform)
  assert (gpu_runtime.MEMORY in os.environ) == is_set
