"""A model directory: which run it belongs to, and what is written where."""

import dataclasses
import enum
import json
import pathlib
import shutil
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from flax import linen as nn

from xlflax.storage import bucket_access, checksums, manifests, paths
from xlflax.training.checkpointing import config_serialization
from xlflax.utils import errors

CONFIG = 'config.gin'
TRAINER = 'trainer.json'
AVERAGED = 'averaged_trainer.json'  # of the first run of a mean of checkpoints
MODEL = 'model.json'
OBJECTIVES = 'objectives.json'
VOCABULARY = 'vocabulary'
ORIGIN = 'huggingface.json'  # the published model that it comes from
SENTENCE = 'sentence.json'  # what its sentence vectors are
METRICS = 'metrics.jsonl'
EVALUATION = 'eval'
TENSORBOARD = 'tensorboard'
REPORT = 'report'
_RUN = 'run'
_OF_VOCABULARY = 'vocabulary'


class VocabularyIdentity(NamedTuple):
  """What tells a vocabulary from others, wherever it lies.

  Attributes:
    size: number of its entries.
    hash: of its content (`Vocabulary.hash`).
  """

  size: int
  hash: str

  def __str__(self) -> str:
    return f'{self.size:,} entries, {self.hash[:12]}'


class OtherConfig(enum.Enum):
  """What to do when the directory holds another configuration's run."""

  REFUSE = 'refuse'
  ACCEPT = 'accept'  # continue with the new configuration, and record it


def check_run_directory(
  model_dir: pathlib.Path,
  description: dict[str, Any],
  *,
  other_config: OtherConfig = OtherConfig.REFUSE,
) -> None:
  """Refuses a directory that is not this run's; writes nothing.

  Args:
    model_dir: the run's directory; it need not exist.
    description: of the run (`config_serialization.to_json_config`).
    other_config: what to do where another run lives.

  Raises:
    RunDirectoryError: the directory holds another run (the difference is
      shown), or files that are no run's.
  """
  check_place(model_dir)
  if (model_dir / TRAINER).exists():
    refuse = other_config is OtherConfig.REFUSE
    saved_description = read_part(model_dir, TRAINER, of_any_run=not refuse)
    _compare(model_dir, saved_description, description, other_config)
  elif any(not p.name.startswith('.') for p in paths.list_directory(model_dir)):
    raise errors.RunDirectoryError(
      'The model directory holds files, but no run',
      got=str(model_dir),
      expected=f'an empty or new directory, or a run with {TRAINER}',
      fix='give another --model_dir',
    )


def check_place(model_dir: pathlib.Path) -> None:
  """Refuses a file where the model directory should be."""
  is_bucket = paths.is_bucket(model_dir)  # whose folders need not exist
  if not is_bucket and model_dir.exists() and not model_dir.is_dir():
    raise errors.RunDirectoryError(
      'The model directory is a file',
      got=str(model_dir),
      expected='a directory or a name that does not exist yet',
    )


def claim_run_directory(
  model_dir: pathlib.Path,
  description: dict[str, Any],
  *,
  gin_config: str = '',
  other_config: OtherConfig = OtherConfig.REFUSE,
  run: str = '',
) -> None:
  """Makes the directory this run's own, or raises as `check_run_directory` does.

  Args:
    model_dir: the run's directory.
    description: of the run.
    gin_config: a gin file's text that builds the run; '' where none does.
    other_config: as in `check_run_directory`.
    run: what tells the run from others; '' takes what `model.json` says.
  """
  check_run_directory(model_dir, description, other_config=other_config)
  contents = {CONFIG: gin_config} if gin_config else {}
  marked = {**description, _RUN: run or run_id(model_dir)}
  manifests.write_files(
    model_dir, manifests.Kind.RUN, {TRAINER: as_json(marked)} | contents
  )


def _compare(model_dir, old, new, other_config) -> None:
  difference = config_serialization.config_difference(old, new)
  if difference and other_config is OtherConfig.REFUSE:
    raise errors.RunDirectoryError(
      "The model directory holds another configuration's run",
      got='\n--- the run in the directory\n+++ this configuration\n'
      + '\n'.join(difference)
      + '\n',
      where=str(model_dir),
      fix='give another --model_dir, or continue that run with the new '
      'settings by --on_config_mismatch=continue (docs/trouble.md#refused)',
    )


