"""Verification and repair of any directory written by xlflax.

`xlflax verify` prints the report. All files are read and compared with the
digests that were recorded when they were written. Missing files are detected by
the manifest of the directory.
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
from xlflax.integrity.artifact_types import ArtifactType
from xlflax.integrity.verification_report import VerificationReport
from xlflax.storage import directory_lease, manifests, paths
from xlflax.utils import errors, name_suggestions, validation

# The order in which the markers of a directory are searched.
ARTIFACT_TYPES = (
  pretraining_integrity.PRETRAINING,
  cache_integrity.CACHE,
  run_integrity.RUN,
  corpus_integrity.VOCABULARY,
  corpus_integrity.CORPUS,
  folder_integrity.GRID,
  folder_integrity.SUITE,
  result_integrity.EVALUATION,
  folder_integrity.REPORT,
  folder_integrity.ANALYSIS,
  folder_integrity.STATES,
  folder_integrity.ROWS,
  folder_integrity.EXPORT,
)
# A repair may reveal further damage, so that several passes are necessary.
_MAX_PASSES = 3


@validation.validate_call
def verify_directory(directory: validation.FilePath) -> VerificationReport:
  """Verifies all files in a directory written by xlflax.

  Raises:
    RunDirectoryError: If the directory does not exist or was not written by
      xlflax.
  """
  path = paths.to_path(directory)
  if not paths.is_bucket(path) and not path.exists():
    raise errors.RunDirectoryError(
      'The directory does not exist',
      got=str(directory),
      fix=name_suggestions.suggest_directory(path) or 'Correct the path.',
    )
  artifact_type = _detect_type(path)
  findings = tuple(artifact_type.verify(path))
  return VerificationReport(path, artifact_type.kind, findings)


@validation.validate_call
def repair_directory(
  directory: validation.FilePath, *, log_progress: Callable[[str], None]
) -> VerificationReport:
  """Repairs the damaged files in a directory as far as possible.

  Args:
    directory: Directory that xlflax wrote. No other process may write to it.
    log_progress: Function called with a description of each repair.

  Returns:
    The report after the repairs, which contains the remaining problems.

  Raises:
    RunDirectoryError: If the directory was not written by xlflax, or another
      process writes to it.
  """
  failed_items: set[str] = set()
  for _ in range(_MAX_PASSES):
    report = verify_directory(directory)
    repairable = [
      finding
      for finding in report.findings
      if finding.repair
      and not finding.is_valid
      and finding.item not in failed_items
    ]
    if not repairable:
      return report

    with _exclusive_access(report):
      for finding in repairable:
        assert finding.repair is not None
        try:
          log_progress(f'{finding.item}: {finding.repair()}')
        except (errors.XlflaxError, OSError, ValueError) as error:
          failed_items.add(finding.item)
          log_progress(f'Failed to repair {finding.item}: {error}')
  return verify_directory(directory)


def _exclusive_access(
  report: VerificationReport,
) -> contextlib.AbstractContextManager:
  """Returns a context manager that prevents trainers from writing to a run."""
  if report.kind in (manifests.Kind.RUN, manifests.Kind.GRID):
    return directory_lease.Lease(report.directory)
  return contextlib.nullcontext()


def _detect_type(directory: pathlib.Path) -> ArtifactType:
  """Detects the type of a directory by its manifest, or else by its files."""
  with contextlib.suppress(errors.RunDirectoryError):
    manifest = manifests.read_manifest(directory)
    for artifact_type in ARTIFACT_TYPES:
      if manifest and manifest.kind == artifact_type.kind:
        return artifact_type

  for artifact_type in ARTIFACT_TYPES:
    if artifact_type.has_marker(directory):
      return artifact_type

  kinds = ', '.join(
    artifact_type.kind.label for artifact_type in ARTIFACT_TYPES
  )
  raise errors.RunDirectoryError(
    'The directory is not the output directory of an xlflax command. It must '
    f'contain one of the following: {kinds}',
    got=str(directory),
    fix='Pass the output directory of a command, not its parent directory.',
  )
