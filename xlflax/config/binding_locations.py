"""Locations of gin bindings: file and line, or command-line flag.

Gin does not store where a value was bound. `read_bindings` parses the files and
flags again, so that an error about a field of an object can contain the
location of the binding.
"""

import ast
import dataclasses
import re
import tokenize
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from gin import config_parser

from xlflax.config import command_line_bindings, config_files
from xlflax.utils import errors

# Classes and functions that the commands build.
_ROOTS = frozenset({'Trainer', 'Evaluation', 'Suite', 'evaluate'})
# Gin's constant for a value that another file or a flag must set.
_REQUIRED = 'gin.REQUIRED'
# Parameter that lists the objectives of pretraining.
_ENTRIES = ('ObjectiveMixture', 'entries')
# Parameters that a complete configuration of training or evaluation sets.
_COMPLETE = (
  {('Trainer', 'datasets'), ('WeightedObjective', 'objective')},
  {('evaluate', 'tasks')},
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binding:
  """A statement that binds a parameter or a macro.

  Attributes:
    scope: Scopes of the parameter, such as 'train/mono', or '' without scopes.
    selector: Selector of the configurable, such as
      'dataset_config.DatasetConfig'. For a macro, its name.
    parameter: Name of the parameter, or '' for a macro.
    macros: Names of the macros that the value refers to.
    references: Scopes and selectors of the configurables that the value refers
      to, such as 'train/example_source.FileDataset'.
    is_list: Whether the value is a list or tuple.
    location: Location of the statement, 'FILE:LINE' or '--gin.NAME'.
    is_shipped: Whether the statement is in a gin file that xlflax ships.
    is_flag: Whether the binding is a command-line flag.
    file_index: Index of the file in the order in which Gin finishes reading the
      files. An included file precedes the file that includes it.
  """

  scope: str
  selector: str
  parameter: str
  macros: tuple[str, ...]
  location: str
  references: tuple[str, ...] = ()
  is_list: bool = False
  is_shipped: bool = False
  is_flag: bool = False
  file_index: int = dataclasses.field(default=0, compare=False)

  @property
  def name(self) -> str:
    """Name of the bound parameter or macro, as written in a gin file."""
    scope = f'{self.scope}/' if self.scope else ''
    return scope + '.'.join(filter(None, (self.selector, self.parameter)))


@dataclasses.dataclass(frozen=True)
class _Macro:
  """A reference to a macro."""

  name: str


@dataclasses.dataclass(frozen=True)
class _Reference:
  """A reference to a configurable, with its scopes."""

  name: str


class _Delegate(config_parser.ParserDelegate):
  """Parser delegate that does not resolve references."""

  def configurable_reference(self, scoped_configurable_name, evaluate):
    del evaluate
    return _Reference(scoped_configurable_name)

  def macro(self, macro_name):
    return _Macro(macro_name)


class _DuplicateKeyError(Exception):
  """A dictionary that contains the same key twice.

  Attributes:
    key: The key.
    values: First and second value of the key.
    line: One-based number of the line with the second key.
  """

  def __init__(self, key: Any, values: tuple[Any, Any], line: int):
    super().__init__(key)
    self.key = key
    self.values = values
    self.line = line


class _Parser(config_parser.ConfigParser):
  """Parser that rejects dictionaries in which a key is repeated."""

  def __init__(self, text: str):
    self._items: dict[Any, Any] = {}
    super().__init__(text, _Delegate())

  def _maybe_parse_container(self):
    outer_items, self._items = self._items, {}
    try:
      return super()._maybe_parse_container()
    finally:
      self._items = outer_items

  def _parse_dict_item(self):
    line = self._current_token.start[0]
    key, value = super()._parse_dict_item()
    if isinstance(key, Hashable):
      if key in self._items:
        raise _DuplicateKeyError(key, (self._items[key], value), line)
      self._items[key] = value
    return key, value


def read_bindings(
  files: Sequence[config_files.GinFile],
  flags: Sequence[str],
  option: str = config_files.GIN_OPTION,
) -> list[Binding]:
  """Returns the bindings in files and flags, in order of increasing precedence.

  Args:
    files: Gin files in order. An included file precedes the file that includes
      it.
    flags: Bindings from the command line, such as 'SEED=1'.
    option: Option with which the flags are passed, such as '--eval_gin'.

  Raises:
    ConfigError: If a statement is malformed.
  """
  bindings = []
  for index, file in enumerate(files):
    is_shipped = file.is_shipped
    for statement in _parse(file.text, str(file.path)):
      location = f'{file.path}:{statement.location.line_num}'
      bindings.append(
        _to_binding(
          statement, location, is_shipped=is_shipped, file_index=index
        )
      )
  for flag in flags:
    name = flag.partition('=')[0].strip()
    location = config_files.flag_location(name, option)
    text = command_line_bindings.quote_bare_word(flag)
    for statement in _parse(text, option=option):
      bindings.append(_to_binding(statement, location, is_flag=True))
  return bindings


def read_imports(file: config_files.GinFile) -> dict[str, str]:
  """Returns the modules that a gin file imports.

  Args:
    file: Gin file to read.

  Returns:
    The location of the first import of each module, 'FILE:LINE', by the name of
    the module.

  Raises:
    ConfigError: If a statement is malformed.
  """
  imports: dict[str, str] = {}
  for statement in _parse_all(file.text, str(file.path)):
    if isinstance(statement, config_parser.ImportStatement):
      location = f'{file.path}:{statement.location.line_num}'
      imports.setdefault(statement.module, location)
  return imports


def check_order(tree: config_files.Tree) -> None:
  """Raises an error if a later `include` statement overrides a binding.

  Only bindings in files of the user are checked, and only includes of files of
  the package.

  Args:
    tree: A gin file and the files that it includes.

  Raises:
    ConfigError: If an included file of xlflax overrides a binding that precedes
      the `include` statement.
  """
  for child in tree.includes:
    check_order(child)
  path = tree.file.path
  if tree.file.is_shipped or not path.is_file():
    return
  children = {child.file.name: child for child in tree.includes}
  pending: dict[tuple[str, str, str], Binding] = {}
  replaced: dict[tuple[str, str, str], tuple[Binding, Binding, str]] = {}
  for statement in _parse_all(tree.file.text, str(path)):
    location = f'{path}:{statement.location.line_num}'
    if isinstance(statement, config_parser.BindingStatement):
      binding = _to_binding(statement, location)
      pending[_order_key(binding)] = binding
      replaced.pop(_order_key(binding), None)
    elif isinstance(statement, config_parser.IncludeStatement):
      included = children[statement.filename]
      for other in read_bindings(list(included.files()), ()):
        key = _order_key(other)
        if key in pending and other.is_shipped:
          replaced[key] = pending[key], other, statement.filename
  for binding, other, name in replaced.values():
    raise errors.ConfigError(
      f"The gin binding has no effect, because the later `include '{name}'` "
      f'replaces its value with the value at {other.location}',
      got=binding.name,
      where=binding.location,
      fix='Move the binding below the include statement.',
    )


def check_file_order(
  trees: Sequence[config_files.Tree], flags: Sequence[str] = ()
) -> None:
  """Raises an error if a later gin file of xlflax overrides a user's bindings.

  A file that is a complete configuration may be followed by a file of xlflax
  that changes it, such as models/tiny.gin. Its bindings are reported only if
  they configure an object that the later file defines, such as the model: the
  complete configuration itself has no other value of the parameter, and
  requires a macro that the later file sets, such as MODEL. Values that another
  file must set (`%gin.REQUIRED`) are not checked.

  Args:
    trees: Gin files of a configuration, in order, each with the files that it
      includes.
    flags: Bindings from the command line, such as 'SEED=1'. A binding in a file
      is not reported if one of these bindings replaces it.

  Raises:
    ConfigError: If bindings in a user's file are replaced by a file of xlflax
      that is read later.
  """
  if all(tree.file.is_shipped for tree in trees[:-1]):
    return
  pending: dict[
    tuple[str, str, str], tuple[Binding, config_files.Tree, bool]
  ] = {}
  replaced: dict[
    tuple[str, str, str], tuple[Binding, config_files.Tree, config_files.Tree]
  ] = {}
  for tree in trees:
    first: dict[tuple[str, str, str], Binding] = {}
    last: dict[tuple[str, str, str], Binding] = {}
    for binding in read_bindings(list(tree.files()), ()):
      first.setdefault(_order_key(binding), binding)
      last[_order_key(binding)] = binding
    for key, binding in last.items():
      if not binding.is_shipped:
        replaced.pop(key, None)
      elif key in pending:
        user_binding, user_tree, is_complete = pending[key]
        if not is_complete or _completes(tree, user_tree):
          replaced[key] = user_binding, user_tree, tree
    is_complete = _is_complete(last)
    pending |= {
      key: (binding, tree, is_complete)
      for key, binding in last.items()
      if not binding.is_shipped
      and binding.macros != (_REQUIRED,)
      and not (is_complete and first[key].is_shipped)
    }
  for binding in read_bindings((), flags):
    replaced.pop(_order_key(binding), None)
  if not replaced:
    return
  _, user_tree, later_tree = next(iter(replaced.values()))
  ineffective = [
    binding
    for binding, *pair in replaced.values()
    if pair == [user_tree, later_tree]
  ]
  name, later_name = user_tree.file.name, later_tree.file.name
  raise errors.ConfigError(
    f'The bindings in {name} have no effect, because the later gin file '
    f'{later_name} replaces their values',
    got=', '.join(binding.name for binding in ineffective),
    where=', '.join(binding.location for binding in ineffective),
    # If the order of the files were reversed, the user's file would reset the
    # macros to `%gin.REQUIRED`.
    fix=f"Add the statement `include '{later_name}'` to {name}, below its other "
    f'include statements and above these bindings, and remove '
    f'--gin_file={later_name}.'
    if _completes(later_tree, user_tree)
    else f'Pass {name} after {later_name}.',
  )


def _completes(tree: config_files.Tree, other: config_files.Tree) -> bool:
  """Returns whether a gin file sets a macro that another file requires."""
  macros = tree.macros()
  required = set(config_files.required_macros(macros))
  return any(
    name in macros and name not in required for name in other.required()
  )


def _is_complete(bindings: Iterable[tuple[str, str, str]]) -> bool:
  """Returns whether bindings configure all that a command requires.

  Args:
    bindings: Keys of the bindings, as returned by `_order_key`.
  """
  bound = {key[1:] for key in bindings}
  return any(bound.issuperset(parameters) for parameters in _COMPLETE)


def _order_key(binding: Binding) -> tuple[str, str, str]:
  """Returns a key that identifies a parameter without its module's name."""
  return (binding.scope, binding.selector.rpartition('.')[2], binding.parameter)


def find_replaced_objectives(
  trees: Sequence[config_files.Tree], flags: Sequence[str]
) -> list[tuple[str, str, list[str]]]:
  """Finds objectives that are lost when gin files in pretrain/ are combined.

  Only the files that xlflax ships in the folder pretrain/ are compared, whether
  they are passed on the command line or included in files of the user. The
  result is empty if a file of the user or a flag sets the objectives.

  Args:
    trees: Gin files of a configuration, in order, each with the files that it
      includes.
    flags: Bindings from the command line, such as 'SEED=1'.

  Returns:
    Tuples of the name of the earlier file, the name of the last file, and the
    scopes of the objectives that only the earlier file trains. The name of an
    included file is followed by the file that includes it, in parentheses.

  Raises:
    ConfigError: If a statement is malformed.
  """
  scopes: dict[str, list[str]] = {}
  labels: dict[str, str] = {}
  for tree, parent in _shipped_trees(trees):
    bindings = [
      binding
      for binding in read_bindings(list(tree.files()), ())
      if _order_key(binding)[1:] == _ENTRIES
    ]
    if not bindings:
      continue
    if tree.file.path.parent.name != 'pretrain':
      return []
    name = tree.file.name
    labels[name] = f'{name} (included in {parent})' if parent else name
    scopes.pop(name, None)
    scopes[name] = [
      reference.rpartition('/')[0] for reference in bindings[-1].references
    ]
  if len(scopes) < 2:
    return []
  user_files = [
    file for tree in trees for file in tree.files() if not file.is_shipped
  ]
  if any(
    _order_key(binding)[1:] in (_ENTRIES, ('Trainer', 'objectives'))
    for binding in read_bindings(user_files, flags)
  ):
    return []
  *earlier, last = scopes
  dropped = [
    (
      labels[name],
      labels[last],
      [scope for scope in scopes[name] if scope not in scopes[last]],
    )
    for name in earlier
  ]
  return [entry for entry in dropped if entry[2]]


def find_replaced_models(
  trees: Sequence[config_files.Tree],
) -> list[tuple[str, str]]:
  """Finds model files whose sizes a later file replaces.

  Only the files that xlflax ships and that are passed on the command line are
  compared. Files in pretrain/ include a model, so that a file in models/ may
  replace it.

  Args:
    trees: Gin files of a configuration, in order.

  Returns:
    Pairs of a file in models/, and a later file that sets the same width.
  """
  models: dict[str, str] = {}
  replaced: list[tuple[str, str]] = []
  for tree in trees:
    if not tree.file.is_shipped:
      continue
    for binding in read_bindings([tree.file], ()):
      if binding.parameter != 'hidden_dim':
        continue
      name = tree.file.name
      earlier = models.pop(binding.selector, None)
      if earlier is not None and earlier != name:
        replaced.append((earlier, name))
      if tree.file.path.parent.name == 'models':
        models[binding.selector] = name
  return replaced


def _shipped_trees(
  trees: Iterable[config_files.Tree], parent: str | None = None
) -> Iterator[tuple[config_files.Tree, str | None]]:
  """Yields the outermost shipped files, each with the file that includes it.

  Args:
    trees: Gin files of a configuration, in order.
    parent: Name of the user's file that includes `trees`, or None.
  """
  for tree in trees:
    if tree.file.is_shipped:
      yield tree, parent
    else:
      yield from _shipped_trees(tree.includes, tree.file.name)


def find_replaced_lists(
  trees: Sequence[config_files.Tree], flags: Sequence[str]
) -> list[tuple[Binding, Binding]]:
  """Finds lists of objects that a later file of the user replaces.

  Files that are passed one after the other, and files that one file includes,
  are compared. A file may replace the lists of the files that it includes. A
  list that contains all objects of the earlier list is not returned, and an
  empty list or a list with macros is not either.

  Args:
    trees: Gin files of a configuration, in order, each with the files that it
      includes.
    flags: Bindings from the command line, such as 'SEED=1'. A list that one of
      these bindings sets is not returned.

  Returns:
    Pairs of the replaced binding and the binding that replaces it.

  Raises:
    ConfigError: If a statement is malformed.
  """
  set_by_flags = {_order_key(binding) for binding in read_bindings((), flags)}
  final = _last_bindings(trees)
  return [
    (earlier, later)
    for earlier, later in _replaced_lists(trees)
    if later == final[_order_key(later)]
    and _order_key(later) not in set_by_flags
  ]


def _replaced_lists(
  trees: Sequence[config_files.Tree],
) -> Iterator[tuple[Binding, Binding]]:
  """Yields the pairs of `find_replaced_lists`, regardless of later bindings."""
  for tree in trees:
    if not tree.file.is_shipped:
      yield from _replaced_lists(tree.includes)
  final = _last_bindings(trees)
  earlier_bindings = [
    binding for tree in trees for binding in _last_bindings([tree]).values()
  ]
  for earlier in dict.fromkeys(earlier_bindings):
    later = final[_order_key(earlier)]
    if (
      earlier.is_list
      and later.is_list
      and later.references
      and not (later.macros or earlier.is_shipped or later.is_shipped)
      and not _class_names(earlier) <= _class_names(later)
    ):
      yield earlier, later


def _last_bindings(
  trees: Iterable[config_files.Tree],
) -> dict[tuple[str, str, str], Binding]:
  """Returns the last binding of each parameter in gin files."""
  files = [file for tree in trees for file in tree.files()]
  return {_order_key(binding): binding for binding in read_bindings(files, ())}


def _class_names(binding: Binding) -> set[tuple[str, str]]:
  """Returns scopes and classes of the references, without their modules."""
  names = set()
  for reference in binding.references:
    scope, _, selector = reference.rpartition('/')
    names.add((scope, selector.rpartition('.')[2]))
  return names


def find_replacement(bindings: Sequence[Binding], macro: str) -> Binding | None:
  """Returns the binding that overrides a use of a macro, or None.

  For example, if `Trainer.seed = %SEED` is followed by `Trainer.seed = 1`, the
  result for the macro `SEED` is the second binding.

  Args:
    bindings: Bindings in the order in which they are read.
    macro: Name of the macro.
  """
  for i, binding in enumerate(bindings):
    if macro in binding.macros:
      for later in reversed(bindings[i + 1 :]):
        if _order_key(later) == _order_key(binding):
          return later
  return None


def find_macros_without_effect(tree: config_files.Tree) -> set[str]:
  """Finds the macros that do not supply a value to any constructed object.

  Such a macro is read only by bindings that are replaced by later bindings, or
  that belong to objects that the configuration does not construct. The result
  is empty for a file that is not a complete configuration, because its macros
  may be read by other files.

  Args:
    tree: A gin file and the files that it includes.

  Raises:
    ConfigError: If a statement is malformed.
  """
  bindings = {
    _order_key(binding): binding
    for binding in read_bindings(list(tree.files()), ())
  }
  if not _is_complete(bindings):
    return set()
  classes = set(_ROOTS)
  scopes: set[str] = set()
  effective: set[str] = set()
  pending = list(bindings.values())
  while True:
    reached = [
      binding
      for binding in pending
      if (
        binding.selector.rpartition('.')[2] in classes
        and scopes.issuperset(filter(None, binding.scope.split('/')))
        if binding.parameter
        else binding.selector in effective
      )
    ]
    if not reached:
      return set(tree.macros()) - effective
    for binding in reached:
      pending.remove(binding)
      effective.update(binding.macros)
      for reference in binding.references:
        *outer, name = reference.split('/')
        classes.add(name.rpartition('.')[2])
        scopes.update(outer)


def find_suite_tasks(tree: config_files.Tree) -> list[str]:
  """Returns the task names of an evaluation suite, or [] for any other file.

  Args:
    tree: A gin file and the files that it includes.

  Raises:
    ConfigError: If a statement is malformed.
  """
  references: list[str] = []
  names: dict[str, str] = {}
  for file in tree.files():
    for statement in _parse(file.text, str(file.path)):
      class_name = statement.selector.rpartition('.')[2]
      if (class_name, statement.arg_name) == ('Suite', 'tasks'):
        references = list(_names(statement.value, _Reference))
      elif (class_name, statement.arg_name) == ('SuiteTask', 'name'):
        if isinstance(statement.value, str):
          names[statement.scope] = statement.value
  scopes = [reference.rpartition('/')[0] for reference in references]
  return [names.get(scope, scope) for scope in scopes]


def flag_binding(name: str, location: str) -> Binding:
  """Creates a `Binding` for a macro or parameter set by a flag like `--grid`.

  Args:
    name: Name of the macro or parameter, such as 'SEED' or
      'optimizers.AdamW.b2'.
    location: Name of the flag that sets the value, such as '--grid'.
  """
  scope, _, name = name.rpartition('/')
  selector, _, parameter = name.rpartition('.')
  return Binding(
    scope=scope,
    selector=selector or parameter,
    parameter=parameter if selector else '',
    macros=(),
    location=location,
    is_flag=True,
  )


def find_binding_location(
  bindings: Sequence[Binding], where: str, scope: str
) -> str | None:
  """Returns the locations at which a field's value is set.

  Args:
    bindings: All bindings, in order of increasing precedence.
    where: Class and field, such as 'DatasetConfig.length', in the form of
      `XlflaxError.where`.
    scope: Gin scope in which the object is constructed.

  Returns:
    The locations of the binding and of the macros that it refers to, or None if
    the field is not bound.
  """
  match = re.match(r'(\w+)\.(\w+)', where)
  binding = match and _find_binding(bindings, match[1], match[2], scope)
  if not binding:
    return None
  locations = [binding.location]
  macros = list(binding.macros)
  for name in macros:
    values = [x for x in bindings if not x.parameter and x.name == name]
    if values:
      locations.append(values[-1].location)
      macros += [x for x in values[-1].macros if x not in macros]
  return ' and '.join(dict.fromkeys(locations))


def find_setting(
  bindings: Sequence[Binding], class_name: str, parameter: str, scope: str
) -> str:
  """Returns the name under which a user sets a parameter of an object.

  Args:
    bindings: All bindings, in order of increasing precedence.
    class_name: Class of the object, such as 'DatasetConfig'.
    parameter: Name of the parameter.
    scope: Gin scope in which the object is constructed.

  Returns:
    The macro that supplies the value, or the parameter with its scope, such as
    'mono/DatasetConfig.length'.
  """
  binding = _find_binding(bindings, class_name, parameter, scope)
  if binding and len(binding.macros) == 1 and not binding.references:
    return binding.macros[0]
  return f'{scope}/{class_name}.{parameter}'.removeprefix('/')


def _find_binding(
  bindings: Sequence[Binding], class_name: str, parameter: str, scope: str
) -> Binding | None:
  """Returns the binding that sets a parameter of an object, or None."""
  candidates = [
    binding
    for binding in bindings
    if binding.parameter == parameter
    and binding.selector.rpartition('.')[2] == class_name
    and f'{scope}/'.startswith(f'{binding.scope}/' if binding.scope else '')
  ]
  if not candidates:
    return None
  # Gin prefers the innermost scope, and then the last statement.
  binding = max(candidates, key=lambda x: len(x.scope))
  return [x for x in candidates if x.scope == binding.scope][-1]


def _parse(
  text: str, path: str | None = None, option: str = config_files.GIN_OPTION
) -> Iterator[config_parser.BindingStatement]:
  """Yields the bindings of a file, or of a flag if there is no path."""
  for statement in _parse_all(text, path, option):
    if isinstance(statement, config_parser.BindingStatement):
      yield statement


def _parse_all(
  text: str, path: str | None = None, option: str = config_files.GIN_OPTION
) -> Iterator[Any]:
  """Yields the statements of a file, or of a flag if there is no path."""
  try:
    yield from _Parser(text)
  except _DuplicateKeyError as error:
    raise errors.ConfigError(
      'A dictionary must not contain the same key twice',
      got=repr(error.key),
      where=errors.line_location(path, error.line)
      if path
      else config_files.flag_location(text.partition('=')[0].strip(), option),
      fix=_suggest_tuple(error),
    ) from None
  except (SyntaxError, ValueError, tokenize.TokenError) as error:
    line = getattr(error, 'lineno', None) or 1
    source = text.splitlines()[line - 1].strip() if text else ''
    raise errors.ConfigError(
      'A gin statement must have the form NAME = VALUE, where VALUE is '
      f'{command_line_bindings.VALUES}',
      got=source if path else _flag(text, option),
      where=errors.line_location(path, line)
      if path
      else config_files.flag_location(text.partition('=')[0], option),
      fix=_suggest_quotes(source, None if path else option)
      or (
        'Correct the statement, for example to TRAIN_STEPS = 1000.'
        if path
        else f'Pass {_example_flag(source, option)}, for example.'
      ),
    ) from error


def _suggest_tuple(error: _DuplicateKeyError) -> str:
  """Returns the hint for a key that is repeated in a dictionary."""
  are_files = isinstance(error.key, str) and all(
    isinstance(value, str) and re.search('[./]', value)
    for value in error.values
  )
  # For a language pair, a tuple contains the files of both languages.
  if not are_files or '-' in error.key:
    return 'Remove one of the two values of this key.'
  return (
    'Pass several files of one language as a tuple: '
    f'{{{error.key!r}: {error.values!r}}}.'
  )


def _flag(binding: str, option: str) -> str:
  """Returns the argument with which a binding was passed."""
  separator = '.' if option == config_files.GIN_OPTION else '='
  return f'{option}{separator}{binding}'


def _example_flag(statement: str, option: str) -> str:
  """Returns a valid flag for the macro or parameter of a malformed one."""
  name, _, value = map(str.strip, statement.partition('='))
  language, _, path = value.partition('=')
  if name.endswith('FILES'):
    if not re.fullmatch(r'[\w-]+', language) or not re.fullmatch(
      r'[\w./~-]+', path
    ):
      language, path = 'en', 'FILE'
    return config_files.format_flag(name, f"{{'{language}': '{path}'}}", option)
  words = [word.strip() for word in value.split(',')]
  if len(words) > 1 and all(
    re.fullmatch(r'[A-Za-z][\w.-]*', word) for word in words
  ):
    return config_files.format_flag(name, str(words), option)
  return ' or '.join(
    config_files.format_flag(name, value, option)
    for value in ("'TEXT'", '1000')
  )


def _suggest_quotes(statement: str, option: str | None) -> str | None:
  """Returns the hint for a dictionary whose text is not in quotes, or None.

  Args:
    statement: Malformed statement.
    option: Command-line option that contains the statement. If None, the
      statement is in a file.
  """
  name, _, value = map(str.strip, statement.partition('='))
  word = r'[A-Za-z][\w-]*'
  keys = re.sub(rf'([{{,]\s*)({word})(?=\s*:)', r"\1'\2'", value)
  values = re.sub(r'(:\s*)([A-Za-z./~][\w./~*-]*)(?=\s*[,}])', r"\1'\2'", keys)
  for text in (keys, values):
    try:
      is_dictionary = isinstance(ast.literal_eval(text), dict)
    except (SyntaxError, ValueError):
      continue
    if is_dictionary and text != value:
      correct = (
        config_files.format_flag(name, text, option)
        if option
        else f'{name} = {text}'
      )
      return f'Put text in a dictionary in quotes: {correct}'
  return None


def _to_binding(
  statement: config_parser.BindingStatement, location: str, **origin: Any
) -> Binding:
  """Converts a statement of Gin's parser to a `Binding`."""
  return Binding(
    scope=statement.scope or '',
    selector=statement.selector,
    parameter=statement.arg_name or '',
    macros=tuple(_names(statement.value, _Macro)),
    references=tuple(_names(statement.value, _Reference)),
    is_list=isinstance(statement.value, list | tuple),
    location=location,
    **origin,
  )


def _names(value: Any, kind: type[_Macro] | type[_Reference]) -> Iterator[str]:
  """Yields the macros or configurables that a value refers to."""
  if isinstance(value, kind):
    yield value.name
  elif isinstance(value, dict):
    for key, item in value.items():
      yield from _names(key, kind)
      yield from _names(item, kind)
  elif isinstance(value, list | tuple):
    for item in value:
      yield from _names(item, kind)
