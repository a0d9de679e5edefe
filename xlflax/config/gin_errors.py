"""Conversion of errors in gin configurations to `ConfigError`."""

import contextlib
import difflib
import inspect
import math
import pathlib
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gin

from xlflax.config import binding_locations, config_files
from xlflax.utils import (
  equivalent_settings,
  errors,
  name_suggestions,
  validation,
)

# (scope, selector) -> parameter -> value, as Gin stores bindings. A macro X is
# the parameter 'value' of ('X', 'gin.macro').
Bound = dict[tuple[str, str], dict[str, Any]]
MACRO = 'gin.macro'
_GIN = pathlib.Path(gin.__file__).parent


@contextlib.contextmanager
def converting_read_errors(
  option: str = config_files.GIN_OPTION,
) -> Iterator[None]:
  """Context manager that converts parsing errors to ConfigError.

  Args:
    option: Option with which bindings are passed, such as '--eval_gin'.
  """
  try:
    yield
  except errors.XlflaxError:
    raise
  except Exception as error:
    raise _convert_gin_error(error, option) from error


@contextlib.contextmanager
def converting_build_errors(
  bindings: Sequence[binding_locations.Binding] = (),
) -> Iterator[None]:
  """Context manager that converts Gin's object-building errors to ConfigError.

  Exceptions raised by code other than Gin are not changed.

  Args:
    bindings: Bindings of the configuration, from which error locations are
      determined.
  """
  try:
    yield
  except errors.XlflaxError as error:
    raise _with_location(error, bindings) from error.__cause__
  except (ValueError, RuntimeError, TypeError, ArithmeticError) as error:
    if _raised_by_gin(error):
      raise _convert_gin_error(error) from error
    if _raised_by_a_check(error):
      raise errors.ConfigError(
        'The value of a field is not valid',
        got=str(error).splitlines()[0][:200],
        where=_configurable_of(error),
      ) from error
    raise


def _raised_by_a_check(error: BaseException) -> bool:
  """Returns whether `__post_init__` of a dataclass raised the error."""
  return any(
    frame.name == '__post_init__'
    for frame in traceback.extract_tb(error.__traceback__)
  )


def _configurable_of(error: BaseException) -> str | None:
  """Returns the text that Gin appends to the errors of a configurable."""
  match = re.search(r'In call to configurable .*', str(error))
  return match[0][:200] if match else None


def check_macros(
  bound: Bound,
  flags: Collection[str],
  shipped: pathlib.Path,
  bindings: Sequence[binding_locations.Binding] = (),
) -> None:
  """Raises an error if a macro is never used or is not set.

  A macro of a file may be unused, because another file may override the binding
  that uses the macro. However, an unused macro whose name resembles that of a
  used macro is an error.

  Args:
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
    flags: Names of macros or parameters that were set on the command line or by
      `with_macros`. Each of these macros must be used.
    shipped: Folder of the gin files shipped with xlflax. Macros of these files
      may be unused.
    bindings: Bindings in the order in which they are read. If one of them
      replaces the binding that uses a macro, the error contains the location of
      the replacement.

  Raises:
    ConfigError: If a macro is never used or not set.
  """
  defined = {scope for scope, selector in bound if selector == MACRO}
  used = {_macro_name(ref) for ref in _macro_references(bound)}
  for name in sorted(defined - used):
    close = difflib.get_close_matches(name, sorted(used), n=3, cutoff=0.5)
    similar = difflib.get_close_matches(name, used, cutoff=0.8)
    if name not in flags and (not similar or _is_macro_of(shipped, name)):
      continue
    if replacement := binding_locations.find_replacement(bindings, name):
      raise errors.ConfigError(
        f'The macro {name} has no effect, because '
        f'{replacement.name} is bound to a value that does not use it',
        got=name,
        where=replacement.location,
        fix=f'Pass --gin.{replacement.name}=VALUE, or remove the binding of '
        f'{replacement.name}.',
      )
    equivalent = equivalent_settings.suggest_for_macro(name, used)
    raise errors.ConfigError(
      'The configuration sets a macro that it never uses',
      got=name,
      expected=None if equivalent else _one_of(close or sorted(used)),
      fix=equivalent or 'Correct the name of the macro.',
    )
  missing = sorted(used - defined)
  if missing:
    raise errors.ConfigError(
      'The configuration uses macros that are not set',
      got=', '.join(missing),
      fix='Pass ' + ' '.join(f'--gin.{name}=VALUE' for name in missing),
    )


