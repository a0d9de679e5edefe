"""Public evaluation sets: where they are, and how they become folders.

Nothing is downloaded here. `xlflax tasks convert NAME` prints what a set is and
how it is had, and converts what was downloaded into a folder that gin files
read. The table is `public_data.toml`; checksums are those that TensorFlow
Datasets records.
"""

import dataclasses
import functools
import hashlib
import importlib.resources
import pathlib
import tomllib
from collections.abc import Callable, Mapping

from xlflax.storage import paths
from xlflax.tasks import public_converters, public_rankings
from xlflax.utils import errors

TABLE = 'public_data.toml'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicData:
  """A public data set.

  Attributes:
    name: of the set.
    kind: of its examples, or what is done with it.
    source: its repository or page.
    licence: as its authors state it.
    languages: how many, or which.
    splits: their names.
    fetch: how it is downloaded.
    use: the gin file or the command that reads it.
    tfds: name in TensorFlow Datasets; '' for none.
    sha256: name of an archive -> its checksum, where it is known.
    convert: writes a folder from what was downloaded, and returns the names of
      what it wrote; None where the download is read as it is.
  """

  name: str
  kind: str
  source: str
  licence: str
  languages: str
  splits: tuple[str, ...]
  fetch: str
  use: str
  tfds: str = ''
  sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)
  convert: Callable[[pathlib.Path, pathlib.Path], list[str]] | None = None

  def describe(self) -> str:
    """Lines for a person."""
    checksums = [f'{name} {value}' for name, value in self.sha256.items()]
    fields = {
      'kind': self.kind,
      'source': self.source,
      'licence': self.licence,
      'languages': self.languages,
      'splits': ', '.join(self.splits),
      'download': self.fetch,
      'read by': self.use,
      'TFDS': self.tfds,
      'SHA-256': '; '.join(checksums),
      'converted': 'as it is'
      if self.convert is None
      else f'xlflax tasks convert {self.name} --input=DIR --output=DIR',
    }
    rows = [f'{key:10} {text}' for key, text in fields.items() if text]
    return '\n'.join([self.name, *rows])


def check_archives(data: PublicData, folder: pathlib.Path) -> None:
  """Raises a CorpusError for an archive that is not the published one."""
  for name, expected in data.sha256.items():
    for path in folder.rglob(name):
      found = hashlib.sha256(path.read_bytes()).hexdigest()
      if found != expected:
        raise errors.CorpusError(
          'An archive is not the published one',
          got=found,
          expected=expected,
          where=str(path),
          fix='download it again',
        )


def convert(name: str, input_dir: str, output: str) -> list[str]:
  """Converts a download; returns the names of the files written.

  Raises:
    ConfigError: there is no such set, or nothing to convert.
    CorpusError: the folder lacks the set's files, or they are malformed.
  """
  data = find(name)
  source = paths.to_local_path(input_dir, where='--input')
  if not source.is_dir():
    raise errors.CorpusError('There is no such folder', got=str(source))
  check_archives(data, source)
  if data.convert is None:
    raise errors.ConfigError(
      'The data set is read as it is downloaded',
      got=name,
      expected=data.use,
      where='--input',
    )
  written = data.convert(source, paths.to_local_path(output, where='--output'))
  if not written:
    raise errors.CorpusError(
      'The folder has no file of the data set',
      got=str(source),
      expected=data.fetch,
    )
  return written


def find(name: str) -> PublicData:
  """The data set; a ConfigError if there is none of this name."""
  if name not in table():
    raise errors.ConfigError(
      'There is no such data set', got=name, expected=', '.join(table())
    )
  return table()[name]


@functools.cache
def table() -> Mapping[str, PublicData]:
  """Name -> data set, all of them."""
  file = importlib.resources.files('xlflax.tasks').joinpath(TABLE)
  rows = tomllib.loads(file.read_text(encoding='utf-8'))
  return {name: _made(name, row) for name, row in rows.items()}


def _made(name: str, row: Mapping) -> PublicData:
  """A row of the table; a converter's name becomes the function."""
  convert = row.get('convert', '')
  rankings = hasattr(public_rankings, convert)
  module = public_rankings if rankings else public_converters
  return PublicData(
    **dict(row)
    | {
      'name': name,
      'splits': tuple(row['splits']),
      'convert': getattr(module, convert) if convert else None,
    }
  )
