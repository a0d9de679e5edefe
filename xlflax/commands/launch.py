"""`xlflax launch`: starts a job of several processes."""

import argparse
from collections.abc import Sequence

from xlflax.commands.flags import parsing
from xlflax.foundation import flag_tables
from xlflax.launch import base, registry

HELP = (
  'Starts a job of several processes: on this machine, or through a '
  "cluster's scheduler. The launcher's flags follow its name; the command "
  'that each process runs follows --.'
)
EXAMPLES = '\n\n'.join(
  '\n'.join(f'  {line}' for line in launcher.example.strip().split('\n'))
  for launcher in registry.load().values()
)


_FLAGS = """
--launcher_module MODULE (repeated): importable module that registers a
  launcher; may be repeated
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the name of the launcher; the launcher reads its own flags."""
  flag_tables.add(parser, _FLAGS)
  parser.add_argument(
    'arguments',
    nargs=argparse.PARSER,
    metavar='LAUNCHER [FLAGS] -- COMMAND',
    help='launchers are '
    + ', '.join(
      f'{launcher.name} ({launcher.help})'
      for launcher in registry.load().values()
    )
    + '; `xlflax launch LAUNCHER --help` lists the flags of one',
  )


def run(args: argparse.Namespace) -> int:
  """Starts, submits or prints the job."""
  name, *arguments = args.arguments
  launcher = registry.find(name, args.launcher_module)
  flags, command = _split(arguments)
  parsed = _parser(launcher).parse_args(flags)
  job = launcher.job.from_flags(
    parsed, base.check_command(command, launcher.job.commands)
  )
  job.check()
  if parsed.dry_run:
    print(job.render())
    return 0
  return job.launch()


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
  """The words before and after the first `--`."""
  words = list(arguments)
  place = words.index('--') if '--' in words else len(words)
  return words[:place], words[place + 1 :]


_COMMON = """
--dry_run (switch): print what would be started or submitted
"""


def _parser(launcher: registry.Launcher) -> parsing.Parser:
  parser = parsing.Parser(
    prog=f'xlflax launch {launcher.name}',
    usage='%(prog)s [FLAGS] -- COMMAND',
    description=launcher.help,
    epilog='example:\n' + launcher.example.strip(),
  )
  flag_tables.add(parser, _COMMON)
  launcher.job.add_arguments(parser)
  return parser
