"""Files in a model directory, each of which contains the run's identifier."""

import dataclasses
import enum
import json
import pathlib
import shutil
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from flax import linen as nn

from xlflax.storage import bucket_access, checksums, manifests, paths
from xlflax.training.checkpointing import config_serialization
from xlflax.utils import errors, name_suggestions

CONFIG = 'config.gin'
TRAINER = 'trainer.json'
# Trainer of the first run of an average of checkpoints.
AVERAGED = 'averaged_trainer.json'
MODEL = 'model.json'
OBJECTIVES = 'objectives.json'
VOCABULARY = 'vocabulary'
ORIGIN = 'huggingface.json'  # Published model from which the run started.
SENTENCE = 'sentence.json'  # Definition of the sentence embeddings.
METRICS = 'metrics.jsonl'
EVALUATION = 'eval'
TENSORBOARD = 'tensorboard'
REPORT = 'report'
# Output directory of `xlflax finetune`, which contains runs as trials.
GRID_TRIALS = 'trials'
GRID_RESULTS = 'grid.json'
_RUN_KEY = 'run'
_VOCABULARY_KEY = 'vocabulary'


class VocabularyIdentity(NamedTuple):
  """Identity of a vocabulary, which does not depend on its location.

  Attributes:
    size: Number of tokens in the vocabulary.
    hash: Hash of the content (`Vocabulary.hash`).
  """

  size: int
  hash: str

  def __str__(self) -> str:
    return f'{self.size:,} tokens, hash {self.hash[:12]}'


class OnConfigMismatch(enum.Enum):
  """Action to take if the model directory has a run with other settings."""

  ERROR = 'error'
  CONTINUE = 'continue'  # Resume with the new configuration and record it.


def check_run_directory(
  model_dir: pathlib.Path,
  description: dict[str, Any],
  *,
  on_config_mismatch: OnConfigMismatch = OnConfigMismatch.ERROR,
  can_resume: Callable[[], bool] = lambda: True,
) -> None:
  """Checks that a directory is empty or belongs to this run.

  Args:
    model_dir: Model directory of the run. It need not exist.
    description: Configuration of the run as JSON, from
      `config_serialization.to_json_config`.
    on_config_mismatch: Action if the directory contains a run with a different
      configuration.
    can_resume: Function that returns whether the run in the directory can be
      resumed with this configuration. The result determines the hint in the
      error message. The function may raise an error that states why the run
      cannot be resumed.

  Raises:
    RunDirectoryError: If the directory contains a different run (the message
      then shows the difference), or if it contains files but no run.
  """
  check_not_a_file(model_dir)
  if (model_dir / TRAINER).exists():
    is_strict = on_config_mismatch is OnConfigMismatch.ERROR
    saved_description = read_run_file(
      model_dir, TRAINER, allow_other_run=not is_strict
    )
    if is_strict:
      _check_same_config(model_dir, saved_description, description, can_resume)
  elif any(
    not path.name.startswith('.') for path in paths.list_directory(model_dir)
  ):
    raise errors.RunDirectoryError(
      'The model directory contains files, but no run. It must be empty or '
      f'new, or contain a run with the file {TRAINER}',
      got=str(model_dir),
      fix='Pass a different --model_dir.',
    )


def check_not_a_file(model_dir: pathlib.Path) -> None:
  """Checks that the path of a model directory is not a file.

  Raises:
    RunDirectoryError: If the path is a file.
  """
  is_bucket = paths.is_bucket(model_dir)  # Folders of buckets need not exist.
  if not is_bucket and model_dir.exists() and not model_dir.is_dir():
    raise errors.RunDirectoryError(
      'The path of the model directory is a file. It must be a directory, or a '
      'path that does not exist',
      got=str(model_dir),
    )


def claim_run_directory(
  model_dir: pathlib.Path,
  description: dict[str, Any],
  *,
  gin_config: str = '',
  on_config_mismatch: OnConfigMismatch = OnConfigMismatch.ERROR,
  run: str = '',
) -> None:
  """Checks a run's directory and writes the run's configuration to it.

  Args:
    model_dir: Model directory of the run.
    description: Configuration of the run as JSON, from
      `config_serialization.to_json_config`.
    gin_config: Text of a gin file that builds the run. If '', no gin file is
      written.
    on_config_mismatch: Action if the directory contains a run with a different
      configuration.
    run: Identifier of the run. If '', the identifier in `model.json` is used.

  Raises:
    RunDirectoryError: If the directory contains a different run (see
      `check_run_directory`).
  """
  check_run_directory(
    model_dir, description, on_config_mismatch=on_config_mismatch
  )
  contents = {CONFIG: gin_config} if gin_config else {}
  identified = {**description, _RUN_KEY: run or run_id(model_dir)}
  manifests.write_files(
    model_dir,
    manifests.Kind.RUN,
    {TRAINER: to_json_text(identified)} | contents,
  )


