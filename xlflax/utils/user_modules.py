"""Functions that import user-defined modules and optional packages.

User modules define tasks, launchers and similar extensions.
"""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import logging
import os
import pathlib
import pkgutil
import re
import reprlib
import sys
import sysconfig
import textwrap
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from xlflax.utils import errors, name_suggestions

# Flag for the modules that are imported after the tasks of the corpus have been
# registered.
TASK_MODULE_FLAG = '--task_module'
# Hint for a task of a corpus that is not registered.
CORPUS_HINT = (
  'Pass the corpus that contains the task as --corpus=DIR. `xlflax tasks list '
  '--corpus=DIR` lists the tasks of a corpus.'
)
# Hint for a module that refers to the task of a corpus, but is imported before
# such tasks are registered, for example by a gin file.
TASK_MODULE_HINT = (
  'Import the module with --task_module=MODULE instead. Modules of this option '
  'are imported after the tasks of the corpus (--corpus=DIR) are registered.'
)
_CORPUS_TASK = re.compile(r'\bcorpus\.(mono|parallel)\b')
# Exceptions of JAX for code that reads the value of an array while it is
# traced. They are compared by name, because this module does not import JAX.
_TRACING_ERRORS = frozenset(
  (
    'ConcretizationTypeError',
    'NonConcreteBooleanIndexError',
    'TracerArrayConversionError',
    'TracerBoolConversionError',
    'TracerIntegerConversionError',
  )
)
_TRACING_HINT = (
  'The values of arrays are not available in Python while JAX compiles a step. '
  'Use jax.numpy.where or jax.lax.cond in place of `if`, and jax.numpy in '
  'place of `float`, `int` and NumPy (docs/extending.md#exceptions-in-your-code).'
)
# The errors of JAX for an array whose memory a computation has reused.
_DELETED_ARRAY = re.compile('Array has been deleted|deleted or donated')
_DELETED_ARRAY_HINT = (
  'A training step reuses the memory of the train state that it updates, so '
  'the arrays of `run.state` are valid only until the next step. To use their '
  'values later, copy them before the step, for example with '
  'jax.device_get(run.state.params) (docs/extending.md#add-a-hook).'
)
# The status with which the messages of XLA's runtime start.
_RUNTIME_STATUS = re.compile(
  '(ABORTED|CANCELLED|DATA_LOSS|DEADLINE_EXCEEDED|FAILED_PRECONDITION|INTERNAL|'
  'INVALID_ARGUMENT|NOT_FOUND|RESOURCE_EXHAUSTED|UNAVAILABLE|UNKNOWN): '
)
_MAX_EXCEPTION_LENGTH = 300
# Maximum number of characters of a text or object in a message.
_MAX_VALUE_LENGTH = 200


def import_modules(modules: Sequence[str], *, where: str) -> None:
  """Imports modules by name or path.

  The rules are the same for all modules of the user: those of `--task_module`
  and `--launcher_module`, and those that gin files import. Modules are searched
  in the working directory, then in `PYTHONPATH` and the installed packages.

  Args:
    modules: Importable names, such as 'my_project.my_tasks', or paths of Python
      files, such as 'my_project/my_tasks.py'.
    where: Flag or gin file line that contains the names, for error messages.

  Raises:
    ConfigError: If a module does not exist or raises an exception while it is
      imported. The message contains the line of the user's code. An
      `XlflaxError` keeps its class.
  """
  if any(not module.startswith('xlflax.') for module in modules):
    _add_working_directory()
  # Files may have been written since Python listed their directories.
  importlib.invalidate_caches()
  for module in modules:
    _import_module(module, where)


def search_folder(folder: str | os.PathLike) -> None:
  """Adds a folder to the end of the module search path.

  Args:
    folder: Folder of the file that names the modules to import, such as a gin
      file.
  """
  path = os.path.abspath(folder)
  if path not in map(os.path.abspath, sys.path):
    sys.path.append(path)


