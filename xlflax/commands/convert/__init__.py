"""`xlflax convert`: one module for each conversion."""

import argparse

from xlflax.commands.flags import parsing

HELP = 'Converts checkpoints.'


KINDS = ('from-hf', 'to-hf', 'from-t5x', 'average')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds a parser for each conversion."""
  parsing.add_commands(parser, __name__, KINDS, metavar='CONVERSION')
