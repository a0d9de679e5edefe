"""Verification of directories whose manifest lists all files.

Some of these directories, such as grids and suites, contain other directories
written by xlflax.
"""

import functools
import json
import pathlib
from collections.abc import Iterator

from xlflax.evaluation.reports import report_files
from xlflax.integrity import run_integrity
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
  verify_manifest,
)
from xlflax.storage import checksums, manifests

# Patterns of the records from which a lost manifest is rebuilt, by kind.
_RECORD_PATTERNS = {
  manifests.Kind.GRID: ('trials/*.json',),
  manifests.Kind.SUITE: ('results/*/*.json',),
}


def _verify_export(directory: pathlib.Path) -> Iterator[Finding]:
  return verify_manifest(
    directory, fix=lambda name: 'Convert or copy the model again.'
  )


def _verify_analysis(directory: pathlib.Path) -> Iterator[Finding]:
  return verify_manifest(
    directory, fix=lambda name: 'Run the same `xlflax analyze` command again.'
  )


def _verify_derived_files(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies a directory whose files are regenerated when they are needed."""
  return verify_manifest(
    directory,
    fix=lambda name: 'Delete the file. It is regenerated when it is needed.',
    repair=lambda name: functools.partial(_remove_file, directory, name),
  )


def _remove_file(directory: pathlib.Path, name: str) -> str:
  if name != manifests.FILE:
    manifests.forget_files(directory, [name])
  (directory / name).unlink(missing_ok=True)
  return 'Removed. The file is regenerated when it is needed.'


def _verify_grid(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies a hyperparameter search's records and runs."""
  yield from _verify_records(directory, manifests.Kind.GRID, 'xlflax finetune')
  for name, run in find_subdirectories(directory, 'trials/*'):
    record = f'{name}.json'
    if (run / 'finished.json').exists() and not (directory / record).exists():
      yield Finding(
        record,
        (f'{record} is missing',),
        fix='Run the same `xlflax finetune` command again to write the record.',
      )
    if any(not path.name.startswith('.') for path in run.iterdir()):
      yield from nest_findings(name, run_integrity.verify_run(run))
  for name, grid in find_subdirectories(directory, '*'):
    if (grid / 'trials').is_dir():
      yield from nest_findings(name, _verify_grid(grid))


def _verify_suite(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies an evaluation suite's results, report and grids."""
  yield from _verify_records(directory, manifests.Kind.SUITE, 'xlflax evaluate')
  for name, report in find_subdirectories(directory, 'report'):
    yield from nest_findings(name, _verify_report(report))
  for name, grid in find_subdirectories(directory, '*/*'):
    if (grid / 'trials').is_dir():
      yield from nest_findings(name, _verify_grid(grid))


def _verify_records(
  directory: pathlib.Path, kind: manifests.Kind, command: str
) -> Iterator[Finding]:
  """Verifies the manifest of a directory from which a command can resume."""
  return verify_manifest(
    directory,
    fix=lambda name: (
      f'Delete the file and run the same `{command}` command again. Finished '
      'results are reused.'
    ),
    repair=lambda name: (
      _make_manifest_repair(directory, kind) if name == manifests.FILE else None
    ),
  )


def _make_manifest_repair(
  directory: pathlib.Path, kind: manifests.Kind
) -> RepairFn:
  """Returns a function that rebuilds a manifest from the valid records."""

  def repair() -> str:
    names = [
      path.relative_to(directory).as_posix()
      for pattern in _RECORD_PATTERNS[kind]
      for path in directory.glob(pattern)
      if _has_valid_digest(path)
    ]
    (directory / manifests.FILE).unlink(missing_ok=True)
    manifests.record_files(directory, kind, names)
    return f'Rebuilt from {len(names)} valid records.'

  return repair


def _has_valid_digest(path: pathlib.Path) -> bool:
  try:
    checksums.verify_digest(json.loads(path.read_text(encoding='utf-8')))
  except (OSError, ValueError, RecursionError):
    return False
  return True


def _verify_report(directory: pathlib.Path) -> Iterator[Finding]:
  """Verifies a report, whose files can be regenerated from its scores."""
  findings = list(
    verify_manifest(
      directory,
      fix=lambda name: 'Write the report again.',
      repair=lambda name: functools.partial(_rewrite_report, directory),
    )
  )
  are_scores_damaged = any(
    finding.item == report_files.JSON for finding in findings
  )
  for finding in findings:
    if are_scores_damaged and finding.repair:
      finding = Finding(finding.item, finding.problems, fix=finding.fix)
    yield finding


def _rewrite_report(directory: pathlib.Path) -> str:
  num_files = len(report_files.regenerate_report(directory))
  return f'Wrote {num_files} files from {report_files.JSON}.'


EXPORT = ArtifactType(
  kind=manifests.Kind.EXPORT,
  markers=('*.safetensors', 'config.json'),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='the directory is treated as one that xlflax did not write',
      detection='own digest',
      recovery='`xlflax convert to-hf`',
    ),
    ArtifactFiles(
      patterns=('README.md',),
      requirement=Requirement.NOT_READ,
      consequence='the Hub shows no model card',
      detection='-, because users edit the file',
      recovery='`xlflax convert to-hf`',
    ),
    ArtifactFiles(
      patterns=('*',),
      consequence='`xlflax convert from-hf` rejects the model',
      detection='digest in the manifest',
      recovery='`xlflax convert to-hf`',
    ),
  ),
  verify=_verify_export,
)

