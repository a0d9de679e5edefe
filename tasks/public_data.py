"""Public evaluation sets, with download instructions and converters.

The data must be downloaded manually. `xlflax tasks convert NAME` prints a data
set's description and download instructions, and converts the download to a
folder that gin files can read. The data sets are listed in `public_data.toml`.
The checksums are taken from TensorFlow Datasets.
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
  """Description of a public data set.

  Attributes:
    name: Name of the data set.
    kind: Task for which the data set is used, such as 'ranking (nDCG@10)'.
    source: Repository or web page that publishes the data set.
    licence: License as stated by the authors.
    languages: Number of languages, or the language codes.
    splits: Names of the splits in the data set.
    fetch: Download instructions.
    use: Gin file or command that reads the converted data set.
    tfds: Name in TensorFlow Datasets, or '' if it is not available there.
    sha256: Map from the name of an archive to its SHA-256 checksum, if one is
      published.
    convert: Function that takes the folder of the download and the output
      folder, and returns the names of the files it has written. None if no
      conversion is required.
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
    """Returns a multi-line description of the data set."""
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
    data: Data set to which the archives belong.
    folder: Folder that contains the downloaded files.

  Raises:
    CorpusError: If an archive's checksum differs from the published one.
  """
  for name, expected in data.sha256.items():
    for path in folder.rglob(name):
      digest = hashlib.sha256(path.read_bytes()).hexdigest()
      if digest != expected:
        raise errors.CorpusError(
          "An archive's checksum differs from the published checksum",
          got=digest,
          expected=expected,
          where=str(path),
          fix='Download the archive again.',
        )


def convert(name: str, input_dir: str, output: str) -> list[str]:
  """Converts a downloaded data set and returns the names of the written files.

  Args:
    name: Name of the data set.
    input_dir: Folder that contains the downloaded files.
    output: Folder to which the converted files are written.

  Raises:
    ConfigError: If the data set is unknown, or does not require a conversion.
    CorpusError: If the folder does not contain the data set's files, or a file
      is malformed.
  """
  data = find_data_set(name)
  source = paths.to_local_path(input_dir, where='--input')
  if not source.is_dir():
    raise errors.CorpusError(
      'The folder given with --input does not exist', got=str(source)
    )
  check_archives(data, source)
  if data.convert is None:
    raise errors.ConfigError(
      'The data set does not need to be converted',
      got=name,
      fix=f'Use the data set as follows: {data.use}.',
    )
  output_path = paths.to_local_path(output, where='--output')
  file_names = data.convert(source, output_path)
  if not file_names:
    raise errors.CorpusError(
      'The folder does not contain the files of the data set',
      got=str(source),
      fix=f'Follow the download instructions: {data.fetch}.',
    )
  return file_names


def find_data_set(name: str) -> PublicData:
  """Returns the public data set that has the given name.

  Raises:
    ConfigError: If the data set is unknown.
  """
  data_sets = list_data_sets()
  if name not in data_sets:
    raise errors.ConfigError(
      'No public data set has the requested name',
      got=name,
      expected=', '.join(data_sets),
    )
  return data_sets[name]


@functools.cache
def list_data_sets() -> Mapping[str, PublicData]:
  """Returns all data sets by name."""
  file = importlib.resources.files('xlflax.tasks').joinpath(TABLE)
  rows = tomllib.loads(file.read_text(encoding='utf-8'))
  return {name: _parse_row(name, row) for name, row in rows.items()}


def _parse_row(name: str, row: Mapping) -> PublicData:
  """Returns the data set that a table row describes, with its converter."""
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
