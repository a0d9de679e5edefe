"""Construction of objects from gin files and bindings.

The flags are the same as in T5X: `--gin_file`, `--gin.NAME=VALUE` and
`--gin_search_paths`. Files are found by path, in the search paths, and among
the files of the package (`pretrain/mlm.gin`).

    configuration = gin_config.load_gin_files(
      ['pretrain/mlm.gin', 'models/tiny.gin'], flags
    )
    trainer = configuration.build(trainer.Trainer, macros={'SEED': 1})
"""

import contextlib
import copy
import dataclasses
import inspect
import logging
import re
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import Any

import gin

from xlflax.config import (
  binding_effects,
  binding_locations,
  command_line_bindings,
  config_files,
  flag_validation,
  gin_errors,
)
from xlflax.utils import errors, logs, user_modules, validation

SHIPPED = config_files.SHIPPED

# Pairs of macros that set the same quantity. If both have a value, the second
# macro is ignored.
_EXCLUSIVE_MACROS = (
  ('TRAIN_STEPS', 'EPOCHS'),
  ('NUM_EVALUATIONS', 'EVAL_STEPS'),
)


@dataclasses.dataclass(frozen=True)
class Reference:
  """A value written in gin syntax.

  Attributes:
    text: Text of the value, such as '@schedules.Constant()' or '%LENGTH'.
  """

  text: str


