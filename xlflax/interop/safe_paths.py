"""Checks that file names in a folder do not point outside the folder."""

import pathlib
from collections.abc import Iterable

from xlflax.utils import errors, validation


def path_inside(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of a file in a folder, and rejects paths outside it.

  Args:
    folder: Folder of a published model or of a checkpoint.
    name: Relative path of a file or folder, as stored in a file of `folder`.

  Raises:
    CheckpointError: If the name is absolute, contains control characters or
      unpaired surrogates, or points outside the folder, through `..` or through
      a link. Links into the `blobs` folder of the Hugging Face cache are
      followed, because the snapshots in that cache consist of links.
  """
  try:
    validation.check_path(name)
  except ValueError:
    raise _outside_error(ascii(name), folder) from None
  path = folder / name
  parts = pathlib.PurePath(name).parts
  if pathlib.PurePath(name).is_absolute() or '..' in parts:
    raise _outside_error(name, folder)

  allowed = [folder.resolve()]
  allowed += [
    parent.parent.parent.resolve() / 'blobs'
    for parent in (folder.absolute(), *folder.absolute().parents)
    if parent.parent.name == 'snapshots'
  ]
  target = path.resolve()
  if not any(target.is_relative_to(root) for root in allowed):
    raise _outside_error(f'{name} -> {target}', folder)
  return path


def check_no_links(folder: pathlib.Path, names: Iterable[str]) -> None:
  """Checks that no file in a folder is a link to a file outside the folder.

  Args:
    folder: Folder of a published model or of a checkpoint.
    names: Relative paths of the files to check.

  Raises:
    CheckpointError: If a link points outside the folder. See `path_inside`.
  """
  for name in names:
    if (folder / name).is_symlink():
      path_inside(folder, name)


def _outside_error(name: str, folder: pathlib.Path) -> errors.CheckpointError:
  return errors.CheckpointError(
    'A file name or link must not point outside the folder',
    got=name,
    where=str(folder),
    fix='If you trust the source of the file, copy the file into the folder.',
  )
