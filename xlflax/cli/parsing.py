"""Parsing of command lines into option dataclasses, with cyclopts.

A command module has a function `main`, or a dictionary `SUBCOMMANDS` of
functions by name, or both. Each of these functions takes one argument,
`options`. This argument is an instance of a frozen dataclass whose fields
define the command-line options and whose docstring defines the help text.
"""

import dataclasses
import enum
import functools
import re
import types
import typing
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import cyclopts
import pydantic
import rich.console

from xlflax.cli import options as shared_options
from xlflax.utils import (
  equivalent_settings,
  errors,
  name_suggestions,
  validation,
)

Main = Callable[[Any], int | None]
_HELP_FLAGS = ('--help', '-h')
_MIN_WIDTH = 40  # Number of columns for help texts.


def parse(
  name: str,
  module: types.ModuleType,
  arguments: Sequence[str],
  *,
  gin_bindings: Sequence[str] = (),
  command_line: Sequence[str] = (),
) -> Callable[[], int | None]:
  """Parses the arguments of a command.

  Args:
    name: Name of the command, such as 'train'.
    module: Python module that defines the command.
    arguments: Command-line arguments after the command's name, without
      `--gin.NAME=VALUE`.
    gin_bindings: Bindings 'NAME=VALUE' for the command's `GinOptions`.
    command_line: Words of the command line, which are stored in the options'
      field `command_line`.

  Returns:
    A function without arguments that runs the command, or prints its help.

  Raises:
    ConfigError: If the arguments are invalid.
  """
  app = build_app(name, module)
  path = _subcommand_path(module, arguments)
  if has_help_flag(arguments):
    return functools.partial(print_help, app, module, path)
  prog = ' '.join(('xlflax', name, *path))
  if path:
    main = module.SUBCOMMANDS[path[0]]
  elif hasattr(module, 'main') and not _names_subcommand(module, arguments):
    main = module.main
  else:
    raise _unknown_subcommand(prog, module, arguments)
  options = _parse_options(app, arguments, path)
  if gin_bindings:
    options = _add_bindings(options, gin_bindings, prog)
  if hasattr(options, 'command_line'):
    options = dataclasses.replace(options, command_line=tuple(command_line))
  return functools.partial(main, options)


def build_app(name: str, module: types.ModuleType) -> cyclopts.App:
  """Returns the cyclopts application of a command and its subcommands."""
  app = cyclopts.App(
    name=f'xlflax {name}',
    help=_describe_group(module),
    version_flags=(),
    help_flags=_HELP_FLAGS,
    default_parameter=cyclopts.Parameter(
      name_transform=str.lower, negative=(), show_default=_format_default
    ),
  )
  app['--help'].group = 'Options'
  if hasattr(module, 'main'):
    app.default(options_class(module.main))
    app.help = None  # The options class describes the command.
  for subcommand, main in getattr(module, 'SUBCOMMANDS', {}).items():
    app.command(options_class(main), name=subcommand)
  return app


def _describe_group(module: types.ModuleType) -> str:
  """Returns a module's docstring without the name of the command.

  For example, "`xlflax convert`: converts checkpoints." becomes "Converts
  checkpoints."
  """
  description = re.sub(r'^`xlflax [\w-]+`: ', '', module.__doc__ or '')
  return description[:1].upper() + description[1:]


def options_class(main: Main) -> type:
  """Returns the options dataclass that a command function takes."""
  return typing.get_type_hints(main)['options']


def option_names(name: str, module: types.ModuleType) -> dict[str, list[str]]:
  """Returns the option names of a command and its subcommands.

  Args:
    name: Name of the command.
    module: Python module that defines the command.

  Returns:
    The option names by command, such as 'cache' and 'cache verify'.
  """
  app = build_app(name, module)
  paths: list[tuple[str, ...]] = [()] if hasattr(module, 'main') else []
  paths += [(subcommand,) for subcommand in getattr(module, 'SUBCOMMANDS', {})]
  return {' '.join((name, *path)): _names(app, path) for path in paths}