class Placeholder(str):
  """Stand-in for the value of a required macro that the user did not set.

  A command sets such values for macros that it does not need. Macros with these
  values cause no warning if no object reads them.
  """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
  """Parsed gin files and bindings from which objects can be built.

  Gin stores bindings in global variables. A configuration has its own bindings
  and installs them in Gin only while it builds an object. Several
  configurations can therefore exist at the same time, and Gin's global state is
  not changed.

  Attributes:
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
    imports: Modules that the gin files import, in Gin's internal
      representation.
    flags: Names of macros or parameters that were set on the command line or by
      `with_macros`. If no binding uses one of these macros, an error is raised.
    used: Bindings that `build` has read so far, in the representation of
      `bound`. `operative` returns them.
    bindings: All bindings, each with its location (file and line, or flag) for
      error messages.
    stages: Copies of `bound`, one after each gin file that was parsed, in
      order.
    effects: Record of the built objects, and of the bindings that supplied
      values to them, for `check_bindings`.
  """

  bound: gin_errors.Bound = dataclasses.field(repr=False)
  imports: set = dataclasses.field(repr=False)
  flags: frozenset[str] = frozenset()
  used: gin_errors.Bound = dataclasses.field(default_factory=dict, repr=False)
  bindings: Sequence[binding_locations.Binding] = dataclasses.field(
    default=(), repr=False
  )
  stages: Sequence[gin_errors.Bound] = dataclasses.field(default=(), repr=False)
  effects: binding_effects.Effects = dataclasses.field(
    default_factory=binding_effects.Effects, repr=False
  )

  def build(
    self,
    target: Callable,
    macros: Mapping[str, Any] | None = None,
    **fields: Any,
  ) -> Any:
    """Calls a class or function with the arguments bound in the configuration.

    Args:
      target: Class or function to call. If it is not a Gin configurable, it is
        called with `fields` only.
      macros: Values by macro or parameter name, for this call only, as in
        `with_macros`.
      **fields: Arguments that override those that gin files bind.

    Returns:
      The result of `target`.

    Raises:
      ConfigError: If an argument is missing, or the configuration is invalid.
    """
    if macros:
      configuration = dataclasses.replace(
        self.with_macros(macros), effects=self.effects
      )
      return configuration.build(target, **fields)
    with self._lent_to_gin():
      configurable = gin.config._inverse_lookup(target)
    if configurable is None:
      _check_given(target, fields)
      return target(**fields)
    key = ('', configurable.selector)
    self.expect_build(target, fields)
    for flag in self.flags:
      selector, _, name = flag.rpartition('.')
      if name in fields and f'.{configurable.selector}'.endswith(
        f'.{selector}'
      ):
        logging.warning(
          '%s is overridden by another flag.', flag, extra=logs.ONCE
        )
    arguments = {
      name: value
      for name, value in self.bound.get(key, {}).items()
      if name not in fields  # Gin would build values that are not used.
    }
    gin_errors.check_required_by(self.bound, list(arguments.values()))
    configuration = dataclasses.replace(
      self, bound=self.bound | {key: arguments}
    )
    with (
      configuration._lent_to_gin(),
      gin_errors.converting_build_errors(self.bindings),
    ):
      return configurable.wrapper(**fields)

  def expect_build(
    self, target: Callable, fields: Collection[str] = ()
  ) -> None:
    """Declares that a class or function will later be passed to `build`.

    `check_bindings` counts the bindings of the target as used.

    Args:
      target: Class or function to call.
      fields: Names of arguments that the caller of `build` passes, which
        override the gin bindings.
    """
    with self._lent_to_gin():
      configurable = gin.config._inverse_lookup(target)
    if configurable is not None:
      self.effects.add_call(self.bound, configurable.selector, given=fields)

  def with_macros(self, values: Mapping[str, Any]) -> 'Configuration':
    """Returns a copy of the configuration with new values for some macros.

    Args:
      values: Values by name. The name is that of a macro ('SEED') or of a
        parameter ('optimizers.AdamW.b2'). A value may be a `Reference`.

    Raises:
      ConfigError: If a macro is not used, or a parameter does not exist.
    """
    configuration = dataclasses.replace(
      self,
      bound={key: dict(values) for key, values in self.bound.items()},
      imports=set(self.imports),
      flags=self.flags | set(values),
      used={},
      effects=binding_effects.Effects(),
    )
    with configuration._lent_to_gin(), gin_errors.converting_read_errors():
      for name, value in values.items():
        configuration._set(name, value)
    gin_errors.check_macros(
      configuration.bound, configuration.flags, SHIPPED, configuration.bindings
    )
    return configuration

  def macro(self, name: str) -> Any:
    """Builds a macro's value. Each call builds a new object.

    Args:
      name: Name of the macro.

    Raises:
      ConfigError: If the macro is not set, or its value cannot be built.
    """
    return self.parameter(f'{name}/macro.value', what='the macro', shown=name)

  def parameter(
    self, name: str, *, what: str = 'the parameter', shown: str | None = None
  ) -> Any:
    """Builds the value of a gin parameter. Each call builds a new object.

    Args:
      name: Name of the parameter, such as 'evaluate.tasks'.
      what: Description of the value for the error message, such as 'the macro'.
      shown: Name shown in the error message. If None, `name` is shown.

    Raises:
      ConfigError: If the parameter is not bound, or its value cannot be built.
    """
    with self._lent_to_gin():
      try:
        value = gin.query_parameter(name)
      except ValueError as error:
        raise errors.ConfigError(
          f'The configuration does not set {what} `{shown or name}`',
          fix=f'Add a binding `{shown or name} = VALUE`.',
        ) from error
      gin_errors.check_required_by(self.bound, value)
      self._record_parameter(name, value)
      with gin_errors.converting_build_errors(self.bindings):
        return copy.deepcopy(value)  # Gin builds what it copies.

  def _record_parameter(self, name: str, value: Any) -> None:
    """Records the effects of building the value of a parameter."""
    key = gin.config.ParsedBindingKey.parse(name)
    self.effects.parameters.add(
      (key.scope, key.complete_selector, key.arg_name)
    )
    self.effects.add_value(self.bound, value)

  def find_dataset_binding(self, name: str, field: str) -> str | None:
    """Returns the macro or parameter with which to set a field of a dataset.

    Args:
      name: Name of a dataset that `build` has built.
      field: Name of the field, such as 'length' or 'pairs.min_tokens'.

    Returns:
      The binding, as in `gin_errors.find_dataset_binding`.
    """
    return gin_errors.find_dataset_binding(
      self.bound, self.effects.objects, self.imports, name, field
    )

  def is_default(self, name: str) -> bool:
    """Returns whether only the gin files of xlflax bind a macro.

    Args:
      name: Name of the macro. Parameters are not searched, and the result is
        False for them.
    """
    bindings = [binding for binding in self.bindings if binding.name == name]
    return (
      bool(bindings)
      and name not in self.flags
      and all(binding.is_shipped for binding in bindings)
    )

  def operative(self) -> str:
    """Formats the bindings that were used, in the syntax of a gin file.

    The file can be used to rebuild all objects that this configuration has
    built. Values that gin syntax cannot express are listed in comments.
    """
    not_expressible = [
      key
      for key, parameters in self.used.items()
      if key[1] == gin_errors.MACRO
      and not gin_errors.is_plain(parameters['value'])
    ]
    plain = {
      key: self.used[key] for key in self.used if key not in not_expressible
    }
    notes = [f'# {name}: a Python object.\n' for name, _ in not_expressible]
    with dataclasses.replace(self, used=plain)._lent_to_gin():
      return ''.join(notes) + gin.operative_config_str()

  def parsed(self) -> str:
    """Formats all bindings, including unused ones, as a gin file."""
    with self._lent_to_gin():
      return gin.config_str()

  @contextlib.contextmanager
  def _lent_to_gin(self) -> Iterator[None]:
    """Context in which Gin uses the bindings of this configuration."""
    lent_values = {
      '_CONFIG': self.bound,
      '_IMPORTS': self.imports,
      '_OPERATIVE_CONFIG': self.used,
      '_SINGLETONS': {},
      '_CONFIG_IS_LOCKED': False,
    }
    variables = vars(gin.config)
    before = {name: variables[name] for name in lent_values}
    variables.update(lent_values)
    try:
      yield
    finally:
      variables.update(before)

  def _set(self, name: str, value: Any) -> None:
    """Binds a macro or parameter inside of `_lent_to_gin`."""
    if isinstance(value, Reference):
      _bind(f'{name}={value.text}')
      return
    if '.' in name:
      _bind(f'{name}=None')  # Checks the name and registers the configurable.
      gin.bind_parameter(name, value)
    else:
      gin.bind_parameter((name, gin_errors.MACRO, 'value'), value)


