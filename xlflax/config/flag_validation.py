"""Validation of command-line flags without importing JAX or TensorFlow."""

import ast
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from xlflax.config import binding_locations, config_files
from xlflax.utils import equivalent_settings, errors, name_suggestions

_PACKAGE = pathlib.Path(__file__).parents[1]
# Flags other than --gin that set macros.
FLAG_BY_MACRO = {
  'CACHE_DIR': '--cache',
  'CORPUS': '--corpus',
  'INIT_FROM': '--init_from',
  'MODEL_DIR': '--model_dir',
  'TASK_MODULES': '--task_module',
  'TATOEBA': '--tatoeba',
  'VOCABULARY': '--vocabulary',
}
_TRAINING_MACROS = {'MODEL_DIR', 'INIT_FROM', 'TRAIN_FILES', 'TRAIN_LANGUAGE'}


def check_names(
  names: Sequence[str], known: Iterable[str], *, flag: str = 'tasks'
) -> None:
  """Raises an error if a name passed to a flag, such as --tasks, is unknown.

  Args:
    names: Names that the user passed to the flag.
    known: Valid names.
    flag: Name of the flag to which `names` were passed, without dashes.

  Raises:
    ConfigError: If a name is unknown.
  """
  known_names = set(known)
  for name in names:
    if name not in known_names:
      hints = {
        'tasks': 'Pass the module of your own tasks with --task_module.',
        'suite': 'Pass the path of your own gin file, NAME.gin.',
        'recipe': 'Pass the path of your own gin file, NAME.gin.',
      }
      noun = 'evaluation task' if flag == 'tasks' else flag
      raise errors.ConfigError(
        f'The {noun} given with --{flag} does not exist',
        got=name,
        expected=name_suggestions.format_choices(known_names),
        fix=name_suggestions.suggestion_or_hint(name, known_names, hints[flag]),
      )


def check_value(flag: str, value: str, known: Sequence[str]) -> None:
  """Raises an error if a flag's value is not one of its valid values.

  Args:
    flag: Name of the flag, without dashes.
    value: Value to check.
    known: Valid values.

  Raises:
    ConfigError: If the value is unknown.
  """
  if value not in known:
    raise errors.ConfigError(
      f'The value of --{flag} must be one of {", ".join(known)}, or a list of '
      'numbers such as 1000,2000',
      got=value,
      fix=name_suggestions.suggestion_or_hint(
        value, known, f'Pass --{flag}={known[0]}, for example.'
      ),
    )


def check_directory(flag: str, directory: str | None) -> None:
  """Raises an error if the directory passed to a flag does not exist.

  Args:
    flag: Name of the flag, without dashes.
    directory: Path of the directory. None and URLs are not checked.

  Raises:
    CorpusError: If the directory does not exist, or if the path is a file.
  """
  if directory is None or '://' in directory:
    return
  path = pathlib.Path(directory).expanduser()
  if path.is_file():
    raise errors.CorpusError(
      f'The path given with --{flag} is a file, but must be a directory',
      got=directory,
      fix=name_suggestions.suggest_corpus_directory(path),
    )
  if not path.is_dir():
    raise errors.CorpusError(
      f'The directory given with --{flag} does not exist',
      got=directory,
      fix=name_suggestions.suggest_directory(path),
    )


def check_run(where: str, directory: str) -> None:
  """Raises an error if a model directory does not exist.

  Args:
    where: Flag or argument that specifies the directory, for the error message,
      such as '--model_dir'.
    directory: Path of the model directory. URLs are not checked.

  Raises:
    RunDirectoryError: If the directory does not exist.
  """
  path = pathlib.Path(directory).expanduser()
  if '://' not in directory and not path.is_dir():
    raise errors.RunDirectoryError(
      'The model directory does not exist. It must be the --model_dir of '
      '`xlflax train`, or a directory that `xlflax convert` wrote',
      got=directory,
      where=where,
      fix=name_suggestions.suggest_model(directory),
    )


