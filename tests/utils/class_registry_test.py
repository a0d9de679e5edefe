"""Stable names of classes."""

import subprocess
import sys

import pytest

from xlflax.utils import class_registry, errors


def test_names_lead_to_classes_and_back():
  cls = class_registry.find_class('masked_lm')
  assert (
    cls.__name__ == 'MaskedLM'
    and class_registry.registered_name(cls) == 'masked_lm'
  )
  assert class_registry.registered_name(int) is None


def test_a_name_is_of_one_class():
  with pytest.raises(errors.ConfigError, match='masked_lm'):

    @class_registry.register('masked_lm')
    class Other:
      pass

    del Other


def test_an_unknown_name():
  with pytest.raises(errors.RunDirectoryError, match='not registered. Got: no'):
    class_registry.find_class('no')


def test_names_are_snake_case():
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
def test_every_registered_class_is_found_without_tensorflow():
  """A saved run is read before any other import of the package."""
  subprocess.run([sys.executable, '-c', _FIND_ALL], check=True)
