"""Folders of compiled programs."""

import functools
import pathlib
from collections.abc import Iterator

from xlflax.examination.findings import Finding
from xlflax.examination.kinds import artefact
from xlflax.storage import manifests, program_cache


def _look(directory: pathlib.Path) -> Iterator[Finding]:
  entries = program_cache.entries(directory)
  damaged = [path for path in entries if not program_cache.is_whole(path)]
  for path in damaged:
    yield Finding(
      path.name,
      (f'{path.name} has another content than was written',),
      fix='delete it: it is compiled again',
      mend=functools.partial(_remove, path),
    )
  yield Finding('programs', about=f'{len(entries) - len(damaged)} are whole')


def _remove(path: pathlib.Path) -> str:
  path.unlink(missing_ok=True)
  return f'{path.name} is removed: it is compiled again'


ARTEFACT = artefact(manifests.Kind.PROGRAMS, _look)
