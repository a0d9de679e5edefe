"""`xlflax tasks`: lists tasks and mixtures, and shows their examples."""

import argparse
import fnmatch
import json

from xlflax.cli import output_paths
from xlflax.commands.flags import parsing
from xlflax.foundation import errors

HELP = (
  'Lists the registered tasks and mixtures, or shows examples of one '
  'after every preprocessing step, decoded.'
)
RULES = (parsing.Needs('output', 'downloaded'),)
_COMMON = """
--corpus DIR: corpus directory; registers corpus.*
--task_module MODULE (repeated): importable module that registers tasks; may be
  repeated
--xtreme DIR: folder that XTREME's download script leaves; registers xtreme.*
--treebanks DIR: folder of Universal Dependencies; registers ud.*
--tfds_data_dir DIR: prepared TensorFlow datasets
"""
_LISTING = f"""
pattern (optional, default *): such as 'mc4.*'
--json (switch): print JSON instead of a table
{_COMMON}
"""
_SHOWING = f"""
name: of a task or mixture
--vocabulary DIR: shows the tokenised examples too
--split (default train): name of the split
-n/--num_examples (Count, default 3): examples after each step
{_COMMON}
"""
_FETCHING = """
name (optional): of a data set (default: all)
--downloaded DIR: folder of what was downloaded
--output DIR: folder to be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the sub-commands and their flags."""
  fetching = 'public evaluation sets: their origin, and conversion'
  parsing.add_tables(
    parser,
    'action',
    list=('tasks and mixtures by name', _LISTING),
    show=('examples of one task', _SHOWING),
    fetch=(fetching, _FETCHING),
  )


def run(args: argparse.Namespace) -> int:
  """Registers what the flags name, then lists or shows; or fetches."""
  if args.action == 'fetch':
    return _fetch(args)
  from xlflax.data.seqio_tasks import (
    host_tensorflow,  # Slow imports, after --help.
  )

  host_tensorflow.load()
  _register(args)
  return _list(args) if args.action == 'list' else _show(args)


def _fetch(args: argparse.Namespace) -> int:
  from xlflax.tasks import public_data

  if args.name is None and args.downloaded:
    raise errors.ConfigError(
      'Nothing says which data set was downloaded',
      got=f'--downloaded={args.downloaded}',
      where='xlflax tasks fetch',
      fix='`xlflax tasks fetch` lists their names',
    )
  if args.name is None:
    for data in public_data.table().values():
      print(f'{data.name:10} {data.kind}; {data.languages}; {data.licence}')
    return 0
  if args.downloaded is None:
    print(public_data.find(args.name).describe())
    return 0
  if args.output is None:
    raise errors.ConfigError(
      'Nothing says where the converted data go',
      where='--output',
      expected='a folder',
    )
  output_paths.check_differs(args.downloaded, args.output, option='output')
  written = public_data.fetched(args.name, args.downloaded, args.output)
  print(f'{args.output}: {len(written)} files, such as {written[0]}')
  return 0


def _register(args: argparse.Namespace) -> None:
  from xlflax.data.seqio_tasks import registration

  registration.register_tasks(args.corpus, args.task_module, args.tfds_data_dir)
  if args.xtreme or args.treebanks:
    from xlflax.tasks import xtreme

    if args.xtreme:
      xtreme.register(args.xtreme)
    if args.treebanks:
      xtreme.register_treebanks(args.treebanks)


def _list(args: argparse.Namespace) -> int:
  from xlflax.data import task_summary

  rows = [
    row
    for row in task_summary.registered()
    if fnmatch.fnmatchcase(row['name'], args.pattern)
  ]
  if not rows:
    raise errors.CorpusError(
      'No task or mixture has a name of this pattern', got=args.pattern
    )
  if args.json:
    print(json.dumps(rows, indent=2))
    return 0
  print(
    task_summary.format_table(rows, ('name', 'kind', 'languages', 'splits'))
  )
  return 0


def _check_mixture(args: argparse.Namespace) -> None:
  """Refuses the flags of examples for a mixture, which has none itself."""
  for name in ('vocabulary', 'num_examples'):
    if name in args.given:
      raise errors.ConfigError(
        f'--{name} is for examples of a task',
        got=f'the mixture {args.name}',
        where='xlflax tasks show',
        fix=f'leave --{name} out, and then name one of its tasks',
      )


def _show(args: argparse.Namespace) -> int:
  import seqio

  from xlflax.data import task_summary
  from xlflax.data.vocabularies.vocabulary import Vocabulary

  if args.name in seqio.MixtureRegistry.names():
    _check_mixture(args)
    rows = task_summary.mixture_rates(args.name, split=args.split)
    print(
      task_summary.format_table(
        rows, ('name', 'languages', 'examples', 'rate', 'share')
      )
    )
    print(f'\n`xlflax tasks show {rows[0]["name"]}` shows examples.')
    return 0
  vocabulary = Vocabulary.load(args.vocabulary) if args.vocabulary else None
  for line in task_summary.steps(
    args.name, vocabulary, split=args.split, num_examples=args.num_examples
  ):
    print(line)
  return 0