def _check_same_config(model_dir, old, new, can_resume) -> None:
  """Raises an error if two descriptions differ."""
  difference = [
    f'- {name}: {old_value}\n+ {name}: {new_value}'
    for name, old_value, new_value in config_serialization.config_difference(
      old, new
    )
  ]
  if difference:
    raise errors.RunDirectoryError(
      'The model directory contains a run with a different configuration',
      got='\n--- the run in the directory\n+++ this configuration\n'
      + '\n'.join(difference)
      + '\n',
      where=str(model_dir),
      fix='Pass a different --model_dir, or pass --on_config_mismatch=continue '
      'to resume that run with the new settings '
      '(docs/trouble.md#rejected-input).'
      if can_resume()
      else 'Pass a different --model_dir. That run cannot be resumed with the '
      'new settings, because its checkpoint does not fit the new model.',
    )


def write_run_file(
  model_dir: pathlib.Path, name: str, value: dict[str, Any], *, run: str = ''
) -> None:
  """Writes a JSON file of a run, and adds the run's identifier to the file.

  Args:
    model_dir: Model directory of the run.
    name: Name of the file in the model directory.
    value: Content of the file, as plain JSON.
    run: Identifier of the run. If '', the identifier in `model.json` is used.
  """
  write_json(model_dir / name, {**value, _RUN_KEY: run or run_id(model_dir)})


def read_run_file(
  model_dir: pathlib.Path, name: str, *, allow_other_run: bool = False
) -> dict[str, Any]:
  """Reads a file written by `write_run_file`.

  Args:
    model_dir: Model directory of the run.
    name: Name of the file in the model directory.
    allow_other_run: Whether to accept a file that belongs to a different run.

  Raises:
    RunDirectoryError: If the file is damaged or belongs to a different run.
  """
  content = read_json(model_dir / name)
  file_run, model_run = content.pop(_RUN_KEY, ''), run_id(model_dir)
  if file_run and model_run and file_run != model_run and not allow_other_run:
    raise errors.RunDirectoryError(
      f'{name} belongs to another run. The id of the run in this directory is '
      f'recorded in {MODEL}',
      got=file_run,
      expected=model_run,
      where=str(model_dir / name),
      fix='Restore the file from a backup of this run. If the id in '
      f'{MODEL} is wrong, restore {MODEL} instead. Run `xlflax verify` to find '
      'other files that do not belong to this run.',
    )
  return content


def write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
  """Writes a JSON file with its digest, and lists it in the run's manifest."""
  manifests.write_files(
    path.parent, manifests.Kind.RUN, {path.name: to_json_text(value)}
  )


