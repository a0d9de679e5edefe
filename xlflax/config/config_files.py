"""Reader that parses gin files as text and finds the files they include.

This module does not import the configured classes, so that mistakes in flags
are reported quickly and `xlflax configs` is fast.
"""

import codecs
import dataclasses
import io
import pathlib
import re
import shlex
import tokenize
from collections.abc import Iterator, Mapping, Sequence

import xlflax.gin_configs
from xlflax.utils import errors, name_suggestions

SHIPPED = pathlib.Path(xlflax.gin_configs.__file__).parent

_INCLUDE = re.compile(r"""^include\s+['"](.+?)['"]""", re.M)
_MACRO = re.compile(r'^([A-Z][A-Z0-9_]*)\s*=\s*(.*?)\s*$', re.M)
# Macros, but not constants such as %gin.REQUIRED.
_USE = re.compile(r'%([A-Za-z_]\w*)(?![\w.])')
_REQUIRED = '%gin.REQUIRED'
# Option that binds macros and parameters, as in --gin.NAME=VALUE.
GIN_OPTION = '--gin'
_FLAG_BY_MACRO: dict[str, str] = {
  'MODEL': '--gin_file=models/SIZE.gin',
  'MODEL_DIR': '--model_dir=DIR',
  'VOCABULARY': '--vocabulary=DIR',
}
# Placeholders for the values of other macros.
_VALUE_BY_MACRO: dict[str, str] = {
  **dict.fromkeys(
    (
      'CORPUS',
      'INIT_DIR',
      'INIT_FROM',
      'RUN',
      'TEACHER',
      'VECTORS',
      'VOCABULARY_DIR',
    ),
    "'DIR'",
  ),
  **dict.fromkeys(('FORMAT', 'MONO', 'TRAIN_LANGUAGE'), "'NAME'"),
}


@dataclasses.dataclass(frozen=True)
class GinFile:
  """A gin file that was read as text.

  Attributes:
    name: Requested name of the gin file, such as 'pretrain/mlm.gin'.
    path: Path of the file.
    text: Content of the file.
  """

  name: str
  path: pathlib.Path
  text: str

  @property
  def is_shipped(self) -> bool:
    """True if the file is shipped with xlflax."""
    return self.path.resolve().is_relative_to(SHIPPED.resolve())

  @property
  def header(self) -> str:
    """Comment at the top of the file or below its imports, without `#`."""
    lines = self.text.splitlines()
    first = next((i for i, x in enumerate(lines) if x.startswith('#')), None)
    if first is None:
      return ''
    comment_lines = []
    for line in lines[first:]:
      if not line.startswith('#'):
        break
      comment_lines.append(line.removeprefix('#').removeprefix(' '))
    return '\n'.join(comment_lines).strip()

  @property
  def summary(self) -> str:
    """First sentence of the header comment, joined into one line."""
    text = ' '.join(self.header.split('\n\n')[0].split())
    sentence_end = r'(?<=[\w)])(?<!et al)\. (?=[A-Z])'
    return re.split(sentence_end, text)[0].rstrip('.')

  @property
  def includes(self) -> list[str]:
    """Names of the included files, in the order of the include statements."""
    return _INCLUDE.findall(self.text)

  @property
  def macros(self) -> dict[str, str]:
    """Map from each macro that the file sets to its value as text.

    The lines of a value that spans several lines are joined.
    """
    return {
      match[1]: _complete_value(self.text, match)
      for match in _MACRO.finditer(self.text)
    }

  @property
  def uses(self) -> set[str]:
    """Names of the macros that the file refers to."""
    return used_macros(re.sub(r'#.*', '', self.text))


@dataclasses.dataclass(frozen=True)
class Tree:
  """A gin file and the files that it includes.

  Attributes:
    file: File that includes the other files.
    includes: One tree for each file that `file` includes.
  """

  file: GinFile
  includes: tuple['Tree', ...]

  def files(self) -> Iterator[GinFile]:
    """Yields the included gin files, and then the file that includes them."""
    for tree in self.includes:
      yield from tree.files()
    yield self.file

  def macros(self) -> dict[str, str]:
    """Returns a map from each macro to its value as text."""
    macros: dict[str, str] = {}
    for file in self.files():
      macros |= file.macros
    return macros

  def required(self) -> list[str]:
    """Returns the macros that the user must set."""
    return required_macros(self.macros())


