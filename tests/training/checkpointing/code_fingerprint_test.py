"""Tests of the fingerprint of the user's source code."""

import dataclasses
import importlib
import json
import sys

import pytest

from tests.errors import assert_mentions
from tests.training import tiny
from xlflax.training.checkpointing import checkpoint_items, code_fingerprint
from xlflax.utils import user_modules

_OBJECTIVE = """
import dataclasses
from xlflax.objectives.pretraining import masked_lm
from . import base
from cf_package.inner.constants import SCALE

@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective(masked_lm.MaskedLM, base.Base):
  option: object = None
"""
_SOURCES = {
  '__init__': '',
  'objective': _OBJECTIVE,
  'base': 'class Base:\n  pass\n',
  'inner/constants': 'SCALE = 1.0\n',
  'nested': 'import dataclasses\n'
  '@dataclasses.dataclass(frozen=True)\n'
  'class Option:\n  values: tuple = ()\n',
  'unrelated': '',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Settings:
  """The fields of a `Trainer` that the fingerprint reads."""

  objective: object = None
  hooks: tuple = ()
  task_modules: tuple = ()
  cache_dir: str | None = None


@pytest.fixture
def package(tmp_path, monkeypatch):
  """Function that imports the package with some changed sources."""
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.chdir(tmp_path)

  def import_package(**changed):
    for name in [name for name in sys.modules if 'cf_package' in name]:
      del sys.modules[name]
    for name, source in (_SOURCES | changed).items():
      path = tmp_path / f'cf_package/{name}.py'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(source)
    importlib.invalidate_caches()
    names = ('objective', 'nested', 'unrelated')
    modules = [importlib.import_module(f'cf_package.{name}') for name in names]
    return modules[0].Objective(option=modules[1].Option())

  yield import_package
  for name in [name for name in sys.modules if 'cf_package' in name]:
    del sys.modules[name]


def _describe(objective, **fields):
  code = code_fingerprint.describe_code(
    _Settings(objective=objective, **fields)
  )
  return {name: code[name] for name in code if not name.startswith('tests.')}


def test_user_modules_and_their_imports_are_described(package):
  assert set(_describe(package())) == {
    'cf_package',
    'cf_package.objective',
    'cf_package.base',
    'cf_package.inner.constants',
    'cf_package.nested',
  }


@pytest.mark.parametrize(
  'changed, files',
  [
    ({}, None),
    ({'unrelated': 'X = 1'}, None),
    ({'nested': _SOURCES['nested'] + '# Changed.\n'}, 'cf_package/nested.py'),
    ({'inner/constants': 'SCALE = 20.0'}, 'cf_package/inner/constants.py'),
  ],
)
def test_changed_files_are_described(package, changed, files):
  saved = _describe(package())
  current = _describe(package(**changed))
  assert user_modules.describe_changed_files(saved, current) == files


def test_added_and_removed_code_is_not_a_change(package):
  saved = _describe(package())
  assert user_modules.describe_changed_files(saved, {}) is None
  assert user_modules.describe_changed_files({}, saved) is None


def test_task_modules_are_described_unless_a_cache_is_read(package):
  package()
  modules = {'task_modules': ('cf_package.unrelated',)}
  assert _describe(None, **modules).keys() == {'cf_package.unrelated'}
  assert not _describe(None, **modules, cache_dir='cache')


def test_shipped_classes_have_no_fingerprint():
  assert not code_fingerprint.describe_model_code(tiny.make_model())
  assert not _describe(tiny.make_mixture())


@pytest.mark.parametrize(
  'changed, warns', [({}, 0), ({'base': 'class Base: 0'}, 1)]
)
def test_changed_model_causes_a_warning(
  package, tmp_path, caplog, changed, warns
):
  path = tmp_path / '4' / checkpoint_items.META / 'metadata'
  path.parent.mkdir(parents=True)
  model = package()
  code = code_fingerprint.describe_model_code(model)
  path.write_text(json.dumps({'inputs': {'code': code}}))
  code_fingerprint.warn_of_changed_model(package(**changed), tmp_path / '4')
  assert len(caplog.messages) == warns
  for line in caplog.messages:
    assert_mentions(line, 'cf_package/base.py', str(tmp_path / '4'))
