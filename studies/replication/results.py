"""The results of runs: one small JSON file for each, and all in one file."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

from studies.replication.conditions import Condition, Size
from xlflax.storage import checksums, paths
from xlflax.training.checkpointing import config_serialization
from xlflax.utils import errors

_DIGITS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """What a run was found to be.

  Attributes:
    condition: its name.
    seed: of the run.
    settings: digest of all that the run depends on.
    measures: name -> value.
    cpu_seconds: of training and measuring, compilation included.
  """

  condition: str
  seed: int
  settings: str
  measures: dict[str, float]
  cpu_seconds: float


def settings_of(chain: tuple[Condition, ...], amounts: Any, size: Size) -> str:
  """The digest of a condition, of those it begins from, and of sizes."""
  plain = [_told(one) for one in (*chain, amounts, size)]
  text = json.dumps(plain, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def _told(value: Any) -> dict[str, Any]:
  """The compared fields of a dataclass that are not their defaults."""
  return {
    field.name: config_serialization.to_json_config(getattr(value, field.name))
    for field in dataclasses.fields(value)
    if field.compare and getattr(value, field.name) != field.default
  }


class Store:
  """The results in a folder."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder

  def _path(self, condition: str, seed: int) -> pathlib.Path:
    return self._folder / condition / f'{seed}.json'

  def read(self, condition: str, seed: int, settings: str) -> Result | None:
    """A finished result of these settings, if there is one."""
    path = self._path(condition, seed)
    if not path.exists():
      return None
    found = _read(path, lambda fields: Result(**fields), own=True)
    return found if found.settings == settings else None

  def take(self, found: list[Result]) -> None:
    """Keeps results from elsewhere of what has none here."""
    for one in found:
      if not self._path(one.condition, one.seed).exists():
        self.write(one)

  def write(self, result: Result) -> None:
    """Keeps a result."""
    path = self._path(result.condition, result.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    paths.write_atomically(
      path,
      json.dumps(checksums.add_digest(rounded(dataclasses.asdict(result))))
      + '\n',
    )


def write_results(results: list[Result], path: pathlib.Path) -> None:
  """Writes all results to one file, a line each, in a fixed order."""
  ordered = sorted(results, key=lambda one: (one.condition, one.seed))
  lines = [
    json.dumps(rounded(dataclasses.asdict(one)), sort_keys=True)
    for one in ordered
  ]
  paths.write_atomically(path, '[\n' + ',\n'.join(lines) + '\n]\n')


def read_results(path: pathlib.Path) -> list[Result]:
  """The results that `collect` wrote; [] where there is no file.

  Raises:
    AnalysisError: the file is damaged.
  """
  if not path.exists():
    return []
  return _read(path, lambda found: [Result(**one) for one in found])


def rounded(value: Any) -> Any:
  """Numbers to five digits after the point."""
  if isinstance(value, float):
    return round(value, _DIGITS)
  if isinstance(value, dict):
    return {key: rounded(item) for key, item in value.items()}
  return value


def _read(
  path: pathlib.Path, into: Callable[[Any], Any], *, own: bool = False
) -> Any:
  return checksums.read_json(
    path,
    error=errors.AnalysisError,
    message='A result of an experiment is damaged',
    has_digest=own,
    fix='delete the file; run `python -m studies.replication` again',
    convert=into,
  )