def _complete_value(text: str, match: re.Match[str]) -> str:
  """Returns the value of a macro with the lines that continue it.

  Args:
    text: Text of the gin file.
    match: Match of the pattern `_MACRO`. It covers only the first line of the
      value.
  """
  value = match[2]
  code, joined = '', ''
  for line in text[match.start(2) :].splitlines(keepends=True):
    code += line
    try:
      tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
      continue  # A bracket is not closed.
    if '\n' not in code.strip():
      return value
    comments = {
      token.start[0]: token.start[1]
      for token in tokens
      if token.type == tokenize.COMMENT
    }
    for number, code_line in enumerate(code.splitlines(), 1):
      part = code_line[: comments.get(number)].strip()
      is_first = not joined or joined.endswith(('(', '[', '{'))
      joined += part if is_first or not part else f' {part}'
    return joined
  return value


def used_macros(code: str) -> set[str]:
  """Returns the names of the macros that gin code refers to."""
  return set(_USE.findall(code))


def required_macros(macros: Mapping[str, str]) -> list[str]:
  """Returns the names of the macros that are set to `%gin.REQUIRED`.

  Args:
    macros: Mapping from the name of each macro to its value as text.
  """
  return [name for name, value in macros.items() if value == _REQUIRED]


def missing_value_error(
  names: Sequence[str], option: str = GIN_OPTION
) -> errors.ConfigError:
  """Creates the error that reports macros or parameters without a value.

  Args:
    names: Names of the macros or parameters.
    option: Option that binds them, such as '--eval_gin'.
  """
  flags = [
    _FLAG_BY_MACRO.get(name)
    or format_flag(name, _VALUE_BY_MACRO.get(name, 'VALUE'), option)
    for name in names
  ]
  fix = f'Pass {" ".join(flags)}.'
  if 'MODEL' in names:
    fix += (
      ' Pass the gin file of the model, or a recipe that sets MODEL, after all '
      'other gin files.'
    )
  return errors.ConfigError(
    f'The configuration must set a value for {", ".join(names)}', fix=fix
  )


def format_flag(name: str, value: str, option: str = GIN_OPTION) -> str:
  """Formats a flag for a shell, such as '--gin.SEED=1'.

  Text in gin requires quotation marks, which a shell removes. Such a value is
  therefore put in further quotation marks.

  Args:
    name: Name of a macro or parameter.
    value: Value in gin syntax.
    option: Option that binds the name, such as '--eval_gin'.
  """
  if option != GIN_OPTION:
    return f'{option}={quote_argument(f"{name}={value}")}'
  if re.fullmatch(r'[\w.+-]+', value):
    return f'{option}.{name}={value}'
  return f'{option}.{name}={quote_argument(value)}'


def quote_argument(text: str) -> str:
  """Quotes an argument for a shell, with double quotes if possible."""
  return shlex.quote(text) if re.search(r'["$`\\]', text) else f'"{text}"'


def flag_location(name: str, option: str = GIN_OPTION) -> str:
  """Returns the location of a binding on the command line.

  Args:
    name: Name of a macro or parameter.
    option: Option that binds the name, such as '--eval_gin'.
  """
  return f'{option}.{name}' if option == GIN_OPTION else f'{option} {name}'


def shipped_file_names() -> list[str]:
  """Returns the gin files shipped with xlflax, such as 'models/small.gin'."""
  return sorted(str(p.relative_to(SHIPPED)) for p in SHIPPED.rglob('*.gin'))


def split_search_paths(search_paths: Sequence[str]) -> list[str]:
  """Splits the comma-separated values of `--gin_search_paths` into folders."""
  return [part for paths in search_paths for part in paths.split(',') if part]


