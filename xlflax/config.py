"""Gin at the entry point: files, bindings, and clear errors for both.

The flags are T5X's: `--gin_file`, `--gin.NAME=VALUE`, `--gin_search_paths`.
Files are found by path, in the search paths, and among those that come with
the package (`pretrain/mlm.gin`).
"""

import argparse
import copy
import difflib
import pathlib
import re
import traceback
from collections.abc import Sequence
from typing import Any

import gin

import xlflax.gin_configs
from xlflax import errors

SHIPPED = pathlib.Path(xlflax.gin_configs.__file__).parent
_GIN = pathlib.Path(gin.__file__).parent


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds `--gin_file` and `--gin_search_paths` (see `split_bindings`)."""
  group = parser.add_argument_group('configuration (Gin)')
  group.add_argument(
    '--gin_file',
    action='append',
    default=[],
    metavar='FILE',
    help='gin file; repeat for several, later ones override earlier ones',
  )
  group.add_argument(
    '--gin_search_paths',
    action='append',
    default=[],
    metavar='DIR',
    help='folder to look gin files up in (comma-separated or repeated)',
  )
  group.add_argument(
    '--gin.NAME=VALUE',
    dest='gin_binding_help',
    action='store_true',
    help='override a binding, such as --gin.TRAIN_STEPS=1000',
  )


def split_bindings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
  """Takes `--gin.NAME=VALUE` out of a command line.

  Before: `['--gin.A=1', '--x', 'y']`; after: `(['--x', 'y'], ['A=1'])`. What
  comes after `--` is another command's, and stays.

  Raises:
    ConfigError: a binding has no '='.
  """
  rest, bindings = [], []
  end = list(arguments).index('--') if '--' in arguments else len(arguments)
  for argument in arguments[:end]:
    if not argument.startswith('--gin.'):
      rest.append(argument)
      continue
    binding = argument.removeprefix('--gin.')
    if '=' not in binding:
      raise errors.ConfigError(
        'A gin flag has no value', got=argument, expected='--gin.NAME=VALUE'
      )
    bindings.append(binding)
  return [*rest, *arguments[end:]], bindings


def parse(
  gin_files: Sequence[str],
  bindings: Sequence[str] = (),
  search_paths: Sequence[str] = (),
) -> None:
  """Parses files, then bindings, into Gin's configuration, and finalises it.

  Args:
    gin_files: names or paths.
    bindings: 'NAME=VALUE' in gin's syntax, as from `split_bindings`.
    search_paths: folders to look files up in; each may hold commas.

  Raises:
    ConfigError: file not found, syntax, unknown name, unused or missing
      macro; names the file and line, or the binding.
  """
  gin.clear_config()
  folders = [f for paths in search_paths for f in paths.split(',') if f]
  # Gin can only add to the folders that an earlier call left.
  gin.config._LOCATION_PREFIXES[:] = ['', *folders, str(SHIPPED)]
  for name in gin_files:
    _find(name, folders)
  try:
    gin.parse_config_files_and_bindings(
      list(gin_files), None, finalize_config=False
    )
    for binding in bindings:
      _bind(_quoted(binding))
    _check_macros(bindings)
    gin.finalize()
  except errors.XlflaxError:
    raise
  except Exception as error:
    raise _translated(error) from error


def quoted(name: str, value: str) -> str:
  """The binding of a string, such as `MODEL_DIR='runs/a'`."""
  return f'{name}={value!r}'


def operative() -> str:
  """The configuration that was really used, for the run directory."""
  return gin.operative_config_str()


def parsed() -> str:
  """The configuration as it was parsed, used or not."""
  return gin.config_str()


def statements(text: str) -> list[str]:
  """A gin text's lines, continued ones joined, without comments."""
  joined = re.sub(r'\\\n\s*', ' ', text)
  joined = re.sub(r'([\[({,=])\n\s+', r'\1 ', joined)
  lines = (' '.join(line.split()) for line in joined.splitlines())
  return [line for line in lines if line and not line.startswith('#')]


def configurable(function) -> Any:
  """`function` with the parameters that the configuration binds.

  What no gin file names is not in Gin's registry, and has nothing bound.
  """
  try:
    return gin.get_configurable(function)
  except ValueError:
    return function


def call(function, **arguments) -> Any:
  """Calls a configured function; parameters left out give a ConfigError."""
  try:
    return configurable(function)(**arguments)
  except errors.XlflaxError as error:
    raise _plain(error) from error.__cause__
  except (ValueError, RuntimeError, TypeError) as error:
    if _raised_by_gin(error):
      raise _translated(error) from error
    raise


def macro(name: str) -> Any:
  """What a macro of the parsed configuration stands for, built anew.

  Raises:
    ConfigError: it is not set, or can't be built.
  """
  return parameter(f'{name}/macro.value', what='a macro', shown=name)


def parameter(
  name: str, *, what: str = 'a parameter', shown: str | None = None
) -> Any:
  """What a parameter such as 'evaluate.tasks' is bound to, built anew.

  Args:
    name: of the parameter, in gin's form.
    what: what it is, for the message.
    shown: its name there; None: `name`.

  Raises:
    ConfigError: it is not bound, or can't be built.
  """
  try:
    value = gin.query_parameter(name)
  except ValueError as error:
    raise errors.ConfigError(
      f'The configuration lacks {what}',
      got=f'no {shown or name}',
      expected=f'{shown or name} = ...',
    ) from error
  return call(lambda: copy.deepcopy(value))  # Gin builds what it copies.


