"""`xlflax doctor`: whether what xlflax wrote is whole; mends what it can."""

import argparse
import json
import pathlib
import sys

from xlflax.commands.flags import parsing
from xlflax.storage import manifests, paths

HELP = (
  'Says of anything that xlflax wrote (a run, token cache, vocabulary, prepared '
  'corpus, grid, suite, evaluation, report, analysis, exported model) '
  'whether it is whole, what is missing or damaged, and what to do. '
  'Without --repair nothing is changed.'
)
RULES = (
  parsing.Needs('vocabulary', 'repair'),
  parsing.Needs('corpus task_module tfds_data_dir', 'vocabulary'),
)


FLAGS = """
directories DIR (one or more): files and directories to examine
--json (switch): print JSON instead of lines
--repair (switch): make again what can be made again: small files of a run from
  its checkpoint, manifests, pages; damaged cached rows are removed,
  to be made by the next run; shards of a token cache are written from its text,
  which the flags below name
[text of a token cache, as it was written]
--vocabulary DIR: its vocabulary
--corpus DIR: its corpus directory
--task_module MODULE (repeated): module that registers its tasks; may be
  repeated
--tfds_data_dir DIR: where TFDS keeps its data sets
"""


def run(args: argparse.Namespace) -> int:
  """Prints what was found; 2 where something is damaged."""
  from xlflax import examination

  look = _repaired if args.repair else _examined
  found = [look(paths.of(name), args) for name in args.directories]
  if args.json:
    print(json.dumps([one.to_json() for one in found], indent=2))
  else:
    print('\n'.join(map(examination.to_text, found)))
  return 0 if all(one.is_whole for one in found) else 2


def _examined(directory: pathlib.Path, args: argparse.Namespace):
  from xlflax import examination

  return examination.examine(directory)


def _repaired(directory: pathlib.Path, args: argparse.Namespace):
  """What is left after everything was mended that can be."""
  from xlflax import examination

  found = examination.repair(directory, report=_say)
  is_cache = found.kind is manifests.Kind.CACHE
  if found.is_whole or not is_cache or not args.vocabulary:
    return found
  from xlflax.cli import cache_repair

  removed = cache_repair.rewrite_damaged_files(
    directory,
    vocabulary=args.vocabulary,
    corpus=args.corpus,
    task_module=args.task_module,
    tfds_data_dir=args.tfds_data_dir,
  )
  _say(f'{", ".join(removed) or "what is missing"}: written again')
  return examination.examine(directory)


def _say(line: str) -> None:
  print(line, file=sys.stderr)