def find_imports(module: str) -> set[str]:
  """Returns the names of the modules that a module imports, without running it.

  Args:
    module: An importable name or a path, as in `import_modules`.

  Returns:
    The names in the import statements of the file. The set is empty if there is
    no such file or if its syntax is invalid.
  """
  try:
    if _is_path(module):
      file: str | None = _expand(module)
    else:
      _add_working_directory()
      spec = importlib.util.find_spec(module)
      file = spec.origin if spec else None
    return _imported_names(pathlib.Path(file or '').read_bytes())
  except Exception:  # The import raises the error.
    return set()


def _imported_names(source: bytes, package: str = '') -> set[str]:
  """Returns the names of the import statements in a module's source code.

  Args:
    source: Source code of the module.
    package: Package of the module, which resolves relative imports. If '',
      relative imports are omitted.

  Raises:
    SyntaxError, ValueError: If the source code cannot be parsed.
  """
  names: set[str] = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      base = node.module or ''
      if node.level and package:
        base = importlib.util.resolve_name('.' * node.level + base, package)
      elif node.level:
        continue
      names.update(f'{base}.{alias.name}' for alias in node.names)
  return names


def to_absolute(module: str) -> str:
  """Converts the path of a module to an absolute path.

  A module with an absolute path can be imported in any working directory.

  Args:
    module: An importable name, which is returned unchanged, or a path.
  """
  return os.path.abspath(_expand(module)) if _is_path(module) else module


def _add_working_directory() -> None:
  """Adds the working directory to the start of the module search path."""
  if '' not in sys.path and os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())


def _is_path(module: str) -> bool:
  """Returns whether a module is given as a path."""
  return module.endswith('.py') or os.sep in module


def _expand(module: str) -> str:
  """Replaces `~` in the path of a module with the home directory."""
  return os.path.expanduser(module)


def _import_module(module: str, where: str) -> None:
  """Imports a module by name or path."""
  name = importable_name(module, where=where)
  try:
    imported = importlib.import_module(name)
  except (Exception, SystemExit) as error:
    if _is_missing(name, error):
      _check_not_shadowed(module, where)
      raise _not_found(module, where) from error
    raise _import_error(error, module, where) from error
  if _is_path(module):
    _check_file(imported, module, where)
  else:
    _check_not_shadowed(module, where)


def _is_missing(name: str, error: BaseException) -> bool:
  """Returns whether the module itself or one of its packages is missing.

  Otherwise, the module exists, but something that it imports does not.
  """
  return isinstance(error, ModuleNotFoundError) and (
    error.name is not None and f'{name}.'.startswith(f'{error.name}.')
  )


def importable_name(module: str, *, where: str) -> str:
  """Returns the name by which `import_modules` imports a module.

  Args:
    module: An importable name, which is returned unchanged, or a path.
    where: Flag or gin file line that contains the module, for error messages.

  Raises:
    ConfigError: If the path is not the path of a Python file.
  """
  return _module_name(module, where) if _is_path(module) else module


def _module_name(module: str, where: str) -> str:
  """Returns the importable name of a Python file.

  The name of a file in the working directory starts with the folders that lead
  to it, so that an import of the module by its name has the same result. Other
  files are modules of their package, if they have one. The folder of the file
  is added to the search path, so that the file can import its neighbors.
  """
  path = pathlib.Path(os.path.abspath(_expand(module)))
  if path.suffix != '.py' or not path.is_file():
    raise _not_found(module, where)
  root = pathlib.Path.cwd()
  folders = (
    path.parent.relative_to(root).parts if path.is_relative_to(root) else ('.',)
  )
  if not all(folder.isidentifier() for folder in folders):
    root = path.parent
    while (root / '__init__.py').is_file():
      root = root.parent
  search_folder(root)
  search_folder(path.parent)
  *packages, stem = path.relative_to(root).with_suffix('').parts
  if '.' in stem:
    raise errors.ConfigError(
      'The file name of a module must not contain a dot before the extension .py',
      got=module,
      where=where,
    )
  return '.'.join(packages if stem == '__init__' else (*packages, stem))


