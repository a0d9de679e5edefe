"""Gin at the entry point: files and bindings become objects.

The flags are T5X's: `--gin_file`, `--gin.NAME=VALUE`, `--gin_search_paths`.
Files are found by path, in the search paths, and among those that come with
the package (`pretrain/mlm.gin`).

    configuration = config.load(['pretrain/mlm.gin', 'models/tiny.gin'], flags)
    trainer = configuration.build(trainer.Trainer, macros={'SEED': 1})
"""

import contextlib
import copy
import dataclasses
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gin

from xlflax.config import (
  binding_locations,
  command_line_bindings,
  config_files,
  flag_validation,
  gin_errors,
)
from xlflax.utils import errors

SHIPPED = config_files.SHIPPED


@dataclasses.dataclass(frozen=True)
class Reference:
  """A value that only Gin can read.

  Attributes:
    text: such as '@schedules.Constant()' or '%LENGTH'.
  """

  text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
  """Gin files and bindings, read once, from which objects are built.

  Gin keeps what it reads in global variables. A configuration holds its own
  and lends it to Gin while it builds something: any number of configurations
  live side by side, and none is left in Gin.

  Attributes:
    bound: what is bound, as Gin stores it.
    imports: the modules that the files import, as Gin stores them.
    flags: macros that must be used: those of the command line and of
      `with_macros`.
    used: what was bound of all that has been built, for `operative`.
    bindings: The bindings of files and flags, to locate values in errors.
  """

  bound: gin_errors.Bound = dataclasses.field(repr=False)
  imports: set = dataclasses.field(repr=False)
  flags: frozenset[str] = frozenset()
  used: gin_errors.Bound = dataclasses.field(default_factory=dict, repr=False)
  bindings: Sequence[binding_locations.Binding] = dataclasses.field(
    default=(), repr=False
  )

  def build(
    self,
    target: Callable,
    macros: Mapping[str, Any] | None = None,
    **fields: Any,
  ) -> Any:
    """Calls a class or function with the arguments that are bound.

    Args:
      target: what no file names is called as it is.
      macros: values for this call only; see `with_macros`.
      **fields: arguments, instead of those that are bound.

    Returns:
      What `target` returns.

    Raises:
      ConfigError: an argument is missing, or the configuration is wrong.
    """
    if macros:
      return self.with_macros(macros).build(target, **fields)
    with self._lent_to_gin():
      configurable = gin.config._inverse_lookup(target)
    if configurable is None:
      _check_given(target, fields)
      return target(**fields)
    key = ('', configurable.selector)
    for flag in self.flags:
      selector, _, name = flag.rpartition('.')
      if name in fields and f'.{configurable.selector}'.endswith(
        f'.{selector}'
      ):
        logging.warning('%s: another flag overrides it.', flag)
    arguments = {
      name: value
      for name, value in self.bound.get(key, {}).items()
      if name not in fields  # Gin would build what is then not used.
    }
    gin_errors.check_required_by(self.bound, list(arguments.values()))
    lent = dataclasses.replace(self, bound=self.bound | {key: arguments})
    with lent._lent_to_gin(), gin_errors.converting_build_errors(self.bindings):
      return configurable.wrapper(**fields)

  def with_macros(self, values: Mapping[str, Any]) -> 'Configuration':
    """The configuration with other values of macros; this one stays.

    Args:
      values: name of a macro ('SEED'), or of a parameter such as
        'optimizers.AdamW.b2' -> its value, or a `Reference`.

    Raises:
      ConfigError: nothing uses a macro, or a parameter does not exist.
    """
    configuration = dataclasses.replace(
      self,
      bound={key: dict(values) for key, values in self.bound.items()},
      imports=set(self.imports),
      flags=self.flags | set(values),
      used={},
    )
    with configuration._lent_to_gin(), gin_errors.converting_read_errors():
      for name, value in values.items():
        configuration._set(name, value)
    gin_errors.check_macros(configuration.bound, configuration.flags, SHIPPED)
    return configuration

  def macro(self, name: str) -> Any:
    """What a macro stands for, built anew.

    Raises:
      ConfigError: it is not set, or cannot be built.
    """
    return self.parameter(f'{name}/macro.value', what='a macro', shown=name)

  def parameter(
    self, name: str, *, what: str = 'a parameter', shown: str | None = None
  ) -> Any:
    """What a parameter such as 'evaluate.tasks' is bound to, built anew.

    Args:
      name: of the parameter, in gin's form.
      what: what it is, for the message.
      shown: its name there; None: `name`.

    Raises:
      ConfigError: it is not bound, or cannot be built.
    """
    with self._lent_to_gin():
      try:
        value = gin.query_parameter(name)
      except ValueError as error:
        raise errors.ConfigError(
          f'The configuration lacks {what}',
          got=f'no {shown or name}',
          expected=f'{shown or name} = ...',
        ) from error
      gin_errors.check_required_by(self.bound, value)
      with gin_errors.converting_build_errors(self.bindings):
        return copy.deepcopy(value)  # Gin builds what it copies.

  def warn_of_unread(self) -> None:
    """Says what of the command line nothing that was built has read."""
    for name in sorted(self.flags):
      key = (name, gin_errors.MACRO)
      of, is_parameter, _ = name.rpartition('.')
      scope, _, selector = of.rpartition('/')
      unread = key in self.bound and key not in self.used
      if is_parameter:
        unread = not any(
          scope in used_scope and f'.{kind}'.endswith(f'.{selector}')
          for used_scope, kind in self.used
        )
      if unread:
        logging.warning('%s is set, but nothing in this run reads it.', name)

  def operative(self) -> str:
    """A gin file of what was really used, for the run directory.

    It builds again what this configuration has built. Values that only Python
    can make are named in comments.
    """
    odd = [
      key
      for key, parameters in self.used.items()
      if key[1] == gin_errors.MACRO
      and not gin_errors.is_plain(parameters['value'])
    ]
    plain = {key: self.used[key] for key in self.used if key not in odd}
    notes = [f'# {name}: an object that Python gave.\n' for name, _ in odd]
    with dataclasses.replace(self, used=plain)._lent_to_gin():
      return ''.join(notes) + gin.operative_config_str()

  def parsed(self) -> str:
    """A gin file of all that is bound, used or not."""
    with self._lent_to_gin():
      return gin.config_str()

  @contextlib.contextmanager
  def _lent_to_gin(self) -> Iterator[None]:
    """Has Gin's global variables be this configuration's for a while."""
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
    """Binds a macro or parameter; Gin has been lent this configuration."""
    if isinstance(value, Reference):
      _bind(f'{name}={value.text}')
      return
    if '.' in name:
      _bind(f'{name}=None')  # checks the name, and registers what it names
      gin.bind_parameter(name, value)
    else:
      gin.bind_parameter((name, gin_errors.MACRO, 'value'), value)


