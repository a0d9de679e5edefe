"""Command-line entry point shared by the studies."""

import argparse
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence

from xlflax.utils import errors


def create_parser(
  module: str, description: str | None
) -> argparse.ArgumentParser:
  """Creates an argument parser, to which a study adds its arguments.

  Args:
    module: Name of the study's module, which is run with `python -m`.
    description: Description of the study for the help text, usually the
      docstring of its module.
  """
  return argparse.ArgumentParser(
    prog=f'python -m {module}',
    description=description,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )


def input_directory(text: str) -> pathlib.Path:
  """Converts an argument to the path of an existing directory.

  This is the `type` of arguments.
  """
  path = pathlib.Path(text)
  if not path.is_dir():
    raise argparse.ArgumentTypeError(f'The directory {text!r} does not exist.')
  return path


def run_command(
  parser: argparse.ArgumentParser,
  command: Callable[[argparse.Namespace], int | None],
  arguments: Sequence[str] | None,
) -> int:
  """Parses the arguments and runs a study. Prints any error on one line.

  Args:
    parser: The study's argument parser.
    command: Function that runs the study, and may return an exit status.
    arguments: Command-line arguments. If None, the process's arguments are
      used.

  Returns:
    The exit status.
  """
  logging.basicConfig(level=logging.INFO, format='%(message)s')
  args = parser.parse_args(arguments)
  try:
    status = command(args) or 0
    sys.stdout.flush()
    return status
  except errors.XlflaxError as error:
    reported_error = error
  except BrokenPipeError:  # Nothing reads the output, as after `| head`.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return errors.ExitStatus.INTERRUPTED
  except OSError as error:  # For example, an input file does not exist.
    reported_error = errors.convert_os_error(error)
  except subprocess.CalledProcessError as error:
    # The command has printed its own error.
    return error.returncode
  print(f'{parser.prog}: {reported_error}', file=sys.stderr)
  return reported_error.status


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