def write_part(
  model_dir: pathlib.Path, name: str, value: dict[str, Any], *, run: str = ''
) -> None:
  """Writes a JSON file that says which run it is of; see `write_json`.

  Args:
    model_dir: the run's directory.
    name: of the file.
    value: its content.
    run: what tells the run from others; '' takes what `model.json` says.
  """
  write_json(model_dir / name, {**value, _RUN: run or run_id(model_dir)})


def read_part(
  model_dir: pathlib.Path, name: str, *, of_any_run: bool = False
) -> dict[str, Any]:
  """What `write_part` was given.

  Args:
    model_dir: the run's directory.
    name: of the file.
    of_any_run: whether a file of another run is read as well.

  Raises:
    RunDirectoryError: the file is damaged, has been changed, or is another
      run's.
  """
  content = read_json(model_dir / name)
  theirs, ours = content.pop(_RUN, ''), run_id(model_dir)
  if theirs and ours and theirs != ours and not of_any_run:
    raise errors.RunDirectoryError(
      f'{name} is of another run',
      got=f'run {theirs}',
      expected=f'run {ours}, as {MODEL} says',
      where=str(model_dir / name),
      fix='restore the file, or the model.json beside it, from a copy of this '
      'run; `xlflax verify` says what else does not belong here',
    )
  return content


def write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
  """Writes a run's file of plain JSON, with its digest."""
  manifests.write_files(
    path.parent, manifests.Kind.RUN, {path.name: as_json(value)}
  )


def as_json(value: dict[str, Any]) -> str:
  """Plain JSON with its digest, as people may read and compare it."""
  text = json.dumps(
    checksums.add_digest(value), indent=2, sort_keys=True, ensure_ascii=False
  )
  return text + '\n'


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """What `write_json` wrote.

  Raises:
    RunDirectoryError: the file is damaged, or has been changed.
  """
  return checksums.read_json(
    path,
    error=errors.RunDirectoryError,
    what='A file of the run is damaged',
    own=True,
    fix=f'xlflax verify {path.parent} --repair',
  )


def run_id(model_dir: pathlib.Path) -> str:
  """What tells the files of one run from those of another; '' without any.

  Raises:
    RunDirectoryError: the file that says it is damaged.
  """
  return run_of(model_dir, MODEL)


def new_run_id() -> str:
  """What tells a run from all others."""
  return uuid.uuid4().hex


def content_of(model_dir: str | pathlib.Path) -> str | None:
  """What a run is, wherever it lies; None where that cannot be read."""
  try:
    run = run_id(paths.to_path(model_dir))
  except (errors.XlflaxError, OSError):
    return None
  return f'run {run}' if run else None


def run_of(model_dir: pathlib.Path, name: str) -> str:
  """The run that one of its files names; '' if it is not there.

  Raises:
    RunDirectoryError: the file is damaged.
  """
  path = model_dir / name
  return read_json(path).get(_RUN, '') if path.exists() else ''


def write_model(
  model_dir: pathlib.Path, model, *, vocabulary: Any = None, run: str = ''
) -> None:
  """Records the model's class and configuration, to build it again.

  Args:
    model_dir: the run's directory.
    model: the Linen module.
    vocabulary: the `Vocabulary` that the model's rows are in the order of;
      None keeps what is there.
    run: what tells the run from others; '' keeps what is there, or is new.
  """
  run = run or run_id(model_dir) or new_run_id()
  identity = vocabulary_of(model_dir)
  if vocabulary is not None:
    identity = VocabularyIdentity(vocabulary.spec.size, vocabulary.hash)
  described = {**config_serialization.to_json_config(model), _RUN: run}
  if identity is not None:
    described[_OF_VOCABULARY] = identity._asdict()
  write_json(model_dir / MODEL, described)


