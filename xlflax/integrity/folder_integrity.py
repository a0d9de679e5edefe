"""Folders that a manifest describes wholly, some with others within them."""

import functools
import json
import pathlib
from collections.abc import Iterator

from xlflax.evaluation.reports import report_files
from xlflax.integrity import run_integrity
from xlflax.integrity.artifact_types import artifact_type, inner_directories
from xlflax.integrity.verification_report import (
  Finding,
  Mend,
  nest_findings,
  of_manifest,
)
from xlflax.storage import checksums, manifests

_RECORDS = {  # of kinds that are gone on with -> what is not lost with a manifest
  manifests.Kind.GRID: ('trials/*.json',),
  manifests.Kind.SUITE: ('results/*/*.json',),
}


def _plain(fix: str):
  """Looks at a folder whose files are all in its manifest."""

  def look(directory: pathlib.Path) -> Iterator[Finding]:
    return of_manifest(directory, fix=lambda name: fix)

  return look


def _passing(directory: pathlib.Path) -> Iterator[Finding]:
  """A folder of what is made again when it is needed."""
  return of_manifest(
    directory,
    fix=lambda name: 'delete it: it is made again when it is needed',
    mend=lambda name: functools.partial(_remove, directory, name),
  )


def _remove(directory: pathlib.Path, name: str) -> str:
  if name != manifests.FILE:
    manifests.forget_files(directory, [name])
  (directory / name).unlink(missing_ok=True)
  return f'{name} is removed: it is made again when it is needed'


def _grid(directory: pathlib.Path) -> Iterator[Finding]:
  yield from _records(directory, manifests.Kind.GRID, 'xlflax finetune')
  for name, run in inner_directories(directory, 'trials/*'):
    record = directory / f'{name}.json'
    if (run / 'finished.json').exists() and not record.exists():
      yield Finding(
        f'{name}.json',
        (f'{name}.json is missing',),
        fix='run the same `xlflax finetune` again: it writes the record',
      )
    if any(not path.name.startswith('.') for path in run.iterdir()):
      yield from nest_findings(name, run_integrity.check_run(run))
  for name, other in inner_directories(directory, '*'):
    if (other / 'trials').is_dir():
      yield from nest_findings(name, _grid(other))


def _suite(directory: pathlib.Path) -> Iterator[Finding]:
  yield from _records(directory, manifests.Kind.SUITE, 'xlflax evaluate')
  for name, pages in inner_directories(directory, 'report'):
    yield from nest_findings(name, _report(pages))
  for name, grid in inner_directories(directory, '*/*'):
    if (grid / 'trials').is_dir():
      yield from nest_findings(name, _grid(grid))


def _records(
  directory: pathlib.Path, kind: manifests.Kind, command: str
) -> Iterator[Finding]:
  """The files of a manifest that is gone on with by a command."""
  return of_manifest(
    directory,
    fix=lambda name: (
      f'delete it and run the same `{command}` again: what is finished is '
      'taken as it is'
    ),
    mend=lambda name: (
      _noted(directory, kind) if name == manifests.FILE else None
    ),
  )


def _noted(directory: pathlib.Path, kind: manifests.Kind) -> Mend:
  """Makes a manifest of the records that are whole by their own digests."""

  def mend() -> str:
    file_names = [
      path.relative_to(directory).as_posix()
      for pattern in _RECORDS[kind]
      for path in directory.glob(pattern)
      if _is_whole(path)
    ]
    (directory / manifests.FILE).unlink(missing_ok=True)
    manifests.record_files(directory, kind, file_names)
    return f'{manifests.FILE} has the {len(file_names)} records that are whole'

  return mend


def _is_whole(path: pathlib.Path) -> bool:
  try:
    checksums.verify_digest(json.loads(path.read_text(encoding='utf-8')))
  except (OSError, ValueError, RecursionError):
    return False
  return True


def _report(directory: pathlib.Path) -> Iterator[Finding]:
  """The pages of a leaderboard, which its scores make again."""
  findings = list(
    of_manifest(
      directory,
      fix=lambda name: 'write the report again',
      mend=lambda name: _rewriting(directory),
    )
  )
  lost = any(finding.what == report_files.JSON for finding in findings)
  for finding in findings:
    if lost and finding.mend:
      finding = Finding(finding.what, finding.problems, fix=finding.fix)
    yield finding


def _rewriting(directory: pathlib.Path) -> Mend:
  return lambda: (
    f'{len(report_files.write_again(directory))} files are made from {report_files.JSON}'
  )


EXPORT = artifact_type(
  manifests.Kind.EXPORT, _plain('convert or copy the model again')
)
ANALYSIS = artifact_type(
  manifests.Kind.ANALYSIS, _plain('run the same `xlflax analyze` again')
)
REPORT = artifact_type(manifests.Kind.REPORT, _report)
STATES = artifact_type(manifests.Kind.STATES, _passing)
ROWS = artifact_type(manifests.Kind.ROWS, _passing)
GRID = artifact_type(
  manifests.Kind.GRID, _grid, (r'trials/[^/]+/', run_integrity.ARTEFACT)
)
SUITE = artifact_type(
  manifests.Kind.SUITE,
  _suite,
  ('report/', REPORT),
  ('[^/]+@[^/]+/[^/]+/', GRID),
)
