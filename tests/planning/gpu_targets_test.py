"""Tests of GPU target configurations for XLA."""

import pathlib
import re

import pytest

from xlflax.planning import gpu_targets
from xlflax.training.devices import accelerators
from xlflax.utils import errors

_ROOT = pathlib.Path(__file__).parents[2]


def _of(name):
  return next(a for a in accelerators.TABLE if a.name == name)


def test_chips_match_their_accelerators():
  for accelerator in accelerators.TABLE:
    chip = accelerator.chip
    if chip is None:
      continue
    assert accelerator.platform == 'gpu'
    assert accelerators.find_by_kind(chip.description) is accelerator
    assert 0.9 < chip.memory / accelerator.memory < 1.11
    # Float32 lanes compute one fused multiply-add per cycle.
    vector = 2 * chip.cores * chip.lanes * chip.clock * 1e9
    assert 15e12 < vector < accelerator.flops


def test_target_config_of_known_gpus():
  text = gpu_targets.gpu_target_config(_of('H200'))
  assert 'core_count: 132' in text and 'memory_bandwidth: 4800000000000' in text
  assert 'major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES' in text
  assert 'shared_memory_per_block_optin: 232448' in text
  ada = gpu_targets.gpu_target_config(_of('L40S'))
  assert 'cuda_compute_capability { major: 8 minor: 9 }' in ada
  assert ada.count('{') == ada.count('}')


def test_library_versions_match_the_lock_file():
  lock = (_ROOT / 'requirements' / 'gpu.lock').read_text()
  for package, field in (
    ('cuda-runtime', 'runtime_version'),
    ('cudnn', 'dnn_version_info'),
  ):
    pinned = re.search(rf'^nvidia-{package}-cu12==(\d+)\.(\d+)', lock, re.M)
    major, minor = pinned.groups()
    text = gpu_targets.gpu_target_config(_of('B200'))
    assert f'{field} {{ major: {major} minor: {minor} }}' in text


def test_unknown_gpu_is_rejected():
  with pytest.raises(errors.ConfigError, match='H200'):
    gpu_targets.gpu_target_config(_of('V100'))
