"""The flags of Gin: `--gin_file`, `--gin.NAME=VALUE`, `--gin_search_paths`."""

import argparse
from collections.abc import Sequence

from xlflax import errors


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