def _one_of(names: Iterable[str]) -> str:
  return 'one of ' + ', '.join(names)


def check_required(bound: Bound) -> None:
  """Raises ConfigError if a value is `%gin.REQUIRED`."""
  _raise_for_required(
    key + (name,)
    for key, parameters in bound.items()
    for name, value in parameters.items()
    if _is_required(value)
  )


def check_required_by(bound: Bound, value: Any) -> None:
  """Raises an error if building a value requires a binding that is not set.

  Args:
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
    value: Value to build, in Gin's internal representation. It may contain
      references.

  Raises:
    ConfigError: If a value is `%gin.REQUIRED`.
  """
  _raise_for_required(_required_by(bound, value, (), set()))


def _required_by(bound: Bound, value, scope: tuple[str, ...], seen: set):
  """Yields the keys of unset required parameters on which a value depends."""
  for reference in references_in(value):
    inner = tuple(reference.scopes) or scope
    selector = reference.configurable.selector
    if (inner, selector) in seen:
      continue
    seen.add((inner, selector))
    parameters = effective_bindings(bound, selector, inner)
    for key, (name, item) in parameters.items():
      if _is_required(item):
        yield name, selector, key
      yield from _required_by(bound, item, inner, seen)


def effective_bindings(
  bound: Bound, selector: str, scope: tuple[str, ...]
) -> dict[str, tuple[str, Any]]:
  """Returns the bindings that Gin uses to call a class or function in a scope.

  Bindings of inner scopes take precedence.

  Args:
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
    selector: Complete selector of the class or function.
    scope: Active scopes, outermost first.

  Returns:
    Map from parameter to the scope and value of its binding.
  """
  parameters: dict[str, tuple[str, Any]] = {}
  for end in range(len(scope) + 1):
    name = '/'.join(scope[:end])
    scope_bindings = bound.get((name, selector), {})
    parameters |= {key: (name, item) for key, item in scope_bindings.items()}
  return parameters


def find_dataset_binding(
  bound: Bound,
  objects: Iterable[tuple[str, str]],
  imports: Collection[Any],
  name: str,
  field: str,
) -> str | None:
  """Returns the binding with which a user sets a field of a dataset.

  Args:
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
    objects: Pairs (scope, selector) of the objects that are constructed.
    imports: Modules that the gin files import, in Gin's internal
      representation.
    name: Name of the dataset, which is the value of its parameter `name`.
    field: Name of the field, such as 'length' or 'pairs.min_tokens'.

  Returns:
    The macro that supplies the value, such as 'LENGTH', or the parameter with
    its scope, such as 'mono/dataset_config.DatasetConfig.length'. None if the
    configuration constructs no such dataset, or no object that contains the
    field.
  """
  *outer_fields, parameter = field.split('.')
  for scope, selector in sorted(objects):
    if not selector.endswith('.DatasetConfig'):
      continue
    scopes = tuple(filter(None, scope.split('/')))
    parameters = effective_bindings(bound, selector, scopes)
    if _resolve_macros(bound, parameters.get('name', ('', None))[1]) != name:
      continue
    for outer_field in outer_fields:
      _, value = parameters.get(outer_field, ('', None))
      if not isinstance(value, gin.config.ConfigurableReference):
        return None
      scopes = tuple(value.scopes) or scopes
      selector = value.configurable.selector
      parameters = effective_bindings(bound, selector, scopes)
    _, value = parameters.get(parameter, ('', None))
    if _is_macro(value):
      return _macro_name(value)
    binding = f'{short_name(selector, imports)}.{parameter}'
    return '/'.join((*scopes, binding))
  return None