def _check_file(imported: Any, module: str, where: str) -> None:
  """Raises an error if the name of a file belongs to a different module."""
  file = getattr(imported, '__file__', None)
  if file is None or not os.path.samefile(file, _expand(module)):
    raise _name_in_use(imported, module, where, fix='Rename the file.')


def _check_not_shadowed(module: str, where: str) -> None:
  """Raises an error if another module hides one of the working directory.

  Python does not search for a module again after an import. A file such as
  seqio.py is therefore ignored if the installed package seqio was imported
  before.

  Args:
    module: Name under which the module was imported.
    where: Flag or gin file line that contains the module, for error messages.
  """
  top = module.partition('.')[0]
  imported = sys.modules.get(module) or sys.modules.get(top)
  path = pathlib.Path(*module.split('.'))
  files = (path / '__init__.py', path.with_suffix('.py'))
  local_file = next((file for file in files if file.is_file()), None)
  if top == 'xlflax' or imported is None or local_file is None:
    return
  file = getattr(sys.modules.get(module), '__file__', None)
  # The module may be a compiled file in the same folder.
  if file is None or (
    os.path.realpath(os.path.dirname(file))
    != os.path.realpath(local_file.parent)
  ):
    is_file = local_file == pathlib.Path(f'{top}.py')
    raise _name_in_use(
      imported,
      module,
      where,
      fix=f'Rename the {f"file {local_file}" if is_file else f"folder {top}"}.',
    )


def _name_in_use(
  imported: Any, module: str, where: str, *, fix: str
) -> errors.ConfigError:
  """Returns the error for a name that belongs to a different module."""
  file = getattr(imported, '__file__', None)
  return errors.ConfigError(
    'The name of the module is already used by a different module, '
    f'{file or imported!r}',
    got=module,
    where=where,
    fix=fix,
  )


def _not_found(module: str, where: str) -> errors.ConfigError:
  """Returns the error for a module that does not exist."""
  same_name: list[str] = []
  if _is_path(module):
    files = pathlib.Path(_expand(module)).parent.glob('*.py')
    candidates = sorted(map(str, files))
    expected = 'the path of a Python file'
  else:
    candidates = _list_modules(module.rpartition('.')[0])
    same_name = _modules_with_same_name(module)[:3]
    expected = 'a module in the working directory, such as my_module for '
    expected += 'my_module.py, or an installed module'
  return errors.ConfigError(
    'The module was not found',
    got=module,
    expected=expected,
    where=where,
    fix=f'Did you mean {" or ".join(same_name)}?'
    if same_name
    else name_suggestions.did_you_mean(module, candidates),
  )


def _list_modules(package: str) -> list[str]:
  """Returns the modules in a package, or in the working directory if ''."""
  folders = _package_folders(package) if package else ['.']
  prefix = f'{package}.' if package else ''
  return [prefix + module.name for module in pkgutil.iter_modules(folders)]


def _package_folders(package: str) -> list[str]:
  """Returns the folders of a package, or [] if there is no such package."""
  try:
    spec = importlib.util.find_spec(package)
  except Exception:  # Its own package is missing or cannot be imported.
    return []
  return list(spec.submodule_search_locations or ()) if spec else []


def _modules_with_same_name(module: str) -> list[str]:
  """Returns the modules with the same last name in the nearest package.

  For example, a.b.c is returned for a.c if the package a exists.
  """
  package, _, name = module.rpartition('.')
  while package and not (folders := _package_folders(package)):
    package = package.rpartition('.')[0]
  if not package:
    return []
  return sorted(
    '.'.join((package, *path.relative_to(folder).with_suffix('').parts))
    for folder in folders
    for path in pathlib.Path(folder).rglob(f'{name}.py')
  )


