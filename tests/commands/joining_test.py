"""What must not differ between the processes of a job."""

import argparse

import gin
import pytest

from xlflax.commands import joining

_LONG = '/' + '/'.join(['a_folder_with_a_long_name'] * 5)


@pytest.fixture(autouse=True)
def clean_gin():
  with gin.unlock_config():
    gin.clear_config()
    yield
    gin.clear_config()


def _common(*bindings, **flags):
  gin.clear_config()
  gin.parse_config(bindings)
  return joining._common(argparse.Namespace(**flags))


@pytest.mark.parametrize('name', ['CACHE_DIR', 'CORPUS', 'VOCABULARY'])
@pytest.mark.parametrize('place', ['/data', _LONG])
def test_where_data_lie_may_differ(name, place):
  assert _common(f"{name} = '{place}'", 'SEED = 1') == 'SEED = 1'


def test_settings_and_flags_are_common():
  assert _common('SEED = 1', dry_run=True) == 'SEED = 1\n--dry_run=True'


def test_a_long_setting_is_one_line():
  assert _common(f"MODEL_DIR = '{_LONG}'") == f"MODEL_DIR = '{_LONG}'"
