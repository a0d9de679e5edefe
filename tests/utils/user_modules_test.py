import sys

import pytest

from xlflax.utils import errors, user_modules


def test_modules_are_imported_from_the_working_directory(tmp_path, monkeypatch):
  (tmp_path / 'my_user_module.py').write_text('VALUE = 3\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [p for p in sys.path if p])
  user_modules.import_modules(['my_user_module'], where='--flag')
  assert sys.modules.pop('my_user_module').VALUE == 3


def test_a_module_that_is_missing_and_one_that_misses_another(
  tmp_path, monkeypatch
):
  (tmp_path / 'my_broken_module.py').write_text('import no_such_package\n')
  monkeypatch.syspath_prepend(str(tmp_path))
  with pytest.raises(ModuleNotFoundError, match='no_such_package'):
    user_modules.import_modules(['my_broken_module'], where='--flag')
  for name in ('my_missing_module', 'my_missing.module'):
    with pytest.raises(errors.ConfigError, match=f'Got: {name}.*--flag'):
      user_modules.import_modules([name], where='--flag')