def check_configuration(
  args: Any,
  macros: Iterable[str] = (),
  *,
  defaults: Sequence[str] = (),
  partial: bool = False,
  option: str = config_files.GIN_OPTION,
  other_bindings: Sequence[str] = (),
) -> None:
  """Raises an error if a gin file or a binding of the command is invalid.

  The files are only checked as text. `load_gin_files` reports errors that this
  check does not find.

  Args:
    args: Parsed command-line options, with the attributes `gin_file`,
      `gin_bindings` and `gin_search_paths`.
    macros: Names of macros that are set by flags other than --gin, such as
      --grid.
    defaults: Gin files that are read before those in `--gin_file`.
    partial: Whether a macro may have no value if only training requires it.
    option: Option with which the bindings are passed, such as '--eval_gin'.
    other_bindings: Bindings that the user passed with --gin. They are needed
      only if `option` is a different option. If one of them sets a macro that
      has no value, the error explains that `option` is required.

  Raises:
    ConfigError: If a file, name or value is invalid.
  """
  folders = config_files.split_search_paths(args.gin_search_paths)
  trees = [
    config_files.read_gin_file(name, folders)
    for name in [*defaults, *args.gin_file]
  ]
  bound_names = [
    binding.partition('=')[0].strip() for binding in args.gin_bindings
  ]
  files = [file for tree in trees for file in tree.files()]
  if not files or any(not file.path.is_file() for file in files):
    return  # Only Gin finds the files of T5X.
  binding_locations.read_bindings(files, args.gin_bindings, option)
  binding_locations.check_file_order(trees, args.gin_bindings)
  uses = {name for file in files for name in file.uses}
  for binding in args.gin_bindings:
    uses |= config_files.used_macros(binding)
  for name in (*macros, *bound_names):
    if re.fullmatch(r'\w+', name) and name not in uses:
      if not partial or 'INIT_FROM' in macros:
        _check_trainer(args, files, is_fine_tuning=partial)
      if name not in bound_names:
        raise _unused(name, uses, FLAG_BY_MACRO.get(name, '--grid'))
      if partial and 'TEST' in name.split('_') and 'DEV_FILES' in uses:
        raise _unused_test_files(name, args.gin_bindings, files)
      flag = config_files.flag_location(name, option)
      raise _unused(name, uses, flag)
  _check_user_macros(files, uses)
  uses -= _TRAINING_MACROS if partial else set()
  missing = _missing_macros(files, {*macros, *bound_names}, uses)
  if missing:
    _check_option(missing, other_bindings, option)
    raise config_files.missing_value_error(missing, option)


def _check_user_macros(
  files: Sequence[config_files.GinFile], uses: set[str]
) -> None:
  """Raises ConfigError for an unused macro in a file of the user."""
  for file in files:
    if file.is_shipped:
      continue
    for name, value in file.macros.items():
      if name not in uses:
        message = (
          f'The gin file sets the macro {name} = {value}, but the '
          'configuration never uses this macro'
        )
        if equivalent := equivalent_settings.suggest_for_macro(name, uses):
          raise errors.ConfigError(
            message, got=name, where=str(file.path), fix=equivalent
          )
        raise errors.ConfigError(
          message,
          got=name,
          expected=name_suggestions.format_choices(
            name_suggestions.close_matches(name, uses, most=5)
            or [macro for macro in uses if name in macro]
            or uses
          ),
          where=str(file.path),
          fix='Correct the name of the macro, or remove the line.',
        )


def _check_trainer(
  args: Any, files: Sequence[config_files.GinFile], *, is_fine_tuning: bool
) -> None:
  """Raises ConfigError if no gin file or binding names a trainer."""
  texts = [re.sub(r'#.*', '', file.text) for file in files]
  if not any(
    re.search(r'\bTrainer\b', text) for text in [*texts, *args.gin_bindings]
  ):
    example = 'finetune/classification' if is_fine_tuning else 'pretrain/mlm'
    raise errors.ConfigError(
      'The gin files do not configure a `Trainer`',
      got=', '.join(args.gin_file),
      fix='Add the gin file that configures the training before the other '
      f'files, such as --gin_file={example}.gin. Run `xlflax configs list` to '
      'list the gin files that xlflax ships.',
    )


