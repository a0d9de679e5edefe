"""What is wrong with flags, found without importing JAX or TensorFlow."""

import ast
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax.config import binding_locations, config_files
from xlflax.utils import errors, name_suggestions

_PACKAGE = pathlib.Path(__file__).parents[1]
_OF_TRAINING = {'MODEL_DIR', 'INIT_FROM', 'TRAIN_FILES', 'TRAIN_LANGUAGE'}


def check_names(
  names: Sequence[str], known: Iterable[str], *, flag: str = 'tasks'
) -> None:
  """Raises ConfigError unless all names are known.

  Args:
    names: what was given.
    known: what there is.
    flag: that names them, without dashes.
  """
  known_names = set(known)
  for name in names:
    if name not in known_names:
      hints = {
        'tasks': 'name the module of a task of your own by --task_module',
        'suite': 'give a gin file of your own, NAME.gin',
        'recipe': 'give a gin file of your own, NAME.gin',
      }
      raise errors.ConfigError(
        'There is no such ' + ('evaluation task' if flag == 'tasks' else flag),
        got=name,
        expected=name_suggestions.some_of(known_names),
        where=f'--{flag}',
        fix=name_suggestions.or_else(name, known_names, hints[flag]),
      )


def check_value(flag: str, value: str, known: Sequence[str]) -> None:
  """Raises ConfigError unless a word is one of those that are known."""
  if value not in known:
    raise errors.ConfigError(
      f'--{flag} has no such value',
      got=value,
      expected=f'{", ".join(known)}, or numbers such as 1000,2000',
      where=f'--{flag}',
      fix=name_suggestions.did_you_mean(value, known),
    )


def check_directory(flag: str, directory: str | None) -> None:
  """Raises CorpusError if a directory that a flag names is not there."""
  if directory is None or '://' in directory:
    return
  path = pathlib.Path(directory).expanduser()
  if not path.is_dir():
    raise errors.CorpusError(
      'The corpus directory does not exist'
      if flag == 'corpus'
      else 'A directory does not exist',
      got=directory,
      where=f'--{flag}',
      fix=_beside(path),
    )


def check_run(where: str, directory: str) -> None:
  """Raises RunDirectoryError if a run's directory is not there.

  Args:
    where: the flag, such as '--model_dir', or argument that has it.
    directory: of the run.
  """
  path = pathlib.Path(directory).expanduser()
  if '://' not in directory and not path.is_dir():
    raise errors.RunDirectoryError(
      'There is no such model directory',
      got=directory,
      expected='the --model_dir of `xlflax train`, or one that `xlflax '
      'convert` made',
      where=where,
      fix=_beside(path),
    )


def check_configuration(
  args: Any,
  macros: Iterable[str] = (),
  *,
  defaults: Sequence[str] = (),
  partial: bool = False,
) -> None:
  """Raises ConfigError for gin files and flags that cannot be right.

  The files are read as text; `config.load` finds what else is wrong.

  Args:
    args: Options with `gin_file`, `gin_bindings` and `gin_search_paths`.
    macros: that other flags set.
    defaults: files that are read before those of `--gin_file`.
    partial: whether what only training needs may be missing.
  """
  folders = config_files.split_search_paths(args.gin_search_paths)
  trees = [
    config_files.read_gin_file(name, folders)
    for name in [*defaults, *args.gin_file]
  ]
  set_here = [
    binding.partition('=')[0].strip() for binding in args.gin_bindings
  ]
  files = [file for tree in trees for file in tree.files()]
  if not files or any(not file.path.is_file() for file in files):
    return  # files of T5X, which only Gin finds
  binding_locations.read_bindings(files, args.gin_bindings)
  uses = {name for file in files for name in file.uses}
  for binding in args.gin_bindings:
    uses |= config_files.used_macros(binding)
  for name in (*macros, *set_here):
    if re.fullmatch(r'\w+', name) and name not in uses:
      raise _unused(name, uses)
  _check_own(files, uses)
  uses -= _OF_TRAINING if partial else set()
  _check_required(files, {*macros, *set_here}, uses)


def _check_own(files: Sequence[config_files.GinFile], uses: set[str]) -> None:
  """Raises ConfigError for a macro of a user's file that nothing reads."""
  for file in files:
    if file.path.is_relative_to(config_files.SHIPPED):
      continue
    for name, value in file.macros.items():
      if name not in uses:
        raise errors.ConfigError(
          'A macro of a gin file is set, but nothing reads it',
          got=f'{name} = {value}',
          expected=name_suggestions.some_of(
            name_suggestions.close_matches(name, uses, most=5)
            or [macro for macro in uses if name in macro]
            or uses
          ),
          where=str(file.path),
          fix='correct its name, or remove the line',
        )


def _unused(name: str, uses: set[str]) -> errors.ConfigError:
  close = name_suggestions.close_matches(name, uses)
  return errors.ConfigError(
    'A gin macro is set, but nothing uses it',
    got=name,
    expected='one of ' + ', '.join(close or sorted(uses)),
    where=f'--gin.{name}',
    fix='correct its name; `xlflax configs show FILE` lists those of a file',
  )


def _check_required(
  files: Sequence[config_files.GinFile], given: set[str], uses: set[str]
) -> None:
  values: dict[str, str] = {}
  for file in files:
    values |= file.macros
  missing = [
    name
    for name in config_files.required_macros(values)
    if name not in given and name in uses
  ]
  if missing:
    raise config_files.missing_value_error(missing)


def evaluation_tasks() -> set[str]:
  """The names that the families of this package declare in their source."""
  names = set()
  for file in sorted((_PACKAGE / 'evaluation' / 'tasks').glob('*.py')):
    for node in ast.parse(file.read_text(encoding='utf-8')).body:
      if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
        names |= set(_declared(node))
  return names


def shipped_suites() -> set[str]:
  """The names of the suites that come with xlflax."""
  return {path.stem for path in (config_files.SHIPPED / 'suites').glob('*.gin')}


def suite_recipes() -> set[str]:
  """The names of the recipes of suites that come with xlflax, and 'ours'."""
  folder = config_files.SHIPPED / 'suites' / 'recipes'
  return {'ours', *(path.stem for path in folder.glob('*.gin'))}


def _declared(node: ast.ClassDef) -> Iterable[str]:
  """A class's default of `name`, and the further names of `SOURCES`."""
  values = {
    statement.target.id: statement.value
    for statement in node.body
    if isinstance(statement, ast.AnnAssign)
    and isinstance(statement.target, ast.Name)
  }
  values |= {
    target.id: statement.value
    for statement in node.body
    if isinstance(statement, ast.Assign)
    for target in statement.targets
    if isinstance(target, ast.Name)
  }
  name = values.get('name')
  if isinstance(name, ast.Constant) and isinstance(name.value, str):
    yield name.value
    sources = values.get('SOURCES')
    if isinstance(sources, ast.Dict):
      for key in sources.keys:
        if isinstance(key, ast.Constant):
          yield str(key.value)


def _beside(path: pathlib.Path) -> str | None:
  """What lies beside a missing path and resembles its name."""
  try:
    names = [
      sibling.name for sibling in path.parent.iterdir() if sibling.is_dir()
    ]
  except OSError:
    return f'{path.parent} does not exist either'
  close = name_suggestions.close_matches(path.name, names)
  return (
    f'did you mean {" or ".join(str(path.parent / name) for name in close)}?'
    if close
    else None
  )