def _is_macro(value: Any) -> bool:
  """Returns whether a value is a reference to a macro."""
  return (
    isinstance(value, gin.config.ConfigurableReference)
    and value.configurable.selector == MACRO
  )


def _resolve_macros(bound: Bound, value: Any) -> Any:
  """Returns the value of a macro, or any other value unchanged."""
  while _is_macro(value):
    value = bound.get((_macro_name(value), MACRO), {}).get('value')
  return value


def _raise_for_required(keys: Iterable[tuple[str, str, str]]) -> None:
  """Raises the error for missing values, if there are any."""
  missing = [
    scope
    if selector == MACRO
    else f'{scope}/{selector}.{parameter}'.removeprefix('/')
    for scope, selector, parameter in keys
  ]
  if missing:
    raise config_files.missing_value_error(list(dict.fromkeys(missing)))


def is_plain(value: Any) -> bool:
  """Returns whether a value can be expressed in gin syntax."""
  if isinstance(value, dict):
    return all(map(is_plain, [*value.keys(), *value.values()]))
  if isinstance(value, (list, tuple)):
    return all(map(is_plain, value))
  if isinstance(value, float):
    return math.isfinite(value)
  return value is None or isinstance(
    value, (bool, int, str, bytes, gin.config.ConfigurableReference)
  )


def _is_required(value) -> bool:
  """Returns whether a value is `%gin.REQUIRED`."""
  return (
    isinstance(value, gin.config.ConfigurableReference)
    and value.scoped_selector == 'gin.REQUIRED/gin.constant'
  )


def _is_macro_of(folder: pathlib.Path, name: str) -> bool:
  """Returns whether a gin file in a folder sets a macro."""
  return any(
    re.search(rf'^{re.escape(name)} *=', path.read_text(), re.M)
    for path in folder.rglob('*.gin')
  )


def _macro_name(reference) -> str:
  """Returns the name of the macro that a reference refers to."""
  return reference.scoped_selector.rpartition('/')[0] or reference.scopes[-1]


def _macro_references(bound: Mapping):
  """Yields the references to macros in all bindings."""
  for parameters in bound.values():
    for value in parameters.values():
      for reference in references_in(value):
        if reference.selector.endswith('macro'):
          yield reference


def references_in(value):
  """Yields the gin references in a value, which may be nested."""
  if isinstance(value, gin.config.ConfigurableReference):
    yield value
  elif isinstance(value, dict):
    for key, item in value.items():
      yield from references_in(key)
      yield from references_in(item)
  elif isinstance(value, (list, tuple)):
    for item in value:
      yield from references_in(item)


def _raised_by_gin(error: Exception) -> bool:
  """Returns whether Gin, not a function that it called, raised the error.

  Wrong arguments of a function count as Gin's error, because Gin calls it.
  """
  frames = traceback.extract_tb(error.__traceback__)
  return pathlib.Path(frames[-1].filename).parent == _GIN


def _with_location(
  error: errors.XlflaxError, bindings: Sequence[binding_locations.Binding]
) -> errors.XlflaxError:
  """Adds the location of the offending value to an error.

  Gin appends the stack of its calls to the message. The first call is the
  construction of the object that raised the error.
  """
  match = re.search(
    r"In call to configurable '(\S+)' \(.*?\)(?: in scope '(.*?)')?", str(error)
  )
  class_name, scope = match.groups('') if match else ('', '')
  where = str(error.where or '')
  fix = _suggest_scope(where, scope, bindings) or _name_settings(
    error.fix, class_name, scope, bindings
  )
  location = binding_locations.find_binding_location(bindings, where, scope)
  if location and location not in where:
    where = f'{where}, {location}'
  # Gin raises a subclass of the error's class, which is replaced by its base.
  error_class = next(
    c for c in type(error).__mro__ if getattr(errors, c.__name__, None) is c
  )
  return error_class(
    error.what,
    got=error.got,
    expected=error.expected,
    where=where or None,
    fix=fix,
  )


