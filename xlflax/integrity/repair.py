"""What of a run can be written again, and from what."""

import json
import pathlib

from xlflax.integrity.verification_report import Mend
from xlflax.storage import checksums, manifests, paths
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  run_directory,
  saved_run,
)
from xlflax.utils import errors

_DAMAGED = (OSError, ValueError, KeyError, TypeError, RecursionError)


def known_files(directory: pathlib.Path) -> set[str]:
  """The files that a run's manifest has; none where it cannot be read."""
  try:
    manifest = manifests.read_manifest(directory)
  except errors.RunDirectoryError:
    return set()
  return set(manifest.files) if manifest else set()


def kept_files(directory: pathlib.Path) -> dict[str, str]:
  """Name -> text of the files that the last whole checkpoint keeps."""
  checkpoint = _last(directory)
  if checkpoint is None:
    return {}
  files = checkpoint_items.kept_files(checkpoint)
  return {name: text for name, text in files.items() if _is_below(name)}


def metrics_digest(directory: pathlib.Path) -> str:
  """Of the metrics' lines when the last checkpoint was written; '' without."""
  checkpoint = _last(directory)
  if checkpoint is None:
    return ''
  return checkpoint_items.read_meta(checkpoint).get('metrics_file', '')


def of_file(directory: pathlib.Path, name: str) -> Mend | None:
  """What writes a file of a run again; None where nothing can."""
  if name == manifests.FILE:
    return _manifest(directory)
  for text in _texts(directory, name):
    if _fits(directory, name, text):
      return lambda: _write(directory, name, text)
  if name.startswith(f'{run_directory.VOCABULARY}/'):
    return _vocabulary(directory, name)
  return None


def of_score(checkpoint: pathlib.Path) -> Mend:
  """What writes the score of a checkpoint again."""

  def mend() -> str:
    text = checkpoint_items.score_text(checkpoint) or ''
    paths.write_atomically(checkpoint / checkpoint_items.SCORE, text)
    return f'{checkpoint_items.SCORE} is what `meta` says'

  return mend


def _last(directory: pathlib.Path) -> pathlib.Path | None:
  """The newest checkpoint whose `meta` is whole."""
  for step in reversed(checkpoint_reader.finished_steps(directory)):
    checkpoint = checkpoint_reader.path_of(directory, step)
    if not checksums.find_problems(checkpoint / checkpoint_items.META):
      return checkpoint
  return None


def _is_below(name: str) -> bool:
  """Whether a name is a path below its directory."""
  path = pathlib.PurePosixPath(name)
  return not path.is_absolute() and '..' not in path.parts


def _texts(directory: pathlib.Path, name: str) -> list[str]:
  """What a file may have said."""
  candidates = [kept_files(directory).get(name)]
  if name == saved_run.FINISHED:
    candidates += [
      run_directory.as_json({'step': step})
      for step in checkpoint_reader.finished_steps(directory)[-1:]
    ]
  return [text for text in candidates if text is not None]


def _fits(directory: pathlib.Path, name: str, text: str) -> bool:
  """Whether a text is what the manifest says, if that says anything."""
  try:
    manifest = manifests.read_manifest(directory)
  except errors.RunDirectoryError:
    return False  # the manifest is mended first
  digest = manifest.files.get(name) if manifest else None
  return digest is None or checksums.digest_content(text, like=digest) == digest


def _write(directory: pathlib.Path, name: str, text: str) -> str:
  manifests.write_files(directory, manifests.Kind.RUN, {name: text})
  return f'{name} is written again'


def _vocabulary(directory: pathlib.Path, name: str) -> Mend | None:
  """Copies a file from the vocabulary that the run was started with."""
  try:
    trainer = run_directory.read_json(directory / run_directory.TRAINER)
    source = paths.to_path(trainer['fields']['vocabulary'])
    content = (source / pathlib.PurePosixPath(name).name).read_bytes()
  except (errors.XlflaxError, *_DAMAGED):
    return None
  manifest = manifests.read_manifest(directory)
  if not manifest or checksums.digest_content(content) != manifest.files.get(
    name
  ):
    return None

  def mend() -> str:
    paths.write_atomically(directory / name, content)
    return f'{name} is copied from {source}'

  return mend


def _manifest(directory: pathlib.Path) -> Mend | None:
  """Makes a manifest of what checkpoints and files say of themselves."""
  if _last(directory) is None:
    return None
  files = {
    n: checksums.digest_content(t) for n, t in _own_texts(directory).items()
  }

  def mend() -> str:
    (directory / manifests.FILE).unlink(missing_ok=True)
    checksums.write_seal(directory, files, {'kind': str(manifests.Kind.RUN)})
    run_directory.note_vocabulary(directory)
    if saved_run.FINISHED in files and not _metrics_problem(directory):
      manifests.record_files(
        directory, manifests.Kind.RUN, [run_directory.METRICS]
      )
    return f'{manifests.FILE} is made from the last checkpoint'

  return mend


def _own_texts(directory: pathlib.Path) -> dict[str, str]:
  """Name -> text: as a file has it, if that is whole, or the checkpoint."""
  texts = kept_files(directory)
  for name in {*texts, saved_run.FINISHED}:
    try:
      text = (directory / name).read_text(encoding='utf-8')
      checksums.verify_digest(json.loads(text))
    except _DAMAGED:
      continue
    texts[name] = text
  return texts


def _metrics_problem(directory: pathlib.Path) -> bool:
  """Whether the lines are not those that the last checkpoint knows of."""
  digest = metrics_digest(directory)
  try:
    content = (directory / run_directory.METRICS).read_bytes()
  except OSError:
    return True
  size = checksums.parse_size(digest) if digest else 0
  return bool(digest) and checksums.digest_content(content[:size]) != digest
