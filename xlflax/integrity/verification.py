"""Says of a directory that xlflax wrote what is in it and whether it is whole.

`xlflax verify` prints it. Everything is read: files are compared with the
digests that were written of them, and what is missing is found by manifests.
"""

import contextlib
import pathlib
from collections.abc import Callable

from xlflax.integrity import (
  cache_integrity,
  corpus_integrity,
  folder_integrity,
  pretraining_integrity,
  result_integrity,
  run_integrity,
)
from xlflax.integrity.artifact_types import Artefact
from xlflax.integrity.verification_report import Examination
from xlflax.storage import directory_lease, manifests, paths
from xlflax.utils import errors, validation

# In the order in which their marks are looked for.
ARTEFACTS = (
  pretraining_integrity.ARTEFACT,
  cache_integrity.ARTEFACT,
  run_integrity.ARTEFACT,
  corpus_integrity.VOCABULARY,
  corpus_integrity.CORPUS,
  folder_integrity.GRID,
  folder_integrity.SUITE,
  result_integrity.ARTEFACT,
  folder_integrity.REPORT,
  folder_integrity.ANALYSIS,
  folder_integrity.STATES,
  folder_integrity.ROWS,
  folder_integrity.EXPORT,
)
_PASSES = 3  # what was mended may show more that is damaged


@validation.validate_call
def verify_directory(directory: validation.FilePath) -> Examination:
  """Looks at everything in a directory that xlflax wrote.

  Raises:
    RunDirectoryError: there is nothing that xlflax wrote.
  """
  path = paths.to_path(directory)
  artefact = _artefact(path)
  return Examination(path, artefact.kind, tuple(artefact.look(path)))


@validation.validate_call
def repair_directory(
  directory: validation.FilePath, *, report: Callable[[str], None]
) -> Examination:
  """Makes again what can be made again; says what is left.

  Args:
    directory: that xlflax wrote; nothing else may be writing there.
    report: is told what was done, a sentence each.

  Raises:
    RunDirectoryError: there is nothing that xlflax wrote, or another process
      writes there.
  """
  tried: set[str] = set()
  for _ in range(_PASSES):
    examination = verify_directory(directory)
    mendable = [
      finding
      for finding in examination.findings
      if finding.mend and not finding.is_whole and finding.what not in tried
    ]
    if not mendable:
      return examination
    with _alone(examination):
      for finding in mendable:
        assert finding.mend is not None
        try:
          report(f'{finding.what}: {finding.mend()}')
        except (errors.XlflaxError, OSError, ValueError) as error:
          tried.add(finding.what)
          report(f'{finding.what} could not be mended: {error}')
  return verify_directory(directory)


def _alone(found: Examination) -> contextlib.AbstractContextManager:
  """Keeps trainers out of a run or a grid while it is mended."""
  if found.kind in (manifests.Kind.RUN, manifests.Kind.GRID):
    return directory_lease.Lease(found.directory)
  return contextlib.nullcontext()


def _artefact(directory: pathlib.Path) -> Artefact:
  """What a directory is: what its manifest says, or what it looks like."""
  with contextlib.suppress(errors.RunDirectoryError):
    manifest = manifests.read_manifest(directory)
    for artifact in ARTEFACTS:
      if manifest and manifest.kind == artifact.kind:
        return artifact
  for artifact in ARTEFACTS:
    if artifact.is_marked(directory):
      return artifact
  marks = dict.fromkeys(
    mark for artifact in ARTEFACTS for mark in artifact.marks
  )
  raise errors.RunDirectoryError(
    'There is nothing that xlflax wrote',
    got=str(directory),
    expected=', '.join(str(artifact.kind) for artifact in ARTEFACTS)
    + ': a directory with '
    + ' or '.join(marks),
  )