def check_bindings(
  configurations: Sequence[Configuration],
  *,
  evaluation_option: Callable[[], binding_effects.Option] | None = None,
) -> None:
  """Raises an error if any of the user's bindings has no effect.

  Bindings of the package's gin files are not checked. A binding is valid if it
  has an effect in at least one of the configurations. A macro that was set by
  one of the command's own options only causes a warning.

  Args:
    configurations: Configurations of a command. Before the call, each object of
      the command must be built from them or announced by `expect_build`.
    evaluation_option: Function that returns the command-line option that
      enables evaluation during training. It is called only for an error
      message. If None, evaluation is enabled by the macro EVALUATION.

  Raises:
    ConfigError: If a binding does not supply a value to any object. The error
      contains the file and line, or the flag, and similar bindings that would
      have an effect.
  """
  unused_by_configuration = []
  for configuration in configurations:
    configuration.effects.add_used(configuration.bound, configuration.used)
    unused_by_configuration.append(
      binding_effects.unused_bindings(
        configuration.bindings,
        configuration.bound,
        configuration.effects,
        configuration.stages,
      )
    )
  # A binding that is not in a configuration has no effect there.
  used = {
    binding
    for configuration, unused in zip(
      configurations, unused_by_configuration, strict=True
    )
    for binding in configuration.bindings
    if binding not in unused
  }
  for configuration, unused in zip(
    configurations, unused_by_configuration, strict=True
  ):
    unused = [binding for binding in unused if binding not in used]
    if unused:
      raise binding_effects.unused_error(
        unused,
        configuration.bindings,
        configuration.bound,
        configuration.effects,
        configuration.imports,
        evaluation_option and evaluation_option(),
      )
  _warn_of_unread_macros(configurations)