def vocabulary_of(model_dir: pathlib.Path) -> VocabularyIdentity | None:
  """The vocabulary that a run was trained with; None if it does not say.

  Raises:
    RunDirectoryError: the file that says it is damaged.
  """
  path = model_dir / MODEL
  recorded = read_json(path).get(_OF_VOCABULARY) if path.exists() else None
  if recorded is None:
    return None
  fields = VocabularyIdentity._fields
  if (
    not isinstance(recorded, dict)
    or set(recorded) != set(fields)
    or not isinstance(recorded['size'], int)
    or not all(isinstance(recorded[name], str) for name in fields[1:])
  ):
    raise errors.RunDirectoryError(
      'What a model says of its vocabulary cannot be read',
      got=repr(recorded)[:100],
      expected='its size and hash',
      where=str(path),
      fix='copy the whole model directory again',
    )
  return VocabularyIdentity(**recorded)


def read_model(model_dir: pathlib.Path):
  """The Linen module that `write_model` recorded.

  Raises:
    RunDirectoryError: the directory is no run, or in a bucket that cannot be
      read.
  """
  bucket_access.check_readable(model_dir)
  path = model_dir / MODEL
  if not path.exists():
    raise errors.RunDirectoryError(
      'This is no model directory',
      got=str(model_dir),
      expected=f'a directory with {MODEL}, as `xlflax train` makes it',
    )
  model = config_serialization.from_json_config(read_json(path))
  config = getattr(model, 'config', None)
  if not isinstance(model, nn.Module) or not dataclasses.is_dataclass(config):
    raise errors.RunDirectoryError(
      'What the run says of its model is none',
      got=type(model).__name__,
      expected='a model with its configuration',
      where=str(path),
    )
  return model


def copy_vocabulary(source: pathlib.Path, model_dir: pathlib.Path) -> None:
  """Copies the vocabulary's files, so that the run stands by itself.

  A copy that is there is kept (see `check_vocabulary`).
  """
  paths.copy_files(source, model_dir / VOCABULARY)
  note_vocabulary(model_dir)


def note_vocabulary(model_dir: pathlib.Path) -> None:
  """Puts the vocabulary's files into the run's manifest."""
  manifest = manifests.read_manifest(model_dir)
  names = [
    f'{VOCABULARY}/{path.name}'
    for path in paths.list_directory(model_dir / VOCABULARY)
    if not path.name.startswith('.')
  ]
  new = [name for name in names if not manifest or name not in manifest.files]
  if new:
    manifests.record_files(model_dir, manifests.Kind.RUN, new)


def copy_origin(
  sources: Iterable[str | pathlib.Path], model_dir: pathlib.Path
) -> None:
  """Copies the records of what a run starts from: model, sentence vectors.

  Args:
    sources: model directories that its parameters come from; the first that
      has a record counts.
    model_dir: the run's directory; a record that it has stays.
  """
  for name in (ORIGIN, SENTENCE):
    existing = [
      source
      for source in map(paths.to_path, sources)
      if (source / name).exists()
    ]
    if existing and not (name == SENTENCE and (model_dir / name).exists()):
      write_part(model_dir, name, read_part(existing[0], name))


def trained_by(model_dir: pathlib.Path) -> dict[str, Any]:
  """The trainer of a run, or of the first one of a mean; {} of what is bare."""
  for name in (TRAINER, AVERAGED):
    if (model_dir / name).exists():
      return read_part(model_dir, name)
  return {}


def check_vocabulary(source: pathlib.Path, model_dir: pathlib.Path) -> None:
  """Refuses another vocabulary than the one that the run has a copy of.

  Raises:
    RunDirectoryError: a file differs.
  """
  copy = model_dir / VOCABULARY
  for path in paths.list_directory(copy):
    other = source / path.name
    if not (other.exists() and path.read_bytes() == other.read_bytes()):
      raise errors.RunDirectoryError(
        "The vocabulary is not the one of the model directory's run",
        got=str(other),
        expected=f'the same as {path}',
        fix='train with the vocabulary that the run was started with, or '
        'give another --model_dir',
      )


def remove_leftovers(model_dir: pathlib.Path) -> None:
  """Removes what a killed process had not yet given its name."""
  for path in (
    () if paths.is_bucket(model_dir) else paths.list_directory(model_dir)
  ):
    if path.name.startswith('.') and path.name.endswith('.tmp'):
      shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