def _name_settings(
  fix: str | None,
  class_name: str,
  scope: str,
  bindings: Sequence[binding_locations.Binding],
) -> str | None:
  """Replaces the fields of a scoped object in a hint by the user's settings.

  For example, 'Set DatasetConfig.alpha' becomes 'Set ALPHA' or 'Set
  mono/DatasetConfig.alpha', because a binding without the scope may have no
  effect.

  Args:
    fix: Hint of an error message, or None if the error has no hint.
    class_name: Name of the class that is constructed.
    scope: Gin scope in which the object is constructed, or '' without scopes.
    bindings: Bindings of the configuration.
  """
  if not fix or not scope or not class_name:
    return fix
  class_name = class_name.rpartition('.')[2]
  return re.sub(
    rf'(?<![\w./]){re.escape(class_name)}\.([a-z_]+)',
    lambda match: binding_locations.find_setting(
      bindings, class_name, match[1], scope
    ),
    fix,
  )


def _suggest_scope(
  class_name: str, scope: str, bindings: Sequence[binding_locations.Binding]
) -> str | None:
  """Returns a hint if an object is built in a scope without bindings.

  Args:
    class_name: Name of the object's class.
    scope: Scopes in which Gin builds the object, such as 'train/mono'.
    bindings: Bindings of the configuration.
  """
  if not scope:
    return None
  innermost = scope.rpartition('/')[2]
  bound_scopes = {
    binding.scope.rpartition('/')[2]: binding
    for binding in bindings
    if binding.scope and binding.selector.rpartition('.')[2] == class_name
  }
  if not bound_scopes or innermost in bound_scopes:
    return None
  reference = f'@{innermost}/{class_name}()'
  hint = (
    f'No binding has the scope of {reference}. The configuration binds '
    + ', '.join(f'{name}/{class_name}' for name in bound_scopes)
    + '.'
  )
  similar = difflib.get_close_matches(innermost, bound_scopes, n=1)
  if similar:
    location = bound_scopes[similar[0]].location
    hint += f' Did you mean @{similar[0]}/{class_name}() (see {location})?'
  return hint


def _convert_gin_error(
  error: Exception, option: str = config_files.GIN_OPTION
) -> errors.ConfigError:
  """Creates the error that replaces an exception raised by Gin."""
  text = ' '.join(re.sub(r' \(<[^>]*>\)', '', str(error)).split())
  where = _location(str(error), option)
  match = re.search(r"'([^']+)' doesn't have a parameter named '(\w+)'", text)
  if match:
    names = parameter_names(match[1])
    target = _find_target(match[1])
    if unannotated := validation.unannotated_attribute(target, match[2], where):
      return unannotated
    return errors.ConfigError(
      f'{match[1]} has no parameter `{match[2]}`',
      got=match[2],
      expected=name_suggestions.format_choices(names),
      where=where,
      fix=validation.suggest_dataclass(target, match[2])
      or _suggest_parameter(match[2], match[1], names),
    )
  match = re.search(
    r"No configurable matching (?:reference )?'@?([\w./]+)(?:\(\))?'", text
  )
  if match:
    return errors.ConfigError(
      'The gin configuration refers to an unknown class or function',
      got=match[1],
      where=where,
      fix=name_suggestions.did_you_mean(match[1], _configurables(match[1]))
      or 'Import the module of the class: pass a --gin_file with the line '
      '`from PACKAGE import MODULE`. `xlflax evaluate` also imports the '
      'modules given with --task_module.',
    )
  match = re.search(
    r"Couldn't resolve selector '?@?([\w./]+)'?;.*no attribute", text
  )
  if match:
    module, _, class_name = match[1].rpartition('/')[2].rpartition('.')
    names = _members_like(class_name, str(error), module)
    return errors.ConfigError(
      f'The module {module} has no class or function with the requested name',
      got=match[1],
      expected=name_suggestions.format_choices(names) if names else None,
      where=where,
      fix=name_suggestions.did_you_mean(match[1], names),
    )
  match = re.search(r"'(\w+)' was not provided by an import statement", text)
  if match:
    return errors.ConfigError(
      'A gin file must import each module that it uses',
      got=text,
      where=where,
      fix=f'Add the line `{_import_statement(match[1])}` to the file.',
    )
  match = re.search(r'Unable to open file: (.+?)\. Searched config paths', text)
  if match:
    return errors.ConfigError(
      'The included gin file does not exist. Its name must be a path from the '
      'working directory, a path from a folder of --gin_search_paths, or the '
      'name of a file that xlflax ships',
      got=match[1],
      where=where,
      fix=_suggest_included_file(match[1], where)
      or 'Correct the name. Run `xlflax configs list` to list the gin files '
      'that xlflax ships.',
    )
  return errors.ConfigError(
    'The gin configuration is not valid',
    got=text,
    where=where,
    fix=next((fix for part, fix in _FIXES if part in text), _FIXES[-1][1]),
  )