def _warn_of_unread_macros(configurations: Sequence[Configuration]) -> None:
  """Logs a warning for each macro that a flag sets but no object reads."""
  keys = {
    (name, gin_errors.MACRO, 'value')
    for configuration in configurations
    for name in configuration.flags
    if (name, gin_errors.MACRO) in configuration.bound
  }
  for configuration in configurations:
    keys -= configuration.effects.parameters
  for name, *_ in sorted(keys):
    logging.warning(
      '%s is set, but this run does not use it.', name, extra=logs.ONCE
    )


def load_configuration(
  args: Any,
  macros: Mapping[str, Any] | None = None,
  *,
  defaults: Sequence[str] = (),
  swept: Iterable[str] = (),
  partial: bool = False,
  modules: Sequence[str] = (),
) -> Configuration:
  """Reads the gin files and flags of a command.

  Errors that are visible in the text of the files are raised before JAX is
  imported.

  Args:
    args: Parsed command-line options, with the attributes `gin_file`,
      `gin_bindings` and `gin_search_paths`.
    macros: Values by macro name, for macros that are set by flags other than
      --gin. Bindings override them.
    defaults: Names or paths of gin files that are read before those of
      `--gin_file`.
    swept: Names of macros that are set later, such as those varied by a grid
      search.
    partial: Whether required values may be missing, as in `load_gin_files`.
    modules: Names or paths of modules to import, which the user passed as
      `--task_module`.

  Returns:
    The configuration.

  Raises:
    ConfigError: If a file, name or value is invalid.
  """
  flag_validation.check_configuration(
    args, (*(macros or {}), *swept), defaults=defaults, partial=partial
  )
  warn_of_repeated_bindings(args.gin_bindings)
  warn_of_overridden_options(
    args.gin_bindings,
    {
      name: f'{flag_validation.FLAG_BY_MACRO[name]}={value}'
      for name, value in (macros or {}).items()
      if isinstance(value, str)
      and not isinstance(value, Placeholder)
      and name in flag_validation.FLAG_BY_MACRO
    },
  )
  configuration = load_gin_files(
    [*defaults, *args.gin_file],
    args.gin_bindings,
    args.gin_search_paths,
    macros=macros,
    partial=partial,
    modules=modules,
  )
  _warn_of_ignored_macros(configuration, set(swept))
  return configuration


def load_gin_files(
  gin_files: Sequence[str],
  bindings: Sequence[str] = (),
  search_paths: Sequence[str] = (),
  *,
  macros: Mapping[str, Any] | None = None,
  partial: bool = False,
  modules: Sequence[str] = (),
  option: str = config_files.GIN_OPTION,
) -> Configuration:
  """Reads gin files and bindings.

  Args:
    gin_files: Names or paths of gin files. Later files override earlier ones.
    bindings: Bindings such as 'NAME=VALUE', in the syntax of gin.
    search_paths: Folders in which gin files are searched. An item may consist
      of several folders separated by commas.
    macros: Values by macro or parameter name, as in `with_macros`. Bindings
      override them.
    partial: Whether required values may be missing. They must be set by
      `with_macros` before an object that needs them is built.
    modules: Names or paths of modules to import. The bindings can refer to
      their classes, such as 'probing.LanguageProbe.layer=3' for the module
      'my_project.probing'.
    option: Option with which the bindings are passed, such as '--eval_gin'.

  Returns:
    The configuration.

  Raises:
    ConfigError: If a file does not exist, the syntax or a name is invalid, a
      module cannot be imported, a macro is unused or missing, or an include
      or a later file of xlflax replaces a user's binding. The error contains
      the file and line, or the flag.
  """
  folders = config_files.split_search_paths(search_paths)
  trees = [config_files.read_gin_file(name, folders) for name in gin_files]
  for tree in trees:
    binding_locations.check_order(tree)
  binding_locations.check_file_order(trees, bindings)
  _warn_of_replaced_objectives(trees, bindings)
  _warn_of_replaced_lists(trees, bindings)
  _warn_of_replaced_models(trees)
  files = [file for tree in trees for file in tree.files()]
  _import_user_modules(files)
  stages: list[gin_errors.Bound] = []
  configuration = Configuration(
    bound={},
    stages=stages,
    imports=set(),
    flags=frozenset(
      [
        *(
          name
          for name, value in (macros or {}).items()
          if not isinstance(value, Placeholder)
        ),
        *(b.partition('=')[0].strip() for b in bindings),
      ]
    ),
    bindings=binding_locations.read_bindings(files, bindings, option),
  )
  with (
    configuration._lent_to_gin(),
    _search_in(folders),
    gin_errors.converting_read_errors(option),
  ):
    with _recording_stages(configuration.bound, stages):
      gin.parse_config_files_and_bindings(
        list(gin_files), None, finalize_config=False
      )
    for name, value in (macros or {}).items():
      configuration._set(name, value)
    for binding in bindings:
      _bind(command_line_bindings.quote_bare_word(binding), modules)
  gin_errors.check_macros(
    configuration.bound, configuration.flags, SHIPPED, configuration.bindings
  )
  if not partial:
    gin_errors.check_required(configuration.bound)
  return configuration


