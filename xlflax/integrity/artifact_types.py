"""Descriptions of the directories that xlflax writes and verifies.

The instances are defined next to the code that verifies them, for example
`run_integrity.RUN`. `docs/reliability.md` contains the table of all files. For
each type of directory, a test corrupts every file and verifies that the damage
is reported.
"""

import dataclasses
import enum
import fnmatch
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator

from xlflax.integrity.verification_report import Finding
from xlflax.storage import manifests


class Requirement(enum.Enum):
  """Rule that states whether a file must exist and whether it is verified."""

  REQUIRED = 'required'
  # Damage is reported, but a missing file is not.
  OPTIONAL = 'optional'
  # No command reads the file, so it is not verified.
  NOT_READ = 'not_read'


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtifactFiles:
  """Group of files in a directory, and the consequence if they are damaged.

  Attributes:
    patterns: Patterns of paths relative to the directory. `*` also matches `/`.
    requirement: Requirement for the files: required, optional, or not read by
      any command.
    consequence: Consequence of a missing or damaged file.
    detection: Description of how damage is detected.
    recovery: Command or action that restores the files.
  """

  patterns: tuple[str, ...]
  requirement: Requirement = Requirement.REQUIRED
  consequence: str
  detection: str
  recovery: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArtifactType:
  """Type of directory that xlflax writes, such as a model directory.

  Attributes:
    kind: Name of the directory type, as recorded in the manifest.
    markers: Patterns of files that only directories of this type contain. They
      identify the type if the manifest is missing or damaged.
    files: Groups of files. A file belongs to the first group with a pattern
      that matches its path.
    verify: Function that verifies a directory of this type and returns its
      findings.
    nested: Directories of other types within this directory. Each pair contains
      a regular expression for the start of a path, and the type of the
      directory that is stored there.
  """

  kind: manifests.Kind
  markers: tuple[str, ...]
  files: tuple[ArtifactFiles, ...]
  verify: Callable[[pathlib.Path], Iterable[Finding]]
  nested: tuple[tuple[str, 'ArtifactType'], ...] = ()

  def has_marker(self, directory: pathlib.Path) -> bool:
    """Returns whether a directory contains a file that is unique to this type.

    Such a file matches one of the patterns in `markers`.
    """
    return any(
      next(iter(directory.glob(marker)), None) is not None
      for marker in self.markers
    )

  def files_for(self, name: str) -> ArtifactFiles:
    """Returns the group of files whose patterns match a path.

    Args:
      name: Path of a file, relative to a directory of this type.

    Raises:
      KeyError: If no pattern matches the path.
    """
    nested_type, nested_name = self.nested_type(name)
    if nested_type is not None:
      return nested_type.files_for(nested_name)
    for files in self.files:
      if any(fnmatch.fnmatchcase(name, pattern) for pattern in files.patterns):
        return files
    raise KeyError(
      f'The path {name} does not match any file pattern of the directory type '
      f'{self.kind}'
    )

  def nested_type(self, name: str) -> tuple['ArtifactType | None', str]:
    """Returns the type of the nested directory that contains a path.

    Args:
      name: Path of a file or directory, relative to a directory of this type.

    Returns:
      The type of the nested directory, or None if the path is not inside one,
      and the path relative to the innermost directory.
    """
    for prefix, nested_type in self.nested:
      match = re.match(prefix, name)
      if match:
        return nested_type, name[match.end() :]
    return None, name


def format_file_table(artifact_types: Iterable[ArtifactType]) -> str:
  """Formats the files of all given directory types as a Markdown table."""
  lines = [
    '| artifact | files | requirement | if missing or damaged '
    '| detected by | restored by |',
    '| --- | --- | --- | --- | --- | --- |',
  ]
  for artifact_type in artifact_types:
    for files in artifact_type.files:
      cells = (
        artifact_type.kind.label,
        ', '.join(f'`{pattern}`' for pattern in files.patterns),
        files.requirement.value.replace('_', ' '),
        files.consequence,
        files.detection,
        files.recovery,
      )
      lines.append(f'| {" | ".join(cells)} |')
  return '\n'.join(lines) + '\n'


def find_subdirectories(
  directory: pathlib.Path, *patterns: str
) -> Iterator[tuple[str, pathlib.Path]]:
  """Finds the visible subdirectories whose paths match patterns.

  Args:
    directory: Directory to search.
    *patterns: Glob patterns relative to the directory.

  Yields:
    The relative path and the path of each subdirectory.
  """
  for pattern in patterns:
    for path in sorted(directory.glob(pattern)):
      if path.is_dir() and not path.name.startswith('.'):
        yield path.relative_to(directory).as_posix(), path
