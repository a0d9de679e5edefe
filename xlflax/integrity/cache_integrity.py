"""Verification of token caches and the labeled examples that they contain."""

import pathlib
from collections.abc import Iterator

from xlflax.data.cache import cache_format, cache_metadata, finalization
from xlflax.data.supervised import supervised_loader
from xlflax.integrity import folder_integrity
from xlflax.integrity.artifact_types import (
  ArtifactFiles,
  ArtifactType,
  Requirement,
  find_subdirectories,
)
from xlflax.integrity.verification_report import (
  Finding,
  RepairFn,
  nest_findings,
  verify_item,
)
from xlflax.storage import checksums, manifests
from xlflax.utils import errors

_FIX = (
  'Run `xlflax verify DIR --repair --vocabulary=DIR --corpus=DIR` (or '
  '--task_module) to rewrite only the damaged files.'
)


def verify_cache(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies a token cache's header, tasks and labeled examples."""
  headers: list[cache_metadata.Header] = []
  yield verify_item(
    cache_format.CACHE_FILE,
    lambda: headers.append(cache_metadata.read_metadata(directory)),
    fix=_FIX,
  )
  recorded_tasks = _generation_digests(headers[0]) if headers else {}
  existing_tasks = {
    f'{path.parent.name}/{path.name}'
    for _, path in find_subdirectories(directory, 'tasks/*/*')
  }
  for key in sorted(recorded_tasks.keys() | existing_tasks):
    yield _verify_task(
      directory / 'tasks' / key, key, recorded_tasks.get(key, {})
    )
  for name, path in find_subdirectories(
    directory, f'{supervised_loader.FOLDER}/*'
  ):
    yield from nest_findings(name, folder_integrity.ROWS.verify(path))


def damaged_files(directory: pathlib.Path) -> list[pathlib.Path]:
  """Returns the damaged files that `xlflax cache` can regenerate.

  The command writes these files again if they are removed.
  """
  damaged = []
  for _, task in find_subdirectories(directory, 'tasks/*/*'):
    try:
      files = checksums.read_seal(task).files
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
      continue  # The digests are repaired without the text.
    damaged += [task / name for name in checksums.find_changes(task, files)]
  header = directory / cache_format.CACHE_FILE
  try:
    cache_metadata.read_metadata(directory)
  except errors.CacheError:
    damaged.append(header)
  return [path for path in damaged if path.exists()]


def _generation_digests(
  header: cache_metadata.Header,
) -> dict[str, dict[int, str]]:
  """Returns the digests of each task's generation files, by generation."""
  digests_by_task: dict[str, dict[int, str]] = {}
  for generation in header.generations:
    for key, task_entry in generation.tasks.items():
      digests = digests_by_task.setdefault(key, {})
      digests[task_entry['generation']] = task_entry['digest']
  return digests_by_task


def _verify_task(
  directory: pathlib.Path, key: str, generations: dict[int, str]
) -> Finding:
  """Verifies the cached files for one task and split.

  Args:
    directory: Cache directory of one task and split.
    key: Task and split, separated by `/`.
    generations: Mapping from each generation of the cache to the digest of the
      task's metadata file, as recorded in the header. A generation is the state
      of the cache after text was added.
  """
  if not generations and not (directory / checksums.FILE).exists():
    return Finding(key, details='not finished')

  problems = checksums.find_problems(directory)
  for number, digest in generations.items():
    path = cache_format.generation_file(directory, number)
    changes = checksums.find_changes(directory, {path.name: digest})
    problem = changes.get(path.name)
    if problem and problem not in problems:
      problems.append(f'{problem}, according to {cache_format.CACHE_FILE}')

  is_seal_damaged = any(
    problem.startswith(checksums.FILE) for problem in problems
  )
  repair = None
  if is_seal_damaged and generations:
    repair = _make_digest_repair(directory, set(generations))
  return Finding(
    key, tuple(problems), fix=_FIX if problems else '', repair=repair
  )


def _make_digest_repair(
  directory: pathlib.Path, generations: set[int]
) -> RepairFn:
  """Returns a function that rewrites the digests from the generation files."""

  def repair() -> str:
    finalization.write_digests(directory, generations)
    return f'Rewrote {checksums.FILE}.'

  return repair


CACHE = ArtifactType(
  kind=manifests.Kind.CACHE,
  markers=('cache.json', 'tasks/*/*/digests.json'),
  files=(
    ArtifactFiles(
      patterns=('cache.json',),
      consequence='training rejects the cache',
      detection='own digest',
      recovery='`--repair` with the text and the vocabulary',
    ),
    ArtifactFiles(
      patterns=('tasks/*/digests.json', 'tasks/*/generation-*.json'),
      consequence='training rejects the cache',
      detection='own digest; for `generation-*.json` also the digest in '
      '`cache.json`',
      recovery='`--repair` with the text and the vocabulary',
    ),
    ArtifactFiles(
      patterns=('tasks/*/shards/*.safetensors',),
      consequence='training rejects the cache',
      detection="digest in the task's `digests.json`",
      recovery='`--repair` with the text and the vocabulary, which rewrites '
      'only these shards',
    ),
    ArtifactFiles(
      patterns=(f'{supervised_loader.FOLDER}/*',),
      consequence='missing files are regenerated from the examples, damaged '
      'files are rejected',
      detection='digest in their manifest',
      recovery='`--repair` removes them, and the next run regenerates them',
    ),
    ArtifactFiles(
      patterns=('.*', 'tasks/*/shards/*.json'),
      requirement=Requirement.NOT_READ,
      consequence='none',
      detection='-',
      recovery='-',
    ),
  ),
  verify=verify_cache,
  nested=((rf'{supervised_loader.FOLDER}/[^/]+/', folder_integrity.ROWS),),
)