def _suggest_parameter(
  got: str, configurable: str, names: Sequence[str]
) -> str | None:
  """Returns a hint with the parameters that an unknown parameter may mean.

  If several parameters are similar, the hint contains their documentation.

  Args:
    got: Name of the unknown parameter.
    configurable: Selector of the class or function.
    names: Names of the parameters that the class or function has.
  """
  matches = equivalent_settings.suggest_parameters(got, names)
  matches = matches or name_suggestions.close_matches(got, names)
  if not matches:
    return None
  if len(matches) == 1:
    return f'Did you mean {matches[0]}?'
  descriptions = [
    f'{name} ({description})' if description else name
    for name in matches
    for description in [_describe_parameter(configurable, name)]
  ]
  return f'Did you mean {" or ".join(descriptions)}?'


def _describe_parameter(configurable: str, name: str) -> str:
  """Returns the first sentence of a parameter's documentation, or ''."""
  target = _find_target(configurable)
  classes = target.__mro__ if inspect.isclass(target) else (target,)
  for documented in classes:
    text = inspect.cleandoc(documented.__doc__ or '')
    entry = re.search(
      rf'^  {name}: (.+?)(?=\n\n|\n {{0,2}}\S|\Z)', text, re.M | re.S
    )
    if entry:
      sentence = re.split(r'\. (?=[A-Z`])', ' '.join(entry[1].split()))[0]
      return sentence.removesuffix('.')
  return ''


def _find_target(configurable: str) -> Any:
  """Returns the class or function of a selector, or None if there is none.

  Gin registers a class under the name that its module has in the first file
  that refers to the class. If the selector contains another name of the module,
  the class is found by its own name, provided that no other class has it.

  Args:
    configurable: Selector of the class or function, possibly with a scope.
  """
  selector = configurable.rpartition('/')[2]
  match = gin.config._REGISTRY.get_match(selector)
  if match:
    return match.wrapped
  targets = {
    registered.wrapped
    for _, registered in gin.config._REGISTRY.items()
    if registered.name == selector.rpartition('.')[2]
  }
  return targets.pop() if len(targets) == 1 else None


def _suggest_included_file(name: str, where: str | None) -> str | None:
  """Returns a hint with the gin file that an include statement may mean.

  Args:
    name: Name in the include statement.
    where: Location of the statement, such as 'mine/own.gin:3'.
  """
  shipped = config_files.shipped_file_names()
  folder = pathlib.Path((where or '').rpartition(':')[0]).parent
  for candidate in (f'{name}.gin', folder / name, folder / f'{name}.gin'):
    if str(candidate) in shipped or pathlib.Path(candidate).is_file():
      return f'Did you mean {candidate}?'
  return name_suggestions.did_you_mean(name, shipped)


