"""Command-line entry point shared by the studies."""

import argparse
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

from xlflax.utils import errors


def run_command(
  parser: argparse.ArgumentParser,
  command: Callable[[argparse.Namespace], None],
  arguments: Sequence[str] | None,
) -> int:
  """Parses the arguments and runs a study, printing errors on one line.

  Args:
    parser: The study's argument parser.
    command: Function that runs the study.
    arguments: Command-line arguments. If None, the process's arguments are
      used.

  Returns:
    The exit status.
  """
  logging.basicConfig(level=logging.INFO, format='%(message)s')
  args = parser.parse_args(arguments)
  try:
    command(args)
  except errors.XlflaxError as error:
    print(f'{parser.prog}: {error}', file=sys.stderr)
    return error.status
  return 0


def add_compilation_cache(parser: argparse.ArgumentParser) -> None:
  """Adds the option `--compilation_cache`, a folder for compiled programs."""
  parser.add_argument(
    '--compilation_cache',
    default=os.environ.get(
      'XLFLAX_COMPILATION_CACHE', '~/.cache/xlflax/compilation'
    ),
    help="Folder of JAX's persistent compilation cache. Empty for none.",
  )


def use_compilation_cache(directory: str) -> None:
  """Enables JAX's persistent compilation cache.

  Args:
    directory: Folder that stores the cache. If empty, the cache is not enabled.
  """
  if directory:
    import jax

    path = pathlib.Path(directory).expanduser()
    jax.config.update('jax_compilation_cache_dir', str(path))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.5)