def to_json_text(value: dict[str, Any]) -> str:
  """Formats a value as readable JSON with its digest."""
  text = json.dumps(
    checksums.add_digest(value), indent=2, sort_keys=True, ensure_ascii=False
  )
  return text + '\n'


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Reads a file written by `write_json`.

  Raises:
    RunDirectoryError: If the file is damaged.
  """
  return checksums.read_json(
    path,
    error=errors.RunDirectoryError,
    message='A file in the model directory is damaged',
    has_digest=True,
    fix=f'Run `xlflax verify {path.parent} --repair`.',
  )


def run_id(model_dir: pathlib.Path) -> str:
  """Returns the identifier of a run, as recorded in `model.json`.

  Returns '' if the directory does not contain a model.

  Raises:
    RunDirectoryError: If `model.json` is damaged.
  """
  return read_run_id(model_dir, MODEL)


def new_run_id() -> str:
  """Generates a unique identifier for a new run."""
  return uuid.uuid4().hex


def content_identity(model_dir: str | pathlib.Path) -> str | None:
  """Returns an identifier of a run that does not depend on its location.

  For example, 'run 3f2a…'. Returns None if the identifier of the run cannot be
  read.
  """
  try:
    run = run_id(paths.to_path(model_dir))
  except (errors.XlflaxError, OSError):
    return None
  return f'run {run}' if run else None


def read_run_id(model_dir: pathlib.Path, name: str) -> str:
  """Returns the identifier of the run to which a file belongs.

  Args:
    model_dir: Model directory of the run.
    name: Name of the file in the model directory.

  Returns:
    The identifier, or '' if the file does not exist.

  Raises:
    RunDirectoryError: If the file is damaged.
  """
  path = model_dir / name
  return read_json(path).get(_RUN_KEY, '') if path.exists() else ''


def write_model(
  model_dir: pathlib.Path, model, *, vocabulary: Any = None, run: str = ''
) -> None:
  """Records a model's class and configuration in `model.json`.

  Args:
    model_dir: Model directory of the run.
    model: Linen module to record.
    vocabulary: `Vocabulary` that defines the order of the embedding table. If
      None, the recorded vocabulary is kept.
    run: Identifier of the run. If '', the recorded identifier is used, or a new
      one is generated.
  """
  run = run or run_id(model_dir) or new_run_id()
  identity = read_vocabulary_identity(model_dir)
  if vocabulary is not None:
    identity = VocabularyIdentity(vocabulary.spec.size, vocabulary.hash)
  description = {**config_serialization.to_json_config(model), _RUN_KEY: run}
  if identity is not None:
    description[_VOCABULARY_KEY] = identity._asdict()
  write_json(model_dir / MODEL, description)


def read_vocabulary_identity(
  model_dir: pathlib.Path,
) -> VocabularyIdentity | None:
  """Returns the size and hash of a run's vocabulary, or None if not recorded.

  Raises:
    RunDirectoryError: If `model.json` is damaged.
  """
  path = model_dir / MODEL
  recorded = read_json(path).get(_VOCABULARY_KEY) if path.exists() else None
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
      'The record of the vocabulary is invalid. It must contain the size and '
      'the hash of the vocabulary',
      got=repr(recorded)[:100],
      where=str(path),
      fix='Copy the complete model directory again.',
    )
  return VocabularyIdentity(**recorded)


def suggest_model_directory(
  directory: pathlib.Path, *, initializes: bool = False
) -> str | None:
  """Returns a hint for a path that is not a model directory.

  Hints exist for directories in or above a model directory, and for models of
  Hugging Face and their files.

  Args:
    directory: Path that is not a model directory.
    initializes: Whether the directory is the run from which a new run is
      initialized. For a checkpoint, the hint then contains the settings of
      training that select a checkpoint.
  """
  folder = directory.parent if directory.is_file() else directory
  if (folder / 'config.json').exists():
    return (
      f'The directory {folder} contains a Hugging Face model. Convert the '
      f'model with `xlflax convert from-hf {folder} --output=RUN`, and pass RUN.'
    )
  if (folder / 'adapter_config.json').exists():
    return (
      f'The directory {folder} contains an adapter of the PEFT library. Add '
      f'the adapter to a model with `xlflax convert from-peft {folder} '
      '--model_dir=MODEL_DIR --output=RUN`, and pass RUN.'
    )
  for parent in list(directory.parents)[:2]:
    if (parent / MODEL).exists():
      return _suggest_parent_run(directory, parent, initializes=initializes)
  runs = sorted(path.parent for path in directory.glob(f'*/{MODEL}'))
  if runs:
    return (
      'Pass one of the model directories in this directory: '
      f'{name_suggestions.format_names(list(map(str, runs)))}.'
    )
  trials = sorted(
    path.parent
    for pattern in ('trials/*', '*/trials/*')
    for path in directory.glob(f'{pattern}/{MODEL}')
  )
  if trials:
    return (
      'The directory contains trials of `xlflax finetune`. Pass one of the '
      f'trials, such as {trials[0]}.'
    )
  return None


def _suggest_parent_run(
  directory: pathlib.Path, run: pathlib.Path, *, initializes: bool
) -> str:
  """Returns a hint for a directory inside the model directory of a run."""
  hint = f'Pass the model directory, {run}.'
  if directory.parent == run or not directory.name.isdecimal():
    return hint
  step = directory.name
  hint = f'The directory is a checkpoint of a run. {hint}'
  if initializes:
    return (
      f'{hint} To select the checkpoint, pass '
      '--gin.INIT_FROM="@initialization.InitFromCheckpoint()" '
      f'--gin.initialization.InitFromCheckpoint.model_dir="\'{run}\'" '
      f'--gin.initialization.InitFromCheckpoint.step={step}. With a gin file '
      f'in finetune/, only add --gin.INIT_STEP={step}.'
    )
  return (
    f'{hint} To select the checkpoint, add --gin.INIT_STEP={step} in `xlflax '
    f'finetune`, --checkpoint_steps={step} in `xlflax evaluate`, or '
    f'--step={step} in `xlflax convert to-hf`.'
  )


def read_model(model_dir: pathlib.Path):
  """Builds the Linen module recorded by `write_model`.

  Raises:
    RunDirectoryError: If the directory does not contain a run, or is in a
      bucket that cannot be read.
  """
  bucket_access.check_readable(model_dir)
  path = model_dir / MODEL
  if not path.exists():
    raise errors.RunDirectoryError(
      'The directory is not a model directory. A model directory contains '
      f'{MODEL}, which `xlflax train` writes',
      got=str(model_dir),
      fix=suggest_model_directory(model_dir),
    )
  model = config_serialization.from_json_config(read_json(path))
  config = getattr(model, 'config', None)
  if not isinstance(model, nn.Module) or not dataclasses.is_dataclass(config):
    raise errors.RunDirectoryError(
      f'{MODEL} does not describe a valid model. The model must be a Linen '
      'module whose `config` is a dataclass',
      got=type(model).__name__,
      where=str(path),
    )
  return model


def copy_vocabulary(
  source: pathlib.Path, model_dir: pathlib.Path, *, replace: bool = False
) -> None:
  """Copies a vocabulary's files to the model directory of a run.

  Args:
    source: Directory that contains the vocabulary.
    model_dir: Model directory of the run.
    replace: Whether to replace an existing copy whose content differs. By
      default, an existing copy is kept (see `check_vocabulary`).
  """
  copy = model_dir / VOCABULARY
  if replace and _different_file(source, copy) is not None:
    files = paths.list_directory(copy)
    manifests.forget_files(
      model_dir, [f'{VOCABULARY}/{path.name}' for path in files]
    )
    for path in files:
      path.unlink()
    if not paths.is_bucket(copy):
      copy.rmdir()
  paths.copy_files(source, copy)
  record_vocabulary(model_dir)


def record_vocabulary(model_dir: pathlib.Path) -> None:
  """Adds the vocabulary's files to the manifest of the model directory."""
  manifest = manifests.read_manifest(model_dir)
  names = [
    f'{VOCABULARY}/{path.name}'
    for path in paths.list_directory(model_dir / VOCABULARY)
    if not path.name.startswith('.')
  ]
  unlisted = [
    name for name in names if not manifest or name not in manifest.files
  ]
  if unlisted:
    manifests.record_files(model_dir, manifests.Kind.RUN, unlisted)


