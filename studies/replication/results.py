"""JSON files that store the results of training runs.

A `ResultStore` keeps one file for each run. `write_results` writes the results
of all runs to one file.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from studies.replication.conditions import Condition, Size
from xlflax.storage import checksums, paths
from xlflax.training.checkpointing import config_serialization
from xlflax.utils import errors

_DECIMALS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """Measured result of one training run.

  Attributes:
    condition: Name of the run's condition (training configuration).
    seed: Seed of the run.
    settings: Digest of all settings and data on which the run depends.
    measures: Map from the name of a measure to its value.
    cpu_seconds: CPU seconds for training and measuring, including compilation.
  """

  condition: str
  seed: int
  settings: str
  measures: dict[str, float]
  cpu_seconds: float


def digest_settings(
  chain: Sequence[Condition], data_spec: Any, size: Size
) -> str:
  """Computes a digest of all settings and data on which a run depends.

  Args:
    chain: Conditions of the run and of the runs that initialize it.
    data_spec: Specification of the data, a `SyntheticSpec` or a `RealSpec`.
    size: Sizes of the models and batches.
  """
  settings = [_describe(value) for value in (*chain, data_spec, size)]
  text = json.dumps(settings, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def _describe(value: Any) -> dict[str, Any]:
  """Returns a dataclass's non-default fields that affect equality."""
  return {
    field.name: config_serialization.to_json_config(getattr(value, field.name))
    for field in dataclasses.fields(value)
    if field.compare and getattr(value, field.name) != field.default
  }


class ResultStore:
  """Folder that stores the result of each run in a separate file."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder

  def _path(self, condition: str, seed: int) -> pathlib.Path:
    return self._folder / condition / f'{seed}.json'

  def read(self, condition: str, seed: int, settings: str) -> Result | None:
    """Reads the result of a run from the folder.

    Args:
      condition: Name of the condition.
      seed: Seed of the run.
      settings: Digest that the stored result must have (see `digest_settings`).

    Returns:
      The result, or None if there is no result with these settings.

    Raises:
      AnalysisError: If the file is damaged.
    """
    path = self._path(condition, seed)
    if not path.exists():
      return None
    result = _read_json(path, lambda fields: Result(**fields), has_digest=True)
    return result if result.settings == settings else None

  def add_missing(self, results: Iterable[Result]) -> None:
    """Writes the results that are not yet stored in the folder."""
    for result in results:
      if not self._path(result.condition, result.seed).exists():
        self.write(result)

  def write(self, result: Result) -> None:
    """Writes the result of a run to `<condition>/<seed>.json`."""
    path = self._path(result.condition, result.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = checksums.add_digest(round_floats(dataclasses.asdict(result)))
    paths.write_atomically(path, json.dumps(fields) + '\n')


def write_results(results: Iterable[Result], path: pathlib.Path) -> None:
  """Writes results to one file, in sorted order, with one result per line."""
  ordered = sorted(results, key=lambda result: (result.condition, result.seed))
  lines = [
    json.dumps(round_floats(dataclasses.asdict(result)), sort_keys=True)
    for result in ordered
  ]
  paths.write_atomically(path, '[\n' + ',\n'.join(lines) + '\n]\n')


def read_results(path: pathlib.Path) -> list[Result]:
  """Reads the results in a file written by `write_results`.

  The result is [] if the file does not exist.

  Raises:
    AnalysisError: If the file is damaged.
  """
  if not path.exists():
    return []
  return _read_json(path, lambda rows: [Result(**fields) for fields in rows])


def round_floats(value: Any) -> Any:
  """Rounds floats to five decimals, including floats in nested dictionaries."""
  if isinstance(value, float):
    return round(value, _DECIMALS)
  if isinstance(value, dict):
    return {key: round_floats(item) for key, item in value.items()}
  return value


def _read_json(
  path: pathlib.Path, convert: Callable[[Any], Any], *, has_digest: bool = False
) -> Any:
  return checksums.read_json(
    path,
    error=errors.AnalysisError,
    message='The file of results is damaged',
    has_digest=has_digest,
    fix='delete the file, and run `python -m studies.replication` again',
    convert=convert,
  )
