"""Results on disk: `eval/<task>/<step>.json`, found again by their settings."""

import hashlib
import json
import pathlib
from typing import Any

from xlflax.evaluation import base
from xlflax.training import checkpoints, description, run_directory

UNTRAINED = 'untrained'
_FORMAT = 1

Step = int | str


def path(directory: pathlib.Path, task: str, step: Step) -> pathlib.Path:
  """The file of one result; `directory` is that of the run."""
  return directory / run_directory.EVALUATION / task / f'{step}.json'


def identity(
  task: base.EvalTask, *, model: Any, vocabulary_hash: str, seed: int
) -> dict[str, Any]:
  """All that a result depends on but the checkpoint, as JSON values.

  Args:
    task: its settings and the text that it reads.
    model: the Linen module.
    vocabulary_hash: of the run's vocabulary.
    seed: of the evaluation.
  """
  return {
    'format': _FORMAT,
    'task': base.settings(task),
    'model': description.describe(model),
    'vocabulary': vocabulary_hash,
    'seed': seed,
  }


def checkpoint_identity(directory: pathlib.Path, step: Step) -> str:
  """Tells apart checkpoints of one step that different runs wrote.

  It is the hash of Orbax's record of when the checkpoint was written, which
  survives copying; '' for the untrained model.
  """
  record = (
    directory / checkpoints.DIRECTORY / str(step) / '_CHECKPOINT_METADATA'
  )
  if not record.is_file():
    return ''
  return hashlib.sha256(record.read_bytes()).hexdigest()[:16]


def write(
  file: pathlib.Path,
  result: base.EvalResult,
  *,
  step: Step,
  identity: dict[str, Any],
) -> None:
  """Writes a result so that it is there whole or not at all."""
  for name, text in result.files.items():
    run_directory.write_atomically(file.with_suffix('') / name, text)
  record = {
    'step': step,
    'settings_hash': base.settings_hash(identity),
    'settings': identity,
  } | result.to_json()
  run_directory.write_atomically(
    file, json.dumps(record, indent=2, ensure_ascii=False) + '\n'
  )


def read(file: pathlib.Path) -> base.EvalResult | None:
  """A result, whatever its settings; None if there is none to be read."""
  record = _load(file)
  return None if record is None else base.EvalResult.from_json(record)


def read_finished(
  file: pathlib.Path, identity: dict[str, Any]
) -> base.EvalResult | None:
  """The result of exactly these settings, if it is there without failures."""
  record = _load(file)
  if record is None or record.get('settings_hash') != base.settings_hash(
    identity
  ):
    return None
  result = base.EvalResult.from_json(record)
  return None if result.failures else result


def find(directory: pathlib.Path, task: str) -> dict[Step, base.EvalResult]:
  """All results of a task, the untrained model's first, then by step."""
  found: dict[Step, base.EvalResult] = {}
  for file in path(directory, task, 0).parent.glob('*.json'):
    step: Step = int(file.stem) if file.stem.isdigit() else file.stem
    result = read(file)
    if result is not None:
      found[step] = result
  return {step: found[step] for step in sorted(found, key=order)}


def order(step: Step) -> int:
  """Sorts steps: the untrained model comes before step 0."""
  return step if isinstance(step, int) else -1


def _load(file: pathlib.Path) -> dict[str, Any] | None:
  """The file's JSON if it has a result's keys, else None."""
  try:
    record = json.loads(file.read_text(encoding='utf-8'))
  except (FileNotFoundError, ValueError):
    return None
  keys = {'metrics', 'tables', 'notes', 'failures'}
  return record if isinstance(record, dict) and keys <= set(record) else None
