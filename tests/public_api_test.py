import importlib
import pkgutil
import subprocess
import sys

import pytest

import xlflax

PACKAGES = [
  'analysis',
  'data',
  'evaluation',
  'models',
  'objectives',
  'similarity',
  'suites',
  'training',
]


def _python(code: str) -> str:
  return subprocess.run(
    [sys.executable, '-c', code], check=True, capture_output=True, text=True
  ).stdout


def test_import_is_fast():
  """The limit of 0.3 s of CPU time includes the start of the interpreter."""
  imports = ''.join(
    f'import xlflax.{package_name}\n' for package_name in PACKAGES
  )
  seconds, *heavy = _python(
    f'{imports}import sys, time\n'
    'print(time.process_time(), *{"jax", "numpy", "gin"} & {*sys.modules})'
  ).split()
  assert not heavy
  assert float(seconds) < 0.3


def test_names_are_imported_lazily():
  assert _python(
    'import sys, xlflax\n'
    'assert "xlflax.data.dataset_config" not in sys.modules\n'
    'print(xlflax.data.ExampleLayout.BLOCKS.value, xlflax.data.ExampleLayout.__module__)\n'
    'assert "xlflax.data.supervised.supervised_dataset" not in sys.modules'
  ).split() == ['blocks', 'xlflax.data.dataset_config']


def test_top_level_contains_the_packages():
  assert {*PACKAGES} < {*dir(xlflax)}
  assert {'Run', 'from_huggingface', 'load_run'} < {*dir(xlflax)}


@pytest.mark.parametrize('package_name', ['', *PACKAGES])
def test_public_names_exist_and_hide_no_module(package_name):
  package = importlib.import_module(f'xlflax.{package_name}'.rstrip('.'))
  modules = {m.name for m in pkgutil.iter_modules(package.__path__)}
  for name in dir(package):
    if name.startswith('_'):
      continue
    value = getattr(package, name)
    is_module = value is sys.modules.get(f'{package.__name__}.{name}')
    assert is_module or name not in modules, name


def test_unknown_names_raise_attribute_errors():
  with pytest.raises(AttributeError, match="'xlflax.data' has no .* 'Stram'"):
    xlflax.data.Stram  # noqa: B018
