"""`xlflax configs`: the gin files that come with xlflax."""

import argparse
import fnmatch
import json

from xlflax.commands.flags import parsing
from xlflax.configuration import shipped_configs
from xlflax.foundation import errors

HELP = (
  'Lists the gin files that come with xlflax, or shows one: what it needs, '
  'what people override, and the files that it includes.'
)
_JSON = '--json (switch): print JSON instead of text'
_LISTING = f"""
pattern (optional, default *): such as 'papers/*'
{_JSON}
"""
_SHOWING = f"""
name: such as pretrain/mlm.gin, or a path
--gin_search_paths DIR (repeated): folder to look files up in (comma-separated
  or repeated)
{_JSON}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the two sub-commands and their flags."""
  parsing.add_tables(
    parser,
    'action',
    list=('the files by name', _LISTING),
    show=('one file', _SHOWING),
  )


def run(args: argparse.Namespace) -> int:
  """Lists or shows."""
  return _list(args) if args.action == 'list' else _show(args)


def _list(args: argparse.Namespace) -> int:
  rows = {
    name: shipped_configs.read(name).file.summary
    for name in shipped_configs.names()
    if fnmatch.fnmatchcase(name, args.pattern)
  }
  if not rows:
    raise errors.ConfigError(
      'No gin file has a name of this pattern',
      got=args.pattern,
      expected="such as 'pretrain/*' or '*mlm*'",
      where='xlflax configs list',
    )
  if args.json:
    print(json.dumps(rows, indent=2))
    return 0
  width = max(map(len, rows))
  for name, summary in rows.items():
    print(f'{name:<{width}}  {summary}'.rstrip())
  return 0


def _show(args: argparse.Namespace) -> int:
  folders = shipped_configs.folders(args.gin_search_paths)
  tree = shipped_configs.read(args.name, folders)
  if args.json:
    print(json.dumps(_as_json(tree), indent=2))
    return 0
  print(f'{tree.file.path}\n')
  if tree.file.header:
    print(f'{tree.file.header}\n')
  print('includes')
  _print_includes(tree, '  ')
  required = tree.required()
  print('\nrequired\n  ' + (', '.join(required) or 'nothing'))
  print('\nmacros, by --gin.NAME=VALUE')
  others = {k: v for k, v in tree.macros().items() if k not in required}
  width = max(map(len, others), default=0)
  for name, value in sorted(others.items()):
    print(f'  {name:<{width}} = {value}')
  return 0


def _print_includes(tree: shipped_configs.Tree, indent: str) -> None:
  print(f'{indent}{tree.file.name}')
  for one in tree.includes:
    _print_includes(one, indent + '  ')


def _as_json(tree: shipped_configs.Tree) -> dict:
  return {
    'path': str(tree.file.path),
    'header': tree.file.header,
    'includes': _includes_as_json(tree)[tree.file.name],
    'required': tree.required(),
    'macros': tree.macros(),
  }


def _includes_as_json(tree: shipped_configs.Tree) -> dict:
  found: dict = {}
  for one in tree.includes:
    found |= _includes_as_json(one)
  return {tree.file.name: found}
