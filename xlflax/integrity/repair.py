"""Repair of a run's files from its checkpoints."""

import json
import pathlib

from xlflax.integrity.verification_report import RepairFn
from xlflax.storage import checksums, manifests, paths
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  run_directory,
  saved_run,
)
from xlflax.utils import errors

_DAMAGE_ERRORS = (OSError, ValueError, KeyError, TypeError, RecursionError)


def read_manifest_files(directory: pathlib.Path) -> set[str]:
  """Returns the files in the manifest, or an empty set if it is unreadable."""
  try:
    manifest = manifests.read_manifest(directory)
  except errors.RunDirectoryError:
    return set()
  return set(manifest.files) if manifest else set()


def read_checkpoint_files(directory: pathlib.Path) -> dict[str, str]:
  """Reads copies of small run files that the last valid checkpoint contains.

  Args:
    directory: Model directory of the run.

  Returns:
    Mapping from relative paths to texts. Paths outside the directory are
    omitted.
  """
  checkpoint = _last_valid_checkpoint(directory)
  if checkpoint is None:
    return {}
  files = checkpoint_items.read_run_files(checkpoint)
  return {name: text for name, text in files.items() if _is_inside(name)}


def read_metrics_digest(directory: pathlib.Path) -> str:
  """Reads the digest of the metrics file from a run's last valid checkpoint.

  The result is '' if there is no such checkpoint or if it has no digest.
  """
  checkpoint = _last_valid_checkpoint(directory)
  if checkpoint is None:
    return ''
  return checkpoint_items.read_meta(checkpoint).get('metrics_file', '')


def make_file_repair(directory: pathlib.Path, name: str) -> RepairFn | None:
  """Returns a function that repairs a file, or None if it cannot be repaired.

  Args:
    directory: Model directory of the run.
    name: Path of the file relative to the directory.
  """
  if name == manifests.FILE:
    return _make_manifest_repair(directory)
  for text in _candidate_texts(directory, name):
    if _matches_manifest(directory, name, text):
      return lambda: _write_file(directory, name, text)
  if name.startswith(f'{run_directory.VOCABULARY}/'):
    return _make_vocabulary_repair(directory, name)
  return None


def make_score_repair(checkpoint: pathlib.Path) -> RepairFn:
  """Returns a function that rewrites a checkpoint's score file."""

  def repair() -> str:
    text = checkpoint_items.expected_score(checkpoint) or ''
    paths.write_atomically(checkpoint / checkpoint_items.SCORE, text)
    return f'Rewrote {checkpoint_items.SCORE} from `meta`.'

  return repair


def _last_valid_checkpoint(directory: pathlib.Path) -> pathlib.Path | None:
  """Returns the newest checkpoint whose item `meta` is valid, or None."""
  for step in reversed(checkpoint_reader.finished_steps(directory)):
    checkpoint = checkpoint_reader.checkpoint_path(directory, step)
    if not checksums.find_problems(checkpoint / checkpoint_items.META):
      return checkpoint
  return None


def _is_inside(name: str) -> bool:
  """Returns whether a relative path stays inside its directory."""
  path = pathlib.PurePosixPath(name)
  return not path.is_absolute() and '..' not in path.parts


def _candidate_texts(directory: pathlib.Path, name: str) -> list[str]:
  """Returns the texts that a file may have contained."""
  candidates = [read_checkpoint_files(directory).get(name)]
  if name == saved_run.FINISHED:
    candidates += [
      run_directory.to_json_text({'step': step})
      for step in checkpoint_reader.finished_steps(directory)[-1:]
    ]
  return [text for text in candidates if text is not None]


def _matches_manifest(directory: pathlib.Path, name: str, text: str) -> bool:
  """Returns whether a text is consistent with the digest in the manifest."""
  try:
    manifest = manifests.read_manifest(directory)
  except errors.RunDirectoryError:
    return False  # The manifest is repaired first.
  digest = manifest.files.get(name) if manifest else None
  return digest is None or checksums.digest_content(text, like=digest) == digest


def _write_file(directory: pathlib.Path, name: str, text: str) -> str:
  manifests.write_files(directory, manifests.Kind.RUN, {name: text})
  return 'Rewrote the file.'


def _make_vocabulary_repair(
  directory: pathlib.Path, name: str
) -> RepairFn | None:
  """Returns a function that copies the file from the original vocabulary.

  Returns None if the original file is missing or differs from the digest in the
  manifest.

  Args:
    directory: Model directory of the run.
    name: Path of the file relative to the directory.
  """
  try:
    trainer = run_directory.read_json(directory / run_directory.TRAINER)
    source = paths.to_path(trainer['fields']['vocabulary'])
    content = (source / pathlib.PurePosixPath(name).name).read_bytes()
  except (errors.XlflaxError, *_DAMAGE_ERRORS):
    return None
  manifest = manifests.read_manifest(directory)
  digest = manifest.files.get(name) if manifest else None
  if checksums.digest_content(content) != digest:
    return None

  def repair() -> str:
    paths.write_atomically(directory / name, content)
    return f'Copied from {source}.'

  return repair


def _make_manifest_repair(directory: pathlib.Path) -> RepairFn | None:
  """Returns a function that rebuilds the manifest.

  The result is None if the run has no valid checkpoint.
  """
  if _last_valid_checkpoint(directory) is None:
    return None
  files = {
    name: checksums.digest_content(text)
    for name, text in _valid_texts(directory).items()
  }

  def repair() -> str:
    (directory / manifests.FILE).unlink(missing_ok=True)
    checksums.write_seal(directory, files, {'kind': str(manifests.Kind.RUN)})
    run_directory.record_vocabulary(directory)
    if saved_run.FINISHED in files and _are_metrics_valid(directory):
      manifests.record_files(
        directory, manifests.Kind.RUN, [run_directory.METRICS]
      )
    return 'Rebuilt from the last checkpoint.'

  return repair


def _valid_texts(directory: pathlib.Path) -> dict[str, str]:
  """Returns the texts of the files that the manifest must list.

  The text of a file with a valid digest of its own is read from the file, and
  that of other files from the last checkpoint.
  """
  texts = read_checkpoint_files(directory)
  for name in {*texts, saved_run.FINISHED}:
    try:
      text = (directory / name).read_text(encoding='utf-8')
      checksums.verify_digest(json.loads(text))
    except _DAMAGE_ERRORS:
      continue
    texts[name] = text
  return texts


def _are_metrics_valid(directory: pathlib.Path) -> bool:
  """Returns whether the metrics match the digest in the last checkpoint."""
  digest = read_metrics_digest(directory)
  try:
    content = (directory / run_directory.METRICS).read_bytes()
  except OSError:
    return False
  if not digest:
    return True
  size = checksums.parse_size(digest)
  return checksums.digest_content(content[:size]) == digest