def copy_origin(
  sources: Iterable[str | pathlib.Path], model_dir: pathlib.Path
) -> None:
  """Copies a published model's metadata to a run that is initialized from it.

  The metadata identify the model and define its sentence embeddings.

  Args:
    sources: Model directories from which parameters are initialized. Each
      metadata file is copied from the first directory that contains it.
    model_dir: Model directory of the run. Existing metadata about sentence
      embeddings is kept.
  """
  for name in (ORIGIN, SENTENCE):
    existing = [
      source
      for source in map(paths.to_path, sources)
      if (source / name).exists()
    ]
    if existing and not (name == SENTENCE and (model_dir / name).exists()):
      write_run_file(model_dir, name, read_run_file(existing[0], name))


def read_trainer(model_dir: pathlib.Path) -> dict[str, Any]:
  """Returns the trainer settings that are recorded in a model directory.

  For the mean of several runs, they are the settings of the first run. Returns
  {} if the directory contains no trainer settings.
  """
  for name in (TRAINER, AVERAGED):
    if (model_dir / name).exists():
      return read_run_file(model_dir, name)
  return {}


def check_vocabulary(source: pathlib.Path, model_dir: pathlib.Path) -> None:
  """Checks that a vocabulary equals the model directory's copy.

  Args:
    source: Directory that contains the vocabulary.
    model_dir: Model directory of the run.

  Raises:
    RunDirectoryError: If a file of the copy is missing from `source` or has
      different content.
  """
  path = _different_file(source, model_dir / VOCABULARY)
  if path is not None:
    raise errors.RunDirectoryError(
      'A vocabulary file differs from its copy in the model directory. It must '
      f'have the same content as {path}',
      got=str(source / path.name),
      where=str(model_dir),
      fix='To resume the run, pass the vocabulary with which it was started '
      '(--vocabulary). To start a new run, pass a different --model_dir.',
    )


def _different_file(
  source: pathlib.Path, copy: pathlib.Path
) -> pathlib.Path | None:
  """Returns the first file of a copied vocabulary that differs, or None."""
  for path in paths.list_directory(copy):
    other = source / path.name
    if not (other.exists() and path.read_bytes() == other.read_bytes()):
      return path
  return None


def remove_leftovers(model_dir: pathlib.Path) -> None:
  """Removes temporary files that a killed process left behind."""
  if paths.is_bucket(model_dir):
    return
  for path in paths.list_directory(model_dir):
    if path.name.startswith('.') and path.name.endswith('.tmp'):
      shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
