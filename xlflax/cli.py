"""The `xlflax` command: one module of `xlflax.commands` per sub-command."""

import gc
import importlib
import importlib.resources
import logging
import sys
import tomllib
from collections.abc import Sequence

import xlflax
from xlflax.commands.flags import parsing
from xlflax.configuration import bindings
from xlflax.foundation import (
  allocator,
  errors,
  leaving,
  outputs,
  stopping,
  suggestions,
)

# Name -> one line for `xlflax --help`; modules are imported when needed.
COMMANDS = {
  'demo': 'train and evaluate a small model end to end on embedded text',
  'vocab': 'train a SentencePiece vocabulary over languages',
  'corpora': 'make a corpus of help pages, HTML pages or gettext catalogs',
  'inspect': 'say what is in a corpus, and what is odd about it',
  'prepare': 'process the text of a corpus: Moses, segmentation, switching',
  'tasks': 'list tasks, or show examples of one, step by step',
  'cache': "write a mixture's token cache",
  'pretrain': 'a corpus in one command: vocabulary, cache, training',
  'train': 'pretrain or fine-tune a model',
  'finetune': 'fine-tune over a grid of settings, select, evaluate',
  'label': 'label the words of text by a fine-tuned run',
  'mine': 'find hard negatives for search fine-tuning',
  'evaluate': 'measure checkpoints by evaluation tasks',
  'leaderboard': 'join the reports of suites and models on one page',
  'translate': 'translate files or standard input by beam search',
  'report': 'put runs side by side on one page',
  'analyze': 'how similar languages are inside of models, with pictures',
  'convert': 'convert checkpoints, from and to Hugging Face too',
  'publish': 'upload an exported model to the Hugging Face Hub',
  'launch': 'start a job of several processes, here or on a cluster',
  'configs': 'list the gin files that come with xlflax, or show one',
  'doctor': 'say whether what xlflax wrote is whole, and mend it',
  'benchmark': 'time training steps on synthetic batches',
}
# What these print is all that they do: they end where nobody reads it. The
# others have their results on disk, and go on.
_PRINTING = ('configs', 'tasks', 'translate')


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs one sub-command.

  Args:
    arguments: without the program's name; None takes the process's own.

  Returns:
    The exit status; see `errors.ExitStatus`.
  """
  if arguments is None:
    begin_process()
    status = _process(sys.argv[1:])
    stopping.end_command(status)
    outputs.end()
    return leaving.end_command(status)
  return _main(list(arguments))


def begin_process() -> None:
  """Says that this process is here for one command, and nothing after it."""
  allocator.keep_memory()
  outputs.open_closed()
  leaving.begin_command()
  stopping.begin_command()
  # Imports and traces make millions of objects that stay: by Python's own
  # threshold a tenth of a command's start is spent looking through them.
  gc.set_threshold(20_000, 10, 20)


def _process(arguments: list[str]) -> int:
  """`main` in a process of its own."""
  name = next((one for one in arguments if one != '--quiet'), '')
  outputs.drop_unread(stdout=name not in _PRINTING)
  status = None
  try:
    status = main(arguments)
    stopping.end_command(status)
    return status
  except SystemExit as end:  # --help
    return end.code if isinstance(end.code, int) else 0
  except KeyboardInterrupt as error:
    if status is not None:
      return status
    print(f'xlflax: {stopping.describe(error)}.', file=sys.stderr)
    return errors.ExitStatus.INTERRUPTED


def _main(arguments: list[str]) -> int:
  if not arguments or arguments[0] in ('-h', '--help'):
    print(_overview())
    return 0 if arguments else 2
  if arguments[0] == '--version':
    print(xlflax.__version__)
    return 0
  level = logging.INFO
  if arguments[0] == '--quiet':
    level = logging.WARNING
    arguments = arguments[1:] or ['']
  if arguments[0] not in COMMANDS:
    _tell_unknown(arguments[0])
    return 2
  return _run(arguments[0], arguments[1:], level)


def _tell_unknown(name: str) -> None:
  meant = suggestions.did_you_mean(name, COMMANDS)
  print(
    f'xlflax: there is no command {name!r}'
    + (f'; {meant}' if meant else '.')
    + f'\n\n{_overview()}',
    file=sys.stderr,
  )


def examples(name: str) -> str:
  """The command lines that the help of a command shows: its own `EXAMPLES`, or
  those of `commands/examples.toml`."""
  command = importlib.import_module(f'xlflax.commands.{name}')
  own = getattr(command, 'EXAMPLES', None)
  if own is not None:
    return own
  file = importlib.resources.files('xlflax.commands') / 'examples.toml'
  return tomllib.loads(file.read_text(encoding='utf-8'))[name]


def parser_of(name: str) -> parsing.Parser:
  """The parser of a command."""
  command = importlib.import_module(f'xlflax.commands.{name}')
  parser = parsing.Parser(
    prog=f'xlflax {name}',
    description=command.HELP,
    epilog='examples:\n' + examples(name).strip('\n'),
  )
  parsing.add_flags(parser, command)
  return parser


def _run(name: str, arguments: list[str], level: int) -> int:
  from xlflax.foundation import logs, screen

  as_json = '--json' in arguments
  logs.set_up(level, as_json=as_json)
  parser = parser_of(name)
  command = importlib.import_module(f'xlflax.commands.{name}')
  try:
    rest, found = bindings.split_bindings(arguments)
    parsed = parser.parse_args(rest)
    rules = getattr(parsed, 'rules', getattr(command, 'RULES', ()))
    parsing.check_rules(rules, parsed, f'xlflax {name}')
    if found and not hasattr(parsed, 'gin_file'):
      raise errors.ConfigError(
        'This command takes no gin bindings',
        got=f'--gin.{found[0]}',
        where=f'xlflax {name}',
        fix='leave it out; `xlflax --help` lists the commands',
      )
    parsed.gin_bindings = found
    parsed.command_line = ['xlflax', name, *arguments]
    run = getattr(parsed, 'run', None) or command.run
    status = run(parsed) or 0
    sys.stdout.flush()
    return status
  except errors.XlflaxError as error:
    logs.tell(name, error, as_json=as_json)
    return error.status
  except OSError as error:  # a full disk, permissions: no bug of xlflax
    if isinstance(error, BrokenPipeError) and outputs.is_unread():
      return errors.ExitStatus.INTERRUPTED
    told = errors.of_os_error(error)
    logs.tell(name, told, as_json=as_json)
    return told.status
  except RuntimeError as error:
    full = errors.of_full_device(error)
    if full is None:
      raise
    logs.tell(name, full, as_json=as_json)
    return full.status
  except KeyboardInterrupt as error:
    print(f'xlflax {name}: {stopping.describe(error)}.', file=sys.stderr)
    return errors.ExitStatus.INTERRUPTED
  finally:
    screen.close()


def _overview() -> str:
  width = max(map(len, COMMANDS))
  lines = [f'  {name:<{width}} {text}' for name, text in COMMANDS.items()]
  return (
    'usage: xlflax COMMAND [options]\n\n'
    'Cross-lingual language model pretraining in JAX and Flax.\n\n'
    'commands:\n'
    + '\n'.join(lines)
    + '\n\n`xlflax COMMAND --help` explains a command, with examples; '
    '`xlflax --quiet\nCOMMAND` shows its results, warnings and errors only.'
  )


if __name__ == '__main__':
  sys.exit(main())