def _import_error(
  error: BaseException, module: str, where: str
) -> errors.XlflaxError:
  """Returns the error for a module that raises an exception when imported."""
  line = find_user_line(error)
  place = f'{line}, {where}' if line else where
  corpus_hint = CORPUS_HINT if where == TASK_MODULE_FLAG else TASK_MODULE_HINT
  if isinstance(error, errors.XlflaxError):
    fix = error.fix and error.fix.replace(CORPUS_HINT, corpus_hint)
    return type(error)(
      error.what,
      got=error.got,
      expected=error.expected,
      where=f'{error.where}, {place}' if error.where else place,
      fix=fix,
      status=error.status,
    )
  text = error.msg if isinstance(error, SyntaxError) else str(error)
  fix = None
  if isinstance(error, ModuleNotFoundError):
    fix = 'Install the package, or correct the import.'
  elif _CORPUS_TASK.search(text):
    fix = corpus_hint
  return errors.ConfigError(
    f'The import of the module {module} raised {type(error).__name__}: {text}',
    where=place,
    fix=fix,
  )


def find_user_line(error: BaseException) -> str | None:
  """Returns the innermost line of the user's code that raised an exception.

  Args:
    error: Exception with its traceback.

  Returns:
    The file, the line number and the text of the line, such as 'my_tasks.py:3
    (`import x`)'. None if only Python, xlflax and installed packages were
    executed.
  """
  if isinstance(error, SyntaxError) and error.filename:
    return _format_line(error.filename, error.lineno or 1, error.text or '')
  # TensorFlow executes a copy of the code, and adds the lines to the message.
  copied = re.findall(r'File "(.+?)", line (\d+)', str(error))
  if str(error).startswith('in user code:'):
    for file, number in reversed(copied):
      if not _is_library_file(file, ''):
        text = linecache.getline(file, int(number))
        return _format_line(file, int(number), text)
  line = None
  for frame, number in traceback.walk_tb(error.__traceback__):
    if not _is_library(frame):
      file = frame.f_code.co_filename
      line = _format_line(file, number, linecache.getline(file, number))
  return line


def find_calling_line() -> str | None:
  """Returns the innermost line of the user's code that is being executed.

  Returns:
    The line as in `find_user_line`. None if only Python, xlflax and installed
    packages are executed.
  """
  for frame, number in traceback.walk_stack(None):
    if not _is_library(frame):
      file = frame.f_code.co_filename
      return _format_line(file, number, linecache.getline(file, number))
  return None


def find_calling_class() -> type | None:
  """Returns the innermost user-defined class whose method is being executed.

  Returns:
    The class, which is a subclass of a class of xlflax, or None.
  """
  for frame, _ in traceback.walk_stack(None):
    cls = _find_method_class(frame)
    if cls is not None:
      return cls
  return None


def find_direct_caller() -> str | None:
  """Returns the line of the user's code that called a function of xlflax.

  Returns:
    The line as in `find_user_line`. None if Python or an installed package
    called the function, for example to import a module of xlflax.
  """
  frame = inspect.currentframe()
  while frame and _is_in_xlflax(frame):
    frame = frame.f_back
  if frame is None or _is_library(frame):
    return None
  return _format_code_line(frame.f_code, frame.f_lineno)


def _format_line(file: str, number: int, source: str) -> str:
  """Formats a line as 'my_tasks.py:3 (`import x`)'."""
  source = source.strip()
  return f'{format_path(file)}:{number}' + (f' (`{source}`)' if source else '')


def _is_library(frame: types.FrameType) -> bool:
  """Returns whether Python, xlflax or an installed package contains a frame."""
  file = frame.f_code.co_filename
  return _is_library_file(file, str(frame.f_globals.get('__name__', '')))


def is_user_class(cls: type) -> bool:
  """Returns whether a class is defined in the user's code.

  The result is False for classes of Python, xlflax and installed packages.
  """
  file = getattr(sys.modules.get(cls.__module__), '__file__', None)
  if file is None:  # A built-in class, or a class of an interactive session.
    return cls.__module__ == '__main__'
  return not _is_library_file(file, cls.__module__)


