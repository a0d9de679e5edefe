"""User modules: search paths, and reports of import failures."""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable

import jax
import numpy as np
import optax
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised.featurizers import featurizer
from xlflax.training.optimization import schedules
from xlflax.utils import errors, user_modules


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """The working directory of an installed command, which Python omits."""
  monkeypatch.chdir(tmp_path)
  hidden = ('', os.getcwd())
  monkeypatch.setattr(sys, 'path', [p for p in sys.path if p not in hidden])
  before = set(sys.modules)
  yield tmp_path
  for name in set(sys.modules) - before:
    del sys.modules[name]


def _write(path: pathlib.Path, text: str = 'VALUE = 3\n') -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')


def _import(module: str) -> None:
  user_modules.import_modules([module], where='--flag')


def test_working_directory_is_searched(folder):
  _write(folder / 'um_plain.py')
  _write(folder / 'um_package/inner.py')
  user_modules.import_modules(['um_plain', 'um_package.inner'], where='--flag')
  assert sys.modules['um_plain'].VALUE == 3
  assert sys.modules['um_package.inner'].VALUE == 3


@pytest.mark.parametrize(
  'path, name',
  [
    ('um_plain.py', 'um_plain'),
    ('./um_plain.py', 'um_plain'),
    ('um_package/inner.py', 'um_package.inner'),
    ('um_package/__init__.py', 'um_package'),
    ('um-1.0/um_plain.py', 'um_plain'),
    ('um-1.0/um_package/inner.py', 'um_package.inner'),
  ],
)
@pytest.mark.parametrize('is_absolute', [False, True])
def test_path_is_imported_under_its_module_name(
  folder, path, name, is_absolute
):
  if 'um_package' in path:
    _write((folder / path).parent / '__init__.py')
  _write(folder / path)
  _import(str(folder / path) if is_absolute else path)
  assert sys.modules[name].VALUE == 3
  assert pathlib.Path(sys.modules[name].__file__).samefile(folder / path)


def test_name_and_path_import_the_same_module(folder):
  _write(
    folder / 'um_package/counted.py',
    "import os\nos.environ['UM_COUNT'] += '1'\n",
  )
  os.environ['UM_COUNT'] = ''
  _import('um_package/counted.py')
  _import('um_package.counted')
  assert os.environ.pop('UM_COUNT') == '1'


def test_imported_file_can_import_neighboring_modules(folder):
  _write(folder / 'um_helpers.py')
  _write(folder / 'um_tasks/um_neighbor.py')
  _write(folder / 'um_tasks/own.py', 'import um_helpers, um_neighbor\n')
  _import('um_tasks/own.py')
  elsewhere = folder.parent / f'{folder.name}_elsewhere'
  _write(elsewhere / 'um_other_neighbor.py')
  _write(elsewhere / 'um_elsewhere.py', 'import um_other_neighbor\n')
  _import(f'../{elsewhere.name}/um_elsewhere.py')
  assert sys.modules['um_other_neighbor'].VALUE == 3


def test_missing_module_suggests_similar_modules(folder):
  _write(folder / 'um_tasks.py')
  _write(folder / 'um_package/inner.py')
  for module, suggested in (
    ('um_task', 'um_tasks'),
    ('um_task.py', 'um_tasks.py'),
    ('um_package.iner', 'um_package.inner'),
    ('um_package/iner.py', 'um_package/inner.py'),
  ):
    with raises_error(errors.ConfigError, got=module, where='--flag') as caught:
      _import(module)
    assert suggested in caught.value.fix
  for module in ('zz_no_such', 'zz_no.such', 'zz_no/such.py'):
    with raises_error(errors.ConfigError, got=module, where='--flag'):
      _import(module)


@pytest.mark.parametrize(
  'text, line, mentions',
  [
    ('import zz_no_such\n', 1, ('ModuleNotFoundError', 'zz_no_such')),
    ('x = 1\nx = (\n', 2, 'SyntaxError'),
    ('import json\n\njson.loads("{")\n', 3, 'JSONDecodeError'),
    ('def f():\n  return 1 / 0\n\nf()\n', 2, 'ZeroDivisionError'),
    ('import sys\nsys.exit(3)\n', 2, 'SystemExit'),
  ],
)
def test_import_exception_is_reported_with_its_line(
  folder, text, line, mentions
):
  _write(folder / 'um_broken.py', text)
  source = text.splitlines()[line - 1].strip()
  with raises_error(
    errors.ConfigError,
    where=f'um_broken.py:{line} (`{source}`), --flag',
    mentions=mentions,
    status=errors.ExitStatus.MISTAKE,
  ):
    _import('um_broken')


