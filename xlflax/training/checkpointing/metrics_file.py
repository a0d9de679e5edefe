"""The lines of metrics that a run has written, and those of its checkpoints."""

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

_ALL = 2**31  # after every step


def truncate_metrics(
  model_dir: pathlib.Path, step: int, *, written: str = ''
) -> None:
  """Drops lines past `step` from the metrics, as training goes on from it.

  What restarts have cost stays.

  Args:
    model_dir: the run's directory.
    step: of the checkpoint, or -1.
    written: digest of the file when the checkpoint was made; '' for none.
  """
  path, content = model_dir / METRICS, _content(model_dir)
  size = int(written.partition('-')[0] or 0)
  if written and checksums.digest_content(content[:size]) == written:
    restored_lines = [
      x for x in content[size:].splitlines(True) if _is_kept(x, -1)
    ]
    paths.write_atomically(path, content[:size] + b''.join(restored_lines))
    return
  if written:
    logging.warning(
      '%s is not as it was written (%d of %d bytes are there, or some have '
      'changed): the lines that can be read are kept.',
      path,
      len(content),
      size,
    )
  if content:
    lines = [line for line in content.splitlines(True) if _is_kept(line, step)]
    paths.write_atomically(path, b''.join(lines))


def read_own(model_dir: pathlib.Path) -> bytes:
  """The lines that a run has written, up to now.

  Raises:
    RunDirectoryError: they are not those that its newest checkpoint knows, or
      that is another run's.
  """
  content = _content(model_dir)
  steps = checkpoint_reader.finished_steps(model_dir)
  digest = _known_to(model_dir, steps[-1]) if steps else ''
  size = int(digest.partition('-')[0] or 0)
  if digest and checksums.digest_content(content[:size]) != digest:
    raise errors.RunDirectoryError(
      f'{METRICS} is not the one that this run wrote',
      got=checksums.digest_content(content[:size]),
      expected=f'{digest}, as checkpoint {steps[-1]} knows it',
      where=str(model_dir / METRICS),
      fix='restore it from a copy of this run; the run can be continued '
      'without it',
    )
  return content


def _known_to(model_dir: pathlib.Path, step: int) -> str:
  """The digest that a checkpoint has of the metrics; '' for none."""
  checkpoint = checkpoint_reader.path_of(model_dir, step)
  try:
    about = checksums.read_seal(checkpoint / 'meta').about
    digest = checkpoint_items.read_meta(checkpoint).get('metrics_file', '')
  except (OSError, ValueError):
    return ''  # what reads the checkpoint says so
  ours, theirs = run_directory.run_id(model_dir), about.get('run', '')
  if ours and theirs and ours != theirs:
    raise errors.RunDirectoryError(
      f'Checkpoint {step} is of another run, and so may be {METRICS}',
      got=theirs,
      expected=f'{ours}, as model.json has it',
      where=str(checkpoint),
      fix='restore both from a copy of this run',
    )
  return digest


def _is_kept(line: bytes, step: int) -> bool:
  """Whether a line is whole, and of a step up to `step` or a restart."""
  try:
    record = json.loads(line)
    is_due = record['step'] <= step or 'restart' in record
    return line.endswith(b'\n') and is_due
  except (ValueError, KeyError, TypeError, RecursionError):
    return False


def read_metrics(model_dir: pathlib.Path) -> list[dict[str, Any]]:
  """What a run has written at its reports and evaluations, in order."""
  lines = _content(model_dir).splitlines(True)
  return [json.loads(line) for line in lines if _is_kept(line, _ALL)]


def seconds_written(model_dir: pathlib.Path) -> float:
  """How many seconds of the run its metrics speak of; 0 without any."""
  lines = _content(model_dir).splitlines()
  return max(map(_run_seconds, lines), default=0.0)


def _content(model_dir: pathlib.Path) -> bytes:
  path = model_dir / METRICS
  return path.read_bytes() if path.exists() else b''


def _run_seconds(line: bytes) -> float:
  """The 'run_seconds' of a line; 0 for a line without, or cut by a kill."""
  try:
    return float(json.loads(line)['speed']['run_seconds'])
  except (ValueError, KeyError, TypeError, RecursionError):
    return 0.0