@functools.cache
def digest_code(cls: type) -> str | None:
  """Returns a hash of the source files that define a class and its bases.

  The hash includes the user's modules that these files import. The files of
  xlflax and of Python are not included. The hash does not change when the files
  are moved. It is computed at the first call for a class.

  Args:
    cls: The class to inspect.

  Returns:
    The first 16 hexadecimal digits of the SHA-256. None if all classes are
    defined in xlflax or in Python, or if their source code is not available.
  """
  sources = dict.fromkeys(
    source for base in cls.__mro__ if (source := _read_source(base))
  )
  if not sources:
    return None
  digests = ''.join(hashlib.sha256(source).hexdigest() for source in sources)
  modules = {base.__module__ for base in cls.__mro__ if is_user_class(base)}
  imported = digest_modules(modules)
  digests += ''.join(
    sorted({imported[name] for name in imported.keys() - modules})
  )
  return hashlib.sha256(digests.encode('ascii')).hexdigest()[:16]


def digest_modules(names: Iterable[str]) -> dict[str, str]:
  """Returns hashes of the source files of the user's modules.

  Args:
    names: Names of imported modules. Modules of xlflax and of Python are
      omitted.

  Returns:
    Mapping from the name of each module, and of each user-defined module that
    it imports, to the first 16 hexadecimal digits of the SHA-256.
  """
  digests: dict[str, str] = {}
  queue = [name for name in names if not _is_shipped(name)]
  while queue:
    name = queue.pop()
    file = _find_file(name)
    if name in digests or file is None:
      continue
    try:
      source = pathlib.Path(file).read_bytes()
    except OSError:  # The source code is not available.
      continue
    digests[name] = hashlib.sha256(source).hexdigest()[:16]
    package = getattr(sys.modules[name], '__package__', None) or ''
    with contextlib.suppress(SyntaxError, ValueError, ImportError):
      for imported in _imported_names(source, package):
        # The last part of the name may be an object of a module.
        for candidate in (imported, imported.rpartition('.')[0]):
          imported_file = _find_file(candidate)
          if imported_file and not _is_library_file(imported_file, candidate):
            queue.append(candidate)
  return digests


def describe_changed_files(
  saved: Mapping[str, str], current: Mapping[str, str]
) -> str | None:
  """Returns the files whose source code differs, for messages.

  A module that only one of the two mappings contains is omitted, because
  its use is a change of the configuration.

  Args:
    saved: Hashes of the earlier code (`digest_modules`).
    current: Hashes of the code of this process.

  Returns:
    Text such as 'my/losses.py and my/hooks.py', or None without changes.
  """
  files = [
    format_path(_find_file(name) or name)
    for name in sorted(saved.keys() & current.keys())
    if saved[name] != current[name]
  ]
  return name_suggestions.format_names(files) if files else None


def _find_file(name: str) -> str | None:
  """Returns the file of an imported module, or None if there is none."""
  return getattr(sys.modules.get(name), '__file__', None)


def format_path(file: str) -> str:
  """Formats the path of a file, relative to the working directory if inside."""
  path = pathlib.Path(file)
  if path.is_relative_to(pathlib.Path.cwd()):
    path = path.relative_to(pathlib.Path.cwd())
  return str(path)


def _is_shipped(module: str) -> bool:
  """Returns whether a module is part of xlflax or of Python."""
  package = module.partition('.')[0]
  return package == 'xlflax' or package in sys.stdlib_module_names


def _read_source(cls: type) -> bytes | None:
  """Returns the file that defines a class of the user or of a package.

  For a class of a notebook, the result is the source code of the class.
  """
  if _is_shipped(cls.__module__):
    return None
  file = getattr(sys.modules.get(cls.__module__), '__file__', None)
  try:
    if file is not None:
      return pathlib.Path(file).read_bytes()
    return inspect.getsource(cls).encode('utf-8', 'surrogatepass')
  except (OSError, TypeError):  # The source code is not available.
    return None


