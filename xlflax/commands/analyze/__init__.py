"""`xlflax analyze`: one module for each analysis."""

import argparse

from xlflax.commands.flags import parsing

HELP = (
  'Looks into models: how similar two languages are at every layer. '
  'Each analysis writes a folder with JSON, CSV, pictures and one HTML '
  'report. Works on every run directory, imported ones too.'
)

# Each is a module of this room.
KINDS = tuple(
  """cka sentences words alignment procrustes transfer curves
  directions""".split()
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds a parser for each analysis."""
  parsing.add_commands(parser, __name__, KINDS, metavar='ANALYSIS')