def print_help(
  app: cyclopts.App, module: types.ModuleType, path: Sequence[str]
) -> int:
  """Prints the help of a command, followed by the examples of its module."""
  console = _Console()
  # Rich does not finish wrapping long help texts on a terminal of one column,
  # as with COLUMNS=1.
  console.width = max(console.width, _MIN_WIDTH)
  app.help_print(list(path), console=console)
  console.print('Examples:')
  console.print(
    module.EXAMPLES.strip('\n'), markup=False, highlight=False, soft_wrap=True
  )
  return 0


class _Console(rich.console.Console):
  """Console that raises BrokenPipeError if nothing reads its output."""

  def on_broken_pipe(self) -> None:
    # Rich calls this method while it handles the error, and would exit with
    # the status 1.
    raise  # noqa: PLE0704


def has_help_flag(arguments: Sequence[str]) -> bool:
  """Returns whether the arguments contain a help flag before `--`."""
  end = arguments.index('--') if '--' in arguments else len(arguments)
  return any(flag in arguments[:end] for flag in _HELP_FLAGS)


def _format_default(value: Any) -> str | None:
  """Returns a default value for the help, or None if it is not displayed."""
  if value is None or value is False or value == ():
    return None
  if isinstance(value, enum.Enum):
    return value.value
  return ', '.join(value) if isinstance(value, tuple) else str(value)


def _parse_options(
  app: cyclopts.App, arguments: Sequence[str], path: Sequence[str]
) -> Any:
  """Parses and validates the options of a command or subcommand."""
  prog = ' '.join((*app.name, *path))
  try:
    options_type, bound, _ = app.parse_args(
      list(arguments), exit_on_error=False, print_error=False
    )
    options = options_type(*bound.args, **bound.kwargs)
  except cyclopts.CycloptsError as error:
    if isinstance(error, cyclopts.MissingArgumentError):
      # A misspelled option is probably the reason for the missing argument.
      unknown = _unknown_options(arguments, _names(app, path))
      if unknown:
        raise _unknown_option_error(unknown[0], app, path, prog) from error
    if isinstance(error, cyclopts.UnusedCliTokensError):
      raise _unused_token_error(error, app, path, prog, arguments) from error
    raise _convert_error(error, app, path, prog) from error
  _validate(options, prog)
  return options


def _validate(options: Any, prog: str) -> None:
  """Checks the constraints of the annotations, including nested groups."""
  hints = typing.get_type_hints(type(options), include_extras=True)
  for field in dataclasses.fields(options):
    value = getattr(options, field.name)
    if dataclasses.is_dataclass(value):
      _validate(value, prog)
      continue
    try:
      pydantic.TypeAdapter(hints[field.name]).validate_python(value)
    except pydantic.ValidationError as error:
      raise errors.ConfigError(
        f'The value of --{field.name} is not valid',
        got=value,
        expected=_describe_constraint(error),
        where=prog,
      ) from error


def _describe_constraint(error: pydantic.ValidationError) -> str:
  """Returns the violated constraint, such as 'greater than 0'."""
  message = error.errors(include_url=False)[0]['msg']
  return message.removeprefix('Input should be ')


def _add_bindings(options: Any, bindings: Sequence[str], prog: str) -> Any:
  """Returns the options with gin bindings added to their `GinOptions`."""
  for field in dataclasses.fields(options):
    group = getattr(options, field.name)
    if isinstance(group, shared_options.GinOptions):
      group = dataclasses.replace(group, gin_bindings=tuple(bindings))
      return dataclasses.replace(options, **{field.name: group})
  raise errors.ConfigError(
    f'The command does not support gin bindings, but found --gin.{bindings[0]}',
    where=prog,
    fix=f'Remove the binding. Run `{prog} --help` to list the options.',
  )


def _subcommand_path(
  module: types.ModuleType, arguments: Sequence[str]
) -> tuple[str, ...]:
  """Returns the subcommand as a tuple of one word, or an empty tuple."""
  subcommands = getattr(module, 'SUBCOMMANDS', {})
  return tuple(word for word in arguments[:1] if word in subcommands)


def _names_subcommand(
  module: types.ModuleType, arguments: Sequence[str]
) -> bool:
  """Returns whether the first argument is meant to be a subcommand.

  A command with subcommands takes no positional arguments itself.
  """
  is_word = bool(arguments) and not arguments[0].startswith('-')
  return is_word and bool(getattr(module, 'SUBCOMMANDS', {}))