@contextlib.contextmanager
def converting_class_errors(
  owner: object = None,
  method: str = '',
  *,
  suggest: Callable[[Exception], str | None] = lambda error: None,
) -> Iterator[None]:
  """Context in which exceptions of user-defined classes become a ConfigError.

  Args:
    owner: Object whose method is called in the context. If it belongs to a
      user-defined class, all exceptions are converted, including those of
      functions that the method has returned. If None, only exceptions with a
      method of a user-defined class in their traceback are converted.
    method: Name of the method of `owner` that the error message contains if the
      traceback does not contain a method of a user-defined class.
    suggest: Function that returns a hint for an exception, or None.

  Raises:
    ConfigError: If a user-defined class raised an exception. See
      `convert_class_error`.
  """
  try:
    yield
  except Exception as error:
    converted = convert_class_error(error, owner, method, suggest=suggest)
    if converted is None:
      raise
    raise converted from error


def convert_class_error(
  error: Exception,
  owner: object = None,
  method: str = '',
  *,
  suggest: Callable[[Exception], str | None] = lambda error: None,
) -> errors.ConfigError | None:
  """Creates the error for an exception of a user-defined class.

  User-defined classes are defined outside of xlflax and inherit from an xlflax
  class. If xlflax code that the class called raised the exception, the
  traceback is also logged, because the exception may be a bug in xlflax.

  Args:
    error: An exception, with its traceback.
    owner: See `converting_class_errors`.
    method: See `converting_class_errors`.
    suggest: See `converting_class_errors`.

  Returns:
    The error with the class, the method, the exception and the innermost line
    of the user's code. None for an `XlflaxError`, for failures of the operating
    system or of the devices, and if no user-defined class is involved.
  """
  if isinstance(error, errors.XlflaxError) or _is_environment_error(error):
    return None
  if missing_method := convert_missing_method(error):
    return missing_method
  line = find_user_line(error)
  frames = list(traceback.walk_tb(error.__traceback__))
  calls = [(f, number) for f, number in frames if _find_method_class(f)]
  if calls:
    frame, number = calls[-1]
    cls, name = _find_method_class(frame), frame.f_code.co_name
    line = line or _format_code_line(frame.f_code, number)
    user_frames = [
      index
      for index, (other, _) in enumerate(frames)
      if other is frame or not _is_library(other)
    ]
    if any(_is_in_xlflax(f) for f, _ in frames[user_frames[-1] + 1 :]):
      logging.error(
        'A function of xlflax raised the exception. Its traceback:',
        exc_info=error,
      )
  else:
    cls, name = type(owner), method
    function = inspect.unwrap(getattr(cls, name, cls))
    is_user_method = inspect.isfunction(function) and not is_xlflax(
      function.__module__
    )
    if not is_user_extension(cls) or not is_user_method:
      return None
    line = line or find_definition(function)
  assert cls is not None
  is_tracing_error = any(
    c.__name__ in _TRACING_ERRORS for c in type(error).mro()
  )
  if is_tracing_error:
    fix: str | None = _TRACING_HINT
  elif _is_deleted_array(error):
    fix = _DELETED_ARRAY_HINT
  else:
    fix = suggest(error)
  return errors.ConfigError(
    f'The method `{cls.__name__}.{name}` raised an exception',
    got=_describe_exception(error, first_line=is_tracing_error),
    where=line,
    fix=fix,
  )


def find_definition(function: Any) -> str:
  """Returns the file, number and text of a Python function's first line."""
  code = inspect.unwrap(function).__code__
  return _format_code_line(code, code.co_firstlineno)


def find_method(cls: type, name: str) -> str:
  """Returns the line that defines a method, or the method's name.

  Args:
    cls: Class with the method.
    name: Name of the method.

  Returns:
    The file, number and text of the line. The result is `CLASS.METHOD` if the
    method is not a Python function.
  """
  function = inspect.unwrap(getattr(cls, name))
  if not hasattr(function, '__code__'):
    return f'{cls.__name__}.{name}'
  return find_definition(function)