def _import_statement(name: str) -> str:
  """Returns the statement that imports a module of the package.

  Args:
    name: Last part of the module's name. The statement contains a placeholder
      for the package unless exactly one imported module has this name.
  """
  start = __name__.partition('.')[0] + '.'
  packages = [
    module.rpartition('.')[0]
    for module in sys.modules
    if module.startswith(start) and module.endswith(f'.{name}')
  ]
  package = packages[0] if len(packages) == 1 else 'PACKAGE'
  return f'from {package} import {name}'


def _location(text: str, option: str) -> str | None:
  """Returns the file and line, or the flag, that Gin adds to a message."""
  match = re.search(r'In file "(.+?)",? line (\d+)', text)
  if match:
    return errors.line_location(match[1], int(match[2]))
  match = re.search(r'In bindings string line \d+\s+(\S+?)\s*=', text)
  return config_files.flag_location(match[1], option) if match else None


def parameter_names(name: str) -> list[str]:
  """Returns the names of a configurable's parameters."""
  target = _find_target(name)
  return list(inspect.signature(target).parameters) if target else []


def short_name(selector: str, imports: Collection[Any]) -> str:
  """Returns the name by which gin files and flags refer to a configurable.

  Args:
    selector: Complete selector of the configurable.
    imports: Modules that the gin files import, in Gin's internal
      representation.
  """
  configurable = gin.config._REGISTRY[selector]
  # Of several names of a module, the one without an alias is used.
  manager = gin.config.ImportManager(
    sorted(imports, key=lambda x: (x.alias or '', x.format()))
  )
  manager.require_configurable(configurable)
  return manager.minimal_selector(configurable)


def _configurables(name: str) -> set[str]:
  """Returns the configurables of Gin and the public names of a module.

  Args:
    name: Name that starts with the name of an imported module, such as
      'schedules.WSD'.
  """
  names = {
    '.'.join(selector.split('.')[-2:])
    for selector, _ in gin.config._REGISTRY.items()
  }
  start = name.rpartition('/')[2].partition('.')[0]
  for statement in gin.config._IMPORTS:
    last = (statement.alias or statement.module).rpartition('.')[2]
    if last == start and statement.module in sys.modules:
      module = sys.modules[statement.module]
      package = statement.module.partition('.')[0]
      names |= {
        f'{start}.{key}'
        for key, value in vars(module).items()
        if not key.startswith('_') and _is_defined_in(value, package)
      }
  # The name of a class starts with a capital letter.
  last_part = name.rpartition('.')[2]
  if last_part[:1].isupper():
    return {other for other in names if other.rpartition('.')[2][:1].isupper()}
  return names


def _members_like(class_name: str, text: str, module: str) -> list[str]:
  """Returns the classes or functions of the module that Gin's message names.

  Args:
    class_name: Name that the module does not define. If it starts with a
      capital letter, classes are returned, otherwise functions.
    text: Gin's error message, which contains the `repr` of the Python module.
    module: Name of the module in the gin file.
  """
  match = re.search(r"<module '([\w.]+)'", text)
  if match is None or match[1] not in sys.modules:
    return []
  package = match[1].partition('.')[0]
  return sorted(
    f'{module}.{key}'
    for key, value in vars(sys.modules[match[1]]).items()
    if _is_defined_in(value, package)
    and key[:1].isupper() == class_name[:1].isupper()
    and not key.startswith('_')
  )


def _is_defined_in(value: Any, package: str) -> bool:
  """Returns whether a value is a class or function of a package."""
  return (
    inspect.isclass(value) or inspect.isfunction(value)
  ) and value.__module__.partition('.')[0] == package


# Substrings of Gin's messages and their hints. The last hint is the default.
_FIXES = (
  ('Failed to parse token', 'Put text in quotes: --gin.NAME="\'text\'".'),
  ('missing', 'Set the values in a gin file or with --gin flags.'),
  ('', 'Correct the statement (docs/gin.md).'),
)
