"""Token caches: the header, every task of every generation, cached rows."""

import pathlib
from collections.abc import Iterator

from xlflax.data.cache import cache_format, finalization
from xlflax.data.cache import cache_metadata as cache_header
from xlflax.data.supervised import supervised_loader as labelled
from xlflax.integrity import folder_integrity
from xlflax.integrity.artifact_types import artifact_type, inner_directories
from xlflax.integrity.verification_report import (
  Finding,
  Mend,
  finding_of_call,
  nest_findings,
)
from xlflax.storage import checksums, manifests
from xlflax.utils import errors

_FIX = (
  'xlflax verify DIR --repair --vocabulary=DIR --corpus=DIR (or --task_module) '
  'writes it again, and nothing else'
)


def check_cache(directory: pathlib.Path) -> Iterator[Finding]:
  """Everything in a cache."""
  headers: list[cache_header.Header] = []
  yield finding_of_call(
    cache_format.CACHE_FILE,
    lambda: headers.append(cache_header.read_metadata(directory)),
    fix=_FIX,
  )
  known = _known(headers[0]) if headers else {}
  there = {
    f'{p.parent.name}/{p.name}'
    for _, p in inner_directories(directory, 'tasks/*/*')
  }
  for key in sorted(known.keys() | there):
    yield _task(directory / 'tasks' / key, key, known.get(key, {}))
  for name, folder in inner_directories(directory, f'{labelled.FOLDER}/*'):
    yield from nest_findings(name, folder_integrity.ROWS.look(folder))


def damaged_files(directory: pathlib.Path) -> list[pathlib.Path]:
  """The files that are to go, for `xlflax cache` to write them again."""
  found = []
  for _, task in inner_directories(directory, 'tasks/*/*'):
    try:
      files = checksums.read_seal(task).files
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
      continue  # which is mended without the text
    found += [task / name for name in checksums.find_changes(task, files)]
  header = directory / cache_format.CACHE_FILE
  try:
    cache_header.read_metadata(directory)
  except errors.CacheError:
    found.append(header)
  return [path for path in found if path.exists()]


def _known(header: cache_header.Header) -> dict[str, dict[int, str]]:
  """Task -> number of a generation file -> its digest."""
  found: dict[str, dict[int, str]] = {}
  for generation in header.generations:
    for key, one in generation.tasks.items():
      found.setdefault(key, {})[one['generation']] = one['digest']
  return found


def _task(
  directory: pathlib.Path, key: str, generations: dict[int, str]
) -> Finding:
  if not generations and not (directory / checksums.FILE).exists():
    return Finding(key, about='not finished')
  problems = checksums.find_problems(directory)
  for number, digest in generations.items():
    path = cache_format.generation_file(directory, number)
    found = checksums.find_changes(directory, {path.name: digest}).get(
      path.name
    )
    if found and found not in problems:
      problems.append(f'{found}, for this cache')
  own = [text for text in problems if text.startswith(checksums.FILE)]
  mend = _sealing(directory, set(generations)) if own and generations else None
  return Finding(key, tuple(problems), fix=_FIX if problems else '', mend=mend)


def _sealing(directory: pathlib.Path, generations: set[int]) -> Mend:
  """Makes the digests of a task of what its generations say."""

  def mend() -> str:
    finalization.write_digests(directory, generations)
    return f'{checksums.FILE} is made again'

  return mend


ARTEFACT = artifact_type(
  manifests.Kind.CACHE,
  check_cache,
  (rf'{labelled.FOLDER}/[^/]+/', folder_integrity.ROWS),
)
