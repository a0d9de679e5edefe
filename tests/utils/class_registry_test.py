"""Tests of the registry of class names."""

import subprocess
import sys

import pytest

from tests.errors import raises_error
from xlflax.utils import class_registry, errors


def test_classes_are_found_by_registered_name():
  cls = class_registry.find_class('masked_lm')
  assert (
    cls.__name__ == 'MaskedLM'
    and class_registry.registered_name(cls) == 'masked_lm'
  )
  assert class_registry.registered_name(int) is None


def test_duplicate_name_is_rejected():
  with pytest.raises(errors.ConfigError, match='masked_lm'):

    @class_registry.register('masked_lm')
    class Other:
      pass

    del Other


def test_unknown_name_is_rejected():
  with raises_error(errors.RunDirectoryError, got='no', mentions="'no'"):
    class_registry.find_class('no')


def test_registered_names_are_lower_case_identifiers():
  for name in class_registry.registered_classes():
    assert name == name.lower() and name.isidentifier(), name


_FIND_ALL = """
import pathlib, re, sys
import xlflax
from xlflax.utils import class_registry
files = pathlib.Path(xlflax.__file__).parent.rglob('*.py')
names = [
  name
  for file in files
  for name in re.findall(r"\\bregister\\('(\\w+)'\\)", file.read_text())
]
for name in names:
  class_registry.find_class(name)
assert len(names) > 50
assert 'tensorflow' not in sys.modules
"""


@pytest.mark.slow
def test_registered_classes_are_found_without_tensorflow():
  """Saved runs are read before other modules of the package are imported."""
  subprocess.run([sys.executable, '-c', _FIND_ALL], check=True)