def _unknown_subcommand(
  prog: str, module: types.ModuleType, arguments: Sequence[str]
) -> errors.ConfigError:
  """Returns the error for a missing or unknown subcommand."""
  names = list(module.SUBCOMMANDS)
  word = arguments[0] if arguments else ''
  return errors.ConfigError(
    'The subcommand does not exist' if word else 'A subcommand is required',
    got=word or None,
    expected=name_suggestions.format_choices(names),
    where=prog,
    fix=name_suggestions.suggestion_or_hint(
      word, names, f'Run `{prog} --help` to list the subcommands.'
    ),
  )


def _names(app: cyclopts.App, path: Sequence[str]) -> list[str]:
  """Returns the option names of a command, such as '--output'."""
  for name in path:
    app = app[name]
  arguments = app.assemble_argument_collection()
  return [
    name
    for argument in arguments
    if argument.parse
    for name in argument.names
    if name.startswith('--')
  ]


def _suggest_options(
  option: str, app: cyclopts.App, path: Sequence[str]
) -> list[str]:
  """Returns sentences with alternatives to an option that does not exist.

  For an option of another library, such as --max_steps, the only sentence names
  the equivalent in xlflax. Otherwise, very similar names come first, then names
  whose words are contained in the given name, or vice versa, such as --step for
  --checkpoint_steps, and then less similar names. If there are none, the
  positional arguments are described.
  """
  names = _names(app, path)
  equivalent = equivalent_settings.suggest_for_option(
    option, names, app.name[0].removeprefix('xlflax ')
  )
  if equivalent:
    return [equivalent]
  matches = [
    *name_suggestions.close_matches(option, names, cutoff=0.8),
    *(
      name
      for name in names
      if _words(name) <= _words(option) or _words(option) <= _words(name)
    ),
    *name_suggestions.close_matches(option, names),
  ]
  if matches:
    return [f'Did you mean {" or ".join(list(dict.fromkeys(matches))[:3])}?']
  for name in path:
    app = app[name]
  positional = [
    f'{argument.name.strip("-").replace("-", "_").upper()} '
    f'({_first_sentence(argument.parameter.help or "")})'
    for argument in app.assemble_argument_collection(parse_docstring=True)
    if argument.parse and argument.index is not None
  ]
  if not positional:
    return []
  return [
    f'The command has the positional argument{"s" * (len(positional) > 1)} '
    f'{" and ".join(positional)}.'
  ]


def _first_sentence(text: str) -> str:
  """Returns the first sentence of a help text, without the period."""
  return ' '.join(text.split()).partition('. ')[0].removesuffix('.')


def _words(option: str) -> set[str]:
  """Returns the words of an option name, without a plural s."""
  words = option.strip('-').lower().replace('-', '_').split('_')
  return {word.removesuffix('s') for word in words}


def _unknown_options(
  arguments: Sequence[str], names: Collection[str]
) -> list[str]:
  """Returns the options among the arguments that a command does not have."""
  end = arguments.index('--') if '--' in arguments else len(arguments)
  options = [argument.partition('=')[0] for argument in arguments[:end]]
  return [
    option
    for option in options
    if option.startswith('--') and option not in names
  ]


def _unknown_option_error(
  option: str, app: cyclopts.App, path: Sequence[str], prog: str
) -> errors.ConfigError:
  """Returns the error for an option that a command does not have."""
  return errors.ConfigError(
    'The command does not have the given option',
    got=option,
    where=prog,
    fix=' '.join((*_suggest_options(option, app, path), _help_hint(prog))),
  )


def _help_hint(prog: str) -> str:
  """Returns the hint that refers to the help of a command."""
  return f'Run `{prog} --help` to list the options.'