ANALYSIS = ArtifactType(
  kind=manifests.Kind.ANALYSIS,
  markers=('analysis.json',),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='none',
      detection='own digest',
      recovery='`xlflax analyze`',
    ),
    ArtifactFiles(
      patterns=('analysis.json',),
      consequence='plots of several analyses reject the analysis',
      detection='digest in the manifest; own digest',
      recovery='`xlflax analyze`',
    ),
    ArtifactFiles(
      patterns=('*',),
      consequence='its information is lost',
      detection='digest in the manifest',
      recovery='`xlflax analyze`',
    ),
  ),
  verify=_verify_analysis,
)

REPORT = ArtifactType(
  kind=manifests.Kind.REPORT,
  markers=('scores.json',),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='none',
      detection='own digest',
      recovery='`--repair`, from `scores.json`',
    ),
    ArtifactFiles(
      patterns=('scores.json',),
      consequence='a leaderboard that includes the report rejects it',
      detection='digest in the manifest; own digest',
      recovery='writing the report again',
    ),
    ArtifactFiles(
      patterns=('*',),
      consequence='its information is lost',
      detection='digest in the manifest',
      recovery='`--repair`, from `scores.json`',
    ),
  ),
  verify=_verify_report,
)

STATES = ArtifactType(
  kind=manifests.Kind.STATES,
  markers=('about.json', '[0-9]*.npz'),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='the sentences are encoded again',
      detection='own digest',
      recovery='`--repair` removes it',
    ),
    ArtifactFiles(
      patterns=('*',),
      consequence='missing hidden states are computed again, damaged ones are '
      'rejected',
      detection='digest in the manifest',
      recovery='`--repair` removes them, and the next analysis computes them',
    ),
  ),
  verify=_verify_derived_files,
)

ROWS = ArtifactType(
  kind=manifests.Kind.ROWS,
  markers=('*.npz',),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='the files are regenerated',
      detection='own digest',
      recovery='`--repair` removes it',
    ),
    ArtifactFiles(
      patterns=('*',),
      consequence='missing files are regenerated from the examples, damaged '
      'files are rejected',
      detection='digest in the manifest',
      recovery='`--repair` removes them, and the next run regenerates them',
    ),
  ),
  verify=_verify_derived_files,
)

GRID = ArtifactType(
  kind=manifests.Kind.GRID,
  markers=('trials', 'grid.json', '*/trials'),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='`xlflax finetune` writes it',
      detection='own digest',
      recovery='`--repair`, from the records',
    ),
    ArtifactFiles(
      patterns=('trials/*/*',),
      consequence='see run: each trial is a run',
      detection='see run',
      recovery='see run',
    ),
    ArtifactFiles(
      patterns=('trials/*.json',),
      consequence='the trial is resumed and its record is written; a damaged '
      'record is rejected',
      detection='digest in the manifest; own digest',
      recovery='`xlflax finetune`, without training again',
    ),
    ArtifactFiles(
      patterns=('grid.json', 'grid.csv'),
      consequence='its information is lost',
      detection='digest in the manifest',
      recovery='`xlflax finetune`, without training again',
    ),
    ArtifactFiles(
      patterns=('*',),
      requirement=Requirement.NOT_READ,
      consequence='its information is lost',
      detection='-',
      recovery='`xlflax finetune`',
    ),
  ),
  verify=_verify_grid,
  nested=((r'trials/[^/]+/', run_integrity.RUN),),
)

SUITE = ArtifactType(
  kind=manifests.Kind.SUITE,
  markers=('suite.json', 'results/*/*.json'),
  files=(
    ArtifactFiles(
      patterns=('digests.json',),
      consequence='`xlflax evaluate` writes it',
      detection='own digest',
      recovery='`--repair`, from the records',
    ),
    ArtifactFiles(
      patterns=('results/*',),
      consequence='tables lack the task; a damaged result is rejected',
      detection='digest in the manifest; own digest',
      recovery='`xlflax evaluate` with the same suite, without training again',
    ),
    ArtifactFiles(
      patterns=('suite.json', 'suite.csv'),
      consequence='its information is lost',
      detection='digest in the manifest',
      recovery='`xlflax evaluate` with the same suite',
    ),
    ArtifactFiles(
      patterns=('report/*',),
      consequence='see report',
      detection='see report',
      recovery='see report',
    ),
    ArtifactFiles(
      patterns=('*/*/trials/*', '*/*/grid.*'),
      consequence='see grid',
      detection='see grid',
      recovery='see grid',
    ),
    ArtifactFiles(
      patterns=('*',),
      requirement=Requirement.NOT_READ,
      consequence='its information is lost',
      detection='-',
      recovery='`xlflax evaluate`',
    ),
  ),
  verify=_verify_suite,
  nested=(('report/', REPORT), ('[^/]+@[^/]+/[^/]+/', GRID)),
)