def warn_of_repeated_bindings(bindings: Sequence[str]) -> None:
  """Logs a warning for each name to which flags bind different values.

  Args:
    bindings: Bindings 'NAME=VALUE' of the user, in order.
  """
  values: dict[str, list[str]] = {}
  for binding in bindings:
    name, _, value = binding.partition('=')
    values.setdefault(name.strip(), []).append(value.strip())
  for name, bound in values.items():
    if len(set(bound)) > 1:
      logging.warning(
        '%s is set by several flags to %s. The last value is used.',
        name,
        ' and '.join(bound),
        extra=logs.ONCE,
      )


def warn_of_overridden_bindings(
  bindings: Sequence[str], options: Mapping[str, str]
) -> None:
  """Logs a warning for each binding that another option overrides.

  Args:
    bindings: Bindings 'NAME=VALUE' that the user passed with --gin.
    options: Options that override bindings, such as '--grid', by the name of
      the macro or parameter that they set.
  """
  for binding in bindings:
    name = binding.partition('=')[0].strip()
    if name in options:
      logging.warning(
        '%s is set by --gin.%s and by %s. The value of %s is used.',
        name,
        binding,
        options[name],
        options[name],
        extra=logs.ONCE,
      )


def warn_of_overridden_options(
  bindings: Sequence[str], options: Mapping[str, str]
) -> None:
  """Logs a warning for each option that a binding overrides.

  Args:
    bindings: Bindings 'NAME=VALUE' that the user passed with --gin.
    options: Options with their values, such as '--corpus=DIR', by the name of
      the macro that they set.
  """
  for binding in bindings:
    name, _, value = (part.strip() for part in binding.partition('='))
    option = options.get(name)
    if option and option.partition('=')[2] != value.strip('\'"'):
      logging.warning(
        '%s is set by %s and by --gin.%s. The value of --gin.%s is used.',
        name,
        option,
        binding,
        name,
        extra=logs.ONCE,
      )


def _warn_of_ignored_macros(
  configuration: Configuration, swept: Collection[str]
) -> None:
  """Logs a warning for each macro that another macro of the user disables.

  A macro in a file may be disabled by a later file or by a flag, and defaults
  of xlflax may be disabled everywhere.

  Args:
    configuration: Configuration of the command.
    swept: Names of macros that are set by the option --grid.
  """
  last = {binding.name: binding for binding in configuration.bindings}
  last |= {
    name: binding_locations.flag_binding(name, '--grid') for name in swept
  }
  for names in _EXCLUSIVE_MACROS:
    bindings = [
      last[name]
      for name in names
      if name in last
      and not last[name].is_shipped
      and (
        name in swept
        or configuration.bound[name, gin_errors.MACRO]['value'] is not None
      )
    ]
    if len(bindings) < len(names):
      continue
    effective, ignored = bindings
    if not ignored.is_flag and (
      effective.is_flag or effective.file_index > ignored.file_index
    ):
      continue
    logging.warning(
      '%s (%s) has no effect, because %s (%s) is set, too. Remove one of the '
      'two settings.%s',
      ignored.name,
      ignored.location,
      effective.name,
      effective.location,
      ''
      if effective.is_flag
      else f' To use {ignored.name}, pass --gin.{effective.name}=None.',
      extra=logs.ONCE,
    )


