"""The `xlflax` command, with one module per subcommand.

`main` looks up the subcommand, imports only this subcommand's module, parses
its options once, and converts errors into one message and an exit code.
"""

import functools
import gc
import importlib
import logging
import os
import sys
import types
from collections.abc import Callable, Sequence

import xlflax
from xlflax.config import command_line_bindings
from xlflax.utils import (
  errors,
  malloc,
  name_suggestions,
  process_exit,
  signals,
  standard_streams,
)

# Descriptions for `xlflax --help` by command. Modules are imported when needed.
COMMANDS = {
  'demo': 'train and evaluate a small model on embedded text',
  'vocab': 'train a SentencePiece vocabulary over languages',
  'build-corpus': 'build a corpus from help pages, HTML or SeqIO tasks',
  'inspect': 'compute statistics of a corpus and report data warnings',
  'preprocess': 'clean, tokenize and code-switch the text of a corpus',
  'tasks': 'list tasks, show their examples, convert public data sets',
  'cache': 'write, verify and copy token caches',
  'pretrain': 'pretrain on a corpus with automatically selected settings',
  'train': 'pretrain or fine-tune a model',
  'finetune': 'fine-tune over a grid of settings, select, evaluate',
  'predict': 'label the words of text with a fine-tuned run',
  'mine-hard-negatives': 'mine hard negatives for retrieval fine-tuning',
  'evaluate': 'evaluate checkpoints on tasks and suites',
  'translate': 'translate files or standard input by beam search',
  'report': 'compare runs, or the results of suites, on one page',
  'analyze': 'compare the representations of languages inside models',
  'convert': 'convert checkpoints, for example from and to Hugging Face',
  'push-to-hub': 'upload an exported model to the Hugging Face Hub',
  'launch': 'start a job of several processes, locally or on a cluster',
  'configs': 'list the gin files of xlflax, or describe one',
  'verify': 'verify runs, caches and other artifacts, and repair them',
  'benchmark': 'time training steps on synthetic batches',
}
# Commands whose only result is their output. They end if standard output has no
# reader. All other commands write their results to disk and continue.
_PRINTING = ('configs', 'tasks', 'translate')


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs one subcommand.

  Args:
    arguments: Arguments without the program's name. If None, the arguments of
      the process are used, and the process exits after the command.

  Returns:
    The exit status; see `errors.ExitStatus`.
  """
  if arguments is not None:
    return _dispatch(list(arguments))
  status = _run_process(sys.argv[1:])
  signals.end_command(status)
  standard_streams.drop_pending_output()
  return process_exit.end_command(status)


def start_process() -> None:
  """Prepares the process to run a single command and exit."""
  malloc.keep_memory()
  standard_streams.open_closed_streams()
  process_exit.start_command()
  signals.start_command()
  # Imports and traces create millions of permanent objects. With Python's
  # default threshold, garbage collection takes a tenth of the startup time.
  gc.set_threshold(100_000, 50, 20)


def _run_process(arguments: list[str]) -> int:
  """Runs a command in this process and returns its exit status."""
  name = next((word for word in arguments if word != '--quiet'), '')
  status = None
  try:
    start_process()  # From here on, a signal raises a KeyboardInterrupt.
    standard_streams.drop_unread_output(stdout=name not in _PRINTING)
    status = _dispatch(arguments)
    signals.end_command(status)
    return status
  except KeyboardInterrupt as error:
    if status is not None:
      return status
    print(f'xlflax: {signals.describe_stop(error)}.', file=sys.stderr)
    return errors.ExitStatus.INTERRUPTED


def _dispatch(arguments: list[str]) -> int:
  """Prints the overview or the version, or runs a command."""
  if not arguments or arguments[0] in ('-h', '--help'):
    return _print_text(_overview()) or (0 if arguments else 2)
  if arguments[0] == '--version':
    return _print_text(xlflax.__version__)
  level = logging.INFO
  if arguments[0] == '--quiet':
    level = logging.WARNING
    arguments = arguments[1:] or ['']
  if arguments[0] not in COMMANDS:
    _report_unknown_command(arguments[0])
    return 2
  return _run_command(arguments[0], arguments[1:], level)


def _print_text(text: str) -> int:
  """Prints a text and returns the exit status."""
  try:
    print(text, flush=True)
  except OSError as error:  # For example, the disk is full.
    error_with_status = errors.convert_os_error(error)
    print(f'xlflax: {error_with_status}', file=sys.stderr)
    return error_with_status.status
  return errors.ExitStatus.DONE


def _report_unknown_command(name: str) -> None:
  """Prints an error and the overview of all commands."""
  suggestion = name_suggestions.did_you_mean(name, COMMANDS)
  print(
    f'xlflax: Unknown command: {name!r}.'
    + (f' {suggestion}' if suggestion else '')
    + f'\n\n{_overview()}',
    file=sys.stderr,
  )


def load_command(name: str) -> types.ModuleType:
  """Imports the module of a command, `xlflax.cli.NAME`."""
  return importlib.import_module(f'xlflax.cli.{name.replace("-", "_")}')


def examples(name: str) -> str:
  """Returns the example command lines for a command's help text."""
  return load_command(name).EXAMPLES


