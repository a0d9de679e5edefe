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
  known_tasks = _known(headers[0]) if headers else {}
  existing_tasks = {
    f'{p.parent.name}/{p.name}'
    for _, p in inner_directories(directory, 'tasks/*/*')
  }
  for key in sorted(known_tasks.keys() | existing_tasks):
    yield _task(directory / 'tasks' / key, key, known_tasks.get(key, {}))
  for name, folder in inner_directories(directory, f'{labelled.FOLDER}/*'):
    yield from nest_findings(name, folder_integrity.ROWS.look(folder))


def damaged_files(directory: pathlib.Path) -> list[pathlib.Path]:
  """The files that are to go, for `xlflax cache` to write them again."""
  damaged = []
  for _, task in inner_directories(directory, 'tasks/*/*'):
    try:
      files = checksums.read_seal(task).files
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
      continue  # which is mended without the text
    damaged += [task / name for name in checksums.find_changes(task, files)]
  header = directory / cache_format.CACHE_FILE
  try:
    cache_header.read_metadata(directory)
  except errors.CacheError:
    damaged.append(header)
  return [path for path in damaged if path.exists()]


def _known(header: cache_header.Header) -> dict[str, dict[int, str]]:
  """Task -> number of a generation file -> its digest."""
  digests_by_task: dict[str, dict[int, str]] = {}
  for generation in header.generations:
    for key, task_entry in generation.tasks.items():
      digests_by_task.setdefault(key, {})[task_entry['generation']] = (
        task_entry['digest']
      )
  return digests_by_task


def _task(
  directory: pathlib.Path, key: str, generations: dict[int, str]
) -> Finding:
  if not generations and not (directory / checksums.FILE).exists():
    return Finding(key, about='not finished')
  problems = checksums.find_problems(directory)
  for number, digest in generations.items():
    path = cache_format.generation_file(directory, number)
    digest_problem = checksums.find_changes(directory, {path.name: digest}).get(
      path.name
    )
    if digest_problem and digest_problem not in problems:
      problems.append(f'{digest_problem}, for this cache')
  seal_problems = [text for text in problems if text.startswith(checksums.FILE)]
  mend = (
    _sealing(directory, set(generations))
    if seal_problems and generations
    else None
  )
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
