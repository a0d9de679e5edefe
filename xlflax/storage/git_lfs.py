"""Detection of Git LFS pointers, which stand for files that are not downloaded.

A repository that is cloned without Git LFS contains small text files instead of
its large files.
"""

import pathlib

from xlflax.utils import errors

PREFIX = b'version https://git-lfs.github.com/spec/'
FIX = 'Run `git lfs install` and `git lfs pull` in the repository.'
_MAX_BYTES = 1024


def is_pointer(path: pathlib.Path) -> bool:
  """Returns whether a file is a Git LFS pointer."""
  if not path.is_file() or path.stat().st_size > _MAX_BYTES:
    return False
  with path.open('rb') as stream:
    return stream.read(len(PREFIX)) == PREFIX


def check_no_pointers(folder: pathlib.Path) -> None:
  """Checks that a folder contains files instead of Git LFS pointers.

  Raises:
    CheckpointError: If a file in the folder is a Git LFS pointer.
  """
  pointers = sorted(path.name for path in folder.iterdir() if is_pointer(path))
  if pointers:
    raise errors.CheckpointError(
      'The folder contains Git LFS pointers whose content was not downloaded',
      got=', '.join(pointers),
      where=str(folder),
      fix=FIX,
    )
