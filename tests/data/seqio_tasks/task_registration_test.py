"""Modules that register tasks."""

from tests.errors import raises_error
from xlflax.data.seqio_tasks import task_registration
from xlflax.utils import errors


def test_task_modules_are_imported_from_the_working_directory(
  registry, tmp_path, monkeypatch
):
  (tmp_path / 'my_toy_tasks.py').write_text(
    'from xlflax.data.seqio_tasks import task_registry as task_registry\n'
    "task_registry.set_task_languages('t13', ['fi'])\n"
  )
  (tmp_path / 'my_broken_tasks.py').write_text('import no_such_library\n')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  task_registration.import_task_modules(['my_toy_tasks'])
  assert registry.registered_languages('t13') == ('fi',)
  with raises_error(ModuleNotFoundError, mentions='no_such_library'):
    task_registration.import_task_modules(['my_broken_tasks'])
  with raises_error(
    errors.ConfigError, got='my_missing_tasks', where='--task_module'
  ):
    task_registration.import_task_modules(['my_missing_tasks'])