def find_return_in_loop(function: Any) -> str | None:
  """Returns the line of a `return` that ends a loop in its first iteration.

  A `return` that depends on a condition is not reported, and neither is a loop
  that consists only of the `return`, which selects the first element.

  Args:
    function: Python function or method.

  Returns:
    The file, number and text of the line. None if there is no such line, or if
    the source code is not available.
  """
  try:
    lines, first_line = inspect.getsourcelines(inspect.unwrap(function))
    tree = ast.parse(textwrap.dedent(''.join(lines)))
  except (OSError, TypeError, SyntaxError):
    return None
  for node in ast.walk(tree):
    if not isinstance(node, ast.For | ast.While) or len(node.body) < 2:
      continue
    if isinstance(node.body[-1], ast.Return):
      number = max(first_line, 1) + node.body[-1].lineno - 1
      return _format_code_line(inspect.unwrap(function).__code__, number)
  return None


class _ValueRepr(reprlib.Repr):
  """Shortened representations of values, without the elements of arrays."""

  def __init__(self):
    super().__init__()
    self.maxstring = self.maxother = self.maxlong = _MAX_VALUE_LENGTH

  def repr1(self, x: Any, level: int) -> str:
    """Returns the representation of a value or of an element."""
    if isinstance(x, type):
      return repr(x)
    if hasattr(x, 'shape') and hasattr(x, 'dtype'):
      return f'<{x.dtype} array of shape {list(x.shape)}>'
    names = (
      [field.name for field in dataclasses.fields(x) if field.repr]
      if dataclasses.is_dataclass(x)
      else getattr(x, '_fields', ())  # Fields of a NamedTuple.
    )
    if not names:
      return super().repr1(x, level)
    if level <= 0:
      return f'{type(x).__name__}(...)'
    fields = (
      f'{name}={self.repr1(getattr(x, name), level - 1)}' for name in names
    )
    return f'{type(x).__name__}({", ".join(fields)})'


def describe_value(value: Any) -> str:
  """Returns a short description of a value that user-defined code returned.

  Arrays, which may be traced, are described by their types and shapes. Before:
  a tuple of an array and a dictionary. After: "(<float32 array of shape []>,
  {'loss': <float32 array of shape []>})".
  """
  return _ValueRepr().repr(value)


def find_attribute(cls: type, name: str) -> tuple[str | None, str | None]:
  """Returns where a class body assigns a value to an attribute.

  Args:
    cls: Class whose body contains an assignment such as `name = value`.
    name: Name of the attribute.

  Returns:
    The file, number and text of the line, and the source code of the value.
    Both are None if the source code is not available.
  """
  try:
    lines, first_line = inspect.getsourcelines(cls)
    file = inspect.getsourcefile(cls) or ''
    source = textwrap.dedent(''.join(lines))
    (node,) = ast.parse(source).body
  except (OSError, TypeError, SyntaxError, ValueError):
    return None, None
  for statement in getattr(node, 'body', ()):
    if isinstance(statement, ast.Assign) and any(
      isinstance(target, ast.Name) and target.id == name
      for target in statement.targets
    ):
      index = statement.lineno - 1
      line = _format_line(file, first_line + index, lines[index])
      return line, ast.get_source_segment(source, statement.value)
  return None, None


def is_user_extension(cls: type) -> bool:
  """Returns whether a class is a user-defined subclass of an xlflax class."""
  return not is_xlflax(cls.__module__) and any(
    is_xlflax(base.__module__) for base in cls.__mro__
  )


def is_xlflax(module: str) -> bool:
  """Returns whether a module belongs to xlflax."""
  return module.partition('.')[0] == 'xlflax'


def _is_in_xlflax(frame: types.FrameType) -> bool:
  """Returns whether a frame executes code of xlflax."""
  return is_xlflax(str(frame.f_globals.get('__name__', '')))