def _convert_error(
  error: cyclopts.CycloptsError,
  app: cyclopts.App,
  path: Sequence[str],
  prog: str,
) -> errors.ConfigError:
  """Converts an error of cyclopts to a ConfigError with value and hint."""
  help_hint = _help_hint(prog)
  if isinstance(error, cyclopts.UnknownOptionError):
    option = (error.token.keyword or error.token.value or '').partition('=')[0]
    return _unknown_option_error(option, app, path, prog)
  name = error.argument.name if error.argument is not None else None
  if isinstance(error, cyclopts.MissingArgumentError):
    return errors.ConfigError(
      f'The argument {name} is required', where=prog, fix=help_hint
    )
  if isinstance(error, cyclopts.RepeatArgumentError):
    option = error.token.keyword or ''
    return errors.ConfigError(
      f'The option {option} cannot be given more than once', where=prog
    )
  if isinstance(error, (cyclopts.CoercionError, cyclopts.ValidationError)):
    return _convert_value_error(error, prog, help_hint)
  return errors.ConfigError(str(error).splitlines()[0], where=prog)


def _unused_token_error(
  error: cyclopts.UnusedCliTokensError,
  app: cyclopts.App,
  path: Sequence[str],
  prog: str,
  arguments: Sequence[str],
) -> errors.ConfigError:
  """Returns the error for an argument that belongs to no option.

  If the argument follows an option whose values are separated by commas, the
  hint contains the option with all values.
  """
  token = (error.unused_tokens or [''])[0]
  fix = 'Write --OPTION=VALUE, and quote values that contain spaces.'
  option, values = _values_with_token(token, arguments)
  for name in path:
    app = app[name]
  for argument in app.assemble_argument_collection():
    if option in argument.names and shared_options.is_comma_separated(
      argument.parameter
    ):
      fix = _describe_comma_separated(option, ' '.join(values))
  return errors.ConfigError(
    'The command does not accept the given argument',
    got=token,
    where=prog,
    fix=fix,
  )


def _values_with_token(
  token: str, arguments: Sequence[str]
) -> tuple[str, list[str]]:
  """Returns the option that precedes an argument, and the words that follow it.

  For example, the result for the token 'fr' in `--languages=en fr --size=10` is
  ('--languages', ['en', 'fr']).
  """
  groups: list[tuple[str, list[str]]] = [('', [])]
  for argument in arguments:
    if argument.startswith('--'):
      option, _, value = argument.partition('=')
      groups.append((option, [value] if value else []))
    else:
      groups[-1][1].append(argument)
  return next(
    (group for group in groups if token in group[1][1:]), ('', [token])
  )


def _describe_comma_separated(option: str, text: str) -> str:
  """Returns the hint for values that are not separated by commas."""
  values = ','.join(value for value in re.split(r'[,\s]+', text) if value)
  return f'Separate the values by commas: {option}={values}.'


def _convert_value_error(
  error: cyclopts.CycloptsError, prog: str, help_hint: str
) -> errors.ConfigError:
  """Converts the error of an option with an invalid value."""
  argument = error.argument
  name = (argument.name if argument is not None else None) or 'an option'
  token = getattr(error, 'token', None)
  if token is None and argument is not None and argument.tokens:
    token = argument.tokens[-1]
  got = token.value if token is not None else None
  choices = (argument.get_choices() if argument is not None else None) or ()
  if isinstance(error.__cause__, pydantic.ValidationError):
    expected: str | None = _describe_constraint(error.__cause__)
    value = error.__cause__.errors(include_url=False)[0]['input']
    hint = argument.field_info.annotation if argument is not None else None
    help_hint = validation.suggest_correction(value, hint) or help_hint
  elif choices:
    expected = name_suggestions.format_choices(choices)
  elif (
    argument is not None
    and shared_options.is_comma_separated(argument.parameter)
    and len((got or '').split()) > 1
  ):
    expected = 'values that are separated by commas'
    help_hint = _describe_comma_separated(name, got or '')
  else:
    expected = _TYPE_NAMES.get(_plain_type(argument))
  return errors.ConfigError(
    f'The value of {name} is not valid',
    got=got,
    expected=expected,
    where=prog,
    fix=name_suggestions.suggestion_or_hint(got or '', choices, help_hint),
  )


_TYPE_NAMES: dict[Any, str] = {int: 'an integer', float: 'a number'}


def _plain_type(argument: Any) -> Any:
  """Returns the type of an argument without None and annotations."""
  hint = argument.hint if argument is not None else None
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    hint = next(
      (member for member in typing.get_args(hint) if member is not type(None)),
      hint,
    )
  while typing.get_origin(hint) is Annotated:
    hint = typing.get_args(hint)[0]
  return hint
