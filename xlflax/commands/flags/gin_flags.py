"""The flags of Gin: `--gin_file`, `--gin.NAME=VALUE`, `--gin_search_paths`."""

import argparse

from xlflax.foundation import flag_tables

_FLAGS = """
--gin_file FILE (repeated): gin file; repeat for several, later ones override
  earlier ones
--gin_search_paths DIR (repeated): folder to look gin files up in
  (comma-separated or repeated)
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds `--gin_file` and `--gin_search_paths` (see
  `xlflax.configuration.bindings`)."""
  group = parser.add_argument_group('configuration (Gin)')
  flag_tables.add(group, _FLAGS)
  group.add_argument(
    '--gin.NAME=VALUE',
    dest='gin_binding_help',
    action='store_true',
    help='override a binding, such as --gin.TRAIN_STEPS=1000',
  )