def find_gin_file(name: str, search: Sequence[str] = ()) -> pathlib.Path:
  """Finds a gin file and returns its path.

  The name is a path, or a file in one of the search folders or in the package.

  Args:
    name: Name of the gin file, such as 'pretrain/mlm.gin'.
    search: Folders in which gin files are searched, in order.

  Raises:
    ConfigError: If the file does not exist.
  """
  for folder in ('', *search, str(SHIPPED)):
    path = pathlib.Path(folder) / name
    if path.is_file():
      return path
  run = pathlib.Path(name).parent
  if pathlib.Path(name).name == 'model.gin' and (run / 'config.gin').is_file():
    raise errors.ConfigError(
      'The file model.gin exists only for imported models, but this run was '
      'trained with xlflax',
      got=name,
      where=str(run),
      fix='Pass the gin file that defined the model of this run, such as '
      '--gin_file=models/small.gin, and the --gin flags that changed its sizes '
      f'({run / "config.gin"} lists the sizes).',
    )
  shipped = shipped_file_names()
  close = name_suggestions.close_matches(
    name, shipped
  ) or name_suggestions.close_matches(
    pathlib.Path(name).stem,
    [pathlib.Path(shipped_name).stem for shipped_name in shipped],
  )
  close = [
    shipped_name
    for name in close
    for shipped_name in shipped
    if name in (shipped_name, pathlib.Path(shipped_name).stem)
  ][:3]
  raise errors.ConfigError(
    'The gin file does not exist',
    got=name,
    fix='Pass the path of a gin file with --gin_file, or the name of a file '
    f'that xlflax ships, such as {", ".join(close or shipped[:5])}. Run '
    '`xlflax configs list` to list these files.',
  )


def split_phases(value: str, search: Sequence[str] = ()) -> list[str]:
  """Returns the gin file of each training phase, in the order of the phases.

  Args:
    value: Path of a folder that contains phase1.gin, phase2.gin and so on, or
      names of gin files that are separated by commas.
    search: Folders in which gin files are searched, in order.

  Raises:
    ConfigError: If no gin files are found, or if two of them have the same
      name.
  """
  for folder in ('', *search, str(SHIPPED)):
    files = (pathlib.Path(folder) / value).glob('phase*.gin')
    numbered = [path for path in files if path.stem[5:].isdecimal()]
    phase_files = sorted(numbered, key=lambda path: int(path.stem[5:]))
    if phase_files:
      break
  names = [f'{value.rstrip("/")}/{path.name}' for path in phase_files] or [
    part for part in value.split(',') if part.endswith('.gin')
  ]
  if not names or len({pathlib.PurePath(n).stem for n in names}) < len(names):
    raise errors.ConfigError(
      '--phases must be a folder or a list of gin files. A folder, such as '
      'recipes/modernbert, must contain phase1.gin, phase2.gin and so on. The '
      'gin files of a list, such as FIRST.gin,SECOND.gin, must have different '
      'names',
      got=value,
    )
  return names


def read_gin_file(name: str, search: Sequence[str] = ()) -> Tree:
  """Reads a gin file and the files that it includes.

  Args:
    name: Name of the file, as in `find_gin_file`.
    search: Folders in which gin files are searched, in order.

  Raises:
    ConfigError: If a file does not exist, or if a file includes itself.
  """
  return _read(name, tuple(search), ())


def _read(name: str, search: tuple[str, ...], above: tuple[str, ...]) -> Tree:
  """Reads a gin file, which the files in `above` include."""
  if name in above:
    raise errors.ConfigError(
      'A gin file must not include itself',
      got=' -> '.join((*above, name)),
      fix='Remove one of the include statements.',
    )
  try:
    path = find_gin_file(name, search)
  except errors.ConfigError:
    if not above:
      raise
    # The file belongs to T5X, and only Gin finds it.
    return Tree(GinFile(name, pathlib.Path(name), ''), ())
  file = GinFile(name, path, _text(path))
  return Tree(
    file,
    tuple(_read(include, search, (*above, name)) for include in file.includes),
  )


def _text(path: pathlib.Path) -> str:
  """Reads a gin file, which must be UTF-8 without a byte order mark."""
  content = path.read_bytes()
  try:
    if not content.startswith(codecs.BOM_UTF8):
      return content.decode('utf-8')
    got = 'a byte order mark before its text'
    fix = 'Save the file without a byte order mark.'
  except UnicodeDecodeError as error:
    got = str(error)
    fix = 'Convert the file to UTF-8.'
  raise errors.ConfigError(
    'A gin file must be encoded in UTF-8 without a byte order mark (BOM)',
    got=got,
    where=str(path),
    fix=fix,
  )