def _warn_of_replaced_objectives(
  trees: Sequence[config_files.Tree], bindings: Sequence[str]
) -> None:
  """Logs a warning if a pretraining file drops objectives of another one."""
  for name, last, scopes in binding_locations.find_replaced_objectives(
    trees, bindings
  ):
    logging.warning(
      'The gin file %s replaces the objectives of %s, so this configuration '
      'does not train the objectives: %s. Pass or include only one gin file of '
      'pretrain/. To combine the objectives of several files, list them in '
      '`objective_mixture.ObjectiveMixture.entries`, and their datasets in '
      '`trainer.Trainer.datasets`.',
      last,
      name,
      ', '.join(scopes),
      extra=logs.ONCE,
    )


def _warn_of_replaced_models(trees: Sequence[config_files.Tree]) -> None:
  """Logs a warning if a gin file of xlflax replaces the sizes of a model."""
  for name, later in binding_locations.find_replaced_models(trees):
    logging.warning(
      'The gin file %s replaces the model of %s, because both files set its '
      'sizes. Pass only one of them. To use the sizes of %s and the other '
      'settings of %s, pass %s last.',
      later,
      name,
      name,
      later,
      name,
      extra=logs.ONCE,
    )


def _warn_of_replaced_lists(
  trees: Sequence[config_files.Tree], bindings: Sequence[str]
) -> None:
  """Logs a warning if a file of the user drops objects of another one."""
  for earlier, later in binding_locations.find_replaced_lists(trees, bindings):
    references = dict.fromkeys((*earlier.references, *later.references))
    logging.warning(
      '%s at %s replaces the list of %s. The run does not use these objects of '
      'the earlier list: %s. To use all objects, list them in the last file: '
      '`%s = [%s]`. If the list must be replaced, include the earlier file in '
      'the file that replaces it, instead of passing both files.',
      later.name,
      later.location,
      earlier.location,
      ', '.join(
        reference
        for reference in earlier.references
        if reference not in later.references
      ),
      later.name,
      ', '.join(f'@{reference}()' for reference in references),
      extra=logs.ONCE,
    )


def _import_user_modules(files: Iterable[config_files.GinFile]) -> None:
  """Imports the modules that gin files of the user import.

  The modules are searched as those of `--task_module` are, and finally in the
  folder of the gin file.

  Raises:
    ConfigError: If a module does not exist or raises an exception.
  """
  for file in files:
    if file.is_shipped:
      continue
    for module, location in binding_locations.read_imports(file).items():
      if module.startswith('__gin__.'):
        continue
      if not module.startswith('xlflax.'):
        user_modules.search_folder(file.path.parent)
      user_modules.import_modules([module], where=location)


def _check_given(target: Callable, fields: Mapping[str, Any]) -> None:
  """Raises ConfigError if no value is given for a required parameter.

  A class whose fields have values, but that lacks the decorator `dataclass`, is
  reported as such.
  """
  missing = [
    parameter.name
    for parameter in inspect.signature(target).parameters.values()
    if parameter.default is parameter.empty
    and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    and parameter.name not in fields
  ]
  if missing:
    if inspect.isclass(target):
      validation.check_declared_fields(target)
    name = getattr(target, '__name__', str(target))
    message = (
      f'The configuration does not set the required parameters of {name}: '
      f'{", ".join(missing)}'
    )
    if inspect.isclass(target) and user_modules.is_user_class(target):
      module = target.__module__.rpartition('.')[2]
      raise errors.ConfigError(
        message,
        fix='Set each parameter in a gin file or with a flag, such as '
        f'--gin.{module}.{name}.{missing[0]}=VALUE.',
      )
    raise errors.ConfigError(
      message,
      fix=f'Pass a gin file that binds {name}, such as '
      '--gin_file=pretrain/mlm.gin. Run `xlflax configs list` to list the gin '
      'files that xlflax ships.',
    )