def test_reported_line_is_in_the_innermost_user_file(folder):
  _write(folder / 'um_package/outer.py', 'from um_package import inner\n')
  _write(folder / 'um_package/inner.py', 'x = int("a")\n')
  with raises_error(
    errors.ConfigError,
    where='um_package/inner.py:1 (`x = int("a")`), --flag',
    mentions=('um_package.outer', 'ValueError'),
  ):
    _import('um_package.outer')


def test_xlflax_error_keeps_its_class_and_fields(folder):
  _write(
    folder / 'um_broken.py',
    'from xlflax.utils import errors\n'
    "raise errors.CorpusError('No text', got=3, where='task a', fix='Add.',\n"
    '  status=errors.ExitStatus.FAILURE)\n',
  )
  with raises_error(
    errors.CorpusError,
    got=3,
    fix='Add.',
    status=errors.ExitStatus.FAILURE,
    mentions=('task a', 'um_broken.py:2', '--flag'),
  ):
    _import('um_broken')


def test_file_named_like_another_module_is_rejected(folder):
  _write(folder / 'json.py')
  with raises_error(errors.ConfigError, got='json.py', mentions='json'):
    _import('json.py')
  _write(folder / 'um.dotted.py')
  with raises_error(errors.ConfigError, got='um.dotted.py'):
    _import('um.dotted.py')


@pytest.mark.parametrize(
  'module, path, renamed',
  [
    ('json', 'json.py', 'json.py'),
    ('json', 'json/__init__.py', 'json'),
    ('json.decoder', 'json/decoder.py', 'json'),
    ('json.um_missing', 'json/um_missing.py', 'json'),
    ('sys', 'sys.py', 'sys.py'),
  ],
)
def test_user_module_hidden_by_another_module_is_rejected(
  folder, module, path, renamed
):
  _write(folder / path)
  with raises_error(errors.ConfigError, got=module, where='--flag') as error:
    _import(module)
  assert_mentions(error.value.fix, renamed)


def test_unrelated_files_are_not_reported_as_hidden(folder):
  _write(folder / 'json/um_notes.txt')
  _write(folder / 'json/um_other.py')
  _import('json')
  _import('json.decoder')


def test_imports_are_found_without_running_the_module(folder):
  _write(
    folder / 'um_imports.py',
    'import a.b\nfrom c import d\n\ndef f():\n  import e\n\nraise ValueError\n',
  )
  names = {'a.b', 'c.d', 'e'}
  assert user_modules.find_imports('um_imports') == names
  assert user_modules.find_imports('um_imports.py') == names
  assert user_modules.find_imports('zz_no_such') == set()


@pytest.mark.parametrize(
  'module', ['um_package.layers', 'um_package.wrong.layers']
)
def test_module_in_another_package_is_suggested(folder, module):
  for name in ('__init__', 'inner/__init__', 'inner/layers', 'layer'):
    _write(folder / f'um_package/{name}.py')
  with raises_error(errors.ConfigError, got=module) as error:
    _import(module)
  assert error.value.fix == 'Did you mean um_package.inner.layers?'


@pytest.mark.parametrize(
  'module', ['xlflax.training.optimizers', 'xlflax.optimizers']
)
def test_xlflax_module_is_suggested(module):
  with raises_error(
    errors.ConfigError, mentions='xlflax.training.optimization.optimizers'
  ):
    _import(module)


class _Featurizer(featurizer.Featurizer):
  def own(self):
    raise NotImplementedError


