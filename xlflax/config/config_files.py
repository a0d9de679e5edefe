"""Gin files read as text: where they lie, what they include and what they set.

Nothing here imports what the files configure, so that mistakes in flags and
`xlflax configs` are answered at once.
"""

import codecs
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

import xlflax.gin_configs
from xlflax.utils import errors, name_suggestions

SHIPPED = pathlib.Path(xlflax.gin_configs.__file__).parent

_INCLUDE = re.compile(r"""^include\s+['"](.+?)['"]""", re.M)
_MACRO = re.compile(r'^([A-Z][A-Z0-9_]*)\s*=\s*(.*?)\s*$', re.M)
_USE = re.compile(r'%([A-Za-z_]\w*)')
_REQUIRED = '%gin.REQUIRED'
_HOW_TO_SET = {
  'MODEL': '--gin_file=models/SIZE.gin, after the other files',
  'MODEL_DIR': '--model_dir=DIR',
  'VOCABULARY': '--vocabulary=DIR',
}


@dataclasses.dataclass(frozen=True)
class GinFile:
  """The text of a gin file.

  Attributes:
    name: as it was asked for, such as 'pretrain/mlm.gin'.
    path: where it lies.
    text: all of it.
  """

  name: str
  path: pathlib.Path
  text: str

  @property
  def header(self) -> str:
    """The comment at the top, or under the imports, without its #."""
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
    """The header's first sentence, on one line."""
    text = ' '.join(self.header.split('\n\n')[0].split())
    return re.split(r'(?<=[a-z)])\. |: (?=the |see )', text)[0].rstrip('.')

  @property
  def includes(self) -> list[str]:
    """Names of the files that it includes, in order."""
    return _INCLUDE.findall(self.text)

  @property
  def macros(self) -> dict[str, str]:
    """Macro -> its value, as text."""
    return dict(_MACRO.findall(self.text))

  @property
  def uses(self) -> set[str]:
    """Names of the macros whose values it reads."""
    return used_macros(re.sub(r'#.*', '', self.text))


@dataclasses.dataclass(frozen=True)
class Tree:
  """A gin file with those that it includes.

  Attributes:
    file: the file.
    includes: the trees of the files that it includes.
  """

  file: GinFile
  includes: tuple['Tree', ...]

  def files(self) -> Iterator[GinFile]:
    """Yields all files, included ones before those that include them."""
    for tree in self.includes:
      yield from tree.files()
    yield self.file

  def macros(self) -> dict[str, str]:
    """Macro -> its value after all files were read."""
    macros: dict[str, str] = {}
    for file in self.files():
      macros |= file.macros
    return macros

  def required(self) -> list[str]:
    """Macros without a value that the user must give."""
    return required_macros(self.macros())


def used_macros(code: str) -> set[str]:
  """Names of the macros whose values some gin code reads."""
  return set(_USE.findall(code))


def required_macros(macros: Mapping[str, str]) -> list[str]:
  """Macros without a value, of macro -> value as text."""
  return [name for name, value in macros.items() if value == _REQUIRED]


def missing_value_error(names: Sequence[str]) -> errors.ConfigError:
  """The error for macros or parameters without their values."""
  return errors.ConfigError(
    'The configuration needs values that are not given',
    got='none for ' + ', '.join(names),
    fix=' '.join(
      _HOW_TO_SET.get(macro, f'--gin.{macro}=VALUE') for macro in names
    ),
  )


def shipped_file_names() -> list[str]:
  """The files that come with xlflax, such as 'models/small.gin'."""
  return sorted(str(p.relative_to(SHIPPED)) for p in SHIPPED.rglob('*.gin'))


def split_search_paths(search_paths: Sequence[str]) -> list[str]:
  """Folders of `--gin_search_paths`, each of which may hold commas."""
  return [part for paths in search_paths for part in paths.split(',') if part]


def find_gin_file(name: str, search: Sequence[str] = ()) -> pathlib.Path:
  """Returns where a file lies: a path, in a folder, or among those shipped.

  Args:
    name: such as 'pretrain/mlm.gin'.
    search: folders to look in.

  Raises:
    ConfigError: it is nowhere.
  """
  for folder in ('', *search, str(SHIPPED)):
    path = pathlib.Path(folder) / name
    if path.is_file():
      return path
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
    'A gin file does not exist',
    got=name,
    expected='a path, or one of those that come with xlflax, such as '
    + ', '.join(close or shipped[:5]),
    where='--gin_file',
    fix='`xlflax configs list` shows all of them',
  )


def split_phases(value: str, search: Sequence[str] = ()) -> list[str]:
  """The gin files of phases, in order.

  Args:
    value: a folder with phase1.gin, phase2.gin and so on, or names of files
      with commas between.
    search: folders to look in.

  Raises:
    ConfigError: there are none, or two have one name.
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
      'There are no phases',
      got=value,
      expected='a folder with phase1.gin, phase2.gin …, such as '
      'recipes/modernbert, or different gin files: FIRST.gin,SECOND.gin',
      where='--phases',
    )
  return names


def read_gin_file(name: str, search: Sequence[str] = ()) -> Tree:
  """Reads a file and those that it includes.

  Args:
    name: see `find_gin_file`.
    search: folders to look in.

  Raises:
    ConfigError: a file is nowhere, or includes itself.
  """
  return _read(name, tuple(search), ())


def _read(name: str, search: tuple[str, ...], above: tuple[str, ...]) -> Tree:
  if name in above:
    raise errors.ConfigError(
      'A gin file includes itself',
      got=' -> '.join((*above, name)),
      fix='remove one of these includes',
    )
  try:
    path = find_gin_file(name, search)
  except errors.ConfigError:
    if not above:
      raise
    return Tree(GinFile(name, pathlib.Path(name), ''), ())  # T5X's own
  file = GinFile(name, path, _text(path))
  return Tree(
    file,
    tuple(_read(include, search, (*above, name)) for include in file.includes),
  )


def _text(path: pathlib.Path) -> str:
  """The text of a file; Gin reads no other coding, and no mark before it."""
  content = path.read_bytes()
  try:
    if not content.startswith(codecs.BOM_UTF8):
      return content.decode('utf-8')
    got = 'a byte order mark before its text'
  except UnicodeDecodeError as error:
    got = str(error)
  raise errors.ConfigError(
    'A gin file is no plain UTF-8',
    got=got,
    where=str(path),
    fix='save it as UTF-8 without a byte order mark (BOM)',
  )
