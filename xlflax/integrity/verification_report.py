"""What was looked at in a directory, and what is wrong with it."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from xlflax.storage import manifests, paths
from xlflax.utils import errors

Mend = Callable[[], str]  # mends it, and says what it did; raises XlflaxError


@dataclasses.dataclass(frozen=True)
class Finding:
  """One thing that was looked at.

  Attributes:
    what: its name.
    problems: what is wrong, a sentence each; none where it is whole.
    about: what it holds, where that is worth a word.
    fix: what to do.
    mend: makes it again; None where that cannot be done.
  """

  what: str
  problems: tuple[str, ...] = ()
  about: str = ''
  fix: str = ''
  mend: Mend | None = dataclasses.field(default=None, compare=False, repr=False)

  @property
  def is_whole(self) -> bool:
    """Whether nothing is wrong."""
    return not self.problems

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values."""
    return {
      'what': self.what,
      'problems': list(self.problems),
      'about': self.about,
      'fix': self.fix,
      'can_be_mended': self.mend is not None,
    }


@dataclasses.dataclass(frozen=True)
class Examination:
  """What was found in a directory.

  Attributes:
    directory: which.
    kind: of artefact.
    findings: of everything that was looked at.
  """

  directory: pathlib.Path
  kind: manifests.Kind
  findings: tuple[Finding, ...]

  @property
  def is_whole(self) -> bool:
    """Whether everything in it is."""
    return all(finding.is_whole for finding in self.findings)

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values."""
    return {
      'directory': str(self.directory),
      'kind': str(self.kind),
      'findings': [finding.to_json() for finding in self.findings],
    }


def finding_of_call(
  what: str, look: Callable[[], object], *, fix: str, mend: Mend | None = None
) -> Finding:
  """A finding of what a function returns, or raises."""
  try:
    about = look()
  except errors.XlflaxError as error:
    value = '' if error.got is None else f': {error.got}'
    problem = f'{error.what}{value}'
    return Finding(what, (problem,), fix=error.fix or fix, mend=mend)
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    problem = f'{type(error).__name__}: {error}'[:300]
    return Finding(what, (problem,), fix=fix, mend=mend)
  return Finding(what, about=about if isinstance(about, str) else '')


def of_manifest(
  directory: pathlib.Path,
  *,
  fix: Callable[[str], str],
  mend: Callable[[str], Mend | None] = lambda name: None,
) -> Iterator[Finding]:
  """A finding for each file that differs from the manifest, one of the rest.

  Args:
    directory: of the artefact.
    fix: file -> what to do about it.
    mend: file -> what makes it again.
  """
  problems = manifests.find_problems(directory)
  for name, problem in sorted(problems.items()):
    yield Finding(name, (problem,), fix=fix(name), mend=mend(name))
  if manifests.FILE in problems:
    return
  manifest = manifests.read_manifest(directory)
  count = len(manifest.files if manifest else ())
  if 1 < count <= 2 * len(problems):
    name = manifests.FILE
    problem = f"{name} is another's, or these files are"
    yield Finding(
      name,
      (problem,),
      fix=f'if the files are right, delete {name}, and then '
      f'xlflax verify {directory} --repair',
    )
  yield Finding('files', about=f'{count - len(problems)} are whole')


def nest_findings(
  name: str, findings: Iterable[Finding], *, briefly: bool = True
) -> Iterator[Finding]:
  """Findings of an artefact that lies in another one.

  Args:
    name: of its directory.
    findings: of it.
    briefly: whether what is whole is told in one line.
  """
  finding_list = list(findings)
  for finding in finding_list:
    if not (briefly and finding.is_whole):
      yield dataclasses.replace(finding, what=f'{name}/{finding.what}')
  if briefly and all(finding.is_whole for finding in finding_list):
    yield Finding(name)


def to_text(found: Examination) -> str:
  """Lines for a terminal."""
  lines = [f'{paths.to_path(found.directory)}: {found.kind}']
  for finding in found.findings:
    mark = 'whole  ' if finding.is_whole else 'DAMAGED'
    about = f' ({finding.about})' if finding.about else ''
    lines.append(f'  {mark}  {finding.what}{about}')
    lines += [f'           {problem}' for problem in finding.problems]
    if not finding.is_whole and (finding.mend or finding.fix):
      fix = f'xlflax verify {found.directory} --repair'
      lines.append(
        f'           What to do: {fix if finding.mend else finding.fix}'
      )
  return '\n'.join(lines)
