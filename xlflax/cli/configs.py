"""`xlflax configs`: lists and describes the gin files of xlflax."""

import dataclasses
import fnmatch
import json
import textwrap

from xlflax.config import binding_locations, config_files
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListOptions:
  """Lists the gin files that are included in xlflax.

  Attributes:
    pattern: Pattern with wildcards that selects gin files by name, such as
      'papers/*'.
    json: Print JSON instead of a table.
  """

  pattern: str = dataclasses.field(default='*', kw_only=False)
  json: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowOptions:
  """Prints a gin file's header, includes, required macros and other macros.

  For an evaluation suite, the names of its tasks are also printed.

  Attributes:
    name: Name of the gin file, such as pretrain/mlm.gin, or its path.
    gin_search_paths: Directory in which gin files are looked up. Repeat the
      option for several directories, or separate them by commas.
    json: Print JSON instead of text.
  """

  name: str = dataclasses.field(kw_only=False)
  gin_search_paths: tuple[str, ...] = ()
  json: bool = False


EXAMPLES = r"""
List all gin files, or those of a directory:
  xlflax configs list
  xlflax configs list 'pretrain/*'

Show what a gin file requires and which macros it sets:
  xlflax configs show pretrain/mlm_tlm.gin
  xlflax configs show models/small.gin --json
"""


def list_configs(options: ListOptions) -> None:
  """Prints the names and summaries of the gin files that match the pattern."""
  summaries = {
    name: config_files.read_gin_file(name).file.summary
    for name in config_files.shipped_file_names()
    if fnmatch.fnmatchcase(name, options.pattern)
  }
  if not summaries:
    raise errors.ConfigError(
      'No gin file matches the pattern',
      got=options.pattern,
      fix="Pass a pattern such as 'pretrain/*' or '*mlm*' to `xlflax configs "
      'list`.',
    )
  if options.json:
    print(json.dumps(summaries, indent=2))
    return
  width = max(map(len, summaries))
  for name, summary in summaries.items():
    print(f'{name:<{width}}  {summary}'.rstrip())


def show(options: ShowOptions) -> None:
  """Prints the description of one gin file."""
  folders = config_files.split_search_paths(options.gin_search_paths)
  tree = config_files.read_gin_file(options.name, folders)
  if options.json:
    print(json.dumps(_tree_to_json(tree), indent=2))
    return
  print(f'{tree.file.path}\n')
  if tree.file.header:
    print(f'{tree.file.header}\n')
  print('includes')
  _print_includes(tree, '  ')
  required = tree.required()
  print('\nrequired\n  ' + (', '.join(required) or 'nothing'))
  macros = {
    name: value
    for name, value in _effective_macros(tree).items()
    if name not in required
  }
  if macros:
    print('\nmacros, which --gin.NAME=VALUE overrides')
  width = max(map(len, macros), default=0)
  for name, value in sorted(macros.items()):
    print(f'  {name:<{width}} = {value}')
  if tasks := binding_locations.find_suite_tasks(tree):
    print('\ntasks, which --tasks selects')
    print(
      textwrap.fill(
        ', '.join(tasks),
        initial_indent='  ',
        subsequent_indent='  ',
        break_on_hyphens=False,
      )
    )


SUBCOMMANDS = {'list': list_configs, 'show': show}


def _print_includes(tree: config_files.Tree, indent: str) -> None:
  """Prints the tree of included files."""
  print(f'{indent}{tree.file.name}')
  for include in tree.includes:
    _print_includes(include, indent + '  ')


def _tree_to_json(tree: config_files.Tree) -> dict:
  """Returns the description of a gin file as JSON data."""
  description = {
    'path': str(tree.file.path),
    'header': tree.file.header,
    'includes': _includes_to_json(tree)[tree.file.name],
    'required': tree.required(),
    'macros': _effective_macros(tree),
  }
  if tasks := binding_locations.find_suite_tasks(tree):
    description['tasks'] = tasks
  return description


def _effective_macros(tree: config_files.Tree) -> dict[str, str]:
  """Returns the values of the macros that --gin.NAME=VALUE may override."""
  without_effect = binding_locations.find_macros_without_effect(tree)
  return {
    name: value
    for name, value in tree.macros().items()
    if name not in without_effect
  }


def _includes_to_json(tree: config_files.Tree) -> dict:
  """Returns the tree of included files as nested dictionaries."""
  includes: dict = {}
  for include in tree.includes:
    includes |= _includes_to_json(include)
  return {tree.file.name: includes}
