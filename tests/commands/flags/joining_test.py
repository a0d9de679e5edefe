"""What must not differ between the processes of a job."""

import argparse
import types

import pytest

from xlflax.commands.flags import joining

_LONG = '/' + '/'.join(['a_folder_with_a_long_name'] * 5)


def _common(*bindings, **flags):
  """Gin breaks a line that is long after its `=`."""
  text = '\n'.join(
    line.replace('= ', '= \\\n    ') if len(line) > 80 else line
    for line in bindings
  )
  configuration = types.SimpleNamespace(parsed=lambda: text)
  return joining._common(argparse.Namespace(**flags), [configuration])


@pytest.mark.parametrize('name', ['CACHE_DIR', 'CORPUS', 'VOCABULARY'])
@pytest.mark.parametrize('place', ['/data', _LONG])
def test_where_data_lie_may_differ(name, place):
  assert _common(f"{name} = '{place}'", 'SEED = 1') == 'SEED = 1'


def test_settings_and_flags_are_common():
  assert _common('SEED = 1', dry_run=True) == 'SEED = 1\n--dry_run=True'


def test_a_long_setting_is_one_line():
  assert _common(f"MODEL_DIR = '{_LONG}'") == f"MODEL_DIR = '{_LONG}'"