def split_statements(text: str) -> list[str]:
  """Splits gin code into statements and drops its comments.

  Statements that span several lines are joined.

  Args:
    text: Gin code to split.
  """
  joined = re.sub(r'\\\n\s*', ' ', text)
  joined = re.sub(r'([\[({,=])\n\s+', r'\1 ', joined)
  lines = (' '.join(line.split()) for line in joined.splitlines())
  return [line for line in lines if line and not line.startswith('#')]


@contextlib.contextmanager
def _search_in(folders: Sequence[str]) -> Iterator[None]:
  """Context in which Gin searches for files in folders and in the package.

  Gin logs each folder in which it does not find a file as an error. These
  records are dropped.
  """
  prefixes = gin.config._LOCATION_PREFIXES
  readers = gin.config._FILE_READERS
  before = list(prefixes), list(readers)
  prefixes[:] = ['', *folders, str(SHIPPED)]
  readers[:] = [
    (read, _without_type_errors(exists)) for read, exists in readers
  ]
  root = logging.getLogger()
  root.addFilter(_is_not_from_resource_reader)
  try:
    yield
  finally:
    root.removeFilter(_is_not_from_resource_reader)
    prefixes[:], readers[:] = before


def _without_type_errors(
  exists: Callable[[str], bool],
) -> Callable[[str], bool]:
  """Returns an existence check that is False if `exists` raises a TypeError.

  Gin also searches the file models/tiny.gin in the package `models`. A folder
  models/ in the working directory is such a package, but has no file
  __init__.py, for which Gin's check raises a TypeError.
  """

  def check(path: str) -> bool:
    try:
      return exists(path)
    except TypeError:
      return False

  return check


@contextlib.contextmanager
def _recording_stages(
  bound: gin_errors.Bound, stages: list[gin_errors.Bound]
) -> Iterator[None]:
  """Context in which the bindings are stored after Gin has parsed each file.

  Args:
    bound: Dictionary to which Gin adds the bindings of each file that it
      parses.
    stages: List to which a copy of the bindings is appended after each file.
  """
  parse = gin.config.parse_config_file

  def parse_and_record(*args, **kwargs):
    result = parse(*args, **kwargs)
    stages.append({key: dict(values) for key, values in bound.items()})
    return result

  gin.config.parse_config_file = parse_and_record
  try:
    yield
  finally:
    gin.config.parse_config_file = parse


def _is_not_from_resource_reader(record: logging.LogRecord) -> bool:
  """Returns whether a log record is not about Gin's search for files."""
  return record.module != 'resource_reader'


def _bind(binding: str, modules: Sequence[str] = ()) -> None:
  """Parses a binding, which may use modules that a file imports.

  Args:
    binding: Binding in the form 'NAME=VALUE'.
    modules: Names or paths of additional modules that the binding may use.
  """
  try:
    gin.parse_config(binding)
  except ValueError as error:
    imports = sorted(
      {
        'from __gin__ import dynamic_registration',
        *(i.format() for i in gin.config._IMPORTS),
        *map(_import_statement, modules),
      },
      key=lambda line: '__gin__' not in line,
    )
    try:
      gin.parse_config([*imports, binding])
    except Exception as import_error:
      # If an imported module defines the class, the second error describes the
      # binding. Otherwise, Gin raises NameError or AttributeError.
      is_defined = isinstance(import_error, ValueError)
      raise (import_error if is_defined else error) from None


def _import_statement(module: str) -> str:
  """Returns the statement that imports a module, given by name or path."""
  name = user_modules.importable_name(module, where='--task_module')
  package, _, stem = name.rpartition('.')
  return f'from {package} import {stem}' if package else f'import {stem}'