def _is_environment_error(error: Exception) -> bool:
  """Returns whether the system, JAX's runtime or another process failed."""
  if _is_deleted_array(error):
    return False
  is_status = isinstance(
    error, RuntimeError | ValueError
  ) and _RUNTIME_STATUS.match(str(error))
  return (
    isinstance(error, OSError | MemoryError)
    or type(error).__name__ in ('JaxRuntimeError', 'XlaRuntimeError')
    or bool(is_status)
  )


def _is_deleted_array(error: Exception) -> bool:
  """Returns whether an error was caused by an array that no longer exists."""
  return isinstance(error, RuntimeError | ValueError) and bool(
    _DELETED_ARRAY.search(str(error))
  )


def _find_method_class(frame: types.FrameType) -> type | None:
  """Returns the user-defined class whose method a frame executes, or None."""
  code = frame.f_code
  if not code.co_argcount:
    return None
  cls = type(frame.f_locals.get(code.co_varnames[0]))
  module = frame.f_globals.get('__name__')
  is_method = hasattr(cls, code.co_name) and any(
    base.__module__ == module and is_user_extension(base)
    for base in cls.__mro__
  )
  return cls if is_method else None


def _format_code_line(code: types.CodeType, number: int) -> str:
  """Formats a line of the file that contains a function."""
  file = code.co_filename
  return _format_line(file, number, linecache.getline(file, number))


def _describe_exception(error: Exception, *, first_line: bool) -> str:
  """Returns the type and the shortened text of an exception."""
  text = str(error).strip()
  if first_line:
    text = text.partition('\n')[0]
  text = textwrap.shorten(text, _MAX_EXCEPTION_LENGTH, placeholder=' …')
  return f'{type(error).__name__}: {text}' if text else type(error).__name__


def convert_missing_method(error: BaseException) -> errors.ConfigError | None:
  """Creates the error for a user's class that lacks a required method.

  Args:
    error: An exception, with its traceback.

  Returns:
    The error, or None if `error` was not raised by a method of an xlflax base
    class that the user's class must override.
  """
  if not isinstance(error, NotImplementedError) or str(error):
    return None
  frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
  module = str(frame.f_globals.get('__name__', ''))
  owner = frame.f_locals.get('self', frame.f_locals.get('cls'))
  cls = owner if isinstance(owner, type) else type(owner)
  if module.partition('.')[0] != 'xlflax' or not is_user_class(cls):
    return None
  name = frame.f_code.co_name
  bases = [base.__name__ for base in cls.__mro__[1:] if name in vars(base)]
  return errors.ConfigError(
    f'The class {cls.__name__} must define `{name}`',
    where=cls.__name__,
    fix=f'Define `{name}` as documented in the class {bases[-1]} of {module}, '
    'or correct the name of the method (docs/extending.md).'
    if bases
    else None,
  )


def _is_library_file(file: str, name: str) -> bool:
  """Returns whether a module is part of Python, xlflax or a package."""
  if file.startswith('<') or name.partition('.')[0] == 'xlflax':
    return True
  # The copies of functions that TensorFlow executes are in a temporary folder.
  if os.path.basename(file).startswith('__autograph_generated_file'):
    return True
  folders = {sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib')}
  packages = {'site-packages', 'dist-packages'}
  return bool(packages & set(pathlib.Path(file).parts)) or any(
    pathlib.Path(file).is_relative_to(folder) for folder in folders
  )


def import_optional(name: str, needs: str, *, fix: str) -> Any:
  """Imports a module that belongs to an optional package.

  Args:
    name: The name of the module.
    needs: The sentence of the error message that explains why the package is
      required, such as 'Plots require matplotlib'.
    fix: A hint that explains how to install the package.

  Raises:
    ConfigError: If the package is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    package = name.partition('.')[0]
    raise errors.ConfigError(
      f'The package {package} is not installed. {needs}', fix=fix
    ) from error
