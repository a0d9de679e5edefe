"""Modules that must not import TensorFlow, which only SeqIO tasks need."""

import importlib
import importlib.util
import pkgutil
import subprocess
import sys

import pytest

import xlflax

_PACKAGES = (
  'xlflax.models',
  'xlflax.objectives',
  'xlflax.training',
  'xlflax.analysis',
  'xlflax.cli',
)
_MODULES = (
  'xlflax.trainer',
  'xlflax.evaluate',
  'xlflax.config.gin_config',
  'xlflax.cli',
  'xlflax.data.preprocessing.pipeline',
  'xlflax.data.batch_keys',
  'xlflax.data.cache.cache_reader',
  'xlflax.data.cache.cache_writer',
  'xlflax.data.plain_text.corpus_directory_tasks',
  'xlflax.data.cache.cached_loader',
  'xlflax.data.loader_base',
  'xlflax.data.loader_factory',
  'xlflax.data.prefetch',
  'xlflax.data.dataset_config',
  'xlflax.data.tokenizers.base_vocabulary',
)


def _walk(package: str) -> list[str]:
  path = importlib.import_module(package).__path__
  return [m.name for m in pkgutil.walk_packages(path, f'{package}.')]


def _loaded_modules(modules) -> set[str]:
  """Returns the modules that a new process loads for these imports."""
  code = (
    'import importlib, sys\n'
    f'for name in {list(modules)!r}:\n'
    '  importlib.import_module(name)\n'
    'print(*sys.modules)'
  )
  out = subprocess.run(
    [sys.executable, '-c', code], check=True, capture_output=True, text=True
  ).stdout
  return set(out.split())


def test_core_modules_do_not_import_tensorflow():
  modules = [m for package in _PACKAGES for m in _walk(package)]
  assert modules
  loaded = _loaded_modules([*modules, *_MODULES])
  assert set(modules) | set(_MODULES) <= loaded
  for banned in (
    'tensorflow',
    'seqio',
    'tensorflow_datasets',
    'torch',
    'transformers',
  ):
    assert banned not in loaded


@pytest.mark.slow
def test_seqio_modules_import_seqio():
  assert 'seqio' in _loaded_modules(
    ['xlflax.data.seqio_tasks.seqio_vocabulary']
  )


def test_every_module_can_be_imported():
  """Imports all modules whose optional packages are installed."""
  needs = {
    'xlflax.interop.t5x.': 't5x',
    'xlflax.data.cache.beam_runner': 'apache_beam',
  }
  lacking = tuple(
    prefix
    for prefix, package in needs.items()
    if importlib.util.find_spec(package) is None
  )
  for name in _walk('xlflax'):
    if name.startswith(lacking):
      continue
    module = importlib.import_module(name)
    assert module.__doc__ or name.endswith('__init__'), name
  assert xlflax.__version__


def test_every_study_can_be_imported():
  modules = _walk('studies')
  assert len(modules) > 30
  for name in modules:
    importlib.import_module(name)
