"""The metrics file of a run, and its verification against checkpoints."""

import json
import logging
import pathlib
from typing import Any

from xlflax.storage import checksums, paths
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  run_directory,
)
from xlflax.training.checkpointing.run_directory import METRICS
from xlflax.utils import errors

_MAX_STEP = 2**31  # Larger than every step.


def truncate_metrics(
  model_dir: pathlib.Path, step: int, *, written: str = ''
) -> None:
  """Removes metrics written after the checkpoint that training resumes from.

  Lines with the key 'restart', which record the costs of failures, are kept.

  Args:
    model_dir: Model directory of the run.
    step: Step of the checkpoint, or -1 without a checkpoint.
    written: Digest of the metrics file at the time when the checkpoint was
      written, or '' if the file did not exist.
  """
  path, content = model_dir / METRICS, _content(model_dir)
  size = int(written.partition('-')[0] or 0)
  if written and checksums.digest_content(content[:size]) == written:
    restart_lines = [
      line for line in content[size:].splitlines(True) if _is_kept(line, -1)
    ]
    paths.write_atomically(path, content[:size] + b''.join(restart_lines))
    return
  if written:
    logging.warning(
      '%s has changed since it was written (it has %d bytes instead of at '
      'least %d). '
      'Keeping the readable lines.',
      path,
      len(content),
      size,
    )
  if content:
    lines = [line for line in content.splitlines(True) if _is_kept(line, step)]
    paths.write_atomically(path, b''.join(lines))


def read_verified(model_dir: pathlib.Path) -> bytes:
  """Reads a run's metrics and verifies them against its newest checkpoint.

  Args:
    model_dir: Model directory of the run.

  Returns:
    The content of the file, including lines after the checkpoint.

  Raises:
    RunDirectoryError: If the metrics do not match the newest checkpoint, or the
      checkpoint belongs to another run.
  """
  content = _content(model_dir)
  steps = checkpoint_reader.finished_steps(model_dir)
  digest = _read_digest(model_dir, steps[-1]) if steps else ''
  size = int(digest.partition('-')[0] or 0)
  if digest and checksums.digest_content(content[:size]) != digest:
    raise errors.RunDirectoryError(
      f'{METRICS} has changed since this run wrote it. The digest of the file '
      f'must equal the digest that is recorded in checkpoint {steps[-1]}',
      got=checksums.digest_content(content[:size]),
      expected=digest,
      where=str(model_dir / METRICS),
      fix='Restore the file from a backup of this run. The run can also be '
      'resumed without this file.',
    )
  return content


def _read_digest(model_dir: pathlib.Path, step: int) -> str:
  """Returns the metrics digest that is stored in a checkpoint, or ''."""
  checkpoint = checkpoint_reader.checkpoint_path(model_dir, step)
  try:
    about = checksums.read_seal(checkpoint / 'meta').about
    digest = checkpoint_items.read_meta(checkpoint).get('metrics_file', '')
  except (OSError, ValueError):
    return ''  # Readers of the checkpoint report this error.
  model_run = run_directory.run_id(model_dir)
  checkpoint_run = about.get('run', '')
  if model_run and checkpoint_run and model_run != checkpoint_run:
    raise errors.RunDirectoryError(
      f'Checkpoint {step} belongs to another run, and {METRICS} may also '
      'belong to that run. The id of the run in this directory is recorded in '
      f'{run_directory.MODEL}',
      got=checkpoint_run,
      expected=model_run,
      where=str(checkpoint),
      fix=f'Restore the checkpoint and {METRICS} from a backup of this run.',
    )
  return digest


def _is_kept(line: bytes, step: int) -> bool:
  """Returns whether to keep a line of the metrics file.

  Complete lines are kept if they belong to `step` or an earlier step, or if
  they have the key 'restart'.
  """
  try:
    record = json.loads(line)
    is_due = record['step'] <= step or 'restart' in record
    return line.endswith(b'\n') and is_due
  except (ValueError, KeyError, TypeError, RecursionError):
    return False


def read_metrics(model_dir: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the lines of a run's metrics file in order, parsed as JSON."""
  lines = _content(model_dir).splitlines(True)
  return [json.loads(line) for line in lines if _is_kept(line, _MAX_STEP)]


def recorded_seconds(model_dir: pathlib.Path) -> float:
  """Returns the run's duration in seconds according to its metrics, or 0."""
  lines = _content(model_dir).splitlines()
  return max(map(_run_seconds, lines), default=0.0)


def _content(model_dir: pathlib.Path) -> bytes:
  path = model_dir / METRICS
  return path.read_bytes() if path.exists() else b''


def _run_seconds(line: bytes) -> float:
  """Returns the value of 'run_seconds' in a line.

  Returns 0 if the line does not contain the value, or was truncated by a kill.
  """
  try:
    return float(json.loads(line)['speed']['run_seconds'])
  except (ValueError, KeyError, TypeError, RecursionError):
    return 0.0