def load_configuration(
  args: Any,
  macros: Mapping[str, Any] | None = None,
  *,
  defaults: Sequence[str] = (),
  swept: Iterable[str] = (),
  partial: bool = False,
) -> Configuration:
  """Reads gin files and flags; what is wrong as text is told first.

  Args:
    args: a command's arguments, with `gin_file`, `gin_bindings` and
      `gin_search_paths`.
    macros: values of macros that other flags set; bindings override them.
    defaults: files that are read before those of `--gin_file`.
    swept: macros that are given later, such as those of a grid.
    partial: whether required values may be missing (see `load_gin_files`).

  Returns:
    The configuration, from which objects are built.

  Raises:
    ConfigError: a file, name or value that cannot be right. What the text of
      the files shows is found before JAX is imported.
  """
  flag_validation.check_configuration(
    args, (*(macros or {}), *swept), defaults=defaults, partial=partial
  )
  return load_gin_files(
    [*defaults, *args.gin_file],
    args.gin_bindings,
    args.gin_search_paths,
    macros=macros,
    partial=partial,
  )


def load_gin_files(
  gin_files: Sequence[str],
  bindings: Sequence[str] = (),
  search_paths: Sequence[str] = (),
  *,
  macros: Mapping[str, Any] | None = None,
  partial: bool = False,
) -> Configuration:
  """Reads files, then bindings.

  Args:
    gin_files: names or paths; later ones override earlier ones.
    bindings: 'NAME=VALUE' in gin's syntax.
    search_paths: folders to look files up in; each may hold commas.
    macros: values of macros, which bindings override; see `with_macros`.
    partial: values may be missing, which `with_macros` will give; they are
      looked for when something is built.

  Raises:
    ConfigError: file not found, syntax, unknown name, unused or missing
      macro; names the file and line, or the binding.
  """
  folders = config_files.split_search_paths(search_paths)
  files = [
    file
    for name in gin_files
    for file in config_files.read_gin_file(name, folders).files()
  ]
  configuration = Configuration(
    bound={},
    imports=set(),
    flags=frozenset(
      [*(macros or {}), *(b.partition('=')[0].strip() for b in bindings)]
    ),
    bindings=binding_locations.read_bindings(files, bindings),
  )
  with (
    configuration._lent_to_gin(),
    _search_in(folders),
    gin_errors.converting_read_errors(),
  ):
    gin.parse_config_files_and_bindings(
      list(gin_files), None, finalize_config=False
    )
    for name, value in (macros or {}).items():
      configuration._set(name, value)
    for binding in bindings:
      _bind(command_line_bindings.quote_bare_word(binding))
  gin_errors.check_macros(configuration.bound, configuration.flags, SHIPPED)
  if not partial:
    gin_errors.check_required(configuration.bound)
  return configuration


def _check_given(target: Callable, fields: Mapping[str, Any]) -> None:
  """Refuses to call what no file names if arguments are missing."""
  missing = [
    parameter.name
    for parameter in inspect.signature(target).parameters.values()
    if parameter.default is parameter.empty
    and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    and parameter.name not in fields
  ]
  if missing:
    name = getattr(target, '__name__', str(target))
    raise errors.ConfigError(
      f'Nothing configures {name}',
      got=f'no {", ".join(missing)}',
      expected=f'a gin file that binds {name}',
      where='--gin_file',
      fix='give one, such as --gin_file=pretrain/mlm.gin; `xlflax configs` '
      'lists those that come with xlflax',
    )


def split_statements(text: str) -> list[str]:
  """A gin text's lines, continued ones joined, without comments."""
  joined = re.sub(r'\\\n\s*', ' ', text)
  joined = re.sub(r'([\[({,=])\n\s+', r'\1 ', joined)
  lines = (' '.join(line.split()) for line in joined.splitlines())
  return [line for line in lines if line and not line.startswith('#')]


@contextlib.contextmanager
def _search_in(folders: Sequence[str]) -> Iterator[None]:
  """Has Gin look files up in folders, and among the package's.

  It logs each folder that it looks a file up in as an error: nobody's news.
  """
  prefixes = gin.config._LOCATION_PREFIXES
  before = list(prefixes)
  prefixes[:] = ['', *folders, str(SHIPPED)]
  root = logging.getLogger()
  root.addFilter(_is_news)
  try:
    yield
  finally:
    root.removeFilter(_is_news)
    prefixes[:] = before


def _is_news(record: logging.LogRecord) -> bool:
  return record.module != 'resource_reader'


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
