"""The texts that describe GPUs to XLA."""

import pathlib
import re

import pytest

from xlflax.planning import gpu_targets
from xlflax.training.devices import accelerators
from xlflax.utils import errors

_ROOT = pathlib.Path(__file__).parents[2]


def _of(name):
  return next(a for a in accelerators.TABLE if a.name == name)


def test_every_chip_is_an_accelerator_with_its_memory():
  for accelerator in accelerators.TABLE:
    chip = accelerator.chip
    if chip is None:
      continue
    assert accelerator.platform == 'gpu'
    assert accelerators.find_by_kind(chip.description) is accelerator
    assert 0.9 < chip.memory / accelerator.memory < 1.11
    # Float32 lanes do an addition and a multiplication a cycle: tens of
    # TFLOP/s, and far less than the tensor cores.
    vector = 2 * chip.cores * chip.lanes * chip.clock * 1e9
    assert 15e12 < vector < accelerator.flops


def test_text():
  text = gpu_targets.gpu_target_config(_of('H200'))
  assert 'core_count: 132' in text and 'memory_bandwidth: 4800000000000' in text
  assert 'major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES' in text
  assert 'shared_memory_per_block_optin: 232448' in text
  ada = gpu_targets.gpu_target_config(_of('L40S'))
  assert 'cuda_compute_capability { major: 8 minor: 9 }' in ada
  assert ada.count('{') == ada.count('}')


def test_versions_are_those_of_the_lock():
  lock = (_ROOT / 'requirements' / 'gpu.lock').read_text()
  for package, field in (
    ('cuda-runtime', 'runtime_version'),
    ('cudnn', 'dnn_version_info'),
  ):
    pinned = re.search(rf'^nvidia-{package}-cu12==(\d+)\.(\d+)', lock, re.M)
    major, minor = pinned.groups()
    text = gpu_targets.gpu_target_config(_of('B200'))
    assert f'{field} {{ major: {major} minor: {minor} }}' in text


def test_a_gpu_of_which_nothing_is_known():
  with pytest.raises(errors.ConfigError, match='H200'):
    gpu_targets.gpu_target_config(_of('V100'))