@pytest.mark.parametrize(
  'call, message',
  [
    (lambda: _Featurizer().fields(8, None), ('_Featurizer', '`fields`')),
    (lambda: _Featurizer().own(), None),
    (lambda: featurizer.Featurizer().fields(8, None), None),
    (lambda: int('x'), None),
  ],
)
def test_missing_method_of_a_user_class_is_reported(call, message):
  with pytest.raises((NotImplementedError, ValueError)) as error:
    call()
  converted = user_modules.convert_missing_method(error.value)
  if message is None:
    assert converted is None
  else:
    assert_mentions(converted, *message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Schedule(schedules.Schedule):
  """A schedule with an exception, or with another mistake, at some steps."""

  def __call__(self, step):
    if step == 1:
      return _halve(step)
    if step == 2:
      raise OSError(5, 'Input/output error')
    if step == 3:
      raise ValueError('UNAVAILABLE: the connection was lost')
    return optax.constant_schedule(1.0)(None, step)


def _halve(step):
  return step / 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shipped(schedules.Schedule):
  """A schedule of xlflax, as far as its module is concerned."""

  __module__ = 'xlflax.training.schedules'

  def __call__(self, step):
    raise AssertionError


def _convert(call) -> Exception | None:
  """Returns the error for the exception that a function raises."""
  with pytest.raises(Exception) as caught:
    call()
  return user_modules.convert_class_error(caught.value)


def test_exception_in_a_user_class_is_reported_with_its_line():
  error = _convert(lambda: _Schedule()(1))
  assert isinstance(error, errors.ConfigError)
  assert error.status == errors.ExitStatus.MISTAKE
  assert_mentions(error.what, '`_Schedule.__call__`')
  assert error.got == 'ZeroDivisionError: division by zero'
  assert_mentions(error.where, 'user_modules_test.py', '`return step / 0`')


@pytest.mark.parametrize('value', [0, 1.0])
def test_error_for_a_traced_value_has_a_hint(value):
  error = _convert(lambda: jax.jit(_Schedule())(value))
  assert_mentions(error.got, 'TracerBoolConversionError')
  assert '\n' not in error.got
  assert_mentions(error.where, '`if step == 1:`')
  assert_mentions(error.fix, 'jax.numpy.where', 'jax.lax.cond')


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Keeping(schedules.Schedule):
  """A schedule that uses an array after its memory was reused."""

  array: jax.Array
  call: Callable

  def __call__(self, step):
    return self.call(self.array)


@pytest.mark.parametrize(
  'call',
  [
    lambda array: array + 1,
    lambda array: float(array[0]),
    jax.device_get,
    jax.block_until_ready,
    jax.jit(lambda array: array + 1, donate_argnums=0),
  ],
)
def test_error_for_an_array_of_an_earlier_step_has_a_hint(call):
  array = jax.numpy.ones(2)
  array.delete()
  error = _convert(lambda: _Keeping(array=array, call=call)(0))
  assert isinstance(error, errors.ConfigError)
  assert error.status == errors.ExitStatus.MISTAKE
  assert_mentions(error.where, 'user_modules_test.py')
  assert_mentions(error.fix, 'run.state', 'jax.device_get', 'add-a-hook')


def test_original_exception_is_chained():
  with raises_error(errors.ConfigError) as caught:
    with user_modules.converting_class_errors():
      _Schedule()(1)
  assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
  'call',
  [
    lambda: _Shipped()(1),
    lambda: schedules.Linear(peak_value=1.0, total_steps=2)('text'),
    lambda: _Schedule()(2),
    lambda: _Schedule()(3),
    lambda: _halve(1),
  ],
)
def test_unrelated_exceptions_are_not_converted(call):
  """Covers bugs of xlflax, system errors and code outside of classes."""
  assert _convert(call) is None


def test_exception_in_a_library_is_reported_with_the_user_method():
  error = _convert(lambda: _Schedule()(4))
  assert_mentions(error.what, '`_Schedule.__call__`')
  assert_mentions(
    error.where, '`return optax.constant_schedule(1.0)(None, step)`'
  )


def test_exception_inside_of_xlflax_logs_the_traceback(caplog):
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Wrapping(schedules.Schedule):
    def __call__(self, step):
      return schedules.Linear(peak_value=1.0, total_steps=2)('text')

  error = _convert(lambda: _Wrapping()(0))
  assert_mentions(error.what, '`_Wrapping.__call__`')
  (record,) = caplog.records
  assert record.exc_info


@dataclasses.dataclass
class _Losses:
  values: dict


@pytest.mark.parametrize(
  'value, expected',
  [
    (None, 'None'),
    (np.zeros([2, 3], np.int32), '<int32 array of shape [2, 3]>'),
    (
      (np.float32(1), {'a': [np.zeros(4)]}),
      "(<float32 array of shape []>, {'a': [<float64 array of shape [4]>]})",
    ),
    (
      _Losses({'a': np.zeros(2)}),
      "_Losses(values={'a': <float64 array of shape [2]>})",
    ),
    (_Losses, repr(_Losses)),
    (list(range(100)), '[0, 1, 2, 3, 4, 5, ...]'),
  ],
)
def test_values_are_described_without_the_elements_of_arrays(value, expected):
  assert user_modules.describe_value(value) == expected


def test_method_that_is_not_a_python_function_is_named():
  assert user_modules.find_method(dict, 'get') == 'dict.get'