def _unused_test_files(
  name: str, bindings: Sequence[str], files: Sequence[config_files.GinFile]
) -> errors.ConfigError:
  """Returns the error for test files that are passed as training files."""
  binding = next(x for x in bindings if x.partition('=')[0].strip() == name)
  argument = config_files.quote_argument(binding)
  tasks = [
    file.path.stem
    for file in files
    if (config_files.SHIPPED / 'evaluate' / file.path.name).is_file()
    and file.path.parent.name == 'finetune'
  ]
  return errors.ConfigError(
    f'The flag --gin.{name} is not an option of fine-tuning, which does not '
    'read test files',
    got=name,
    fix='Evaluate the selected model on the test files: pass --eval_gin_file='
    f'evaluate/{tasks[0] if tasks else "TASK"}.gin --eval_gin={argument}.',
  )


def _unused(name: str, uses: set[str], flag: str) -> errors.ConfigError:
  """Returns the error for a macro that is set by a flag but never used."""
  equivalent = equivalent_settings.suggest_for_macro(name, uses)
  if equivalent and flag == f'--gin.{name}':
    return errors.ConfigError(
      f'The flag {flag} sets the macro {name}, which the configuration never '
      'uses',
      got=name,
      fix=equivalent,
    )
  names = name_suggestions.close_matches(name, uses) or sorted(uses)
  fix = (
    'Correct the name of the macro. Run `xlflax configs show FILE` to list the '
    'macros in a file.'
  )
  if flag in FLAG_BY_MACRO.values():
    fix = f'Remove {flag}, or add a task or a gin file that uses {name}.'
  return errors.ConfigError(
    f'The flag {flag} sets the macro {name}, which the configuration never '
    'uses',
    got=name,
    expected='one of ' + ', '.join(names) if names else None,
    fix=fix,
  )


def _missing_macros(
  files: Sequence[config_files.GinFile], given: set[str], uses: set[str]
) -> list[str]:
  """Returns the required macros that are used and have no value."""
  values: dict[str, str] = {}
  for file in files:
    values |= file.macros
  return [
    name
    for name in config_files.required_macros(values)
    if name not in given and name in uses
  ]


def _check_option(
  missing: Sequence[str], other_bindings: Sequence[str], option: str
) -> None:
  """Raises ConfigError if a missing macro is passed with --gin."""
  for binding in other_bindings:
    name, _, value = binding.partition('=')
    name = name.strip()
    if name in missing:
      raise errors.ConfigError(
        f'The gin files given with {option}_file require a value for {name}, '
        f'but --gin.{name} sets this value only for training',
        got=f'--gin.{binding}',
        fix=f'Pass {config_files.format_flag(name, value.strip(), option)}.',
      )


def evaluation_tasks() -> set[str]:
  """Returns the names of all evaluation tasks, read from their source code."""
  names = set()
  for file in sorted((_PACKAGE / 'evaluation' / 'tasks').glob('*.py')):
    for node in ast.parse(file.read_text(encoding='utf-8')).body:
      if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
        names |= set(_declared(node))
  return names


def shipped_suites() -> set[str]:
  """Returns the names of the evaluation suites shipped with xlflax."""
  folder = config_files.SHIPPED / 'suites'
  # The tables of the papers are in suites/papers/<paper>/.
  return {
    path.relative_to(folder).with_suffix('').as_posix()
    for pattern in ('*.gin', 'papers/*/*.gin')
    for path in folder.glob(pattern)
  }


def suite_recipes() -> set[str]:
  """Returns the recipes for evaluation suites that `--recipe` accepts.

  They are 'xlflax' and the recipes in the gin files shipped with xlflax.
  """
  folder = config_files.SHIPPED / 'suites' / 'recipes'
  return {'xlflax', *(path.stem for path in folder.glob('*.gin'))}


def _declared(node: ast.ClassDef) -> Iterable[str]:
  """Yields the task names that a class declares in `name` and `SOURCES`."""
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
