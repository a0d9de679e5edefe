"""Gin bindings on a command line: `--gin.NAME=VALUE`."""

import re
from collections.abc import Sequence

from xlflax.utils import errors

VALUES = (
  'a value is a number, True, False, None, text in quotes, a list in [], '
  '%MACRO or @module.Class()'
)
_WORDS = ('True', 'False', 'None')


def split_bindings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
  """Takes `--gin.NAME=VALUE` out of a command line.

  Before: `['--gin.A=1', '--x', 'y']`; after: `(['--x', 'y'], ['A=1'])`. What
  comes after `--` is another command's, and stays.

  Raises:
    ConfigError: a binding has no '='.
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
        'A gin flag has no value', got=argument, expected='--gin.NAME=VALUE'
      )
    _check_value(binding)
    bindings.append(binding)
  return [*other_arguments, *arguments[end:]], bindings


def _check_value(binding: str) -> None:
  """Raises ConfigError for a bare word, which Gin cannot read as text.

  A path, which contains / or ~, is put in quotes by `config.load`.
  """
  name, _, value = binding.partition('=')
  value = value.strip()
  if re.fullmatch(r'[A-Za-z][\w.:-]*', value) and value not in _WORDS:
    truths = {word.lower(): word for word in _WORDS} | {'null': 'None'}
    suggestion = truths.get(value.lower(), f'"\'{value}\'"')
    raise errors.ConfigError(
      'A gin flag has a value that cannot be read',
      got=f'--gin.{binding}',
      expected=VALUES,
      fix=f'write --gin.{name}={suggestion}',
    )
  if not value:
    raise errors.ConfigError(
      'A gin flag has an empty value',
      got=f'--gin.{binding}',
      expected='--gin.NAME=VALUE',
      fix=f'for empty text write --gin.{name}="\'\'"',
    )


def quote_bare_word(binding: str) -> str:
  """A binding whose value is a bare word that can only be text, in quotes.

  Before: `MODEL_DIR=runs/a`; after: `MODEL_DIR='runs/a'`.
  """
  name, _, value = binding.partition('=')
  if re.fullmatch(r'[\w./~:-]*[/~][\w./~:-]*', value.strip()):
    return f'{name}={value.strip()!r}'
  return binding
