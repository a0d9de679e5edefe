"""Tests of requested accelerators that are not available."""

import pytest

from xlflax.training.distributed import platforms
from xlflax.utils import errors

GPU, TPU = platforms.Platform.GPU, platforms.Platform.TPU


def test_requested_platform_is_accepted():
  platforms.check_platform(None)
  platforms.check_platform(platforms.Platform.CPU)
  platforms.check_platform(GPU, found='gpu')


def test_missing_accelerator_package_is_a_mistake(monkeypatch):
  monkeypatch.setattr(
    platforms.accelerator_packages, 'installed_packages', lambda kind: []
  )
  with pytest.raises(errors.ConfigError, match='GPU') as caught:
    platforms.check_platform(GPU, found='cpu')
  assert caught.value.status is errors.ExitStatus.MISTAKE
  assert "extra 'gpu'" in caught.value.fix


def test_missing_accelerator_device_is_a_failure(monkeypatch):
  monkeypatch.setattr(
    platforms.accelerator_packages, 'installed_packages', lambda kind: [kind]
  )
  with pytest.raises(errors.ConfigError, match='TPU') as caught:
    platforms.check_platform(TPU, found='cpu')
  assert caught.value.status is errors.ExitStatus.FAILURE
