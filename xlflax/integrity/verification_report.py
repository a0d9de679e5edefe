"""Verification reports: the results of checking the files of a directory."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from xlflax.storage import manifests, paths
from xlflax.utils import errors

# Repairs an item and returns a description of the change. Raises XlflaxError
# or OSError if the repair fails.
RepairFn = Callable[[], str]


@dataclasses.dataclass(frozen=True)
class Finding:
  """Verification result for one item, usually a file, in a directory.

  Attributes:
    item: Name of the item, usually a path relative to the directory.
    problems: Descriptions of the problems. Empty if the item is valid.
    details: Summary of the item's content, such as the number of files.
    fix: Advice on how to resolve the problems.
    repair: Function that repairs the item. If None, the item cannot be
      repaired.
  """

  item: str
  problems: tuple[str, ...] = ()
  details: str = ''
  fix: str = ''
  repair: RepairFn | None = dataclasses.field(
    default=None, compare=False, repr=False
  )

  @property
  def is_valid(self) -> bool:
    """True if no problems were found in the item."""
    return not self.problems

  def to_json(self) -> dict[str, Any]:
    """Converts a verification finding to plain JSON values."""
    return {
      'item': self.item,
      'problems': list(self.problems),
      'details': self.details,
      'fix': self.fix,
      'can_be_repaired': self.repair is not None,
    }


@dataclasses.dataclass(frozen=True)
class VerificationReport:
  """Verification results for all items in a directory.

  Attributes:
    directory: Directory that was verified.
    kind: Type of the directory, as recorded in its manifest.
    findings: Findings for all items that were verified.
  """

  directory: pathlib.Path
  kind: manifests.Kind
  findings: tuple[Finding, ...]

  @property
  def is_valid(self) -> bool:
    """True if all items are valid."""
    return all(finding.is_valid for finding in self.findings)

  def to_json(self) -> dict[str, Any]:
    """Converts the report to plain JSON values."""
    return {
      'directory': str(self.directory),
      'kind': str(self.kind),
      'findings': [finding.to_json() for finding in self.findings],
    }


def verify_item(
  item: str,
  check: Callable[[], object],
  *,
  fix: str,
  repair: RepairFn | None = None,
) -> Finding:
  """Verifies an item, such as a file, by calling the function `check`.

  Args:
    item: Name under which the result for the item is reported, such as its
      path.
    check: Function that raises an exception if the item is damaged. If it
      returns a string, the string becomes the finding's details.
    fix: Advice on how to resolve damage to the item. It is used if the raised
      error contains no advice.
    repair: Function that repairs the item. If None, the item cannot be
      repaired.
  """
  try:
    details = check()
  except errors.XlflaxError as error:
    value = '' if error.got is None else f': {error.got}'
    problem = f'{error.what}{value}'
    return Finding(item, (problem,), fix=error.fix or fix, repair=repair)
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    problem = f'{type(error).__name__}: {error}'[:300]
    return Finding(item, (problem,), fix=fix, repair=repair)
  return Finding(item, details=details if isinstance(details, str) else '')


def verify_manifest(
  directory: pathlib.Path,
  *,
  fix: Callable[[str], str],
  repair: Callable[[str], RepairFn | None] = lambda name: None,
) -> Iterator[Finding]:
  """Verifies a directory's files against its manifest.

  Args:
    directory: Directory that contains the manifest.
    fix: Function that returns advice on how to resolve damage to a file. Its
      argument is the path of the file relative to the directory.
    repair: Function that receives the path of a damaged file. It returns a
      function that repairs the file, or None if the file cannot be repaired.

  Yields:
    One finding for each damaged file, and one that summarizes all valid files.
  """
  problems = manifests.find_problems(directory)
  for name, problem in sorted(problems.items()):
    yield Finding(name, (problem,), fix=fix(name), repair=repair(name))
  if manifests.FILE in problems:
    return
  manifest = manifests.read_manifest(directory)
  num_files = len(manifest.files if manifest else ())
  if 1 < num_files <= 2 * len(problems):
    # If half of the files differ, the manifest itself may be the wrong file.
    yield Finding(
      manifests.FILE,
      (f'{manifests.FILE} or these files belong to a different directory',),
      fix=f'If the files are correct, delete {manifests.FILE} and run '
      f'`xlflax verify {directory} --repair`.',
    )
  yield Finding('files', details=f'{num_files - len(problems)} valid')


def nest_findings(
  name: str, findings: Iterable[Finding], *, summarize: bool = True
) -> Iterator[Finding]:
  """Prepends the path of a nested directory to the items of its findings.

  Args:
    name: Path of the nested directory, relative to the outer one.
    findings: Findings of the nested directory.
    summarize: Whether to omit valid items, and to yield a single finding if all
      items are valid.
  """
  nested_findings = list(findings)
  for finding in nested_findings:
    if not (summarize and finding.is_valid):
      yield dataclasses.replace(finding, item=f'{name}/{finding.item}')
  if summarize and all(finding.is_valid for finding in nested_findings):
    yield Finding(name)


def format_report(report: VerificationReport) -> str:
  """Formats a verification report for display on a terminal."""
  lines = [f'{paths.to_path(report.directory)}: {report.kind.label}']
  for finding in report.findings:
    status = 'valid  ' if finding.is_valid else 'DAMAGED'
    details = f' ({finding.details})' if finding.details else ''
    lines.append(f'  {status}  {finding.item}{details}')
    lines += [f'           {problem}' for problem in finding.problems]
    if finding.is_valid:
      continue
    fix = finding.fix
    if finding.repair:
      fix = f'Run `xlflax verify {report.directory} --repair`.'
    if fix:
      lines.append(f'           What to do: {fix}')
  return '\n'.join(lines)