def parse(name: str, arguments: Sequence[str]) -> Callable[[], int | None]:
  """Parses the arguments of a command.

  Args:
    name: Name of the command.
    arguments: Command-line arguments after the command's name.

  Returns:
    A function without arguments that runs the command.

  Raises:
    ConfigError: If the arguments are invalid.
  """
  _check_encoding(name, arguments)
  other_arguments, gin_bindings = command_line_bindings.split_bindings(
    arguments
  )
  module = load_command(name)
  if hasattr(module, 'parse'):  # Its options depend on the first argument.
    return module.parse(other_arguments)
  from xlflax.cli import parsing

  return parsing.parse(
    name,
    module,
    other_arguments,
    gin_bindings=gin_bindings,
    command_line=('xlflax', name, *arguments),
  )


def _check_encoding(name: str, arguments: Sequence[str]) -> None:
  """Checks that arguments are UTF-8 without control characters."""
  from xlflax.utils import validation

  for argument in arguments:
    try:
      validation.check_path(argument)
    except ValueError as error:
      raise errors.ConfigError(
        f'An argument of `xlflax {name}` contains invalid characters',
        got=ascii(argument),
        expected=str(error),
        fix='Rename the file or directory, or remove the characters.',
      ) from None


def _run_command(name: str, arguments: Sequence[str], level: int) -> int:
  """Runs a command, prints its errors, and returns its exit status."""
  from xlflax.utils import (
    environment_variables,
    live_display,
    logs,
    user_modules,
  )

  as_json = '--json' in arguments
  logs.set_up_logging(level, as_json=as_json)
  try:
    with signals.reraise_stop():
      run_command = parse(name, arguments)
      environment_variables.check_variables(os.environ)
      status = run_command() or 0
    sys.stdout.flush()
    return status
  except errors.XlflaxError as error:
    logs.log_exit(name, error, as_json=as_json)
    return error.status
  except OSError as error:  # For example, the disk is full.
    if (
      isinstance(error, BrokenPipeError) and standard_streams.is_stdout_unread()
    ):
      return errors.ExitStatus.INTERRUPTED
    error_with_status = errors.convert_os_error(error)
    logs.log_exit(name, error_with_status, as_json=as_json)
    return error_with_status.status
  except Exception as error:
    converted = errors.convert_out_of_memory_error(
      error
    ) or user_modules.convert_class_error(error)
    if converted is None:
      raise
    logs.log_exit(name, converted, as_json=as_json)
    return converted.status
  except KeyboardInterrupt as error:
    print(f'xlflax {name}: {signals.describe_stop(error)}.', file=sys.stderr)
    return errors.ExitStatus.INTERRUPTED
  finally:
    live_display.clear_live_lines()


def _overview() -> str:
  """Returns the overview of all commands for `xlflax --help`."""
  width = max(map(len, COMMANDS))
  lines = [f'  {name:<{width}} {text}' for name, text in COMMANDS.items()]
  return (
    'usage: xlflax COMMAND [options]\n\n'
    'Cross-lingual language model pretraining in JAX and Flax.\n\n'
    'commands:\n'
    + '\n'.join(lines)
    + '\n\n`xlflax COMMAND --help` describes a command, with examples. `xlflax '
    '--quiet\nCOMMAND` prints only results, warnings and errors. `xlflax '
    '--version` prints\nthe version.'
  )
