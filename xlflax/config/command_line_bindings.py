"""Gin bindings on the command line: `--gin.NAME=VALUE`."""

import re
from collections.abc import Sequence

from xlflax.utils import errors, name_suggestions

VALUES = (
  'a number, True, False, None, text in quotes, a list in [], a dictionary in '
  '{}, %MACRO or @module.Class()'
)
_WORDS = ('True', 'False', 'None')
# Macros of the shipped gin files whose values are objects, each with the module
# and the classes of these objects. The first class is the default.
CLASSES_BY_MACRO = {
  'OPTIMIZER': (
    'optimizers',
    ('AdamW', 'StableAdamW', 'Muon', 'Adam', 'SGD', 'Adafactor'),
  ),
  'SCHEDULE': (
    'schedules',
    ('Linear', 'Constant', 'Cosine', 'WSD', 'InverseSqrt', 'Piecewise'),
  ),
}


def split_bindings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
  """Separates `--gin.NAME=VALUE` flags from the other arguments.

  For example, `['--gin.A=1', '--x', 'y']` becomes `(['--x', 'y'], ['A=1'])`.
  Arguments after `--` belong to another command and are not changed.

  Args:
    arguments: Arguments of the command line, such as `sys.argv[1:]`.

  Returns:
    The other arguments, and the bindings without the prefix `--gin.`.

  Raises:
    ConfigError: If a binding has no value, if text is not quoted although it
      must be, or if the value is text where an object is required.
  """
  other_arguments, bindings = [], []
  end = list(arguments).index('--') if '--' in arguments else len(arguments)
  for argument in arguments[:end]:
    if not argument.startswith('--gin.'):
      other_arguments.append(argument)
      continue
    binding = argument.removeprefix('--gin.')
    if '=' not in binding:
      raise errors.ConfigError(
        'A --gin flag must have the form --gin.NAME=VALUE',
        got=argument,
        fix='Add the value, such as --gin.TRAIN_STEPS=1000.',
      )
    _check_value(binding)
    bindings.append(binding)
  return [*other_arguments, *arguments[end:]], bindings


def _check_value(binding: str) -> None:
  """Raises ConfigError for a bare word, or for text in place of an object.

  A path, which contains / or ~, is quoted later by `quote_bare_word`.
  """
  name, _, value = binding.partition('=')
  value = value.strip()
  quoted = re.fullmatch(r"""(['"])([A-Za-z][\w-]*)\1""", value)
  if quoted and name in CLASSES_BY_MACRO:
    raise errors.ConfigError(
      f'The value of --gin.{name} must be a reference to a class, not text',
      got=value,
      fix=_suggest_class(name, quoted[2]),
    )
  if re.fullmatch(r'[A-Za-z][\w.:-]*', value) and value not in _WORDS:
    constants = {word.lower(): word for word in _WORDS} | {'null': 'None'}
    if constant := constants.get(value.lower()):
      fix = f'Pass --gin.{name}={constant}.'
    elif re.fullmatch(r'([a-z_]\w*\.)+[A-Z]\w*', value):
      fix = f'Pass --gin.{name}="@{value}()" for an object of this class.'
    elif name in CLASSES_BY_MACRO:
      fix = _suggest_class(name, value)
    elif name.endswith('_FILES'):
      fix = (
        f'Pass the file of each language: --gin.{name}="{{\'en\': {value!r}}}".'
      )
    else:
      fix = (
        f'Pass --gin.{name}="\'{value}\'" if the value is text. Write numbers in '
        'digits.'
      )
    raise errors.ConfigError(
      f'The value of --gin.{name} must be {VALUES}', got=value, fix=fix
    )
  if not value:
    raise errors.ConfigError(
      f'The flag --gin.{name} must not have an empty value',
      fix=f'Pass --gin.{name}="\'\'" for an empty string.',
    )


def _suggest_class(macro: str, value: str) -> str:
  """Returns the hint for a bare word in place of an object such as @A()."""
  module, names = CLASSES_BY_MACRO[macro]
  by_letters = {name.lower(): name for name in names}
  letters = value.lower().replace('_', '').replace('-', '')
  close = name_suggestions.close_matches(letters, by_letters, most=1)
  if close:
    suggested = by_letters[close[0]]
    return f'Did you mean --gin.{macro}="@{module}.{suggested}()"?'
  return (
    f'Pass an object of one of the classes {", ".join(names)}, such as '
    f'--gin.{macro}="@{module}.{names[0]}()".'
  )


def quote_bare_word(binding: str) -> str:
  """Quotes a binding's value if it is a bare word that contains / or ~.

  For example, `MODEL_DIR=runs/a` becomes `MODEL_DIR='runs/a'`.

  Args:
    binding: Binding in the form 'NAME=VALUE'.
  """
  name, _, value = binding.partition('=')
  if re.fullmatch(r'[\w./~:-]*[/~][\w./~:-]*', value.strip()):
    return f'{name}={value.strip()!r}'
  return binding