def _find(name: str, folders) -> None:
  tried = [pathlib.Path(f) / name for f in ['', *folders, str(SHIPPED)]]
  if any(path.is_file() for path in tried):
    return
  shipped = sorted(str(p.relative_to(SHIPPED)) for p in SHIPPED.rglob('*.gin'))
  close = difflib.get_close_matches(name, shipped, n=3, cutoff=0.4)
  raise errors.ConfigError(
    'A gin file does not exist',
    got=name,
    expected='a path, or one of those that come with xlflax, such as '
    + ', '.join(close or shipped[:5]),
    where='--gin_file',
  )


def _quoted(binding: str) -> str:
  """A binding whose value is a bare word that can only be text, in quotes.

  Before: `MODEL_DIR=runs/a`; after: `MODEL_DIR='runs/a'`.
  """
  name, _, value = binding.partition('=')
  if re.fullmatch(r'[\w./~:-]*[/~][\w./~:-]*', value.strip()):
    return f'{name}={value.strip()!r}'
  return binding


def _bind(binding: str) -> None:
  """Parses a flag; names of modules that a file imports may be new in it."""
  try:
    gin.parse_config(binding)
  except ValueError as error:
    imports = sorted(
      {i.format() for i in gin.config._IMPORTS},
      key=lambda line: '__gin__' not in line,
    )
    try:
      gin.parse_config([*imports, binding])
    except Exception:
      raise error from None


def _check_macros(bindings: Sequence[str]) -> None:
  """Raises ConfigError for macros that nothing uses: mostly misspelt names.

  A file's macro may be unused, as what used it may be bound otherwise, unless
  its name resembles a used one.
  """
  config = gin.config._CONFIG
  defined = {scope for scope, selector in config if selector == 'gin.macro'}
  used = {
    ref.scoped_selector.rpartition('/')[0] or ref.scopes[-1]
    for ref in _macro_references(config)
  }
  flags = {binding.partition('=')[0].strip() for binding in bindings}
  for name in sorted(defined - used):
    close = difflib.get_close_matches(name, sorted(used), n=3, cutoff=0.5)
    alike = difflib.get_close_matches(name, used, cutoff=0.8)
    if name not in flags and (not alike or _is_shipped_macro(name)):
      continue
    raise errors.ConfigError(
      'A gin macro is set, but nothing uses it',
      got=name,
      expected='one of ' + ', '.join(close or sorted(used)),
      fix='correct its name',
    )
  missing = sorted(used - defined)
  if missing:
    raise errors.ConfigError(
      'The configuration uses macros that are not set',
      got=', '.join(missing),
      fix=' '.join(f'--gin.{name}=VALUE' for name in missing),
    )


def _is_shipped_macro(name: str) -> bool:
  return any(
    re.search(rf'^{re.escape(name)} *=', path.read_text(), re.M)
    for path in SHIPPED.rglob('*.gin')
  )


def _macro_references(config):
  for value in config.values():
    for parameter in value.values():
      yield from _references_in(parameter)


def _references_in(value):
  if isinstance(value, gin.config.ConfigurableReference):
    if value.selector.endswith('macro'):
      yield value
  elif isinstance(value, dict):
    for key, item in value.items():
      yield from _references_in(key)
      yield from _references_in(item)
  elif isinstance(value, (list, tuple)):
    for item in value:
      yield from _references_in(item)


def _raised_by_gin(error: Exception) -> bool:
  """Whether gin itself, not a function that it called, found the mistake.

  Wrong arguments of a function count: gin calls it.
  """
  frames = traceback.extract_tb(error.__traceback__)
  return pathlib.Path(frames[-1].filename).parent == _GIN


def _plain(error: errors.XlflaxError) -> errors.XlflaxError:
  """The error without the call stack that gin appends to its message."""
  # Gin raises a proxy class that poses as the error's own: its base is meant.
  kind = next(
    c for c in type(error).__mro__ if getattr(errors, c.__name__, None) is c
  )
  return kind(
    error.what,
    got=error.got,
    expected=error.expected,
    where=error.where,
    fix=error.fix,
  )


def _translated(error: Exception) -> errors.ConfigError:
  """Gin's own error as one message."""
  text = ' '.join(re.sub(r' \(<[^>]*>\)', '', str(error)).split())
  missing = re.findall(r'([\w.]+)/macro\.value set to `%gin.REQUIRED`', text)
  missing += re.findall(r'([\w./]+) set to `%gin.REQUIRED`', text) * (
    not missing
  )
  if missing:
    return errors.ConfigError(
      'The configuration needs values that are not given',
      got='none for ' + ', '.join(missing),
      fix=' '.join(
        _HOW_TO_SET.get(name, f'--gin.{name}=VALUE') for name in missing
      ),
    )
  fix = next((fix for part, fix in _FIXES if part in text), _FIXES[-1][1])
  return errors.ConfigError('The gin configuration is wrong', got=text, fix=fix)


_HOW_TO_SET = {'MODEL': '--gin_file=models/SIZE.gin, after the other files'}
# Part of gin's message -> what to do; the last one for all others.
_FIXES = (
  ('Failed to parse token', 'put text in quotes, as in --gin.NAME="\'text\'"'),
  ('missing', 'give them values in a gin file or by --gin flags'),
  (
    '',
    'check the spelling of the name against the docstring of what it '
    'configures',
  ),
)
