"""Which files belong to a folder: none that its files name outside of it."""

import pathlib
from collections.abc import Iterable

from xlflax.utils import errors


def path_inside(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of a file or folder that a file of the folder names.

  Args:
    folder: of a published model, or a checkpoint.
    name: a relative path below it.

  Raises:
    CheckpointError: the name is absolute or leads out of the folder, by `..`
      or by a link. Links into the `blobs` of Hugging Face's own cache, whose
      snapshots consist of such links, are followed.
  """
  path = folder / name
  parts = pathlib.PurePath(name).parts
  if pathlib.PurePath(name).is_absolute() or '..' in parts or '\0' in name:
    raise _outside(name, folder)
  allowed = [folder.resolve()]
  allowed += [
    place.parent.parent.resolve() / 'blobs'
    for place in (folder.absolute(), *folder.absolute().parents)
    if place.parent.name == 'snapshots'
  ]
  real = path.resolve()
  if not any(real.is_relative_to(place) for place in allowed):
    raise _outside(f'{name} -> {real}', folder)
  return path


def check_no_links(folder: pathlib.Path, names: Iterable[str]) -> None:
  """Refuses those of a folder's files that are links out of it.

  Raises:
    CheckpointError: as `path_inside`.
  """
  for name in names:
    if (folder / name).is_symlink():
      path_inside(folder, name)


def _outside(got: str, folder: pathlib.Path) -> errors.CheckpointError:
  return errors.CheckpointError(
    'A file is named that is not in the folder',
    got=got,
    expected='files of the folder itself',
    where=str(folder),
    fix='copy the file into the folder, if you trust it',
  )
