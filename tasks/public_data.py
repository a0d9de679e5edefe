"""Public evaluation sets: their sources and their conversion.

The data are not downloaded. `xlflax tasks convert NAME` prints the description
and the download instructions of a data set, and converts a download to a folder
that gin files read. The table of data sets is `public_data.toml`. The checksums
are those in TensorFlow Datasets.
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
  """Public data set.

  Attributes:
    name: Name of the data set.
    kind: Type of the examples, or purpose of the data set.
    source: Repository or web page.
    licence: License as stated by the authors.
    languages: Number of languages, or their codes.
    splits: Names of the splits.
    fetch: Download instructions.
    use: Gin file or command that reads the data set.
    tfds: Name in TensorFlow Datasets. '' if there is none.
    sha256: Map from the name of an archive to its checksum, if available.
    convert: Function from the folder of a download and the output folder to the
      names of the files that it writes. None if no conversion is required.
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
    """Returns a description of several lines."""
    checksums = [f'{name} {value}' for name, value in self.sha256.items()]
    fields = {
      'kind': self.kind,
      'source': self.source,
      'license': self.licence,
      'languages': self.languages,
      'splits': ', '.join(self.splits),
      'download': self.fetch,
      'read by': self.use,
      'TFDS': self.tfds,
      'SHA-256': '; '.join(checksums),
      'conversion': 'not required'
      if self.convert is None
      else f'xlflax tasks convert {self.name} --input=DIR --output=DIR',
    }
    rows = [f'{key:10} {text}' for key, text in fields.items() if text]
    return '\n'.join([self.name, *rows])


def check_archives(data: PublicData, folder: pathlib.Path) -> None:
  """Checks the archives in a folder against the published checksums.

  Args:
    data: Data set.
    folder: Folder of the download.

  Raises:
    CorpusError: If the checksum of an archive differs.
  """
  for name, expected in data.sha256.items():
    for path in folder.rglob(name):
      digest = hashlib.sha256(path.read_bytes()).hexdigest()
      if digest != expected:
        raise errors.CorpusError(
          'The checksum of an archive differs from the published checksum',
          got=digest,
          expected=expected,
          where=str(path),
          fix='download the archive again',
        )


def convert(name: str, input_dir: str, output: str) -> list[str]:
  """Converts a download, and returns the names of the written files.

  Args:
    name: Name of the data set.
    input_dir: Folder of the download.
    output: Output folder.

  Raises:
    ConfigError: If the data set is unknown, or does not require a conversion.
    CorpusError: If the folder does not contain the files of the data set, or
      they are malformed.
  """
  data = find_data_set(name)
  source = paths.to_local_path(input_dir, where='--input')
  if not source.is_dir():
    raise errors.CorpusError('The input folder does not exist', got=str(source))
  check_archives(data, source)
  if data.convert is None:
    raise errors.ConfigError(
      'The data set does not require a conversion',
      got=name,
      expected=data.use,
      where='--input',
    )
  output_path = paths.to_local_path(output, where='--output')
  file_names = data.convert(source, output_path)
  if not file_names:
    raise errors.CorpusError(
      'The folder contains no files of the data set',
      got=str(source),
      expected=data.fetch,
    )
  return file_names


def find_data_set(name: str) -> PublicData:
  """Returns a data set.

  Raises:
    ConfigError: If the data set is unknown.
  """
  data_sets = list_data_sets()
  if name not in data_sets:
    raise errors.ConfigError(
      'Unknown data set', got=name, expected=', '.join(data_sets)
    )
  return data_sets[name]


@functools.cache
def list_data_sets() -> Mapping[str, PublicData]:
  """Returns all data sets by name."""
  file = importlib.resources.files('xlflax.tasks').joinpath(TABLE)
  rows = tomllib.loads(file.read_text(encoding='utf-8'))
  return {name: _parse_row(name, row) for name, row in rows.items()}


def _parse_row(name: str, row: Mapping) -> PublicData:
  """Returns the data set of a row, with the converter as a function."""
  converter = None
  if 'convert' in row:
    function_name = row['convert']
    in_rankings = hasattr(public_rankings, function_name)
    module = public_rankings if in_rankings else public_converters
    converter = getattr(module, function_name)
  fields = dict(row) | {
    'name': name,
    'splits': tuple(row['splits']),
    'convert': converter,
  }
  return PublicData(**fields)
